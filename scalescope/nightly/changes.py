"""Change points in a series of nights: nights on which its level changed, and stayed.

1. Outliers are replaced (Hampel 1974).
2. The night with the largest t statistic between the nights before and after it is a candidate. Each side is searched
   in the same way (binary segmentation, Scott and Knott 1974). The standard error is widened, because neighbouring
   nights are correlated (Bartlett 1946).
3. A candidate must be large compared with the scatter of single nights, and show in the ranks of the original values
   (Mann and Whitney 1947): t alone takes two or three outliers among the newest nights for a new level.

`python -m evidence changes` measures how often the found change points are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from scalescope.errors import InvalidField

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EFFECT = 0.05  # smallest change that is reported, as a share, in either direction
WINDOW = 40  # most nights on either side by which a change is judged, because levels drift over months
BASELINE = 14  # nights before the first possible change; fewer nights say little about the scatter
LEAST = 4  # shortest level that is found, in nights
# smallest normal deviate of a change; low, because every change is rerun before it is reported
LEVEL = 2.8
# smallest change, in standard deviations of single nights: over many nights, t alone would report every drift
CLEAR = 1.5
RANKS = 2.576  # smallest normal deviate of the rank test: 1 % of series without a change reach it
CORRELATION = 0.5  # share of the measured correlation that is applied: all of it, from few nights, would hide changes
# An outlier is more than 5 scaled median absolute deviations from the medians of the 5 nights before and after it.
HAMPEL_NIGHTS, HAMPEL = 5, 5.0
DRIFT_NIGHTS = 28  # nights that are searched for a drift
MAD = 1.4826  # standard deviation of normal noise, in units of its median absolute deviation
_ROUNDING = 1e-9  # relative noise assumed for a series without noise
_SMALLEST = 0.01  # share of the largest value; replaces smaller values, since 0 has no logarithm


@dataclass(frozen=True)
class Change:
    """A change of level."""

    index: int  # the first night of the new level
    before: float  # level in the unit of the series
    after: float
    low: float  # ends of the 95 % interval of `relative`
    high: float
    deviate: float = 0.0  # normal deviate of a change point; the larger, the less likely by chance

    @property
    def relative(self) -> float:
        """The change as a share: 0.1 is 10 % more; infinity if the level before was 0."""
        return self.after / self.before - 1 if self.before else math.inf

    def worse(self, *, larger_is_better: bool = False) -> bool:
        return (self.after > self.before) != larger_is_better


def find_changes(values: Sequence[float], effect: float = EFFECT) -> list[Change]:
    """All change points of at least `effect` in a series of one number >= 0 per night."""
    series = _Series(_checked(values), effect)
    return [_change(series, left, at, right) for left, at, right in series.triples(series.changes)]


def find_drift(values: Sequence[float]) -> Change | None:
    """A slow change over the last four weeks without a step, or None.

    It is the median slope (Theil 1950, Sen 1968) since the last change point, if it amounts to `EFFECT` over at least
    `DRIFT_NIGHTS` / 2 nights and its 95 % interval excludes 0. `index` is the first night; `before` and `after` are the
    ends of the line.
    """
    series = _Series(_checked(values))
    first = max([0, *series.changes, len(series.logs) - DRIFT_NIGHTS])
    own = series.logs[first:]
    if len(own) < DRIFT_NIGHTS // 2:
        return None
    slope, intercept, low, high = _median_slope(own)
    nights = len(own) - 1
    if abs(slope * nights) < series.step or low * high <= 0:
        return None
    scale = float(series.raw.max())
    before, after = (scale * math.exp(intercept + slope * night) for night in (0, nights))
    return Change(first, before, after, math.expm1(low * nights), math.expm1(high * nights))


def smallest_change(values: Sequence[float]) -> float:
    """The smallest change, as a share, that would be found in a series within five nights in 80 % of cases.

    Infinity if there are fewer than `BASELINE` nights since the last change point.
    """
    series = _Series(_checked(values))
    end = len(series.logs)
    begin = max([0, *series.changes, end - WINDOW])
    if end - begin < BASELINE:
        return math.inf
    length, _, squares, products = series.part(np.array([begin]), np.array([end]))
    error = _error(length, np.array([5.0]), squares, products, length - 1)[0]
    nights, scatter = float(length[0]), math.sqrt(squares[0] / (length[0] - 1))
    # the rank test needs this share of larger new values, among all pairs of an old night and one of five new nights
    larger = 0.5 + RANKS * math.sqrt((nights + 6) / (60 * nights))
    limit = max(LEVEL * float(error[0]), math.sqrt(2) * NormalDist().inv_cdf(larger) * scatter)
    return max(EFFECT, math.expm1(limit + 0.84 * float(error[0])))


def hampel(values: Floats) -> Floats:
    """The series with each outlier replaced by the nearer of two medians: of the nights before it and after it."""
    if len(values) < 3:
        return values.copy()
    gap = np.full(HAMPEL_NIGHTS, np.nan)
    near = np.lib.stride_tricks.sliding_window_view(np.concatenate([gap, values, gap]), HAMPEL_NIGHTS)
    before, after = near[: len(values)].copy(), near[HAMPEL_NIGHTS + 1 :].copy()
    before[0], after[-1] = after[0], before[-1]  # the first and last night use the same neighbours twice
    middles = np.nanmedian(before, axis=1), np.nanmedian(after, axis=1)
    spread = np.concatenate([before - middles[0][:, None], after - middles[1][:, None]], axis=1)
    limit = np.maximum(_ROUNDING, HAMPEL * MAD * np.nanmedian(np.abs(spread), axis=1))
    below, above = values - middles[0], values - middles[1]
    odd = (np.abs(below) > limit) & (np.abs(above) > limit) & (below * above > 0)
    return np.where(odd, np.where(np.abs(below) < np.abs(above), *middles), values)


class _Series:
    """A series on the log scale without outliers, with cumulative sums."""

    def __init__(self, raw: Floats, effect: float = EFFECT) -> None:
        self.raw, self.step = raw, math.log1p(effect)
        most = float(raw.max(initial=0))
        logs = np.log(np.maximum(raw / most, _SMALLEST)) if most > 0 else np.zeros(len(raw))
        self.logs = hampel(logs)
        self.middle = float(np.median(self.logs)) if len(logs) else 0.0
        self.centred = self.logs - self.middle
        self.sums, self.squares, self.products = (
            np.concatenate([[0.0], np.cumsum(each)])
            for each in (self.centred, self.centred**2, self.centred[:-1] * self.centred[1:])
        )
        self.changes = self._strong(self._split(0, len(logs)))

    def triples(self, changes: Sequence[int]) -> list[tuple[int, int, int]]:
        """Each change point with the ends of the levels on either side."""
        edges = [0, *changes, len(self.logs)]
        return list(zip(edges, edges[1:], edges[2:], strict=False))

    def part(self, begin: Ints, end: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """Length, mean, sum of squared deviations and sum of products of neighbours' deviations, for each stretch."""
        length = (end - begin).astype(float)
        total = self.sums[end] - self.sums[begin]
        mean = total / length
        squares = np.maximum(self.squares[end] - self.squares[begin] - length * mean**2, 0)
        ends = self.centred[begin] + self.centred[end - 1]
        products = self.products[end - 1] - self.products[begin] - mean * (2 * total - ends) + (length - 1) * mean**2
        return length, mean, squares, products

    def difference(self, begin: int, at: Ints, end: int) -> tuple[Floats, Floats, Floats]:
        """For each night `at`: mean from it on minus mean before, standard error, normal deviate (0: too small)."""
        low, high = np.maximum(begin, at - WINDOW), np.minimum(end, at + WINDOW)
        first, one, squares, products = self.part(low, at)
        second, other, squares_after, products_after = self.part(at, high)
        freedom = first + second - 2
        smallest = np.maximum(self.step, CLEAR * np.sqrt((squares + squares_after) / freedom))
        error, freedom = _error(first, second, squares + squares_after, products + products_after, freedom)
        ratio = (other - one) / error
        # Wallace (1959): the normal deviate with the same probability as t
        deviate = np.sqrt(freedom * np.log1p(ratio**2 / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
        return other - one, error, np.where(np.abs(other - one) >= smallest, deviate, 0.0)

    def strength(self, begin: int, at: int, end: int) -> float:
        """The normal deviate of `difference`; 0 if the rank test sees no change, as a few outliers can move a mean."""
        before, after = self.raw[max(begin, at - WINDOW) : at], self.raw[at : min(end, at + WINDOW)]
        return float(self.difference(begin, np.array([at]), end)[2][0]) * (_rank_deviate(before, after) >= RANKS)

    def _split(self, begin: int, end: int) -> list[int]:
        at = np.arange(begin + LEAST if begin else BASELINE, end - LEAST + 1)
        if not len(at):
            return []
        deviate = self.difference(begin, at, end)[2]
        found = int(at[best := int(np.argmax(deviate))])
        return [*self._split(begin, found), found, *self._split(found, end)] if deviate[best] >= LEVEL else []

    def _strong(self, changes: list[int]) -> list[int]:
        """Remove change points that are too weak between their neighbouring change points, the weakest first."""
        while changes:
            deviates = [self.strength(begin, at, end) for begin, at, end in self.triples(changes)]
            weakest = int(np.argmin(deviates))
            if deviates[weakest] >= LEVEL:
                break
            changes = changes[:weakest] + changes[weakest + 1 :]
        return changes


def _median_slope(values: Floats) -> tuple[float, float, float, float]:
    """The median slope with its intercept and the 95 % interval of Sen (1968), corrected for ties."""
    count = len(values)
    earlier, later = np.triu_indices(count, 1)
    slopes = np.sort((values[later] - values[earlier]) / (later - earlier))
    slope = float(np.median(slopes))
    repeats = np.unique(values, return_counts=True)[1]
    variance = (count * (count - 1) * (2 * count + 5) - (repeats * (repeats - 1) * (2 * repeats + 5)).sum()) / 18
    half = NormalDist().inv_cdf(0.975) * math.sqrt(variance)
    low, high = max(round((len(slopes) - half) / 2) - 1, 0), min(round((len(slopes) + half) / 2), len(slopes) - 1)
    return slope, float(np.median(values)) - slope * (count - 1) / 2, float(slopes[low]), float(slopes[high])


def _rank_deviate(one: Floats, other: Floats) -> float:
    """Normal deviate of the rank test (Mann and Whitney's U), corrected for ties."""
    length, ties = len(one) + len(other), np.unique(np.concatenate([one, other]), return_counts=True)[1].astype(float)
    spread = length + 1 - float((ties**3 - ties).sum()) / (length * (length - 1))
    larger = float(np.sign(other[:, None] - one).sum())
    return abs(larger) / math.sqrt(max(len(one) * len(other) * spread / 3, _ROUNDING))


def _error(first: Floats, second: Floats, squares: Floats, products: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Standard error of the difference of two means, and its degrees of freedom."""
    variance = np.maximum(squares / freedom, _ROUNDING**2)
    own = CORRELATION * np.clip(products / np.maximum(squares, _ROUNDING**2), 0, 0.9)

    def widened(length: Floats) -> Floats:
        """Variance of the mean of `length` correlated nights, divided by that of one night (Bartlett 1946)."""
        return ((1 + own) / (1 - own) - 2 * own * (1 - own**length) / (length * (1 - own) ** 2)) / length

    error = np.sqrt(variance * np.maximum(widened(first) + widened(second), 0))
    return error, freedom * (1 - own**2) / (1 + own**2)


def _checked(values: Sequence[float]) -> Floats:
    raw = np.asarray(values, float)
    if not (np.isfinite(raw).all() and (raw >= 0).all()):
        raise InvalidField("values", values, "finite numbers from 0 on, one per night with a result")
    return raw


def _change(series: _Series, left: int, at: int, right: int) -> Change:
    step, error, _ = (float(each[0]) for each in series.difference(left, np.array([at]), right))
    before = float(np.median(series.raw[max(left, at - WINDOW) : at]))
    after = float(np.median(series.raw[at : min(right, at + WINDOW)]))
    low, high = (math.expm1(step + sign * 1.96 * error) for sign in (-1, 1))
    return Change(at, before, after, low, high, series.strength(left, at, right))
