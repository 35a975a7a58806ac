"""Interleaved pairs (a, b) of one metric: the factor by which b differs from a, and its uncertainty.

The method is Student's paired t-test on log ratios ln(b / a): on the log scale because times spread by factors; paired
because effects of the machine on both trials cancel. The sign-flip test does not assume normal noise. If a metric is 0
in some trial, all pairs are compared by 2(b - a) / (a + b) instead, which is close to the log ratio.
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
EXACT = 1e-12  # effects that differ by less count as equal, because of rounding
# A pair is set aside if its effect is over five scaled median absolute deviations from the median (Hampel 1974), since
# a shared host stops for a moment now and then. All pairs count if over a fifth would be set aside, or if there are
# fewer than seven. On a simulated cluster, even deviations of a millionth can be that rare: hence `NEGLIGIBLE`.
OUTLYING, OUTLYING_SHARE, OUTLYING_FROM = 5.0, 0.2, 7
NEGLIGIBLE = 1e-3  # effects that differ by less from the median are never set aside
_MAD = 1.4826  # standard deviation of normal noise in median absolute deviations
POWER = 0.8  # chance to find a difference as large as the minimal effect (Cohen, 1988)
FLIPS_EXACT = 30  # most pairs for which all sign flips are counted; for more, `FLIPS_DRAWN` are drawn
FLIPS_DRAWN = 20_000


@dataclass(frozen=True)
class Effects:
    """The effect in each pair."""

    values: Floats  # one effect per pair that counts: 0 where both are equal, positive where b is larger
    dropped: int = 0  # pairs with a trial that is not valid
    odd: Floats = field(default_factory=lambda: np.empty(0))  # effects of the pairs that `typical` set aside
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
        """The factor b / a of an effect, from 0 to infinity."""
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

    `log=False` always makes relative differences, for comparison with others.
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
    """Two-sided p of the paired t-test that there is no effect; 1 or 0 if all pairs agree."""
    if found.exact:
        return 1.0 if abs(found.mean) <= EXACT else 0.0
    return min(1.0, 2 * t_cdf(-abs(found.mean) / found.error, found.pairs - 1))


def sign_flip(found: Effects, *, seed: int = 0) -> float:
    """Two-sided p of the sign-flip test (Fisher 1935): the share of all swaps of a and b that give as large a mean.

    Up to `FLIPS_EXACT` pairs all flips are counted, by sums over each half. Beyond, a seeded sample counts the
    observation itself (Phipson and Smyth 2010), so that p is never 0.
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
    """The smallest difference, as a share, that this many pairs with this noise would show in `POWER` of the runs.

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
    """Two-sided p that the mean of `first` is `share` times that of `second`, whose error counts too.

    Welch (1947) with the degrees of freedom of Satterthwaite (1946). Without any noise p is 1 if equal, else 0.
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
