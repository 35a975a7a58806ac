"""Interleaved pairs (a, b) of one metric: the factor by which b differs from a, and its uncertainty.

The method is Student's paired t-test on log ratios ln(b / a): log ratios, because times spread by factors; pairs,
because effects of the machine on both trials cancel. The sign-flip test does not assume normal noise. If the metric is
0 in any trial, all pairs are compared by 2(b - a) / (a + b) instead, which is close to the log ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from scalescope.analysis.distributions import t_cdf, t_quantile
from scalescope.errors import InvalidField

Floats = npt.NDArray[np.float64]
# Pairs in the order in which they ran; None stands for a trial that is not valid.
Pairs = Sequence[tuple[float | None, float | None]]
EXACT = 1e-12  # effects that differ by less count as equal: the difference is rounding
# A pair is an outlier if its effect is over five scaled median absolute deviations from the median (Hampel 1974): a
# shared host stops for a moment now and then. All pairs are kept if over a fifth are outliers, or if there are fewer
# than seven pairs. Without `NEGLIGIBLE`, deviations of a millionth on a simulated cluster could count as outliers.
OUTLYING, OUTLYING_SHARE, OUTLYING_FROM = 5.0, 0.2, 7
NEGLIGIBLE = 1e-3  # effects closer than this to the median are never outliers
_MAD = 1.4826  # standard deviation divided by median absolute deviation, for normal noise
POWER = 0.8  # chance to find a difference as large as the minimal effect (Cohen, 1988)
FLIPS_EXACT = 30  # most pairs for which all sign flips are enumerated; for more pairs, `FLIPS_DRAWN` are drawn
FLIPS_DRAWN = 20_000


@dataclass(frozen=True)
class Effects:
    """The effects in all valid pairs."""

    values: Floats  # one effect per pair without outliers: 0 if both numbers are equal, positive if b is larger
    dropped: int = 0  # pairs with a trial that is not valid
    odd: Floats = field(default_factory=lambda: np.empty(0))  # effects of the outliers that `typical` removed
    log: bool = True  # True: effects are log ratios; False: relative differences

    @property
    def outlying(self) -> int:
        return len(self.odd)

    @property
    def pairs(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def exact(self) -> bool:
        """Whether all pairs agree, as on a simulated cluster."""
        return bool(np.ptp(self.values) <= EXACT)

    @property
    def error(self) -> float:
        return 0.0 if self.exact else float(self.values.std(ddof=1)) / math.sqrt(self.pairs)

    def ratio(self, effect: float) -> float:
        """The factor b / a that an effect stands for, from 0 to infinity."""
        if self.log:
            return math.exp(effect)
        if effect >= 2:
            return math.inf
        return 0.0 if effect <= -2 else (2 + effect) / (2 - effect)

    def effect(self, ratio: float) -> float:
        """The inverse of `ratio`, for a positive finite factor."""
        return math.log(ratio) if self.log else 2 * (ratio - 1) / (ratio + 1)


def effects(pairs: Pairs, *, log: bool | None = None) -> Effects:
    """The effect in every pair of valid trials; raises `InvalidField` if a number is negative or not finite.

    `log`: whether effects are log ratios; by default, unless a number is 0.
    """
    valid = [(_checked(a), _checked(b)) for a, b in pairs if a is not None and b is not None]
    a, b = np.array(valid, dtype=float).reshape(-1, 2).T
    if log is None:
        log = bool(np.all(a > 0) and np.all(b > 0))
    if log:
        values = np.log(b / a)
    else:
        total = a + b
        values = np.divide(2 * (b - a), total, out=np.zeros_like(total), where=total > 0)
    return Effects(values, dropped=len(pairs) - len(valid), log=log)


def typical(found: Effects) -> Effects:
    if found.pairs < OUTLYING_FROM:
        return found
    distance = np.abs(found.values - np.median(found.values))
    outlying = distance > max(NEGLIGIBLE, OUTLYING * _MAD * float(np.median(distance)))
    if outlying.sum() > OUTLYING_SHARE * found.pairs:
        return found
    return replace(found, values=found.values[~outlying], odd=found.values[outlying])


def interval(found: Effects, level: float = 0.05) -> tuple[float, float]:
    """The two-sided (1 - `level`) t-interval of the mean effect."""
    mean, half = found.mean, t_quantile(1 - level / 2, found.pairs - 1) * found.error
    return mean - half, mean + half


def t_test(found: Effects) -> float:
    """Two-sided p of the paired t-test. If all pairs agree exactly: 1 without an effect, else 0."""
    if found.exact:
        return 1.0 if abs(found.mean) <= EXACT else 0.0
    return min(1.0, 2 * t_cdf(-abs(found.mean) / found.error, found.pairs - 1))


def sign_flip(found: Effects, *, seed: int = 0) -> float:
    """Two-sided p of the sign-flip test (Fisher 1935): the share of all swaps of a and b that give as large a mean.

    Up to `FLIPS_EXACT` pairs, all flips are enumerated as sums of two halves. For more pairs, a seeded sample is drawn
    that includes the observation itself (Phipson and Smyth 2010), so that p is never 0.
    """
    values = found.values
    limit = abs(float(values.sum())) - EXACT * max(1.0, float(np.abs(values).sum()))
    if limit <= 0:
        return 1.0
    if found.pairs <= FLIPS_EXACT:
        left, right = _sums(values[::2]), np.sort(_sums(values[1::2]))
        above = len(right) - np.searchsorted(right, limit - left, side="left")
        return min(1.0, 2 * float(above.sum()) / 2.0**found.pairs)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(FLIPS_DRAWN, found.pairs))
    return float(1 + np.sum(np.abs(signs @ values) >= limit)) / (1 + FLIPS_DRAWN)


def minimal_effect(found: Effects, level: float = 0.05) -> float:
    """The smallest difference, as a share, that this many pairs with this noise detect with probability `POWER`.

    Bloom (1995), "Minimum detectable effects", Evaluation Review 19(5): standard error times (t(1 - level / 2) +
    t(power)).
    """
    freedom = found.pairs - 1
    return found.ratio((t_quantile(1 - level / 2, freedom) + t_quantile(POWER, freedom)) * found.error) - 1


def false_discovery(p: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p of many tests (Benjamini and Hochberg, 1995), in the same order."""
    falling = np.argsort(p)[::-1]
    ranks = np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[falling] = np.minimum.accumulate(np.asarray(p)[falling] * len(p) / ranks)
    return tuple(map(float, adjusted))


def welch(first: Effects, second: Effects, share: float) -> float:
    """Two-sided p for the hypothesis that the mean of `first` is `share` times the mean of `second`.

    Test of Welch (1947) with the degrees of freedom of Satterthwaite (1946). Without noise, p is 1 if equal, else 0.
    """
    distance = first.mean - share * second.mean
    own, other = first.error**2, (share * second.error) ** 2
    if own + other == 0:
        return 1.0 if abs(distance) <= EXACT else 0.0
    freedom = (own + other) ** 2 / (own**2 / (first.pairs - 1) + other**2 / (second.pairs - 1))
    return min(1.0, 2 * t_cdf(-abs(distance) / math.sqrt(own + other), freedom))


def _checked(value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise InvalidField("pairs", value, "numbers from 0 on, or None for a trial that is not valid")
    return float(value)


def _sums(values: Floats) -> Floats:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return sums
