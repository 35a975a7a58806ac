"""Which gaps between measured values can a continuous curve not have crossed?"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from scalescope.analysis.threshold.question import Question, Spot, Table

SUPPORT, REACH, NEAR = 6, 2.0, 6
"""Measured values on one side of a gap that say how the curve comes to it: so many at most, within so many widths of
the gap or so many steps, whichever is more."""
SEEN, LOOKED = 8, 10
MANY, FAR, HALF = 12, 2.0, 0.5
"""The same under noise, and within a part of the range in any case: more of them average it out."""
SPREAD = 0.25
"""Share of the gap that they must span."""
GRAIN = 4
"""Steps within which a second jump the same way makes both part of a curve: 100 tasks on 7, 8, 9 workers."""
CLEAR = 1.5
"""Standard errors from which spots say clearly that a curve is bent."""
ROUNDS = 3
"""Of taking a doubtful break back and looking again; the last word has the doubt."""
_SCALES: tuple[tuple[Callable[[float], float], Callable[[float], float], Callable[[float], float]], ...] = (
    (float, float, float),
    (lambda x: 1 / x, float, float),
    (math.log, float, float),
    (math.log, math.log, math.exp),
)


@dataclass(frozen=True)
class Line:
    """A straight line through spots, weighted by their trials."""

    x: float
    y: float
    slope: float
    weight: float
    spread: float

    @classmethod
    def through(cls, xs: Sequence[float], ys: Sequence[float], weights: Sequence[float]) -> Line:
        """Least squares; level where all lie at one place."""
        weight = sum(weights)
        x = sum(w * a for w, a in zip(weights, xs, strict=True)) / weight
        y = sum(w * b for w, b in zip(weights, ys, strict=True)) / weight
        spread = sum(w * (a - x) ** 2 for w, a in zip(weights, xs, strict=True))
        if not spread:
            return cls(x, y, 0.0, weight, math.inf)
        slope = sum(w * (a - x) * (b - y) for w, a, b in zip(weights, xs, ys, strict=True)) / spread
        return cls(x, y, slope, weight, spread)

    def at(self, x: float) -> float:
        """Height of the line."""
        return self.y + self.slope * (x - self.x)

    def variance(self, x: float) -> float:
        """Of the height, in units of the variance of one trial."""
        return 1 / self.weight + (x - self.x) ** 2 / self.spread


@dataclass(frozen=True)
class Gap:
    """Two neighbouring spots, and what lies between them as far as their surroundings tell.

    Attributes:
        left: The lower spot.
        right: The upper one.
        size: The smallest jump in between that reconciles both sides, as a share of the larger metric, less what
            rounding of a count explains; 0 where a continuous curve does.
        error: Standard error of that.
        bend: Where a curve does: by how much of the metric it may leave the straight line between the two.
        known: Whether there were enough spots around to say so.
    """

    left: Spot
    right: Spot
    size: float
    error: float
    bend: float = 0.0
    known: bool = True

    @property
    def width(self) -> int:
        """In steps."""
        return self.right.index - self.left.index

    @property
    def change(self) -> float:
        """Of the metric from end to end, as a share of the larger one."""
        return abs(self.right.y - self.left.y) / self.scale if self.scale else 0.0

    @property
    def scale(self) -> float:
        """The larger metric of the two, without its sign."""
        return max(abs(self.left.y), abs(self.right.y))


@dataclass(frozen=True)
class Curve:
    """All gaps in order.

    Attributes:
        gaps: One less than there are spots.
        breaks: Positions of those that seem to hold a jump.
    """

    gaps: tuple[Gap, ...]
    breaks: frozenset[int]

    @property
    def steps(self) -> tuple[int, ...]:
        """Places on the grid at which a jump that is one step wide ends."""
        return tuple(self.gaps[i].right.index for i in sorted(self.breaks) if self.gaps[i].width == 1)


def quantile(confidence: float, statements: int = 1) -> float:
    """Standard errors that so many statements together stay within (Bonferroni), two-sided."""
    return NormalDist().inv_cdf(1 - (1 - confidence) / statements / 2)


def is_break(question: Question, gap: Gap) -> bool:
    """Whether the gap seems to hold a jump worth naming, or a narrower look at it is needed to tell."""
    noise = quantile(question.confidence, SEEN) * gap.error
    if gap.width == 1:
        return min(gap.size, gap.change + noise) > max(question.min_jump, noise)
    return gap.size > max(question.min_jump / 2, noise)


def is_certain(question: Question, curve: Curve, position: int) -> bool:
    """Whether a break is more than noise, with all gaps in mind, and does not rest on a single trial."""
    gap = curve.gaps[position]
    if not gap.error:
        return True
    least = quantile(question.confidence, LOOKED * len(curve.gaps)) * gap.error
    return min(gap.left.count, gap.right.count) > 1 and gap.size > least


def is_free(gap: Gap, table: Table) -> bool:
    """Whether there is a value in the gap that can still be measured."""
    return any(index not in table.broken for index in range(gap.left.index + 1, gap.right.index))


def is_grain(curve: Curve, gap: Gap) -> bool:
    """Whether jumps follow each other so closely around a gap that they make up a curve rather than regimes."""
    near = range(gap.left.index - 2 * GRAIN, gap.right.index + 2 * GRAIN + 1)
    return sum(step in near for step in curve.steps) > 1


def study(question: Question, table: Table) -> Curve:
    """Find the gaps that seem to hold a jump.

    The worst gap is set apart first, and the others are judged again without looking across it, until none is left
    (binary segmentation; Vostrikova, 1981); then each is judged once more with only its neighbours set apart.
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


