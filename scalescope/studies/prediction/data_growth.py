"""Predictions for more data: `rows=10x`, or a value of a parameter whose other values were measured."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeGuard

import numpy as np

from scalescope.analysis.fitted_costs import straight_line
from scalescope.errors import InvalidField
from scalescope.model.fields import Scalar
from scalescope.model.trial import Trial
from scalescope.studies.prediction.measured import MeasuredSizes, work_of

LEAST_WORK = 0.02  # share of the work of all prefixes; the growth of a prefix with less is taken for noise
STEEPEST = 3.0  # largest exponent of work that is believed: a matrix product takes the third power of its side
_TIMES = re.compile(r"(\d+(?:\.\d+)?)x")


def times(value: object) -> float | None:
    """The factor of a value such as `10x`; None for any other value."""
    found = _TIMES.fullmatch(value) if isinstance(value, str) else None
    return float(found[1]) if found else None


def _positive(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and value > 0 and not isinstance(value, bool)


@dataclass(frozen=True)
class DataGrowth:
    """A parameter that sets the amount of data, and the value to predict for."""

    parameter: str
    base: float  # value of the trials to predict from
    value: float
    work: Mapping[str, Mapping[float, float]]  # seconds of all tasks of a prefix, by prefix and value of the parameter

    @classmethod
    def of(cls, measured: MeasuredSizes, changed: Mapping[str, Any]) -> DataGrowth | None:
        """The growth of data among the changed parameters; None if they only divide the measured work differently.

        Raises `InvalidField` if the measured or given value is not a positive number, or if several parameters grow.
        """
        grown = [name for name, value in changed.items() if times(value) or len(measured.by_value(name)) > 1]
        if not grown:
            return None
        name, base = grown[0], measured.base.point.params.get(grown[0])
        if len(grown) > 1:
            raise InvalidField("params", dict(changed), "one parameter that says how much data there is")
        if not _positive(base):
            numbers = ", ".join(each for each, value in measured.base.point.params.items() if _positive(value))
            raise InvalidField(f"params.{name}", changed[name], f"a parameter with a number: {numbers or 'none'}")
        factor = times(changed[name])
        value = changed[name] if factor is None else type(base)(round(base * factor, 9))
        if not _positive(value):
            raise InvalidField(f"params.{name}", changed[name], "a number, or a factor such as 10x")
        work: dict[str, dict[float, float]] = {}
        for size, trials in measured.by_value(name).items():
            every = [work_of(trial) for trial in trials]
            for prefix in {prefix for each in every for prefix in each}:
                found = fmean(each[prefix].work_s for each in every if prefix in each)
                work.setdefault(prefix, {})[size] = found
        return cls(name, base, value, work)

    def settings(self, of: Mapping[str, Scalar]) -> dict[str, Scalar]:
        return {**of, self.parameter: self.value}

    def unused(self, settings: Iterable[Mapping[str, Scalar]]) -> tuple[Mapping[str, Scalar], ...]:
        """The settings that differ in any other parameter than `parameter`, so that the fit does not use them."""
        return tuple(each for each in settings if each.keys() != {self.parameter})

    @property
    def fitted_at(self) -> dict[str, str]:
        values = sorted({value for sizes in self.work.values() for value in sizes})
        return {self.parameter: " and ".join(map(str, values))}

    @property
    def times(self) -> float:
        return self.value / self.base

    @property
    def assumed(self) -> str:
        """The assumption made if only one value of the parameter was measured; empty if more were."""
        if any(len(sizes) > 1 for sizes in self.work.values()):
            return ""
        return f"that work grows with {self.parameter} (measure a second value: -a {self.parameter}=...)"

    def durations(self, base: Trial, counted: Trial) -> dict[str, float]:
        """Mean seconds of a task, by prefix, if the grown work is divided among the tasks of `counted`."""
        tasks = {prefix: work.tasks for prefix, work in work_of(counted).items()}
        return {
            prefix: work.work_s * self._growth(prefix, tasks[prefix] / work.tasks) / tasks[prefix]
            for prefix, work in work_of(base).items()
            if tasks.get(prefix)
        }

    def _growth(self, prefix: str, more_tasks: float) -> float:
        """Factor by which a prefix's work grows, from a fit; `more_tasks` if the prefix has too little work for one."""
        known = {size: seconds for size, seconds in self.work.get(prefix, {}).items() if seconds > 0}
        if self.work_values < 2:
            return self.times  # one value was measured: work grows as the data
        if len(known) < 2 or max(known.values()) < LEAST_WORK * self._most_work_s:
            return more_tasks
        sizes, seconds = np.array(sorted(known.items())).T
        exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
        if exponent >= 1:
            return float(self.times ** min(exponent, STEEPEST))
        _, (fixed_s, each_s) = straight_line(sizes, seconds) or (0.0, (1.0, 0.0))
        return (fixed_s + each_s * self.value) / (fixed_s + each_s * self.base)

    @property
    def _most_work_s(self) -> float:
        return sum(max(sizes.values()) for sizes in self.work.values())

    @property
    def work_values(self) -> int:
        return len({size for sizes in self.work.values() for size in sizes})

    @property
    def doublings(self) -> float:
        return abs(math.log2(self.times))
