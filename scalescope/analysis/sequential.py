"""Significance levels for tests that are repeated as data arrive (looks), so that all looks together keep one level.

Pocock's rule (1977, Biometrika 64): the same nominal level at every look. The chance that the p of any look falls below
it without an effect is integrated over the path of the sum (Armitage, McPherson and Rowe 1969), for known noise. Each
t-test uses that level (Jennison and Turnbull 2000, section 4.4).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from scalescope.analysis.distributions import NORMAL, root

CAUTION = 0.65  # share of alpha to plan with, because t-tests of few pairs raise more false alarms than known noise
_NODES = 64
_TINY = 1e-7  # level below which Bonferroni is used
_GROWTH = math.sqrt(2)
_below = np.vectorize(lambda deviations: math.erfc(-deviations / math.sqrt(2)) / 2)


def looks(first: int, most: int) -> tuple[int, ...]:
    """Numbers of pairs after which to test, such as 7, 10, 14, 20. Each look costs power, so the steps grow."""
    found, after = [], first
    while after < most:
        found.append(after)
        after = round(after * _GROWTH)
    return (*found, most)


def level(alpha: float, at: tuple[int, ...]) -> float:
    """The level for the t-test at each of the looks `at`, so that all looks together keep `alpha`."""
    return nominal(CAUTION * alpha, at)


def corrected(p: float, at: tuple[int, ...]) -> float:
    """The p of a t-test, corrected for all looks: at most alpha if and only if `p` is at most `level(alpha, at)`."""
    return min(1.0, overall(p, at) / CAUTION)


@lru_cache(maxsize=4096)
def overall(level: float, at: tuple[int, ...]) -> float:
    """Chance that the p of a two-sided test, with known noise and no effect, falls below `level` at any look."""
    if level >= 1:
        return 1.0
    if level < _TINY:
        return level * len(at)
    bound = -NORMAL.inv_cdf(level / 2)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    inside = np.zeros(1)  # sums that have not crossed the limit yet; `mass` is their probability
    mass = np.ones(1)
    crossed, before = 0.0, 0
    for pairs in at:
        step, edge = math.sqrt(pairs - before), bound * math.sqrt(pairs)
        crossed += float(mass @ (_below((inside - edge) / step) + _below((-inside - edge) / step)))
        sums = edge * nodes
        spread = np.exp(-(((sums[:, None] - inside) / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
        inside, mass = sums, edge * weights * (spread @ mass)
        before = pairs
    return min(1.0, crossed)


@lru_cache(maxsize=256)
def nominal(alpha: float, at: tuple[int, ...]) -> float:
    if len(at) == 1:
        return alpha
    return root(lambda level: overall(level, at) - alpha, alpha / len(at), alpha, tolerance=1e-9)
