from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalescope.errors import InvalidField
from scalescope.nightly.changes import (
    BASELINE,
    EFFECT,
    LEAST,
    Change,
    Floats,
    find_changes,
    find_drift,
    hampel,
    smallest_change,
)


def noise(nights: int, cv: float, seed: int = 0) -> Floats:
    return np.exp(np.random.default_rng(seed).normal(0, cv, nights))


def stepped(nights: int, at: int, step: float, cv: float = 0.01, seed: int = 0) -> Floats:
    values = noise(nights, cv, seed)
    values[at:] *= 1 + step
    return values


def test_a_quiet_series_has_no_change() -> None:
    assert find_changes(noise(200, 0.01)) == []
    assert find_drift(noise(200, 0.01)) is None


def test_a_step_is_found_with_its_size_and_its_interval() -> None:
    [change] = find_changes(stepped(80, 50, 0.10))
    assert change.index == 50
    assert change.low < 0.10 < change.high
    assert change.relative == pytest.approx(0.10, abs=0.01)
    assert change.worse()
    assert not change.worse(larger_is_better=True)
    [change] = find_changes(stepped(80, 50, -0.10))
    assert not change.worse()
    assert change.high < 0


def test_most_steps_of_ten_percent_are_found_on_their_fifth_night() -> None:
    found = [find_changes(stepped(45, 40, 0.10, cv=0.05, seed=seed)) for seed in range(60)]
    assert sum(any(abs(change.index - 40) <= 5 for change in each) for each in found) >= 42


def test_two_steps_in_a_series_are_found_as_two_changes() -> None:
    values = stepped(120, 40, 0.20)
    values[80:] /= 1.20
    assert [change.index for change in find_changes(values)] == [40, 80]


def test_a_step_below_the_smallest_effect_is_not_reported_even_without_noise() -> None:
    assert find_changes(stepped(200, 100, EFFECT / 2, cv=0.001)) == []


def test_lone_outliers_are_not_reported_as_a_change() -> None:
    values = noise(120, 0.01)
    values[[20, 21, 60, 90, 119]] *= 1.5
    assert find_changes(values) == []
    assert hampel(np.log(values)).max() < 0.1


def test_outliers_in_the_newest_nights_are_not_reported_as_a_change() -> None:
    """Older outliers are replaced before the search, which would make the newest look like a new level."""
    values = noise(60, 0.01)
    values[10:56:7] *= 1.3
    values[[57, 58]] *= 1.3
    assert find_changes(values) == []


def test_a_lasting_step_that_is_small_relative_to_the_scatter_is_not_reported() -> None:
    assert find_changes(stepped(120, 60, 0.10, cv=0.10)) == []
    assert [change.index for change in find_changes(stepped(120, 60, 0.10, cv=0.03))] == [60]


def test_no_change_is_found_within_the_first_nights_of_a_series() -> None:
    assert find_changes(stepped(40, BASELINE - 5, 0.5)) != find_changes(stepped(40, BASELINE, 0.5))
    assert all(change.index >= BASELINE for change in find_changes(stepped(40, BASELINE - 5, 0.5)))
    assert smallest_change(noise(BASELINE - 1, 0.01)) == math.inf


@pytest.mark.parametrize("nights", range(BASELINE + LEAST))
def test_a_short_series_has_no_change_and_no_drift(nights: int) -> None:
    assert find_changes(stepped(nights, nights // 2, 1.0)) == []
    assert find_drift(noise(nights, 0.01)) is None


def test_a_step_from_zero_is_found_with_an_infinite_relative_change() -> None:
    [change] = find_changes([0.0] * 20 + [3.0] * 5)
    assert (change.index, change.before, change.after, change.relative) == (20, 0, 3, math.inf)
    assert change.low > 1
    assert find_changes([0.0] * 30) == []


def test_a_slow_drift_is_found_with_its_size_and_interval() -> None:
    values = noise(28, 0.005) * np.exp(np.linspace(0, 0.08, 28))
    drift = find_drift(values)
    assert drift is not None
    assert drift.low < math.expm1(0.08) < drift.high
    assert drift.relative == pytest.approx(math.expm1(0.08), abs=0.015)


def test_a_step_is_not_reported_as_a_drift() -> None:
    assert find_drift(stepped(80, 65, 0.10)) is None


def test_the_smallest_detectable_change_grows_with_the_noise_and_is_mostly_found() -> None:
    assert smallest_change(noise(60, 0.001)) == EFFECT
    assert smallest_change(noise(60, 0.03)) < smallest_change(noise(60, 0.09))
    judged = [(seed, smallest_change(noise(40, 0.05, seed))) for seed in range(60)]
    shown = [
        any(abs(change.index - 40) <= 5 for change in find_changes(stepped(45, 40, step, 0.05, seed)))
        for seed, step in judged
        if step < math.inf
    ]
    assert len(shown) > 50
    assert sum(shown) >= 0.7 * len(shown)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_a_series_with_nan_infinite_or_negative_values_is_refused(wrong: float) -> None:
    for judged in (find_changes, find_drift, smallest_change):
        with pytest.raises(InvalidField, match="finite numbers"):
            judged([1.0] * 20 + [wrong])


SERIES = st.builds(
    stepped,
    nights=st.integers(30, 150),
    at=st.integers(12, 100),
    step=st.sampled_from([-0.5, -0.1, 0.0, 0.1, 0.4]),
    cv=st.sampled_from([0.001, 0.02, 0.05]),
    seed=st.integers(0, 10_000),
)


def places(found: list[Change]) -> list[int]:
    return [change.index for change in found]


@settings(max_examples=40)
@given(SERIES, st.floats(1e-6, 1e9))
def test_changes_do_not_depend_on_the_unit_of_the_values(values: Floats, factor: float) -> None:
    one, other = find_changes(values), find_changes(values * factor)
    assert places(one) == places(other)
    assert [each.relative for each in one] == pytest.approx([each.relative for each in other])
    assert smallest_change(values) == pytest.approx(smallest_change(values * factor))


@settings(max_examples=40)
@given(SERIES)
def test_a_reversed_series_has_the_same_changes_in_reverse_order(values: Floats) -> None:
    """Except near the ends, where the first nights of a series are never a change, and where rounding decides."""
    forwards, backwards = find_changes(values), find_changes(values[::-1])[::-1]
    inner = range(BASELINE, len(values) - BASELINE + 1)
    if all(each.index in inner for each in forwards) and all(len(values) - each.index in inner for each in backwards):
        assert places(forwards) == [len(values) - each.index for each in backwards]
        assert [each.before for each in forwards] == pytest.approx([each.after for each in backwards])


@settings(max_examples=20)
@given(st.floats(0, 1e12), st.integers(0, 100))
def test_a_constant_series_has_no_change_and_no_drift(value: float, nights: int) -> None:
    values = [value] * nights
    assert find_changes(values) == []
    assert find_drift(values) is None
    assert smallest_change(values) == (EFFECT if nights >= BASELINE else math.inf)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1e6), max_size=80))
def test_changes_of_any_series_are_in_order_and_at_least_a_few_nights_apart(values: list[float]) -> None:
    found = find_changes(values)
    assert all(math.isfinite(each.low) and math.isfinite(each.high) and each.low <= each.high for each in found)
    ends = [0, *places(found), len(values)]
    assert not found or all(after - before >= LEAST for before, after in pairwise(ends))
