"""Between which two values does a jump lie, as far as noise lets one say?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scalescope.studies.threshold.curve import Curve, Line, quantile, sides
from scalescope.studies.threshold.question import MeasuredValue, MeasuredValues, ThresholdQuestion


def interval(question: ThresholdQuestion, table: MeasuredValues, curve: Curve, position: int) -> tuple[int, int]:
    """Positions of the two values between which a jump lies; neighbours if noise leaves no doubt.

    A value beside the border may belong to the other side as long as the sum of squared errors, in units of the noise,
    grows by no more than the square of the normal quantile (profile likelihood of a single change; Hinkley, 1970).
    """
    if not table.noise:
        return position, position + 1
    low = max((b + 1 for b in curve.breaks if b < position), default=0)
    high = min((b for b in curve.breaks if b > position), default=len(table.spots) - 1)
    before, after = table.spots[low : position + 1][::-1], table.spots[position + 1 : high + 1]
    left, right = sides(before, after, table)
    most = quantile(question.confidence) ** 2
    return (
        position - _strangers(before, left, right, table.noise, most),
        position + 1 + _strangers(after, right, left, table.noise, most),
    )


def _strangers(spots: Sequence[MeasuredValue], own: Line, other: Line, noise: float, most: float) -> int:
    # How many spots of one side, nearest to the border first, may belong to the other.
    cost, found = 0.0, 0
    for count, spot in enumerate(spots[:-1], start=1):
        cost += _misfit(spot, other, noise) - _misfit(spot, own, noise)
        if cost <= most:
            found = count
    return found


def _misfit(spot: MeasuredValue, line: Line, noise: float) -> float:
    error = noise * math.sqrt(1 / spot.count + line.variance(spot.x)) * max(abs(spot.y), abs(line.at(spot.x)))
    return ((spot.y - line.at(spot.x)) / error) ** 2 if error else 0.0
