"""The question of a search for thresholds, its readings, and the grid of axis values to measure."""

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

# Number of parts into which the range is cut at first, if the budget allows.
LOOKS = 8
# Invalid trials after which a value without a valid trial counts as not measurable.
ATTEMPTS = 2
# Prior for noise: relative standard deviation (of real-time clusters on a quiet host), and its degrees of freedom.
PRIOR_NOISE, PRIOR_WEIGHT = 0.03, 2
_ON_GRID = 1e-6
_DIGITS = 12


@dataclass(frozen=True)
class ThresholdQuestion(Mapped):
    """The question of one search: where along an axis does a metric jump?"""

    low: float
    high: float  # end of the range; not measured unless it lies on the grid `low` + n `step`
    step: float = 1  # a jump is exact when it lies between two values one step apart
    metric: str = "metric"  # like `axis`, used in texts only
    axis: str = "value"
    max_points: MaxPoints = ThresholdParameters.max_points
    max_repeats: MaxRepeats = ThresholdParameters.max_repeats
    min_jump: MinJump = ThresholdParameters.min_jump
    confidence: Annotated[float, Parameter("", minimum=0.001, maximum=0.999999)] = 0.95  # confidence in each jump
    noisy: bool = False  # True: two trials of a value may differ; False: no value is measured twice

    def __post_init__(self) -> None:
        parameters.check_fields(self, "threshold")
        if not all(math.isfinite(number) for number in (self.low, self.high, self.step)) or self.step <= 0:
            raise InvalidField("threshold.step", self.step, "a finite step above zero, with finite ends")
        if self.high - self.low < self.step * (1 - _ON_GRID):
            raise InvalidField("threshold.high", self.high, "at least one step above low")

    @property
    def last(self) -> int:
        """Index of the highest value on the grid; that of the lowest is 0."""
        return math.floor((self.high - self.low) / self.step + _ON_GRID)

    @property
    def parts(self) -> int:
        """Number of parts into which the range is cut first; at least half of the budget is left for later gaps."""
        return max(1, min(LOOKS, self.last, self.max_points // 2))

    def value(self, index: int) -> float | int:
        """The value of the axis at an index; a whole number if `low` and `step` are whole numbers."""
        value = self.low + index * self.step
        if float(self.low).is_integer() and float(self.step).is_integer():
            return round(value)
        return round(value, _DIGITS)

    def index(self, value: float) -> int:
        index = round((value - self.low) / self.step)
        if not 0 <= index <= self.last or abs(self.low + index * self.step - value) > _ON_GRID * self.step:
            raise InvalidField(
                "threshold.readings", value, f"a value of {self.low} to {self.high} in steps of {self.step}"
            )
        return index


@dataclass(frozen=True)
class ThresholdReading:
    """One trial at a value of the axis; the metric is None if the trial was not valid."""

    value: float
    metric: float | None


@dataclass(frozen=True)
class MeasuredValue:
    """A value of the axis, the median of its metric and its number of valid trials."""

    index: int  # position on the grid
    x: float
    y: float
    count: int


@dataclass(frozen=True)
class MeasuredValues:
    """All readings, combined by value of the axis."""

    spots: tuple[MeasuredValue, ...]
    broken: frozenset[int]  # indices of values that could not be measured
    retry: tuple[int, ...]  # indices of values whose only trial was not valid
    noise: float  # relative standard deviation of a trial; 0 without noise
    unit: float  # greatest common divisor of the metric's differences; 0 under noise, or if a value is not whole
    trials: int  # number of trials, valid or not
    part: float  # width, in steps, of the parts into which the range is cut first

    @property
    def points(self) -> int:
        return len(self.spots) + len(self.broken) + len(self.retry)


def tabulate(question: ThresholdQuestion, readings: Sequence[ThresholdReading]) -> MeasuredValues:
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
    # Relative standard deviation, pooled over the prior and all values that were measured more than once.
    total, weight = PRIOR_WEIGHT * PRIOR_NOISE**2, PRIOR_WEIGHT
    for group in groups:
        scale = statistics.fmean(abs(metric) for metric in group)
        if len(group) > 1 and scale:
            mean = statistics.fmean(group)
            total += sum(((metric - mean) / scale) ** 2 for metric in group)
            weight += len(group) - 1
    return math.sqrt(total / weight)


def _unit(metrics: Sequence[float]) -> float:
    # Greatest common divisor of the differences of whole numbers; 0 if some are not whole.
    if not all(float(metric).is_integer() for metric in metrics):
        return 0.0
    return float(math.gcd(*(round(metric - metrics[0]) for metric in metrics)))
