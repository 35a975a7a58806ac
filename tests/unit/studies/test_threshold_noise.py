"""The search for thresholds where two trials of a value differ."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from scalescope.studies.threshold.curve import interval, study
from scalescope.studies.threshold.judge import CurveShape, Threshold, judge
from scalescope.studies.threshold.question import ThresholdQuestion, ThresholdReading, tabulate
from scalescope.studies.threshold.search import further

Curve = Callable[[float], float]
SEARCHES = 10
SMOOTH: dict[str, Curve] = {
    "constant": lambda x: 100,
    "linear": lambda x: 3 * x + 40,
    "sqrt": math.sqrt,
    "1/x": lambda x: 1 + 300 / x,
    "usl": lambda x: x / (1 + 0.02 * (x - 1) + 0.00003 * x * (x - 1)),
    "capped": lambda x: min(x, 100),
}


def search(question: ThresholdQuestion, curve: Curve, cv: float, seed: int, *, outliers: float = 0.0) -> Threshold:
    """Measures points until no more are needed; a share of the values (`outliers`) is 1.5 times as high."""
    rng = random.Random(seed)
    readings: list[ThresholdReading] = []
    while values := further(question, readings):
        for value in values:
            noise = math.exp(rng.gauss(0, cv)) * (1.5 if rng.random() < outliers else 1.0)
            readings.append(ThresholdReading(value, curve(value) * noise))
    asked = Counter(reading.value for reading in readings)
    assert len(asked) <= question.max_points
    assert max(asked.values()) <= question.max_repeats
    return judge(question, readings)


def step(at: int, factor: float) -> Curve:
    return lambda x: 100 * (factor if x > at else 1)


@pytest.mark.parametrize("cv", [0.01, 0.03, 0.05])
def test_a_jump_by_a_factor_of_two_is_found_exactly_despite_noise(cv: float) -> None:
    missed = 0
    for seed in range(SEARCHES):
        at, factor = random.Random(seed).randrange(90, 360), (0.5, 2.0)[seed % 2]
        threshold = search(ThresholdQuestion(50, 400, noisy=True), step(at, factor), cv, seed)
        missed += (at, at + 1) not in [(jump.left, jump.right) for jump in threshold.jumps if jump.exact]
    assert missed <= 1


@pytest.mark.parametrize("name", SMOOTH)
def test_false_jumps_on_smooth_curves_with_noise_are_rare(name: str) -> None:
    question = ThresholdQuestion(1, 300, noisy=True)
    assert sum(bool(search(question, SMOOTH[name], 0.03, seed).jumps) for seed in range(SEARCHES)) <= 1


def test_the_reported_beam_threshold_is_found_despite_noise() -> None:
    threshold = search(
        ThresholdQuestion(50, 400, noisy=True, metric="wall time", axis="items"),
        lambda items: 4 * items + 4 if items < 200 else 404,
        0.02,
        seed=1,
    )
    assert [(jump.left, jump.right, jump.exact) for jump in threshold.jumps] == [(199, 200, True)]
    assert " points measured, " in threshold.line
    assert threshold.trials > threshold.points


def test_points_are_repeated_only_if_noise_leaves_the_jump_undecided() -> None:
    quiet = search(ThresholdQuestion(50, 400, noisy=True), step(199, 2.0), 0.002, seed=1)
    loud = search(ThresholdQuestion(50, 400, noisy=True), step(199, 2.0), 0.05, seed=1)
    assert quiet.trials <= 2.5 * quiet.points
    assert loud.trials > 3.5 * loud.points
    careless = search(ThresholdQuestion(50, 400, noisy=True, min_jump=0.3), step(199, 2.0), 0.03, seed=1)
    assert [jump.left for jump in careless.jumps] == [199]
    assert careless.trials <= 2.5 * careless.points


@pytest.mark.parametrize("repeats", [5, 20])
def test_a_jump_as_small_as_the_noise_is_never_placed_at_a_wrong_value(repeats: int) -> None:
    """It is found, or an interval contains it, or the answer tells that noise hides jumps of this size."""
    placed = 0
    for seed in range(10):
        question = ThresholdQuestion(50, 400, noisy=True, max_repeats=repeats, max_points=20, min_jump=0.03)
        threshold = search(question, step(199, 1.05), 0.05, seed)
        named = [(jump.left, jump.right) for jump in threshold.jumps]
        placed += bool(named) and not any(low <= 199 < high for low, high in named)
        assert named or threshold.unresolved or threshold.smallest > 0.05
    assert placed == 0


def test_a_weak_jump_is_found_exactly_or_bracketed_or_is_smaller_than_the_visible_size() -> None:
    question = ThresholdQuestion(50, 400, noisy=True, max_points=20, metric="wall time", axis="items")
    found = [search(question, step(199, 1.15), 0.05, seed) for seed in range(SEARCHES)]
    for threshold in found:
        assert all(jump.left <= 199 < jump.right for jump in threshold.jumps)
        assert threshold.jumps or threshold.unresolved or threshold.smallest > 0.15 / 1.15
    assert sum(any(jump.exact for jump in threshold.jumps) for threshold in found) >= SEARCHES / 5
    bracketed = [threshold for threshold in found if any(not jump.exact for jump in threshold.jumps)]
    assert bracketed
    assert all(" somewhere between items " in threshold.line for threshold in bracketed)
    assert all("5 trials of a point" in threshold.line for threshold in bracketed)
    assert not any(threshold.resolved for threshold in bracketed)


@pytest.mark.parametrize(("middle", "expected"), [(100, (5, 6)), (105, (4, 6)), (111, (4, 5))])
def test_the_interval_of_a_jump_includes_a_value_between_both_levels(middle: float, expected: tuple[int, int]) -> None:
    question = ThresholdQuestion(0, 110, step=10, noisy=True)
    levels = [100.0, 100, 100, 100, 100, middle, 111, 111, 111, 111, 111, 111]
    readings = [
        ThresholdReading(10 * n, level * factor) for n, level in enumerate(levels) for factor in (0.97, 1, 1.03)
    ]
    table = tabulate(question, readings)
    nearest = min((4, 5), key=lambda n: -abs(levels[n + 1] - levels[n]))
    curve = replace(study(question, table), breaks=frozenset({nearest}))
    assert interval(question, table, curve, nearest) == expected


def test_a_noisy_change_that_takes_two_steps_is_not_exact() -> None:
    question = ThresholdQuestion(0, 100, step=10, noisy=True, metric="wall time", axis="items", max_points=11)
    levels = {value: 100.0 if value < 50 else 120.0 for value in range(0, 101, 10)} | {50: 110.0}
    readings = [
        ThresholdReading(value, level * factor) for value, level in levels.items() for factor in (0.97, 1, 1.03)
    ]
    threshold = judge(question, readings)
    [jump] = threshold.jumps
    assert (jump.left, jump.right, jump.exact, jump.why_not_exact) == (40, 60, False, "the change takes 2 steps")


def test_strong_noise_gives_no_exact_jump_but_a_large_smallest_visible_jump() -> None:
    threshold = search(ThresholdQuestion(50, 400, noisy=True, max_points=12), step(199, 1.1), 0.3, seed=3)
    assert not [jump for jump in threshold.jumps if jump.exact]
    assert threshold.smallest > 0.5


def test_outliers_rarely_cause_a_false_jump() -> None:
    alarms = 0
    for seed in range(SEARCHES):
        threshold = search(ThresholdQuestion(50, 400, noisy=True), lambda x: 100, 0.02, seed, outliers=0.05)
        alarms += bool(threshold.jumps)
    assert alarms <= 1


def test_a_metric_of_zero_has_no_noise() -> None:
    threshold = search(ThresholdQuestion(50, 400, noisy=True), lambda x: 0, 0.05, seed=1)
    assert (threshold.shape, threshold.resolved) == (CurveShape.NONE, True)


def test_a_search_with_one_repeat_runs_one_trial_per_point() -> None:
    threshold = search(ThresholdQuestion(50, 400, noisy=True, max_repeats=1), step(199, 2.0), 0.01, seed=1)
    assert [jump.left for jump in threshold.jumps] == [199]
    assert threshold.trials == threshold.points
