"""Sentences that people see, one golden page for each module of tests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

Golden = Callable[[str], None]
RENEW = "RENEW_GOLDEN"  # variable: `RENEW_GOLDEN=1 pytest FILE` writes the page of that file anew


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a sentence with the one on the page for this test."""
    page = request.path.parent / "golden" / f"{request.path.stem}.json"
    said: list[str] = []

    def compare(sentence: str) -> None:
        said.append(sentence)
        known = json.loads(page.read_text(encoding="utf-8")) if page.exists() else {}
        if os.environ.get(RENEW):
            known[request.node.name] = said
            page.parent.mkdir(exist_ok=True)
            page.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        assert known[request.node.name][: len(said)] == said

    return compare
