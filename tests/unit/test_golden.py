"""The golden pages, which hold the sentences that people see."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import sections

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("page", sorted(TESTS.rglob("golden.txt")), ids=lambda page: page.parent.name)
def test_every_section_of_a_golden_page_belongs_to_a_test(page: Path) -> None:
    for name in sections(page):
        test, _, function = name.partition("::")
        assert f"def {function.partition('[')[0]}(" in (page.parent / test).read_text(encoding="utf-8"), name
