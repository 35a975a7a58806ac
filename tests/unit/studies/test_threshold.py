"""The search for thresholds on curves without noise: its results, costs and texts."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalescope.errors import InvalidField
from scalescope.studies.threshold.curve import _straight
from scalescope.studies.threshold.judge import CurveShape, Threshold, judge
from scalescope.studies.threshold.question import MeasuredValue, ThresholdQuestion, ThresholdReading
from scalescope.studies.threshold.search import further, roundness

Curve = Callable[[float], float | None]


def search(question: ThresholdQuestion, curve: Curve) -> tuple[Threshold, list[ThresholdReading]]:
    """Measures points until no more are needed."""
    readings: list[ThresholdReading] = []
    while values := further(question, readings):
        readings += [ThresholdReading(value, curve(value)) for value in values]
        assert len(readings) <= 2 * question.max_points * question.max_repeats, "it does not end"
    return judge(question, readings), readings


def found(curve: Curve, low: float, high: float, step: float = 1, **options: float) -> Threshold:
    return search(ThresholdQuestion(low, high, step, metric="tasks", axis="items", **options), curve)[0]  # type: ignore[arg-type]


def places(threshold: Threshold) -> list[tuple[float, float]]:
    assert all(jump.exact for jump in threshold.jumps)
    return [(jump.left, jump.right) for jump in threshold.jumps]


def reported_beam(items: float) -> float:
    """Tasks of Beam's runner on Dask as it was reported."""
    return 4 * items + 4 if items < 200 else 404


