"""Positions in the pictures of studies: strip of releases and forest plot."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.studies.comparison import report as comparison
from scalescope.studies.comparison.judge import ComparisonDecision, ComparisonQuestion, PairedComparison
from scalescope.studies.release import report as release
from scalescope.studies.report import pictures

RATIOS = st.floats(0.001, 1000)


def forest(members):
    return pictures.forest(members, comparison.whole_table(members))


@pytest.fixture(scope="module")
def member(comparison_study):
    rng = random.Random(1)
    pairs = [(10 * rng.gauss(1, 0.02), 11 * rng.gauss(1, 0.02)) for _ in range(20)]
    return comparison.members(comparison_study({"bag-map": pairs}).study)[0]


def test_the_strip_of_releases_has_every_candidate_and_one_boundary(release_study):
    made = release_study(["1", "2", "3", "4", "5"], lambda place: None if place == 2 else 404 if place > 2 else 804)
    steps = release.candidates(made.study, made.runs)
    assert [(step.label, step.style) for step in steps] == [
        ("1", "good"),
        ("2", "good"),
        ("3", "unavailable"),
        ("4", "bad"),
        ("5", "bad"),
    ]
    assert [step.label for step in steps if step.boundary == "first bad"] == ["4"]
    untried = release.candidates(replace(made.study, result={}), [])
    assert {step.style for step in untried} == {"open"}


def test_a_slower_comparison_is_drawn_right_of_ratio_1_with_its_interval(member):
    found = forest([member])
    [whisker] = found.shown
    assert found.one < whisker.left < whisker.at < 100 - whisker.right < 100
    assert found.hidden == ()


def test_the_axis_of_a_forest_plot_is_logarithmic(member):
    double, half = (replace(member, ratio=ratio, low=ratio, high=ratio) for ratio in (2.0, 0.5))
    found = forest([double, half])
    places = [whisker.at for whisker in found.shown]
    assert found.one == pytest.approx(50)
    assert places[0] - 50 == pytest.approx(50 - places[1])
    ticks = {text: place for place, text in found.ticks}
    assert ticks["2"] == pytest.approx(places[0])


def test_an_infinite_ratio_is_drawn_at_the_end_of_the_axis(member):
    endless = replace(member, ratio=math.inf, low=math.inf, high=math.inf)
    alone, beside = forest([member]), forest([member, endless])
    assert beside.shown[1].at == 100
    assert replace(beside.shown[0], cells=()) == replace(alone.shown[0], cells=())
    zero = replace(member, ratio=0.0, low=0.0, high=0.0)
    assert forest([zero]).shown[0].at == 0


def test_a_comparison_without_valid_pairs_has_no_mark(comparison_study):
    made = comparison_study({"bag-map": [(None, 1.0)] * 7})
    [whisker] = forest(comparison.members(made.study)).hidden
    assert whisker.at is None


@given(st.lists(st.tuples(RATIOS, RATIOS, RATIOS).map(sorted), min_size=1, max_size=6))
def test_marks_lie_on_the_axis_and_its_numbers_do_not_overlap(ends):
    members = [
        PairedComparison(
            ComparisonQuestion(), ratio, low, high, 0.5, None, 9, 0, 0, 0.1, ComparisonDecision.UNDECIDED, ""
        )
        for low, ratio, high in ends
    ]
    found = forest(members)
    for whisker in found.hidden:
        assert 0 <= whisker.left <= whisker.at <= 100 - whisker.right + 1e-6 <= 100 + 1e-6
    places = [place for place, _ in found.ticks]
    assert all(after - before >= 100 * pictures.APART for before, after in itertools.pairwise(places))
    assert "1" in [text for _, text in found.ticks]
