from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from support.pages import Page

from scalescope.report.html.difference import render_difference, steps
from scalescope.report.run_difference import RunDifference

HOSTILE = "</script><script>stolen()</script><img src=x onerror='stolen()'>{{7*7}}"


def test_the_page_of_a_difference_reads_like_this(
    two_runs: Callable[..., RunDifference], golden: Callable[..., Any]
) -> None:
    golden("\n".join(" ".join(words.split()) for words in Page(render_difference(two_runs())).words if words.strip()))


def test_bars_lead_from_a_to_b_without_a_gap(two_runs: Callable[..., RunDifference]) -> None:
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
