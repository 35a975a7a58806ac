from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis.summary import MeanInterval, interval, label, summarise, varied
from scalescope.model.sweep import Point
from scalescope.model.trial import TrialState


def test_a_summary_has_one_row_per_point_in_the_order_of_the_axes(bag_trial):
    trials = [bag_trial(w, [1] * i) for w, i in [(10, 2), (2, 10), (2, 1), (10, 1)]]
    assert [(s.point.workers, s.point.items) for s in summarise(trials)] == [(2, 1), (2, 10), (10, 1), (10, 2)]


def test_points_are_sorted_even_if_a_parameter_has_values_of_different_types(bag_trial):
    values = ["items", 4, None, 2.5, True]
    rows = summarise([bag_trial(2, [1, 1], params={"npartitions": value}) for value in values])
    assert [row.point.params["npartitions"] for row in rows] == [None, True, 2.5, 4, "items"]


def test_a_row_holds_the_medians_over_repeats(bag_trial):
    trials = [bag_trial(2, [size, size], repeat=i, params={"items": 2}) for i, size in enumerate([1, 9, 2])]
    (row,) = summarise(trials)
    assert row.metrics is not None
    assert (row.valid, row.metrics.makespan_s, row.metrics.tasks) == (3, 2, 2)
    assert row.metrics.worker_time_s["busy"] == pytest.approx(2 * 4)
    assert row.seconds("busy") == pytest.approx(2 * 12)
    assert row.share("busy", "tail") == pytest.approx(1)


def test_warmups_and_failed_or_invalid_trials_do_not_enter_the_medians(bag_trial):
    good = bag_trial(2, [1, 1], warnings=("memory was not sampled",))
    trials = [
        good,
        replace(bag_trial(2, [1, 1]), warmup=True, state=TrialState.FAILED, reason="ignored"),
        replace(good, state=TrialState.FAILED, reason="ValueError: x", metrics=None),
        replace(good, state=TrialState.INVALID, reason="lost 1 of 2 workers"),
        replace(good, state=TrialState.INVALID, reason="lost 1 of 2 workers"),
    ]
    (row,) = summarise(trials)
    assert (row.valid, row.failed, row.invalid) == (1, 1, 2)
    assert [(r.state, r.text, r.count) for r in row.reasons] == [
        ("invalid", "lost 1 of 2 workers", 2),
        ("failed", "ValueError: x", 1),
    ]
    assert row.warnings == ("memory was not sampled",)
    assert row.intervals == {"efficiency": MeanInterval(1.0)}


def test_a_point_without_a_valid_trial_has_no_numbers(bag_trial):
    (row,) = summarise([replace(bag_trial(2, [1]), state=TrialState.INVALID, reason="x")])
    assert row.metrics is None
    assert row.intervals == {}
    assert (row.share("busy"), row.seconds("busy")) == (0, 0)


def test_a_summary_of_no_trials_is_empty():
    assert summarise([]) == ()


def test_the_interval_of_the_mean_agrees_with_a_calculation_by_hand():
    # log(0.4), log(0.5): mean log(sqrt(0.2)), deviation log(1.25)/sqrt(2), t(0.975, 1) = 12.7062
    half = 12.7062 * math.log(1.25) / 2
    estimate = interval([0.4, 0.5])
    assert estimate.mean == pytest.approx(math.sqrt(0.2))
    assert estimate.low == pytest.approx(math.sqrt(0.2) * math.exp(-half), rel=1e-4)
    assert estimate.high == pytest.approx(math.sqrt(0.2) * math.exp(half), rel=1e-4)
    assert not estimate.exact


def test_the_interval_of_an_efficiency_ends_at_one(bag_trial):
    trials = [bag_trial(2, [1, size], repeat=i, params={"items": 2}) for i, size in enumerate([1, 1])]
    slow = replace(trials[1], metrics=replace(trials[1].metrics, efficiency=0.8))
    (row,) = summarise([trials[0], slow])
    mean = row.intervals["efficiency"]
    assert mean.high == 1.0
    assert mean.low is not None
    assert mean.low < 0.8


def test_one_repeat_has_no_interval_and_equal_repeats_have_an_exact_one():
    assert interval([0.5]) == MeanInterval(0.5)
    assert interval([0.5, 0.5]) == MeanInterval(0.5, 0.5, 0.5)
    assert interval([0.5, 0.5]).exact
    assert interval([0.0, 0.5]) == MeanInterval(0.25)
    assert interval([0.0, 0.0]) == MeanInterval(0.0)
    with pytest.raises(ValueError, match="at least one"):
        interval([])


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=20))
def test_the_interval_holds_the_mean_and_stays_positive(values):
    estimate = interval(values)
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 <= estimate.low <= estimate.mean * (1 + 1e-12)
    assert estimate.mean <= estimate.high * (1 + 1e-12)


def test_labels_of_points_show_only_what_differs():
    points = [
        Point(2, 1, {"items": 2, "seconds": 1.0, "size": None}, {"a.b": 1}),
        Point(4, 2, {"items": 4, "seconds": 1.0, "size": 3}, {}),
    ]
    assert varied(points) == ("threads_per_worker", "size", "a.b")  # a setting of some points only differs too
    assert label(points[0], varied(points)) == "2 workers, 2 items, threads_per_worker=1, size=None, a.b=1"
    assert label(points[1], varied(points)) == "4 workers, 4 items, threads_per_worker=2, size=3"
    assert label(Point(1, 1, {"items": 1})) == "1 worker, 1 item"
    assert label(Point(1000)) == "1,000 workers"
