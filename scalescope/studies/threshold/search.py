"""Chooses the values that a search for thresholds measures next."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Sequence

from scalescope.studies.threshold.curve import (
    Curve,
    Gap,
    interval,
    is_certain,
    is_free,
    is_grain,
    quantile,
    ramps,
    study,
    untried,
    visible,
)
from scalescope.studies.threshold.question import MeasuredValues, ThresholdQuestion, ThresholdReading, tabulate

GOLDEN = (math.sqrt(5) - 1) / 2
# Each end of a part is moved by up to half of this share of a part, by an irrational sequence: evenly spaced values
# would make a sawtooth of the same period look like a straight line.
JITTER = 0.3
# Widest gap left between measured values, in parts (see `ThresholdQuestion.parts`).
WIDEST = 1.2
# The limit on gaps is lowered to half the distance between jumps, but not below this many parts.
FINEST = 0.5
# Deviation of the curve from a straight line, as a share of the metric, from which values in a gap are tried.
BEND = 0.06
# If noise may hide a jump larger than this share of the metric in a gap, values in the gap are tried.
BLIND = 0.5
# Trials of each end of the range, if there is noise, so that the noise is known from the start.
END_TRIALS = 3
# A value that may lie on either side of a jump gets CONFIRM trials; then gaps wider than 1 / CLOSE part are cut.
CONFIRM, CLOSE = 2, 8
# Confidence needed to call a gap free of jumps; until then it is measured again.
DOUBT = 0.9
# A value counts as round if its roundness is at least 1 / NOTABLE of the range.
NOTABLE = 8
# The search ends if none of this many values could be measured.
HOPELESS = 3
# A value that cannot be measured may be replaced by a neighbour at most this many steps away.
DETOUR = 1
_AHEAD = 16
_SMALL = 4


def further(question: ThresholdQuestion, readings: Sequence[ThresholdReading]) -> tuple[float | int, ...]:
    """The values to measure next, one trial each; empty when nothing is left to ask.

    The result depends on the arguments alone, so a search that was killed goes on where it stopped. A value is returned
    again after an invalid trial, or to average noise.
    """
    table = tabulate(question, readings)
    wanted: Sequence[int] = table.retry or _explore(question, table)
    if not wanted and len(table.spots) > 1:
        curve = study(question, table)
        wanted = _pin_down(question, table, curve) or _look(question, table, curve) or _repeat(question, table, curve)
    return tuple(question.value(index) for index in wanted)


# ------------------------------------------------------------------ all over the range


def _explore(question: ThresholdQuestion, table: MeasuredValues) -> list[int]:
    last = question.last
    known = {spot.index: spot.count for spot in table.spots}
    if known:
        parts = question.parts
        inner = (round(last / parts * (i + JITTER * ((i * GOLDEN) % 1 - 0.5))) for i in range(1, parts))
        targets = [0, *inner, last]
    elif not table.broken:
        targets = [0, last]
    else:
        targets = [last // 2] if len(table.broken) < HOPELESS else []
    around = [_around(target, known, table.broken, last) for target in targets]
    new = sorted({index for index in around if index is not None and index not in known})
    new = new[: max(0, question.max_points - table.points)]
    if not question.noisy:
        return new
    trials = min(END_TRIALS, question.max_repeats)
    ends = sorted({index for index in (0, last) if index in known or index in new})
    return new + [index for index in ends for _ in range(trials - max(1, known.get(index, 0)))]


def _around(target: int, known: Collection[int], broken: Collection[int], last: int) -> int | None:
    beside = (target + sign * distance for distance in range(1, DETOUR + 1) for sign in (1, -1))
    near = [target, *(index for index in beside if 0 <= index <= last)]
    return next((index for index in near if index in known or index not in broken), None)


# ------------------------------------------------------------------ near suspected jumps


def _pin_down(question: ThresholdQuestion, table: MeasuredValues, curve: Curve) -> list[int]:
    for i in sorted(curve.breaks, key=lambda i: -curve.gaps[i].size):
        gap = curve.gaps[i]
        low, high = interval(question, table, curve, i)
        wanted: list[int] = []
        if high - low > 1:
            wanted = _tell_apart(question, table, curve, low, high)
        elif is_free(gap, table):
            if not is_grain(curve, gap):
                wanted = _new(question, table, _inside(question, table, curve, gap))
        elif not is_certain(question, curve, i):
            wanted = _weakest(question, table, (low, high))
        if wanted:
            return wanted
    for ramp in ramps(question, table, curve):
        if inside := untried(ramp, table):
            return _new(question, table, inside[0])
    return []


def _tell_apart(question: ThresholdQuestion, table: MeasuredValues, curve: Curve, low: int, high: int) -> list[int]:
    wanted = _weakest(question, table, range(low + 1, high), CONFIRM)
    if wanted:
        return wanted
    wide = max(curve.gaps[low:high], key=lambda gap: gap.width)
    if wide.width > table.part / CLOSE and is_free(wide, table):
        wanted = _new(question, table, _free(table, wide, (wide.left.index + wide.right.index) // 2))
    return wanted or _weakest(question, table, range(low + 1, high))


def _look(question: ThresholdQuestion, table: MeasuredValues, curve: Curve) -> list[int]:
    found = loose(question, table, curve)
    if not found:
        return []
    gap = max(found, key=lambda gap: (not gap.known, gap.width))
    return _new(question, table, _free(table, gap, gap.left.index + round(GOLDEN * gap.width)))


def loose(question: ThresholdQuestion, table: MeasuredValues, curve: Curve) -> list[Gap]:
    """Gaps without a jump that are too wide, too bent, or have too few measured values around them."""
    limit = _limit(table, curve)
    return [
        gap
        for i, gap in enumerate(curve.gaps)
        if i not in curve.breaks
        and is_free(gap, table)
        and (
            not gap.known
            or gap.width > limit
            or gap.bend > BEND + quantile(question.confidence) * gap.error
            or (visible(question, gap) > BLIND and gap.width > table.part / CLOSE)
        )
    ]


def _limit(table: MeasuredValues, curve: Curve) -> float:
    # Limit on the width of gaps, in steps: half the typical distance between jumps if there are more than two jumps.
    limit = WIDEST * table.part
    if len(curve.steps) > 2:
        between = statistics.median(b - a for a, b in itertools.pairwise(curve.steps))
        limit = max(FINEST * table.part, min(limit, between / 2))
    return limit


def _repeat(question: ThresholdQuestion, table: MeasuredValues, curve: Curve) -> list[int]:
    doubtful = [
        i
        for i, gap in enumerate(curve.gaps)
        if i not in curve.breaks and gap.error and gap.size + quantile(DOUBT) * gap.error > question.min_jump
    ]
    return _weakest(question, table, sorted({spot for i in doubtful for spot in (i, i + 1)}))


def _weakest(
    question: ThresholdQuestion, table: MeasuredValues, positions: Iterable[int], enough: int | None = None
) -> list[int]:
    spots = [table.spots[i] for i in positions]
    enough = min(enough or question.max_repeats, question.max_repeats)
    least = min((spot.count for spot in spots), default=enough)
    return [spot.index for spot in spots if spot.count == least] if least < enough else []


def _new(question: ThresholdQuestion, table: MeasuredValues, index: int) -> list[int]:
    return [index] if table.points < question.max_points else []


def _free(table: MeasuredValues, gap: Gap, wanted: int) -> int:
    inside = (index for index in range(gap.left.index + 1, gap.right.index) if index not in table.broken)
    return min(inside, key=lambda index: abs(index - wanted))


# ------------------------------------------------------------------ where in a gap to look


def _inside(question: ThresholdQuestion, table: MeasuredValues, curve: Curve, gap: Gap) -> int:
    low, high = gap.left.index, gap.right.index
    if gap.width >= _SMALL:
        for end in (*_rhythm(question, curve, gap), *_round_numbers(question, gap)):
            for index in (end, end - 1):
                if low < index < high:
                    return _free(table, gap, index)
    return _free(table, gap, (low + high) // 2)


def _rhythm(question: ThresholdQuestion, curve: Curve, gap: Gap) -> list[int]:
    # Where the jump would end if all jumps were equally far apart; or, from a single jump, at multiples of its place.
    steps, middle = curve.steps, gap.left.index + gap.right.index
    if not steps:
        return []
    periods = [round(question.value(steps[0] - 1) / question.step)]
    if len(steps) > 1:
        nearest = min(itertools.pairwise(steps), key=lambda pair: abs(sum(pair) - middle))
        periods.insert(0, nearest[1] - nearest[0])
    start = min(steps, key=lambda step: abs(2 * step - middle))
    offsets = (sign * n * period for period in periods if period > 1 for n in range(1, _AHEAD) for sign in (1, -1))
    ends = (start + offset for offset in offsets)
    return list(itertools.islice((end for end in ends if gap.left.index < end <= gap.right.index), 1))


def _round_numbers(question: ThresholdQuestion, gap: Gap) -> list[int]:
    # Where the jump may end if a round constant of the program causes it, such as 199 -> 200 or 128 -> 129.
    low, high = gap.left.index, gap.right.index
    if not isinstance(question.value(0), int):
        return []
    notable = question.last * question.step / NOTABLE
    beside = [high] if high < question.last and roundness(question.value(high)) >= notable else []
    if low > 0 and roundness(question.value(low)) >= notable:
        beside.append(low + 1)
    if beside:
        return beside
    least = max(notable, gap.width * question.step)
    score = {index: roundness(question.value(index)) for index in range(low + 1, high)}
    found = [index for index in score if score[index] >= least]
    return [max(found, key=lambda index: (score[index], -abs(2 * index - low - high)))] if found else []


def roundness(value: float) -> int:
    """The largest power of two, or 1, 2, 5 or 25 times a power of ten, that divides a whole number; 0 for 0."""
    whole = abs(round(value))
    if not whole:
        return 0
    tens: int = 10 ** (len(str(whole)) - len(str(whole).rstrip("0")))
    return max(whole & -whole, *(part for part in (tens, 2 * tens, 5 * tens, 25 * tens) if whole % part == 0))