def _bounds(breaks: Collection[int], i: int, count: int) -> tuple[int, int]:
    """The first and the last spot on either side of gap `i` up to the next break."""
    return max((b + 1 for b in breaks if b < i), default=0), min((b for b in breaks if b > i), default=count - 1)


def _seen(table: Table, breaks: Collection[int], i: int) -> Gap:
    """One gap, seen from the spots around it up to the next break."""
    low, high = _bounds(breaks, i, len(table.spots))
    gap = _gap(table.spots[low : i + 1][::-1], table.spots[i + 1 : high + 1], table)
    if gap.width > 1 and gap.size:
        return replace(gap, size=max(0.0, gap.size - table.unit / 2 / gap.scale))
    return gap


def _gap(before: Sequence[Spot], after: Sequence[Spot], table: Table) -> Gap:
    """One gap, from the spots on both sides, nearest first."""
    a, b, noise = before[0], after[0], table.noise
    scale = max(abs(a.y), abs(b.y))
    if not scale:
        return Gap(a, b, 0.0, 0.0, known=len(before) + len(after) > 2)
    left, right = (_support(spots, b.index - a.index, table) for spots in (before, after))
    if left and right:
        return _between(a, b, _line(left), _line(right), scale, noise)
    if left:
        size, error = _beyond(left, b)
        return Gap(a, b, size / scale, error * noise)
    if right:
        size, error = _beyond(right, a)
        return Gap(a, b, size / scale, error * noise)
    alone = len(before) == 1 and len(after) == 1
    return Gap(a, b, abs(b.y - a.y) / scale if alone else 0.0, noise * math.sqrt(1 / a.count + 1 / b.count), known=False)


def _support(spots: Sequence[Spot], width: int, table: Table) -> list[Spot]:
    """Of spots on one side, nearest first, those that say how the curve comes to the gap; none where they cannot."""
    most, reach = (MANY, max(FAR * width, HALF * table.part)) if table.noise else (SUPPORT, max(REACH * width, NEAR))
    chosen: list[Spot] = []
    spread = 0
    for spot in spots:
        distance = abs(spot.index - spots[0].index)
        if len(chosen) > 1 and spread >= SPREAD * width and (len(chosen) >= most or distance > reach):
            break
        chosen.append(spot)
        spread = distance
    return chosen if len(chosen) > 1 and spread >= SPREAD * width else []


def sides(before: Sequence[Spot], after: Sequence[Spot], table: Table) -> tuple[Line, Line]:
    """The lines on which the curve comes to a gap from both sides, given the spots there, nearest first.

    A side with too little around is taken as level.
    """
    width = abs(after[0].index - before[0].index)
    left, right = (_line(_support(spots, width, table) or [spots[0]]) for spots in (before, after))
    return left, right


def _line(spots: Sequence[Spot]) -> Line:
    return Line.through([s.x for s in spots], [s.y for s in spots], [s.count for s in spots])


def _between(a: Spot, b: Spot, left: Line, right: Line, scale: float, noise: float) -> Gap:
    """Two lines that meet in the gap need no jump: so do the secants of every convex or concave curve.

    That holds for their slopes from the two spots on; under noise the lines themselves know more, unless the spots say
    clearly that the curve is bent.
    """
    from_left, from_right = b.y - a.y - left.slope * (b.x - a.x), b.y - a.y - right.slope * (b.x - a.x)
    if noise:
        width = (b.x - a.x) ** 2
        doubt = [math.sqrt(1 / a.count + 1 / b.count + width / line.spread) * noise * scale for line in (left, right)]
        if from_left * from_right >= 0 or abs(from_left) < CLEAR * doubt[0] or abs(from_right) < CLEAR * doubt[1]:
            from_left, from_right = right.at(b.x) - left.at(b.x), right.at(a.x) - left.at(a.x)
    x = a.x if abs(from_right) < abs(from_left) else b.x
    error = noise * math.sqrt(left.variance(x) + right.variance(x))
    if from_left * from_right > 0:
        return Gap(a, b, min(abs(from_left), abs(from_right)) / scale, error)
    apart = abs(from_left - from_right)
    return Gap(a, b, 0.0, error, abs(from_left * from_right) / apart / scale if apart else 0.0)


def _beyond(spots: Sequence[Spot], target: Spot) -> tuple[float, float]:
    """How far a spot lies off the curve through others on one side of it, and the error of that in trials.

    With nothing on its other side, steep and smooth (1/x near the lowest x) is told from a jump by the scale on which
    the curve is straight: linear, over 1/x (Amdahl's law) or both logarithmic (a power law), whichever fits best.
    """
    found = [_residual(spots, target, *scale) for scale in _fitting_scales(spots, target)]
    return min(found)


def _fitting_scales(
    spots: Sequence[Spot], target: Spot
) -> Iterator[tuple[Callable[[float], float], Callable[[float], float], Callable[[float], float]]]:
    yield _SCALES[0]
    if min(spot.x for spot in (*spots, target)) > 0:
        yield from _SCALES[1:3]
        if min(spot.y for spot in (*spots, target)) > 0:
            yield _SCALES[3]


def _residual(
    spots: Sequence[Spot],
    target: Spot,
    of_x: Callable[[float], float],
    of_y: Callable[[float], float],
    back: Callable[[float], float],
) -> tuple[float, float]:
    line = Line.through([of_x(s.x) for s in spots], [of_y(s.y) for s in spots], [s.count for s in spots])
    x = of_x(target.x)
    return abs(back(line.at(x)) - target.y), math.sqrt(line.variance(x) + 1 / target.count)
