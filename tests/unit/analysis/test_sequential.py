"""Sequential tests with several looks: against published tables and against a simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scalescope.analysis.sequential import CAUTION, corrected, level, looks, nominal, overall


@pytest.mark.parametrize(
    ("at", "published"),
    [((20,), 0.05), ((10, 20), 0.0294), ((5, 10, 15, 20), 0.0182), (tuple(range(2, 21, 2)), 0.0106)],
)
def test_significance_levels_agree_with_those_published_by_pocock(at: tuple[int, ...], published: float) -> None:
    assert nominal(0.05, at) == pytest.approx(published, abs=6e-5)


def test_the_numbers_of_pairs_at_each_look_grow_up_to_the_maximum() -> None:
    assert looks(7, 20) == (7, 10, 14, 20)
    assert looks(7, 7) == (7,)
    assert looks(7, 25) == (7, 10, 14, 20, 25)


@given(st.floats(1e-9, 0.9))
def test_the_overall_level_lies_between_that_of_one_look_and_the_sum_of_all(chosen: float) -> None:
    at = (7, 10, 14, 20)
    assert chosen <= overall(chosen, at) <= min(1.0, len(at) * chosen) + 1e-12


def test_the_overall_level_agrees_with_a_simulation_of_chance() -> None:
    at = (7, 10, 14, 20)
    sums = np.random.default_rng(0).normal(size=(20_000, 20)).cumsum(axis=1)
    p = [2 * stats.norm.sf(np.abs(sums[:, pairs - 1]) / pairs**0.5) for pairs in at]
    assert np.mean(np.min(p, axis=0) < 0.02) == pytest.approx(overall(0.02, at), abs=0.005)


def test_the_corrected_p_of_a_look_is_significant_exactly_when_the_look_is() -> None:
    at = looks(7, 20)
    assert corrected(level(0.05, at), at) == pytest.approx(0.05, rel=1e-5)
    assert level(0.05, at) < CAUTION * 0.05
    assert (corrected(0.0, at), corrected(1.0, at)) == (0.0, 1.0)
