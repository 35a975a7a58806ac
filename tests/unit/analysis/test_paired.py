"""Paired effects: against SciPy's tests, and in cases without noise or without a ratio."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scalescope.analysis.paired import (
    POWER,
    Effects,
    effects,
    false_discovery,
    interval,
    minimal_effect,
    sign_flip,
    t_test,
    typical,
    welch,
)
from scalescope.errors import InvalidField

TIMES = st.floats(0.01, 1e4)
PAIRS = st.lists(st.tuples(TIMES, TIMES), min_size=3, max_size=9)


def normal(pairs: int, mean: float = 0.0, spread: float = 0.03, seed: int = 0) -> Effects:
    return Effects(np.random.default_rng(seed).normal(mean, spread, pairs))


@given(PAIRS)
def test_the_t_test_agrees_with_scipy_on_log_ratios(pairs: list[tuple[float, float]]) -> None:
    found = effects(pairs)
    if float(np.ptp(found.values)) < 1e-6:
        return  # rounding decides what scipy says
    theirs = stats.ttest_1samp(np.log([b / a for a, b in pairs]), 0.0)
    ends = theirs.confidence_interval(0.9)
    assert t_test(found) == pytest.approx(theirs.pvalue, rel=1e-6)
    assert interval(found, 0.1) == pytest.approx((ends.low, ends.high), rel=1e-6, abs=1e-9)


@given(PAIRS)
def test_swapping_a_and_b_inverts_the_ratio_and_keeps_the_p_values(pairs: list[tuple[float, float]]) -> None:
    there, back = effects(pairs), effects([(b, a) for a, b in pairs])
    assert there.ratio(there.mean) == pytest.approx(1 / back.ratio(back.mean), rel=1e-9)
    assert t_test(there) == pytest.approx(t_test(back), rel=1e-6)
    assert sign_flip(there) == pytest.approx(sign_flip(back))


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_sign_flips_are_counted_exactly(values: list[float]) -> None:
    observed = abs(sum(values))
    every = [abs(sum(sign * value for sign, value in zip(signs, values, strict=True)))
             for signs in product((-1, 1), repeat=len(values))]  # fmt: skip
    near = [abs(total - observed) < 1e-9 for total in every]
    above = sum(total > observed or close for total, close in zip(every, near, strict=True))
    strictly = sum(total > observed and not close for total, close in zip(every, near, strict=True))
    share = sign_flip(Effects(np.array(values)))
    assert strictly / len(every) < share <= above / len(every) + 1e-12


def test_five_pairs_are_too_few_for_sign_flips_and_seven_are_enough() -> None:
    assert sign_flip(Effects(np.full(5, 0.1))) == pytest.approx(2 / 2**5)
    assert sign_flip(Effects(np.full(7, 0.1))) == pytest.approx(2 / 2**7)


def test_a_sample_of_sign_flips_agrees_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = normal(16, mean=0.01)
    exact = sign_flip(found)
    monkeypatch.setattr("scalescope.analysis.paired.FLIPS_EXACT", 15)
    drawn = sign_flip(found, seed=1)
    assert 0.05 < exact < 0.95
    assert drawn == pytest.approx(exact, abs=0.02)
    assert drawn == sign_flip(found, seed=1)
    assert drawn != sign_flip(found, seed=2)


def test_the_minimal_effect_is_detected_with_the_stated_power() -> None:
    spread, pairs, runs = 0.03, 10, 2000
    rng = np.random.default_rng(0)
    # with the true spread instead of an observed one
    factor = (stats.t.ppf(0.975, pairs - 1) + stats.t.ppf(POWER, pairs - 1)) / math.sqrt(pairs)
    exact = Effects(np.array([-1.0, 1.0] * (pairs // 2)) * spread * math.sqrt((pairs - 1) / pairs))
    assert minimal_effect(exact) == pytest.approx(math.expm1(factor * spread))
    draws = rng.normal(math.log1p(minimal_effect(exact)), spread, (runs, pairs))
    assert np.mean(stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05) == pytest.approx(POWER, abs=0.03)


# ------------------------------------------------------------------ no noise, no ratio, no trial


def test_equal_pairs_have_no_difference_and_no_interval() -> None:
    found = effects([(3.0, 3.0)] * 7)
    assert found.exact
    assert (t_test(found), sign_flip(found), interval(found), minimal_effect(found)) == (1.0, 1.0, (0.0, 0.0), 0.0)


def test_pairs_with_equal_ratios_differ_with_certainty() -> None:
    found = effects([(t, 1.05 * t) for t in (1.0, 2.0, 0.3, 7.0, 5.0, 1.1, 9.0)])
    low, high = interval(found)
    assert found.exact
    assert t_test(found) == 0.0
    assert low == high == pytest.approx(math.log(1.05))


def test_a_zero_among_the_values_switches_to_relative_differences() -> None:
    found = effects([(0, 0), (0, 5), (1, 3), (3, 1), (5, 0)])
    assert not found.log
    assert found.values == pytest.approx([0, 2, 1, -1, -2])
    assert [found.ratio(value) for value in found.values] == pytest.approx([1, math.inf, 3, 1 / 3, 0])


@given(st.floats(0.1, 10), st.booleans())
def test_effects_and_ratios_are_inverse(ratio: float, log: bool) -> None:
    found = Effects(np.zeros(1), log=log)
    assert found.ratio(found.effect(ratio)) == pytest.approx(ratio)


def test_pairs_without_a_valid_trial_are_dropped_and_counted() -> None:
    found = effects([(1, 2), (None, 2), (1, None), (None, None), (2, 4)])
    assert (found.pairs, found.dropped) == (2, 3)
    assert found.ratio(found.mean) == pytest.approx(2)
    assert effects([]).pairs == 0


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_negative_and_non_finite_values_are_refused(value: float) -> None:
    with pytest.raises(InvalidField, match="pairs"):
        effects([(1.0, value)])


# ------------------------------------------------------------------ outliers


def test_an_outlier_is_set_aside_and_counted() -> None:
    found = typical(Effects(np.array([0.01, -0.01, 0.02, 0.0, 0.01, -0.02, 0.3])))
    assert found.outlying == 1
    assert max(found.values) < 0.1


@pytest.mark.parametrize("values", [[0.01, -0.01, 0.02, 0.0, 0.01, 0.3, 0.3], [0.0, 0.001, 0.0, 0.001, 0.0, 5.0]])
def test_frequent_outliers_and_outliers_among_few_pairs_are_kept(values: list[float]) -> None:
    found = Effects(np.array(values))
    assert typical(found) is found


def test_normal_noise_has_hardly_any_outliers() -> None:
    assert sum(typical(normal(20, seed=seed)).outlying for seed in range(200)) < 0.005 * 20 * 200


# ------------------------------------------------------------------ several


def test_false_discovery_agrees_with_benjamini_and_hochberg() -> None:
    p = [0.01, 0.04, 0.03, 0.005]
    assert false_discovery(p) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert false_discovery([]) == ()


def test_the_welch_test_agrees_with_scipy_when_the_share_is_one() -> None:
    first, second = normal(8, 0.02, seed=1), normal(5, spread=0.1, seed=2)
    theirs = stats.ttest_ind(first.values, second.values, equal_var=False).pvalue
    assert welch(first, second, 1.0) == pytest.approx(theirs)


def test_the_welch_test_without_noise_gives_a_p_of_zero_or_one() -> None:
    half, whole = Effects(np.full(2, 0.5)), Effects(np.full(2, 1.0))
    assert welch(half, whole, 0.5) == 1.0
    assert welch(half, whole, 0.4) == 0.0
    assert 0 < welch(half, normal(5, 1.0, 0.1), 0.4) < 0.05
