"""Tells from the readings of a search where the metric jumps."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from scalescope.model.words import number, plural
from scalescope.studies.threshold.curve import (
    GRAIN,
    Curve,
    Gap,
    interval,
    is_certain,
    is_free,
    is_grain,
    ramps,
    study,
    untried,
    visible,
)
from scalescope.studies.threshold.question import (
    MeasuredValue,
    MeasuredValues,
    ThresholdQuestion,
    ThresholdReading,
    tabulate,
)
from scalescope.studies.threshold.search import DETOUR, further, loose

GRAINY = "the metric changes every few steps"
BROKEN = "no valid trial up to the end of the range"
STOPPED = "the search was stopped before its end"
TENTH = 0.1  # shares below this are written with two digits
_number = partial(number, digits=4)
# Most jumps and most doubts named in the sentence; `Threshold.jumps` has all jumps.
SHOWN = 6
# Number of last jumps that must look like waves of tasks: to 3/4, 2/3, 1/2 of the value before, ever further apart.
WAVES = 3


class CurveShape(StrEnum):
    """Shape of the curve, judged by its jumps."""

    NONE = "none"
    STEP = "step"
    PULSE = "pulse"  # one jump up and one down
    STAIRCASE = "staircase"  # several jumps in one direction
    SAWTOOTH = "sawtooth"  # between jumps, the curve returns towards the value before
    WAVE = "wave"  # falls in steps that get longer and smaller, as ceil(tasks / threads) does
    STEPS = "steps"  # several jumps in none of the patterns above
    UNRESOLVED = "unresolved"  # no jump is certain
    UNMEASURED = "unmeasured"  # fewer than two values could be measured


@dataclass(frozen=True)
class Jump:
    """A change of regime."""

    left: float
    right: float
    before: float
    after: float
    ratio: float | None  # after / before; None if before is about 0, or the sign changes
    exact: bool  # left and right are one step apart, and noise leaves no doubt
    why_not_exact: str
    points: int  # number of measured values when both sides of the jump had been measured


@dataclass(frozen=True)
class Unresolved:
    """A part of the range that may hold jumps, and why it is undecided."""

    low: float
    high: float
    reason: str


@dataclass(frozen=True)
class Threshold:
    """The answer of a search for thresholds."""

    question: ThresholdQuestion
    jumps: tuple[Jump, ...]
    shape: CurveShape
    unresolved: tuple[Unresolved, ...]
    unmeasurable: tuple[float, ...]  # values that gave no valid trial
    points: int  # different values measured
    trials: int
    grid: int  # values of the full grid
    widest: int  # steps of the widest gap; a regime narrower than this may have been missed
    smallest: float  # smallest jump that noise would not have hidden, as a share of the metric
    line: str

    @property
    def resolved(self) -> bool:
        """Whether something was measured, every jump is exact, and no part of the range is in doubt."""
        exact = all(jump.exact for jump in self.jumps)
        return exact and self.shape is not CurveShape.UNMEASURED and not self.unresolved

    def to_mapping(self) -> dict[str, Any]:
        return asdict(self) | {"resolved": self.resolved}


def judge(question: ThresholdQuestion, readings: Sequence[ThresholdReading]) -> Threshold:
    """Say where the metric jumps, by the readings so far; final once `further` asks for no more values."""
    table = tabulate(question, readings)
    jumps: tuple[Jump, ...] = ()
    unresolved: tuple[Unresolved, ...] = ()
    shape, widest, smallest = CurveShape.UNMEASURED, question.last, question.min_jump
    if len(table.spots) > 1:
        curve = study(question, table)
        jumps, unresolved = _sort_out(question, table, curve, readings, not further(question, readings))
        shape = _shape(jumps, unresolved)
        widest = max(gap.width for gap in curve.gaps)
        smallest = min(1.0, max(question.min_jump, *(visible(question, gap) for gap in curve.gaps)))
    found = Threshold(
        question=question,
        jumps=jumps,
        shape=shape,
        unresolved=unresolved,
        unmeasurable=tuple(question.value(index) for index in sorted(table.broken)),
        points=table.points,
        trials=table.trials,
        grid=question.last + 1,
        widest=widest,
        smallest=smallest,
        line="",
    )
    return replace(found, line=_line(found))


# ------------------------------------------------------------------ jumps and doubts


def _sort_out(
    question: ThresholdQuestion, table: MeasuredValues, curve: Curve, readings: Sequence[ThresholdReading], ended: bool
) -> tuple[tuple[Jump, ...], tuple[Unresolved, ...]]:
    grain = _grain(question, curve)
    budget = f"the budget of {plural(question.max_points, 'point')} is used up" if ended else STOPPED
    trials = plural(question.max_repeats, "trial")
    noise = (
        f"noise of {_percent(table.noise)} hides the exact place, even after {trials} of a point" if ended else STOPPED
    )
    jumps: list[Jump] = []
    doubts = [(curve.gaps[i].left, curve.gaps[i].right, GRAINY) for i in grain]
    doubts += [(gap.left, gap.right, budget) for gap in loose(question, table, curve)]
    doubts += _beyond(question, table)
    reached = 0
    for i in sorted(curve.breaks - grain):
        low, high = interval(question, table, curve, i)
        if high <= reached:
            continue
        left, right, alone = table.spots[max(low, reached)], table.spots[high], high - low == 1
        if alone and is_free(curve.gaps[i], table):
            doubts.append((left, right, budget))
        elif is_certain(question, curve, i):
            jumps.append(_jump(left, right, _between(question, curve.gaps[i]) if alone else noise, readings))
            reached = high
        else:
            doubts.append((left, right, noise))
    for gap in ramps(question, table, curve):
        if untried(gap, table):
            doubts.append((gap.left, gap.right, budget))
        elif all(gap.right.x <= jump.left or jump.right <= gap.left.x for jump in jumps):
            jumps.append(_jump(gap.left, gap.right, f"the change takes {gap.width} steps", readings))
    return tuple(sorted(jumps, key=lambda jump: jump.left)), _merge(doubts)


def _beyond(question: ThresholdQuestion, table: MeasuredValues) -> list[tuple[MeasuredValue, MeasuredValue, str]]:
    # Unmeasured stretches at the ends of the range, unless a neighbour could be measured in place of the end.
    first, last = table.spots[0], table.spots[-1]
    outside = [(replace(first, index=0, x=question.value(0)), first)] if first.index > DETOUR else []
    if last.index < question.last - DETOUR:
        outside.append((last, replace(last, index=question.last, x=question.value(question.last))))
    return [(left, right, BROKEN) for left, right in outside]


def _grain(question: ThresholdQuestion, curve: Curve) -> frozenset[int]:
    # Breaks that are part of a smooth curve, because the next break in the same direction is too close.
    narrow = [i for i in sorted(curve.breaks) if curve.gaps[i].width == 1 and is_certain(question, curve, i)]
    close = {
        each
        for i, j in itertools.pairwise(narrow)
        if curve.gaps[j].right.index - curve.gaps[i].right.index <= GRAIN
        and (_rise(curve.gaps[i]) > 0) == (_rise(curve.gaps[j]) > 0)
        for each in (i, j)
    }
    return frozenset(close | {i for i in curve.breaks if curve.gaps[i].width > 1 and is_grain(curve, curve.gaps[i])})


def _rise(gap: Gap) -> float:
    return gap.right.y - gap.left.y


def _between(question: ThresholdQuestion, gap: Gap) -> str:
    between = [question.value(index) for index in range(gap.left.index + 1, gap.right.index)]
    return f"{_listed([_number(value) for value in between])} could not be measured" if between else ""


def _jump(left: MeasuredValue, right: MeasuredValue, why: str, readings: Sequence[ThresholdReading]) -> Jump:
    ratio = right.y / left.y if left.y and (left.y > 0) == (right.y > 0) else math.inf
    seen: set[float] = set()
    points = 0
    for reading in readings:
        seen.add(reading.value)
        if left.x in seen and right.x in seen:
            points = len(seen)
            break
    return Jump(left.x, right.x, left.y, right.y, ratio if math.isfinite(ratio) else None, not why, why, points)


def _merge(doubts: list[tuple[MeasuredValue, MeasuredValue, str]]) -> tuple[Unresolved, ...]:
    merged: list[tuple[MeasuredValue, MeasuredValue, str]] = []
    for left, right, reason in sorted(doubts, key=lambda doubt: (doubt[0].index, -doubt[1].index)):
        near = GRAIN if reason == GRAINY else 0
        if merged and merged[-1][2] == reason and left.index - merged[-1][1].index <= near:
            left, right = merged[-1][0], max(right, merged.pop()[1], key=lambda spot: spot.index)
        elif merged and right.index <= merged[-1][1].index:
            continue
        merged.append((left, right, reason))
    return tuple(Unresolved(left.x, right.x, reason) for left, right, reason in merged)


# ------------------------------------------------------------------ the shape


def _shape(jumps: Sequence[Jump], unresolved: Sequence[Unresolved]) -> CurveShape:
    if not jumps:
        return CurveShape.UNRESOLVED if unresolved else CurveShape.NONE
    if len(jumps) == 1:
        return CurveShape.STEP
    heights = [jump.after - jump.before for jump in jumps]
    if min(heights) < 0 < max(heights):
        return CurveShape.PULSE if len(jumps) == 2 else CurveShape.STEPS
    if _is_wave(jumps[-WAVES:]):
        return CurveShape.WAVE
    pairs = list(itertools.pairwise(jumps))
    between = sum(right.before - left.after for left, right in pairs)
    if abs(between) > abs(statistics.fmean(heights)) * len(pairs) / 2:
        return CurveShape.SAWTOOTH if between * heights[0] < 0 else CurveShape.STEPS
    return CurveShape.STAIRCASE


def _is_wave(jumps: Sequence[Jump]) -> bool:
    treads = [right.left - left.left for left, right in itertools.pairwise(jumps)]
    ratios = [jump.ratio for jump in jumps if jump.ratio is not None and jump.ratio < 1]
    return (
        len(jumps) == WAVES == len(ratios)
        and all(b > a for a, b in itertools.pairwise(treads))
        and all(b < a for a, b in itertools.pairwise(ratios))
    )


# ------------------------------------------------------------------ the sentence


def _line(found: Threshold) -> str:
    question = found.question
    where = f"between {question.axis} {_number(question.low)} and {_number(question.value(question.last))}"
    count = f"({found.points} of {found.grid} points measured"
    count += f", {found.trials} trials" if found.trials > found.points else ""
    if found.shape is not CurveShape.UNMEASURED and found.points < found.grid:
        count += f"; regimes narrower than {_number(found.widest * question.step)} may have been missed"
    return f"{_what(found, where)} {count}){''.join(f'; {doubt}' for doubt in _doubts(found))}"


def _what(found: Threshold, where: str) -> str:
    question, jumps = found.question, found.jumps
    if found.shape is CurveShape.UNMEASURED:
        return f"{question.metric} could not be measured {where}: see why the trials are not valid"
    if not jumps:
        if found.shape is CurveShape.UNRESOLVED:
            return f"whether {question.metric} jumps {where} is not resolved"
        return f"no jump of {question.metric} above {_percent(found.smallest)} was found {where}"
    if len(jumps) == 1:
        [jump] = jumps
        verb = "falls" if jump.after < jump.before else "rises"
        change = f"{question.metric} {verb} from {_number(jump.before)} to {_number(jump.after)}"
        place = f"between {question.axis} {_number(jump.left)} and {_number(jump.right)}"
        return f"{change} {place}" if jump.exact else f"{change} somewhere {place} ({jump.why_not_exact})"
    shown = ", ".join(_short(jump) for jump in jumps[:SHOWN])
    more = f" and {len(jumps) - SHOWN} more" if len(jumps) > SHOWN else ""
    shape = "" if found.shape is CurveShape.STEPS else f", a {found.shape}"
    return f"{question.metric} jumps {len(jumps)} times {where}{shape}: {shown}{more}"


def _short(jump: Jump) -> str:
    about = "" if jump.exact else f" ({jump.why_not_exact})"
    place = f"between {_number(jump.left)} and {_number(jump.right)}"
    return f"{_number(jump.before)} to {_number(jump.after)} {place}{about}"


def _doubts(found: Threshold) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for doubt in found.unresolved:
        reasons.setdefault(doubt.reason, []).append(f"{_number(doubt.low)} to {_number(doubt.high)}")
    doubts = [f"not resolved: {_listed(places)} ({reason})" for reason, places in reasons.items()]
    if found.unmeasurable and found.shape is not CurveShape.UNMEASURED:
        doubts.append(f"{_listed([_number(value) for value in found.unmeasurable])} gave no valid trial")
    return doubts


def _listed(words: Sequence[str]) -> str:
    last = [f"{len(words) - SHOWN} more"] if len(words) > SHOWN else list(words[-1:])
    first = list(words[: min(SHOWN, len(words) - 1)]) if len(words) <= SHOWN else list(words[:SHOWN])
    return " and ".join([", ".join(first), *last]) if first else "".join(last)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= TENTH else f"{100 * share:.2g} %"
