"""Change points in the series of one workload: nights on which its level changed, and stayed.

A series holds one number per night: of one version of a workload, at one size, on one cluster and one kind of hardware.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalescope.errors import InvalidField

Floats = npt.NDArray[np.float64]

EFFECT = 0.05
"""Changes of less are not reported; an improvement by the same factor counts as much."""
WINDOW = 30
"""Nights on either side that a change is judged by: a level wanders over months."""
LEAST = 4
"""Nights that a level must have lasted to be one."""
LEVEL = 3.2
"""Normal deviate from which on a difference between both sides is a change."""
HAMPEL_NIGHTS, HAMPEL = 5, 4.0
"""A night is an outlier when it is farther from the median of the five nights on either side than four scaled median
absolute deviations of theirs (Hampel 1974)."""
_MAD = 1.4826
_ROUNDING = 1e-9  # relative noise of a series that has none
_SMALLEST = 0.01  # what stands for 0 on the log scale, as a share of the largest value


@dataclass(frozen=True)
class Change:
    """A change of level.

    Attributes:
        index: The first night of the new level.
        before: The level of the nights before, in the unit of the series.
        after: The level since.
        low: Lower end of the 95 % interval of `relative`.
        high: Upper end.
    """

    index: int
    before: float
    after: float
    low: float
    high: float

    @property
    def relative(self) -> float:
        """The change as a share: 0.1 is 10 % more, infinity is more than nothing."""
        return self.after / self.before - 1 if self.before else math.inf

    def worse(self, *, larger_is_better: bool = False) -> bool:
        """Whether it is a regression; otherwise it is an improvement."""
        return (self.after > self.before) != larger_is_better


def find_changes(values: Sequence[float]) -> list[Change]:
    """All change points of a series, in their order.

    Args:
        values: One number from 0 on per night, in order; nights without a result are left out.

    Raises:
        InvalidField: A number is negative, infinite or not a number.
    """
    raw = _checked(values)
    logs = hampel(_logs(raw))
    edges = [0, *_segment(logs, 0, len(logs)), len(logs)]
    return [_change(logs, raw, left, at, right) for left, at, right in zip(edges, edges[1:], edges[2:], strict=False)]


def smallest_change(values: Sequence[float]) -> float:
    """The smallest change that a series would show within five nights in 80 % of the cases, as a share.

    Judged by the nights since its last change; infinity where there are too few.

    Raises:
        InvalidField: As `find_changes`.
    """
    raw = _checked(values)
    logs = hampel(_logs(raw))
    last = max(_segment(logs, 0, len(logs)), default=0)
    own = logs[last:][-WINDOW:]
    if len(own) < 2 * LEAST:
        return math.inf
    noise = max(float(own.std(ddof=1)), _ROUNDING)
    return max(EFFECT, math.expm1((LEVEL + 0.84) * noise * math.sqrt(1 / 5 + 1 / len(own))))


def hampel(values: Floats) -> Floats:
    """The series with each outlier replaced by the median of the nights around it."""
    found = values.copy()
    for i in range(len(values)):
        near = values[max(0, i - HAMPEL_NIGHTS) : i + HAMPEL_NIGHTS + 1]
        middle = float(np.median(near))
        if abs(values[i] - middle) > max(_ROUNDING, HAMPEL * _MAD * float(np.median(np.abs(near - middle)))):
            found[i] = middle
    return found


def _checked(values: Sequence[float]) -> Floats:
    raw = np.asarray(values, float)
    if not (np.isfinite(raw).all() and (raw >= 0).all()):
        raise InvalidField("values", values, "finite numbers from 0 on, one per night with a result")
    return raw


def _logs(raw: Floats) -> Floats:
    most = float(raw.max(initial=0))
    return np.log(np.maximum(raw / most, _SMALLEST)) if most > 0 else np.zeros(len(raw))


def _segment(logs: Floats, begin: int, end: int) -> list[int]:
    """Change points between two nights: the plainest, and those on either side of it."""
    best, at = 0.0, 0
    for i in range(begin + LEAST, end - LEAST + 1):
        step, error = _difference(logs, begin, i, end)
        if abs(step) >= math.log1p(EFFECT) and abs(step) / error > best:
            best, at = abs(step) / error, i
    if best < LEVEL:
        return []
    return [*_segment(logs, begin, at), at, *_segment(logs, at, end)]


def _difference(logs: Floats, begin: int, at: int, end: int) -> tuple[float, float]:
    """By how much the nights after differ from those before, and the standard error of that."""
    before, after = logs[max(begin, at - WINDOW) : at], logs[at : min(end, at + WINDOW)]
    squares = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    noise = max(math.sqrt(squares / (len(before) + len(after) - 2)), _ROUNDING)
    return float(after.mean() - before.mean()), noise * math.sqrt(1 / len(before) + 1 / len(after))


def _change(logs: Floats, raw: Floats, left: int, at: int, right: int) -> Change:
    step, error = _difference(logs, left, at, right)
    half = 1.96 * error
    before = float(np.median(raw[max(left, at - WINDOW) : at]))
    after = float(np.median(raw[at : min(right, at + WINDOW)]))
    return Change(at, before, after, math.expm1(step - half), math.expm1(step + half))
