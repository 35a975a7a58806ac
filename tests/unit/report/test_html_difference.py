from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from support.pages import Page

from scalescope.report.html.difference import render_difference, steps
from scalescope.report.run_difference import RunDifference

HOSTILE = "</script><script>stolen()</script><img src=x onerror='stolen()'>{{7*7}}"


def test_the_text_of_the_difference_page_matches_its_golden_page(
    two_runs: Callable[..., RunDifference], golden: Callable[..., Any]
) -> None:
    golden("\n".join(" ".join(words.split()) for words in Page(render_difference(two_runs())).words if words.strip()))


def test_bars_of_the_difference_lead_from_run_a_to_run_b_without_a_gap(two_runs: Callable[..., RunDifference]) -> None:
    found = two_runs()
    a, *parts, b = steps(found)
    assert (a.left, b.left) == (0, 0)
    assert b.right == 0 < a.right
    assert a.right == pytest.approx(100 * (1 - found.found.a_s / found.found.b_s))
    ends = [100 - a.right, *(100 - part.right for part in parts)]
    assert all(part.left == pytest.approx(end) for part, end in zip(parts, ends, strict=False))
    assert all(left <= right for left, right in pairwise(ends))
    assert ends[-1] == pytest.approx(100)


def test_names_from_outside_add_no_element_and_no_script(two_runs: Callable[..., RunDifference]) -> None:
    text = render_difference(two_runs(lambda name: HOSTILE + name))
    page, healthy = Page(text), Page(render_difference(two_runs()))
    assert len(page.all("script")) == len(healthy.all("script"))
    assert page.all("img") == []
    assert "stolen" not in json.dumps(page.elements[:20])
    assert "{{7*7}}" in "".join(page.words)


def test_the_difference_in_money_is_divided_among_the_parts_if_prices_are_known(
    two_runs: Callable[..., RunDifference],
) -> None:
    found = two_runs()
    assert found.table().heads[2] != "EUR"
    priced = replace(found, prices=(1 / 3600, 3 / 3600), currency="EUR")
    at = priced.table().heads.index("EUR")
    *parts, total = [float(row.cells[at]) for row in priced.table().rows]
    assert total == pytest.approx(sum(parts), rel=0.01)
    assert (
        total
        == pytest.approx(priced.money[1] - priced.money[0], rel=0.01)
        == pytest.approx((3 * 12 - 8) / 3600, rel=0.01)
    )
    assert "EUR" in render_difference(priced)
    assert priced.to_mapping()["money"]["currency"] == "EUR"