def bag_2023(items: float) -> int:
    """Partitions of a bag in dask 2023.5."""
    return math.ceil(items / max(1, items // 100))


def bag_now(items: float) -> int:
    """Partitions of a bag since dask 2023.9."""
    return math.ceil(items / (1 if items <= 100 else math.ceil(math.sqrt(items) / 10)))


SMOOTH: dict[str, Callable[[float], float]] = {
    "constant": lambda x: 7,
    "zero": lambda x: 0,
    "linear": lambda x: 3 * x + 1,
    "through zero": lambda x: x - 150,
    "sqrt": math.sqrt,
    "1/x": lambda x: 100 / x,
    "amdahl": lambda x: 5 + 100 / x,
    "usl": lambda x: x / (1 + 0.02 * (x - 1) + 0.0003 * x * (x - 1)),
    "capped": lambda x: min(x, 100),
    "rounded": lambda x: math.ceil(x / 3),
    "exponential": lambda x: 1 + math.exp(-x / 60),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_curve_has_no_jumps(name: str) -> None:
    threshold = found(SMOOTH[name], 1, 300)
    assert (threshold.shape, threshold.jumps, threshold.resolved) == (CurveShape.NONE, (), True)
    assert threshold.points <= 25
    assert threshold.line.startswith("no jump of tasks")


def test_the_reported_beam_threshold_is_found_with_at_most_twelve_points() -> None:
    threshold = found(reported_beam, 50, 400)
    assert (places(threshold), threshold.shape) == ([(199, 200)], CurveShape.STEP)
    assert (threshold.jumps[0].before, threshold.jumps[0].after) == (800, 404)
    assert threshold.points == threshold.trials <= 12
    assert threshold.resolved
    assert threshold.line.startswith(
        "tasks falls from 800 to 404 between items 199 and 200 (11 of 351 points measured;"
    )


def test_the_largest_jump_of_the_beam_sawtooth_comes_first() -> None:
    threshold = found(lambda items: 4 * bag_2023(items) + 4, 50, 400)
    assert places(threshold) == [(199, 200), (299, 300), (399, 400)]
    assert threshold.jumps[0].points <= 12
    assert threshold.points <= 16


@pytest.mark.parametrize("low", [1, 50])
def test_all_jumps_of_the_bag_partitions_are_found(low: int) -> None:
    now = found(bag_now, low, 500)
    assert (places(now), now.shape, now.resolved) == ([(100, 101), (400, 401)], CurveShape.SAWTOOTH, True)
    assert now.points <= 16
    then = found(bag_2023, low, 500)
    assert (places(then), then.shape) == ([(199, 200), (299, 300), (399, 400), (499, 500)], CurveShape.SAWTOOTH)
    assert then.points <= 30


def test_partitions_of_128_items_are_found_as_a_staircase() -> None:
    threshold = found(lambda items: 2 * math.ceil(items / 128) + 1, 1, 1000)
    assert places(threshold) == [(128 * n, 128 * n + 1) for n in range(1, 8)]
    assert (threshold.shape, threshold.resolved) == (CurveShape.STAIRCASE, True)
    assert threshold.line.endswith("may have been missed)")
    assert "13 to 15 between 768 and 769 and 1 more (" in threshold.line


def test_a_wave_is_recognised_and_its_unresolved_parts_are_named() -> None:
    threshold = found(lambda workers: math.ceil(100 / workers), 1, 120)
    assert [(jump.left, jump.right) for jump in threshold.jumps][-3:] == [(33, 34), (49, 50), (99, 100)]
    assert all(math.ceil(100 / jump.left) > math.ceil(100 / jump.right) for jump in threshold.jumps)
    assert threshold.shape is CurveShape.WAVE
    assert not threshold.resolved
    assert threshold.points == 40
    reasons = {part.reason for part in threshold.unresolved}
    assert any("budget of 40" in reason for reason in reasons)
    assert reasons <= {"the budget of 40 points is used up", "the metric changes every few steps"}
    assert "; not resolved: " in threshold.line


def test_a_curve_that_changes_at_every_step_is_not_searched_step_by_step() -> None:
    threshold = found(lambda x: 1000 * 0.95**x, 1, 60)
    assert threshold.jumps == ()
    assert threshold.points < 40


@pytest.mark.parametrize(
    ("curve", "low", "high", "step", "expected"),
    [
        (lambda x: 10 if x <= 1 else 4, 1, 300, 1, [(1, 2)]),
        (lambda x: 10 if x < 300 else 4, 1, 300, 1, [(299, 300)]),
        (lambda x: 3 * x, 1, 2, 1, [(1, 2)]),
        (lambda x: 3, 1, 2, 1, []),
        (lambda x: -5 if x < 77 else 5, 1, 300, 1, [(76, 77)]),
        (lambda x: 0 if x < 77 else 5, 1, 300, 1, [(76, 77)]),
        (lambda x: -5 if x < 77 else -20, -100, 100, 1, [(76, 77)]),
        (lambda x: 5 if x < 17.5 else 9, 1, 50, 0.5, [(17.0, 17.5)]),
        (lambda x: 1 if x < 0.7 else 2, 0, 1, 0.1, [(0.6, 0.7)]),
        (lambda x: 4 * x if x < 200 else 1200, 50, 400, 1, [(199, 200)]),
        (lambda x: 1e299 if x <= 100 else 1e300, 50, 400, 1, [(100, 101)]),
        (lambda x: 1e-299 if x <= 100 else 1e-300, 50, 400, 1, [(100, 101)]),
        (lambda x: 10 if 130 <= x < 180 else 5, 1, 300, 1, [(129, 130), (179, 180)]),
        (lambda x: 100 / x * (1 if x <= 80 else 2), 1, 300, 1, [(80, 81)]),
    ],
)
def test_jumps_at_edges_and_in_unusual_ranges_are_found_exactly(
    curve: Curve, low: float, high: float, step: float, expected: list[object]
) -> None:
    threshold = found(curve, low, high, step)
    assert places(threshold) == expected
    assert threshold.resolved


def test_values_of_the_axis_are_whole_numbers_or_exact_multiples_of_the_step() -> None:
    assert all(isinstance(value, int) for value in further(ThresholdQuestion(50.0, 400.0, 1.0), []))
    readings = [ThresholdReading(value, 1) for value in further(ThresholdQuestion(0, 1, 0.1), [])]
    assert set(further(ThresholdQuestion(0, 1, 0.1), readings)) <= {round(n / 10, 1) for n in range(11)}


def test_a_range_ends_at_the_last_whole_step() -> None:
    threshold = found(lambda x: 1 if x < 8 else 2, 0, 9.9, 4)
    assert (threshold.grid, places(threshold)) == (3, [(4, 8)])


@pytest.mark.parametrize("at", range(3, 250, 19))
def test_a_pulse_wider_than_a_seventh_of_the_range_is_found(at: int) -> None:
    threshold = found(lambda x: 100 if at < x <= at + 48 else 60, 1, 300)
    assert places(threshold) == [(at, at + 1), (at + 48, at + 49)]
    assert threshold.shape is CurveShape.PULSE
    assert threshold.widest <= 0.15 * 300


@given(
    at=st.integers(20, 480),
    size=st.sampled_from([0.5, 0.8, 1.25, 2.0]),
    level=st.floats(1e-3, 1e6),
    slope=st.floats(0, 0.05),
)
@settings(max_examples=40)
def test_a_step_on_a_sloped_line_is_found_exactly_with_few_points(
    at: int, size: float, level: float, slope: float
) -> None:
    threshold = found(lambda x: level * (1 + slope * x) * (size if x > at else 1), 1, 500)
    if not threshold.jumps and min(at - 1, 500 - at) < threshold.widest:
        assert "narrower than" in threshold.line  # may be missed, and it says so
        return
    assert places(threshold) == [(at, at + 1)]
    assert threshold.jumps[0].ratio == pytest.approx(size, rel=0.06)
    assert threshold.points <= 24


def test_a_curve_of_the_universal_scalability_law_has_no_jump() -> None:
    """At most one in fifty has a jump, at the first step of the range, where the slope is not known."""
    rng = random.Random(1)
    false = []
    for _ in range(100):
        a, b, c, low = rng.uniform(0, 1e3), rng.uniform(0, 1e3), rng.uniform(0, 10), rng.randint(1, 20)
        false += [jump.left == low for jump in found(lambda x, a=a, b=b, c=c: a + b / x + c * x, low, 300).jumps]
    assert len(false) <= 2
    assert all(false)


@given(
    st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9), st.integers(-3, 3).map(float)), min_size=2, max_size=70),
    st.booleans(),
    st.integers(2, 25),
)
@settings(max_examples=50)
def test_a_search_over_any_curve_keeps_its_budget_and_gives_json(
    metrics: list[float | None], noisy: bool, points: int
) -> None:
    question = ThresholdQuestion(0, len(metrics) - 1, noisy=noisy, max_points=points, max_repeats=3)
    threshold, readings = search(question, lambda x: metrics[round(x)])
    asked = Counter(reading.value for reading in readings)
    assert len(asked) == threshold.points <= points
    valid = {value for value in asked if metrics[round(value)] is not None}
    assert all(asked[value] <= (3 if noisy else 1) for value in valid)
    assert all(asked[value] <= (3 if noisy else 2) for value in set(asked) - valid)
    assert json.loads(json.dumps(threshold.to_mapping(), allow_nan=False))["line"] == threshold.line


