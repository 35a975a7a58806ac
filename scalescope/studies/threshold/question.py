"""What is asked, what was read, and the grid that both lie on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from scalescope.errors import InvalidField
from scalescope.model import parameters
from scalescope.model.mapping import Mapped
from scalescope.model.parameters import Parameter
from scalescope.studies.threshold.parameters import MaxPoints, MaxRepeats, MinJump, ThresholdParameters

LOOKS = 8
"""Parts into which a range is cut before anything is known, where the budget allows."""
ATTEMPTS = 2
"""Trials without a valid one after which a value counts as not measurable."""
PRIOR_NOISE, PRIOR_WEIGHT = 0.03, 2
"""Relative standard deviation assumed of a noisy cluster before it is known, and the degrees of freedom it counts for:
3 % is what the real-time clusters show on a quiet host."""
_ON_GRID = 1e-6
_DIGITS = 12


@dataclass(frozen=True)
class ThresholdQuestion(Mapped):
    """Where along an axis does a metric jump?

    Attributes:
        low: Lowest value of the axis.
        high: Highest value; left out when no whole number of steps leads there.
        step: Resolution: a jump is exact when it lies between two values one step apart.
        metric: Name, for words only.
        axis: Name, for words only.
        confidence: Of each statement, where there is noise.
        noisy: Whether two trials of a value may differ. False for counts and for the simulated cluster: then no value
            is measured twice.
    """

    low: float
    high: float
    step: float = 1
    metric: str = "metric"
    axis: str = "value"
    max_points: MaxPoints = ThresholdParameters.max_points
    max_repeats: MaxRepeats = ThresholdParameters.max_repeats
    min_jump: MinJump = ThresholdParameters.min_jump
    confidence: Annotated[float, Parameter("", minimum=0.001, maximum=0.999999)] = 0.95
    noisy: bool = False

    def __post_init__(self) -> None:
        parameters.check_fields(self, "threshold")
        finite = all(math.isfinite(number) for number in (self.low, self.high, self.step))
        if not finite or self.step <= 0:
            raise InvalidField("threshold.step", self.step, "a number above zero, between finite ends")
        if self.high - self.low < self.step * (1 - _ON_GRID):
            raise InvalidField("threshold.high", self.high, "at least one step above low")

    @property
    def last(self) -> int:
        """Index of the highest value on the grid; the lowest has 0."""
        return math.floor((self.high - self.low) / self.step + _ON_GRID)

    @property
    def parts(self) -> int:
        """Into which the range is cut before anything is known; half of the budget is kept for what that shows."""
        return max(1, min(LOOKS, self.last, self.max_points // 2))

    def value(self, index: int) -> float | int:
        """The value of the axis at a place on the grid; a whole number where low and step are."""
        value = self.low + index * self.step
        if float(self.low).is_integer() and float(self.step).is_integer():
            return round(value)
        return round(value, _DIGITS)

    def index(self, value: float) -> int:
        """The place of a value on the grid.

        Raises:
            InvalidField: The value is not on the grid.
        """
        index = round((value - self.low) / self.step)
        if not 0 <= index <= self.last or abs(self.low + index * self.step - value) > _ON_GRID * self.step:
            raise InvalidField(
                "threshold.readings", value, f"a value of {self.low} to {self.high} in steps of {self.step}"
            )
        return index


@dataclass(frozen=True)
class ThresholdReading:
    """What one trial said at a value of the axis; the metric is None where the trial was not valid."""

    value: float
    metric: float | None


@dataclass(frozen=True)
class MeasuredValue:
    """A value of the axis that has been measured: its place on the grid, median metric, and valid trials."""

    index: int
    x: float
    y: float
    count: int


@dataclass(frozen=True)
class MeasuredValues:
    """The readings, by value.

    Attributes:
        spots: Values with a valid trial, in order.
        broken: Places on the grid that could not be measured.
        retry: Places whose only trial was not valid.
        noise: Relative standard deviation of a trial; 0 where the question says that there is none.
        unit: Of a count: what all its values differ by multiples of; no jump is smaller. 0 for other metrics.
        trials: All trials, valid or not.
        part: Steps in one of the parts into which the range is cut.
    """

    spots: tuple[MeasuredValue, ...]
    broken: frozenset[int]
    retry: tuple[int, ...]
    noise: float
    unit: float
    trials: int
    part: float

    @property
    def points(self) -> int:
        """Different values tried."""
        return len(self.spots) + len(self.broken) + len(self.retry)


def tabulate(question: ThresholdQuestion, readings: Sequence[ThresholdReading]) -> MeasuredValues:
    """Sort readings by value.

    Raises:
        InvalidField: A reading is not on the grid of the question, or its metric is not a number.
    """
    valid: dict[int, list[float]] = {}
    tried: dict[int, int] = {}
    for reading in readings:
        index = question.index(reading.value)
        tried[index] = tried.get(index, 0) + 1
        if reading.metric is None:
            continue
        if not math.isfinite(reading.metric):
            raise InvalidField("threshold.readings", reading.metric, "a finite metric, or null for an invalid trial")
        valid.setdefault(index, []).append(reading.metric)
    spots = tuple(
        MeasuredValue(index, question.value(index), statistics.median(metrics), len(metrics))
        for index, metrics in sorted(valid.items())
    )
    failed = {index: count for index, count in sorted(tried.items()) if index not in valid}
    return MeasuredValues(
        spots,
        frozenset(index for index, count in failed.items() if count >= ATTEMPTS),
        tuple(index for index, count in failed.items() if count < ATTEMPTS),
        _noise(list(valid.values())) if question.noisy else 0.0,
        0.0 if question.noisy else _unit([spot.y for spot in spots]),
        len(readings),
        question.last / question.parts,
    )


def _noise(groups: Sequence[Sequence[float]]) -> float:
    """Relative standard deviation, pooled over all values measured more than once, and a prior."""
    total, weight = PRIOR_WEIGHT * PRIOR_NOISE**2, PRIOR_WEIGHT
    for group in groups:
        scale = statistics.fmean(abs(metric) for metric in group)
        if len(group) > 1 and scale:
            mean = statistics.fmean(group)
            total += sum(((metric - mean) / scale) ** 2 for metric in group)
            weight += len(group) - 1
    return math.sqrt(total / weight)


def _unit(metrics: Sequence[float]) -> float:
    """Greatest common divisor of the differences of whole numbers; 0 where some are not whole."""
    if not all(float(metric).is_integer() for metric in metrics):
        return 0.0
    return float(math.gcd(*(round(metric - metrics[0]) for metric in metrics)))
