"""Distributions and root finding: the few functions that would otherwise need SciPy (125 MB)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

NORMAL = NormalDist()
_TERMS = 300  # terms of the continued fraction; it converges within about the square root of its parameters
_HALVINGS = 200  # more halvings than any interval of floats can undergo


@lru_cache(maxsize=4096)
def t_cdf(t: float, freedom: float) -> float:
    """Cumulative distribution function of Student's t with `freedom` degrees of freedom."""
    square = t * t
    x, rest = (freedom / (freedom + square), square / (freedom + square)) if square < math.inf else (0.0, 1.0)
    tail = _incomplete_beta(freedom / 2, 0.5, x, rest) / 2
    return tail if t < 0 else 1 - tail


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: float) -> float:
    if probability > 0.5:
        return -t_quantile(1 - probability, freedom)
    low = -1.0
    while t_cdf(low, freedom) > probability:
        low *= 2
    return root(lambda t: t_cdf(t, freedom) - probability, low, 0.0)


def root(increasing: Callable[[float], float], low: float, high: float, tolerance: float = 0.0) -> float:
    """The zero of an increasing function between `low` and `high`, by bisection."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if high - low <= tolerance or middle in (low, high):
            break
        low, high = (low, middle) if increasing(middle) > 0 else (middle, high)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """The regularised incomplete beta function by its continued fraction (DLMF 8.17.22); `rest` is 1 - `x`."""
    if not (x and rest):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, rest, x)
    fraction = 1.0
    for m in range(_TERMS, 0, -1):
        fraction = 1 + m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)) / fraction
        fraction = 1 - (a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1)) / fraction
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log(rest) - log_beta) / (a * fraction)