def test_a_line_with_denormal_noise_is_taken_as_straight() -> None:
    assert _straight([MeasuredValue(i, float(i), i * 5e-324, 1) for i in range(4)], 0.01)


def test_an_interrupted_search_asks_for_the_remaining_points() -> None:
    question = ThresholdQuestion(1, 500)
    _, readings = search(question, bag_2023)
    done: list[ThresholdReading] = []
    while len(done) < len(readings):
        values = further(question, done)
        assert values == tuple(reading.value for reading in readings[len(done) : len(done) + len(values)])
        done += [ThresholdReading(value, bag_2023(value)) for value in values]


def test_a_change_that_takes_two_steps_is_bracketed() -> None:
    threshold = found(lambda x: 800 if x < 200 else 600 if x == 200 else 404, 50, 400)
    [jump] = threshold.jumps
    assert (jump.left, jump.right, jump.exact, jump.why_not_exact) == (199, 201, False, "the change takes 2 steps")


# ------------------------------------------------------------------ what breaks


def broken(curve: Callable[[float], float], where: Callable[[float], bool]) -> Curve:
    return lambda x: None if where(x) else curve(x)


def test_an_invalid_trial_is_repeated_once() -> None:
    question, tried = ThresholdQuestion(50, 400), set[float]()

    def flaky(items: float) -> float | None:
        if items in tried:
            return reported_beam(items)
        tried.add(items)
        return None

    threshold, readings = search(question, flaky)
    assert places(threshold) == [(199, 200)]
    assert threshold.trials == len(readings) == 2 * threshold.points
    assert threshold.unmeasurable == ()


