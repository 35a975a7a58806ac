"""The code on the page of causes: the first half has its cause, the second has not."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import matrix
from cases import Case

FILE = Path(__file__).parents[2] / "docs" / "cause_examples.py"
NAMES = re.findall(r"^def (\w+)\(client\)", FILE.read_text(encoding="utf-8"), re.M)
MENDED = "_mended"


def code_of(name: str) -> str:
    return name.removesuffix(MENDED).replace("_", "-")


CODES_OF_EXAMPLES = set(map(code_of, NAMES))


@pytest.fixture(scope="module")
def named() -> dict[str, tuple[str, ...]]:
    """The codes that were found, by function, worst first."""
    cases = [Case(name, code_of(name), f"{FILE}:{name}", (16,)) for name in NAMES]
    return {result.case.name: result.codes for result in matrix.run(cases)}


def test_each_has_its_cause_until_it_is_mended(named: dict[str, tuple[str, ...]]) -> None:
    assert len(NAMES) >= 30
    assert {name: named[name] for name in NAMES if MENDED not in name and named[name][0] != code_of(name)} == {}
    assert {name: named[name] for name in NAMES if MENDED in name and code_of(name) in named[name]} == {}
    assert {name + MENDED for name in NAMES if MENDED not in name} == {name for name in NAMES if MENDED in name}
