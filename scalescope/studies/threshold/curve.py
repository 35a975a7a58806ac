"""Finds gaps between measured values that no continuous curve is likely to have crossed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from scalescope.studies.threshold.question import MeasuredValue, MeasuredValues, ThresholdQuestion

# The curve is extrapolated to a gap from its support: at most SUPPORT values within max(REACH gap widths, NEAR steps).
SUPPORT, REACH, NEAR = 6, 2.0, 6
# Under noise: at most MANY values, which average the noise out, within max(FAR gap widths, HALF a part).
MANY, FAR, HALF = 12, 3.0, 0.5
# Share of the gap width that the support must span.
SPREAD = 0.25
# Under noise, in standard errors: a support bent by at most CURVED is straight; a curve is bent at a gap from CLEAR on.
CURVED, CLEAR = 1.0, 1.5
# A change over one step is a jump only if the curve's slope leaves more than this share of it unexplained.
STEEP = 0.2
# Two jumps in one direction within GRAIN steps are part of a curve, as with 100 tasks on 7, 8, 9 workers.
GRAIN = 4
# Numbers of tests to correct for: gaps that are suspected at a time; looks at each gap before a jump is reported.
SEEN, LOOKED = 8, 10
# Standard errors above the noise limit of `is_break` from which a jump is found nearly always.
POWER = 2.0
# Most rounds in which doubtful breaks are withdrawn and all gaps judged again.
ROUNDS = 3
_LARGEST, _TERMS = 700.0, 3
Scale = Callable[[float], float]
_SCALES: tuple[tuple[Scale, Scale, Scale], ...] = (
    (float, float, float),
    (lambda x: 1 / x, float, float),
    (math.log, float, float),
    (float, math.log, lambda y: math.exp(min(y, _LARGEST))),
    (math.log, math.log, lambda y: math.exp(min(y, _LARGEST))),
)


@dataclass(frozen=True)
class Line:
    """A straight line fitted to measured values, weighted by their numbers of trials."""

    x: float
    y: float
    slope: float
    weight: float
    spread: float

    @classmethod
    def through(cls, points: Sequence[tuple[float, float, float]]) -> Line:
        """Least-squares line of (x, y, weight); level if all x are equal."""  # plain loops: called thousands of times
        weight = x = y = spread = product = 0.0
        for a, b, w in points:
            weight += w
            x += w * a
            y += w * b
        x, y = x / weight, y / weight
        for a, b, w in points:
            spread += w * (a - x) ** 2
            product += w * (a - x) * (b - y)
        return cls(x, y, product / spread, weight, spread) if spread else cls(x, y, 0.0, weight, math.inf)

    def at(self, x: float) -> float:
        return self.y + self.slope * (x - self.x)

    def variance(self, x: float) -> float:
        """Variance of the height, in units of the variance of one trial."""
        return 1 / self.weight + (x - self.x) ** 2 / self.spread


@dataclass(frozen=True)
class Gap:
    """The gap between two neighbouring measured values, and the jump that the values around it suggest."""

    left: MeasuredValue
    right: MeasuredValue
    size: float  # smallest jump that agrees with both sides, as a share of the larger metric; 0: no jump needed
    error: float  # standard error of `size`
    bend: float = 0.0  # if no jump is needed: largest deviation from a straight line, as a share of the metric
    known: bool = True  # False if too few values around the gap were measured

    @property
    def width(self) -> int:
        """Width in steps."""
        return self.right.index - self.left.index

    @property
    def change(self) -> float:
        """Change of the metric across the gap, as a share of the larger metric."""
        return abs(self.right.y - self.left.y) / self.scale if self.scale else 0.0

    @property
    def scale(self) -> float:
        return max(abs(self.left.y), abs(self.right.y))


@dataclass(frozen=True)
class Curve:
    """All gaps in order, and positions of those that seem to hold a jump."""

    gaps: tuple[Gap, ...]
    breaks: frozenset[int]

    @property
    def steps(self) -> tuple[int, ...]:
        """Grid indices of the right ends of jumps that are one step wide."""
        return tuple(self.gaps[i].right.index for i in sorted(self.breaks) if self.gaps[i].width == 1)


@lru_cache
def quantile(confidence: float, statements: int = 1) -> float:
    """Two-sided normal quantile at which `statements` tests together have this confidence (Bonferroni)."""
    return NormalDist().inv_cdf(1 - (1 - confidence) / statements / 2)


def is_break(question: ThresholdQuestion, gap: Gap) -> bool:
    """Whether a gap of one step seems to be a jump; or whether a wider gap may hold one and must be narrowed."""
    noise = quantile(question.confidence, SEEN) * gap.error
    if gap.width == 1:
        return min(gap.size, gap.change) > max(question.min_jump, noise, STEEP * gap.change)
    return gap.size > max(question.min_jump / 2, noise)


def visible(question: ThresholdQuestion, gap: Gap) -> float:
    """Smallest jump in the gap that noise is unlikely to hide."""
    return (quantile(question.confidence, SEEN) + POWER) * gap.error


def is_certain(question: ThresholdQuestion, curve: Curve, position: int) -> bool:
    """Whether a break exceeds the noise of all gaps, and does not rest on a single trial."""
    gap = curve.gaps[position]
    if not gap.error:
        return True
    least = quantile(question.confidence, LOOKED * len(curve.gaps)) * gap.error
    return min(gap.left.count, gap.right.count) >= min(2, question.max_repeats) and gap.size > least


def is_free(gap: Gap, table: MeasuredValues) -> bool:
    return any(index not in table.broken for index in range(gap.left.index + 1, gap.right.index))


def untried(gap: Gap, table: MeasuredValues) -> list[int]:
    known = {spot.index for spot in table.spots} | table.broken
    return [index for index in range(gap.left.index + 1, gap.right.index) if index not in known]


def is_grain(curve: Curve, gap: Gap) -> bool:
    """Whether jumps around this gap are so close together that they are part of a smooth curve."""
    near = range(gap.left.index - GRAIN, gap.right.index + GRAIN + 1)
    return sum(step in near for step in curve.steps) > 1


def study(question: ThresholdQuestion, table: MeasuredValues) -> Curve:
    """Find the gaps that seem to hold a jump.

    Binary segmentation (Vostrikova, 1981): the gap with the largest jump becomes a break, and the others are judged
    again without values beyond it, until no gap seems to hold a jump. Then each break is judged again between the other
    breaks, and withdrawn if it no longer seems to be one.
    """
    spots = table.spots
    breaks: set[int] = set()
    judged = [_seen(table, breaks, i) for i in range(len(spots) - 1)]

    def turn(i: int) -> None:
        breaks.symmetric_difference_update({i})
        low, high = _bounds(breaks, i, len(spots))
        for j in range(max(0, low - 1), min(high + 1, len(judged))):
            judged[j] = _seen(table, breaks, j)

    def add() -> None:
        while found := [i for i, gap in enumerate(judged) if i not in breaks and is_break(question, gap)]:
            turn(max(found, key=lambda i: judged[i].size))

    add()
    for _ in range(ROUNDS):
        before = set(breaks)
        for i in sorted(breaks, key=lambda i: judged[i].size):
            if not is_break(question, judged[i]):
                turn(i)
        add()
        if breaks == before:
            break
    return Curve(tuple(judged), frozenset(breaks))


def ramps(question: ThresholdQuestion, table: MeasuredValues, curve: Curve) -> list[Gap]:
    """Changes that take 2 to `GRAIN` steps, like steep pieces of a curve; of overlapping changes only the narrowest."""
    found: list[Gap] = []
    for i, j in itertools.combinations(range(len(table.spots)), 2):
        width = table.spots[j].index - table.spots[i].index
        if j - i == 1 or width > GRAIN or not curve.breaks.isdisjoint(range(i, j)):
            continue
        low, high = _bounds(curve.breaks, i, len(table.spots))
        before, after = table.spots[low : i + 1][::-1], table.spots[j : high + 1]
        if _support(before, width, table) and _support(after, width, table):
            gap = _gap(before, after, table)
            noise = quantile(question.confidence, LOOKED * len(curve.gaps)) * gap.error
            if min(gap.size, gap.change) > max(question.min_jump, noise):
                found.append(gap)
    narrowest: list[Gap] = []
    for gap in sorted(found, key=lambda gap: (gap.width, -gap.size)):
        if all(gap.right.index <= g.left.index or g.right.index <= gap.left.index for g in narrowest):
            narrowest.append(gap)
    return narrowest


def interval(question: ThresholdQuestion, table: MeasuredValues, curve: Curve, position: int) -> tuple[int, int]:
    """Positions of the two measured values between which a jump lies; neighbours if noise leaves no doubt.

    Values next to the border may belong to the other side if moving them raises the sum of squared errors, in units of
    the noise, by at most the squared normal quantile (profile likelihood of a single change; Hinkley, 1970).
    """
    if not table.noise:
        return position, position + 1
    low, high = _bounds(curve.breaks, position, len(table.spots))
    before, after = table.spots[low : position + 1][::-1], table.spots[position + 1 : high + 1]
    width = after[0].index - before[0].index
    left, right = (_line(_support(spots, width, table) or [spots[0]]) for spots in (before, after))
    most = quantile(question.confidence) ** 2
    return (
        position - _strangers(before, left, right, table.noise, most),
        position + 1 + _strangers(after, right, left, table.noise, most),
    )


def _strangers(spots: Sequence[MeasuredValue], own: Line, other: Line, noise: float, most: float) -> int:
    # Number of values of one side, counted from the border, that may belong to the other side.
    cost, found = 0.0, 0
    for count, spot in enumerate(spots[:-1], start=1):
        cost += _misfit(spot, other, noise) - _misfit(spot, own, noise)
        if cost <= most:
            found = count
    return found


def _misfit(spot: MeasuredValue, line: Line, noise: float) -> float:
    error = noise * math.sqrt(1 / spot.count + line.variance(spot.x)) * max(abs(spot.y), abs(line.at(spot.x)))
    return ((spot.y - line.at(spot.x)) / error) ** 2 if error else 0.0


def _bounds(breaks: Collection[int], i: int, count: int) -> tuple[int, int]:
    return max((b + 1 for b in breaks if b < i), default=0), min((b for b in breaks if b > i), default=count - 1)


def _seen(table: MeasuredValues, breaks: Collection[int], i: int) -> Gap:
    low, high = _bounds(breaks, i, len(table.spots))
    return _gap(table.spots[low : i + 1][::-1], table.spots[i + 1 : high + 1], table)


def _gap(before: Sequence[MeasuredValue], after: Sequence[MeasuredValue], table: MeasuredValues) -> Gap:
    a, b, noise = before[0], after[0], table.noise
    scale = max(abs(a.y), abs(b.y))
    if not scale:
        return Gap(a, b, 0.0, 0.0, known=len(before) + len(after) > 2)
    width = b.index - a.index
    left, right = (_support(spots, width, table) for spots in (before, after))
    if left and right:
        return _between(a, b, _line(left), _line(right), scale, noise)
    left, right = (_support(spots, width, table, alone=True) for spots in (before, after))
    if left or right:
        size, error = _beyond(left, b) if left else _beyond(right, a)
        outermost = width > 1 and (a is table.spots[0] or b is table.spots[-1])
        rounding = table.unit / 2 if outermost else 0.0
        return Gap(a, b, max(0.0, size - rounding) / scale, error * noise)
    size = abs(b.y - a.y) / scale if len(before) == len(after) == 1 else 0.0
    return Gap(a, b, size, noise * math.sqrt(1 / a.count + 1 / b.count), known=False)


def _support(
    spots: Sequence[MeasuredValue], width: int, table: MeasuredValues, *, alone: bool = False
) -> list[MeasuredValue]:
    # The values on one side from which the curve is extrapolated to the gap, nearest first; empty if too few.
    wide = table.noise > 0 and not alone
    most, reach = (MANY, max(FAR * width, HALF * table.part)) if wide else (SUPPORT, max(REACH * width, NEAR))
    chosen: list[MeasuredValue] = []
    for spot in spots:
        enough = len(chosen) > 1 and _spread(chosen) >= SPREAD * width
        if enough and (len(chosen) >= most or abs(spot.index - spots[0].index) > reach):
            break
        chosen.append(spot)
    while wide and len(chosen) > 2 and _spread(chosen[:-1]) >= SPREAD * width and not _straight(chosen, table.noise):
        chosen.pop()
    return chosen if len(chosen) > 1 and _spread(chosen) >= SPREAD * width else []


def _spread(spots: Sequence[MeasuredValue]) -> int:
    return abs(spots[-1].index - spots[0].index)


def _straight(spots: Sequence[MeasuredValue], noise: float) -> bool:
    line, free = _line(spots), len(spots) - 2
    pairs = [(spot, line.at(spot.x)) for spot in spots]
    squares = sum(s.count * ((s.y - y) / usual) ** 2 for s, y in pairs if (usual := noise * max(abs(s.y), abs(y))) > 0)
    return squares <= free + CURVED * math.sqrt(2 * free)


def _line(spots: Sequence[MeasuredValue]) -> Line:
    return Line.through([(s.x, s.y, s.count) for s in spots])


def _between(a: MeasuredValue, b: MeasuredValue, left: Line, right: Line, scale: float, noise: float) -> Gap:
    # Lines that meet in the gap need no jump: the secants of every convex or concave curve meet there. Each line starts
    # at the measured value; under noise it is the fitted line, unless the curve is clearly bent.
    from_left, from_right = b.y - a.y - left.slope * (b.x - a.x), b.y - a.y - right.slope * (b.x - a.x)
    if noise:
        width = (b.x - a.x) ** 2
        doubt = [math.sqrt(1 / a.count + 1 / b.count + width / line.spread) * noise * scale for line in (left, right)]
        if (
            (from_left < 0) == (from_right < 0)
            or abs(from_left) < CLEAR * doubt[0]
            or abs(from_right) < CLEAR * doubt[1]
        ):
            from_left, from_right = right.at(b.x) - left.at(b.x), right.at(a.x) - left.at(a.x)
    x = a.x if abs(from_right) < abs(from_left) else b.x
    error = noise * math.sqrt(left.variance(x) + right.variance(x))
    size = min(abs(from_left), abs(from_right)) / scale
    if (from_left < 0) == (from_right < 0):
        return Gap(a, b, size, error)
    return Gap(a, b, 0.0, error, max(abs(from_left), abs(from_right)) / scale / 2)


def _beyond(spots: Sequence[MeasuredValue], target: MeasuredValue) -> tuple[float, float]:
    # Distance of `target` from the curve through `spots`, and its standard error in units of one trial's error.
    # The family that fits best counts: straight, straight over 1/x (Amdahl), over log x, log y over x (exponential),
    # log y over log x (power law), or a + b/x + c x (times under the universal scalability law; Gunther, 1993).
    everything = (*spots, target)
    if min(spot.x for spot in everything) <= 0:
        return _residual(spots, target, *_SCALES[0])
    scales = _SCALES if min(spot.y for spot in everything) > 0 else _SCALES[:3]
    found = [_residual(spots, target, *scale) for scale in scales]
    if len(spots) >= _TERMS:
        found.append(_scalability_residual(spots, target))
    return min(found)


def _scalability_residual(spots: Sequence[MeasuredValue], target: MeasuredValue) -> tuple[float, float]:
    xs = np.array([spot.x for spot in spots])
    root = np.sqrt([spot.count for spot in spots])
    terms, row = np.stack([np.ones_like(xs), 1 / xs, xs], axis=1), np.array([1, 1 / target.x, target.x])
    weights = row @ np.linalg.pinv(terms * root[:, None])
    predicted = float(weights @ (root * [spot.y for spot in spots]))
    return abs(predicted - target.y), math.sqrt(float(weights @ weights) + 1 / target.count)


def _residual(
    spots: Sequence[MeasuredValue], target: MeasuredValue, of_x: Scale, of_y: Scale, back: Scale
) -> tuple[float, float]:
    line = Line.through([(of_x(s.x), of_y(s.y), s.count) for s in spots])
    x = of_x(target.x)
    return abs(back(line.at(x)) - target.y), math.sqrt(line.variance(x) + 1 / target.count)
