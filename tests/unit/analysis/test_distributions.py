"""Our distributions against those of SciPy, which only the tests need."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from scalescope.analysis.distributions import root, t_cdf, t_quantile

FREEDOM = st.floats(1, 5_000)


@given(st.floats(-1e4, 1e4), FREEDOM)
def test_students_t_distribution_agrees_with_scipy(t: float, freedom: float) -> None:
    assert t_cdf(t, freedom) == pytest.approx(special.stdtr(freedom, t), rel=1e-8, abs=1e-280)


@given(st.floats(1e-9, 1 - 1e-9), FREEDOM)
@settings(max_examples=30)
def test_the_quantile_of_students_t_agrees_with_scipy(probability: float, freedom: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(special.stdtrit(freedom, probability), rel=1e-6, abs=1e-8)


def test_students_t_distribution_is_right_at_zero_and_at_infinity() -> None:
    assert (t_cdf(-math.inf, 3), t_cdf(-1e200, 3), t_cdf(0.0, 3), t_cdf(1e200, 3)) == (0.0, 0.0, 0.5, 1.0)
    assert t_quantile(0.5, 3) == pytest.approx(0.0, abs=1e-12)


def test_a_root_is_found_within_the_requested_tolerance() -> None:
    assert root(lambda x: x * x - 2, 0.0, 2.0) == pytest.approx(math.sqrt(2), rel=1e-15)
    assert root(lambda x: x * x - 2, 0.0, 2.0, tolerance=0.1) == pytest.approx(math.sqrt(2), abs=0.05)
