"""Groups the trials of a run into series: trials that differ only in workers, and in items in proportion."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from scalescope.model.environment import Environment
from scalescope.model.fields import Scalar
from scalescope.model.sweep import ENVIRONMENT, ITEMS, ITEMS_PER_WORKER, NOTHING, WORKERS
from scalescope.model.trial import Trial
from scalescope.store.store import SweepRun


@dataclass(frozen=True)
class Series:
    """The trials of one setting."""

    values: Mapping[str, Scalar]  # values of all axes except `workers`; with either `items` or `items_per_worker`
    sizes: Mapping[int, tuple[Trial, ...]]  # trials by number of workers

    def has(self, axes: Mapping[str, Sequence[Scalar]]) -> bool:
        return all(self.values.get(name) in [_named(name, each) for each in values] for name, values in axes.items())

    def number(self, name: str) -> float | None:
        """The value of this parameter, if it is a number."""
        value = self.values.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def differs_in(self, other: Series, name: str) -> bool:
        """Whether both series have the same values, except perhaps of parameter `name`."""
        return {**self.values, name: None} == {**other.values, name: None}


def series_of(run: SweepRun, trials: Sequence[Trial]) -> list[Series]:
    """The trials, one series for each setting, in the order in which the sweep names the settings."""
    rates = [asked[ITEMS_PER_WORKER] for asked in _asked(run) if ITEMS_PER_WORKER in asked]
    by_settings: dict[str, list[Trial]] = {}
    for trial in trials:
        by_settings.setdefault(json.dumps(_settings(trial), sort_keys=True, default=str), []).append(trial)
    found = [each for same in by_settings.values() for each in _by_items(same, rates)]
    return sorted(found, key=partial(_place, run))


def differing_values(run: SweepRun, found: Sequence[Series]) -> list[dict[str, Scalar]]:
    """For each series, its values on those axes of the sweep on which the series differ."""
    asked = {ITEMS, ITEMS_PER_WORKER, *(name for combination in _asked(run) for name in combination)}
    names = dict.fromkeys(name for each in found for name in each.values if name in asked)
    several = [name for name in names if len({repr(each.values.get(name)) for each in found}) > 1]
    return [{name: each.values[name] for name in several if name in each.values} for each in found]


def _by_items(trials: Sequence[Trial], rates: Sequence[Scalar]) -> list[Series]:
    """Series of trials with equal settings, by items or by items per worker, whichever gives fewer series."""
    same_items = _by(trials, ITEMS, lambda trial: trial.point.params.get(ITEMS))
    if len(same_items) == 1 or any(trial.point.items is None for trial in trials):
        return same_items
    return min(same_items, _by(trials, ITEMS_PER_WORKER, partial(_rate, rates)), key=len)


def _by(trials: Sequence[Trial], name: str, value: Callable[[Trial], Scalar]) -> list[Series]:
    found: dict[Scalar, dict[int, tuple[Trial, ...]]] = {}
    for trial in trials:
        sizes = found.setdefault(value(trial), {})
        sizes[trial.point.workers] = (*sizes.get(trial.point.workers, ()), trial)
    return [Series({**_settings(trials[0]), name: each}, sizes) for each, sizes in found.items()]


def _rate(rates: Sequence[Scalar], trial: Trial) -> Scalar:
    """Items per worker: the sweep's own number if it gives the items of this trial, else items / workers."""
    items, workers = trial.point.items or 0, trial.point.workers
    asked = (rate for rate in rates if isinstance(rate, int | float) and round(rate * workers) == items)
    return next(asked, items / workers)


def _settings(trial: Trial) -> dict[str, Scalar]:
    point = trial.point
    rest = {name: _named(name, value) for name, value in point.values.items() if name not in (WORKERS, ITEMS)}
    return {**NOTHING, **rest}


def _named(name: str, value: Scalar) -> Scalar:
    return Environment.parse(str(value)).label if name == ENVIRONMENT else value


def _asked(run: SweepRun) -> Iterator[Mapping[str, Scalar]]:
    """The combinations of values that the sweep names, in its order."""
    axes = run.sweep.axes
    if axes:
        yield from (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
    yield from run.sweep.points


def _place(run: SweepRun, series: Series) -> int:
    """Sort key: the position of the first combination in the sweep that asks for this series; last if none does."""
    number = 0
    for asked in _asked(run):
        number += 1
        if series.has({name: [value] for name, value in asked.items() if name in series.values}):
            return number
    return number + 1