def test_a_jump_next_to_values_without_a_valid_trial_is_not_exact() -> None:
    threshold = found(broken(reported_beam, lambda items: 198 <= items <= 203), 50, 400)
    [jump] = threshold.jumps
    assert (jump.left, jump.right, jump.exact) == (197, 204, False)
    assert jump.why_not_exact == "198, 199, 200, 201, 202 and 203 could not be measured"
    assert not threshold.resolved
    assert "197 and 204 (198, 199," in threshold.line
    assert threshold.line.endswith("; 198, 199, 200, 201, 202 and 203 gave no valid trial")


def test_ends_without_a_valid_trial_are_replaced_by_their_neighbours() -> None:
    threshold = found(broken(reported_beam, lambda items: items in (50, 400)), 50, 400)
    assert places(threshold) == [(199, 200)]
    assert threshold.unmeasurable == (50, 400)
    assert threshold.resolved


def test_a_part_of_the_range_without_valid_trials_is_unresolved() -> None:
    threshold = found(broken(reported_beam, lambda items: items > 250), 50, 400)
    assert places(threshold) == [(199, 200)]
    [part] = threshold.unresolved
    assert (part.high, part.reason) == (400, "no valid trial up to the end of the range")
    assert part.low <= 250


@pytest.mark.parametrize("noisy", [False, True])
def test_a_search_without_valid_trials_ends_after_a_few_readings(noisy: bool) -> None:
    threshold, readings = search(ThresholdQuestion(50, 400, metric="tasks", axis="items", noisy=noisy), lambda x: None)
    assert (threshold.shape, threshold.resolved) == (CurveShape.UNMEASURED, False)
    assert len(readings) <= 8
    assert threshold.line.startswith("tasks could not be measured")


def test_a_curve_with_fewer_than_two_values_is_unmeasured() -> None:
    assert found(broken(reported_beam, lambda items: items != 225), 50, 400).shape is CurveShape.UNMEASURED
    assert judge(ThresholdQuestion(1, 9), []).shape is CurveShape.UNMEASURED


def test_a_small_budget_is_kept_and_unresolved_parts_are_named() -> None:
    threshold = found(lambda items: 4 * items if items < 237 else 400, 50, 400, max_points=6)
    assert threshold.points == 6
    assert threshold.jumps == ()
    assert threshold.shape is CurveShape.UNRESOLVED
    assert any(part.low < 237 <= part.high for part in threshold.unresolved)
    assert threshold.line.startswith("whether tasks jumps")
    assert "budget of 6 points" in threshold.line


def test_a_search_that_was_stopped_does_not_blame_the_budget() -> None:
    question = ThresholdQuestion(50, 400)
    _, readings = search(question, lambda items: 4 * items if items < 237 else 400)
    threshold = judge(question, readings[:11])
    assert {part.reason for part in threshold.unresolved} == {"the search was stopped before its end"}


def test_jumps_smaller_than_min_jump_are_ignored() -> None:
    assert found(lambda x: 100 if x < 150 else 104, 1, 300).jumps == ()
    assert places(found(lambda x: 100 if x < 150 else 104, 1, 300, min_jump=0.02)) == [(149, 150)]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"step": 0}, "step"),
        ({"step": math.nan}, "step"),
        ({"high": 50}, "high"),
        ({"high": math.inf}, "step"),
        ({"max_points": 1}, "max_points"),
        ({"max_repeats": 0}, "max_repeats"),
        ({"min_jump": 0}, "min_jump"),
        ({"confidence": 1}, "confidence"),
    ],
)
def test_an_invalid_threshold_question_is_refused_by_its_field(changes: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        ThresholdQuestion(**{"low": 50, "high": 400, **changes})  # type: ignore[arg-type]
    assert caught.value.field == f"threshold.{field}"


@pytest.mark.parametrize(
    "reading",
    [ThresholdReading(49, 1), ThresholdReading(401, 1), ThresholdReading(60.5, 1), ThresholdReading(60, math.nan)],
)
def test_readings_outside_the_range_of_the_question_are_refused(reading: ThresholdReading) -> None:
    for read in (further, judge):
        with pytest.raises(InvalidField):
            read(ThresholdQuestion(50, 400), [reading])


def test_roundness_of_numbers_grows_with_powers_of_ten_and_two() -> None:
    numbers = (0, 1, 7, 100, 128, 200, 250, 300, 1000, -40)
    assert [roundness(n) for n in numbers] == [0, 1, 1, 100, 128, 200, 250, 100, 1000, 20]
