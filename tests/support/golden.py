"""Golden pages: the sentences that people see, compared whole, a section for each test that has some.

`golden(finding)` compares with the test's section of `golden.txt`, in the folder of the tests or one above it.
`RENEW=1 python -m pytest FOLDER` writes the sections of all tests that run, and drops those of tests that are gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scalescope.model.finding import Finding, Verdict

HEAD = "======== "
RENEW = bool(os.environ.get("RENEW"))


def told(shown: object) -> str:
    """A finding or verdict as people read it, with the code and the severity; anything else as text."""
    if isinstance(shown, Finding):
        return f"{shown.code}, {shown.severity}: {shown.summary}\n" + (f"Fix: {shown.fix}." if shown.fix else "")
    if isinstance(shown, Verdict):
        return f"Verdict, {shown.severity}: {shown.text}"
    return str(shown)


Compare = Callable[..., Any]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Compare:
    """Compares all that a test shows with its section, and returns the first of it."""
    return _compared(request, request.node.name)


@pytest.fixture
def golden_once(request: pytest.FixtureRequest) -> Compare:
    """The same for a test of many sizes: only its first case has a section."""
    cases = getattr(request.node, "callspec", None)
    first = cases is None or not any(cases.indices.values())
    return _compared(request, request.node.originalname) if first else lambda *shown: next(iter(shown), None)


def _compared(request: pytest.FixtureRequest, name: str) -> Compare:
    page = next(found for folder in request.path.parents if (found := folder / "golden.txt").exists())
    test = request.path.relative_to(page.parent).as_posix()

    def compare(*shown: Any) -> Any:
        text = "\n".join(line.rstrip() for each in shown for line in told(each).strip("\n").splitlines())
        if RENEW:
            _renew(page, test, name, text)
        assert text == sections(page).get(f"{test}::{name}", "")
        return next(iter(shown), None)

    return compare


def sections(page: Path) -> dict[str, str]:
    parts = page.read_text(encoding="utf-8").split(HEAD)[1:]
    return {head: text.strip("\n") for head, _, text in (part.partition("\n") for part in parts)}


@cache
def _begun(page: Path, test: str) -> None:
    """Drop the sections of a file of tests, all of which run now."""
    _write(page, {name: text for name, text in sections(page).items() if name.partition("::")[0] != test})


def _renew(page: Path, test: str, name: str, text: str) -> None:
    _begun(page, test)
    if text:
        _write(page, sections(page) | {f"{test}::{name}": text})


def _write(page: Path, found: dict[str, str]) -> None:
    texts = (f"{HEAD}{name}\n\n{text}\n" for name, text in sorted(found.items()))
    page.write_text("\n".join(texts), encoding="utf-8")
