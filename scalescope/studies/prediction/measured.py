"""The measurements that a prediction is based on: one workload at several numbers of workers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

import numpy as np

from scalescope.analysis.fitted_costs import GrowthOfDurations, straight_line
from scalescope.analysis.graph_from_records import word
from scalescope.errors import InvalidField
from scalescope.model.fields import Scalar
from scalescope.model.metrics import PrefixWork
from scalescope.model.recorded_graph import RecordedGraph
from scalescope.model.sweep import CLUSTER, ITEMS, ITEMS_PER_WORKER, WORKERS
from scalescope.model.trial import Trial
from scalescope.model.words import pairs
from scalescope.store.store import SweepRun
from scalescope.studies.prediction.series import Series, differing_values, series_of

# All sizes have the same graph if their task counts differ by at most this factor, or no more than between repeats:
# the first `set_index` in a process adds tasks that look at the data.
SAME_GRAPH = 1.02
BUILT = 1.25  # if a prefix's task counts at two sizes differ by this factor or more, they depend on the workers


@dataclass(frozen=True)
class MeasuredSizes:
    """Valid trials of one workload that differ only in workers, and in items in proportion."""

    run: SweepRun
    by_workers: Mapping[int, tuple[Trial, ...]]  # trials to predict from, by number of workers
    others: Mapping[int, tuple[Trial, ...]] = field(default_factory=dict)  # trials to compare with
    builds_by_workers: bool = False  # True: the workload builds a graph for each size; False: one graph is run again
    grows: bool = False  # whether items grow with the workers
    settings: Mapping[str, Scalar] = field(default_factory=dict)  # axis values that differ from `other_settings`
    other_settings: tuple[Mapping[str, Scalar], ...] = ()  # axis values of the other settings that the run measured
    series: tuple[Series, ...] = ()  # trials of all settings, those of this setting first

    @classmethod
    def of(
        cls,
        run: SweepRun,
        using: Sequence[int] = (),
        axes: Mapping[str, Sequence[Scalar]] = MappingProxyType({}),
        grows: Collection[str] = (),
    ) -> MeasuredSizes:
        """The trials of one setting: the one measured at the most sizes; among equals, the one with the largest size.

        `using`: sizes to predict from; the other sizes are for comparison. `axes`: only settings with these values are
        chosen. `grows`: parameters whose largest value decides a remaining tie.
        Raises `InvalidField` if no trial or setting fits, or if a size in `using` was not measured.
        """
        trials = [trial for trial in run.trials if trial.counts and trial.records and trial.metrics is not None]
        if not trials:
            raise InvalidField(
                "run", run.id, "a run with a valid trial and its raw records", next_step=f"scalescope show {run.id}"
            )
        found = series_of(run, trials)
        values = differing_values(run, found)
        meant = [i for i, each in enumerate(found) if each.has(axes)]
        if not meant:
            shown = dict.fromkeys(pairs(each) for each in (values if values[0] else [found[0].values]))
            raise InvalidField("axes", dict(axes), f"settings that were measured: {'; '.join(shown)}")
        numbers = [[each.number(name) or 0.0 for name in grows] for each in found]
        best = max(meant, key=lambda i: (len(found[i].sizes), max(found[i].sizes), numbers[i]))
        sizes = found[best].sizes
        if missing := set(using) - set(sizes):
            raise InvalidField("using", min(missing), f"sizes that were measured: {', '.join(map(str, sorted(sizes)))}")
        kept = {workers: trials for workers, trials in sizes.items() if not using or workers in using}
        tasks = [sorted(map(_tasks, trials)) for trials in sizes.values()]
        return cls(
            run,
            kept,
            {workers: trials for workers, trials in sizes.items() if workers not in kept},
            builds_by_workers=max(least for least, *_ in tasks) > SAME_GRAPH * min(each[-1] for each in tasks)
            and _by_workers(sizes),
            grows=ITEMS_PER_WORKER in found[best].values,
            settings=values[best],
            other_settings=tuple(each for each in values if each != values[best]),
            series=(found[best], *(each for i, each in enumerate(found) if i != best)),
        )

    @property
    def largest(self) -> int:
        return max(self.by_workers)

    @property
    def smaller(self) -> MeasuredSizes | None:
        """All sizes but the largest; None if there is only one."""
        rest = {workers: trials for workers, trials in self.by_workers.items() if workers < self.largest}
        return replace(self, by_workers=rest) if rest else None

    @cached_property
    def typical(self) -> tuple[Trial, ...]:
        """The trial with the (lower) median time of each size, smallest size first."""
        return tuple(middle(trials) for _, trials in sorted(self.by_workers.items()))

    @property
    def base(self) -> Trial:
        """The trial that is run again at other sizes."""
        return self.typical[-1]

    @property
    def seconds(self) -> dict[int, float]:
        """Median seconds by number of workers, of the sizes to predict from."""
        return _medians(self.by_workers)

    @property
    def all_seconds(self) -> dict[int, float]:
        return _medians({**self.by_workers, **self.others})

    @property
    def spread(self) -> float | None:
        """Relative standard deviation of repeats, pooled over the sizes; None without repeats."""
        squares, freedom = 0.0, 0
        for trials in self.by_workers.values():
            logs = [math.log(elapsed_s(trial)) for trial in trials]
            squares += sum((each - fmean(logs)) ** 2 for each in logs)
            freedom += len(logs) - 1
        return math.sqrt(squares / freedom) if freedom else None

    def by_value(self, name: str) -> dict[float, tuple[Trial, ...]]:
        """Trials of settings that differ in this parameter alone, by its value; only sizes measured for all values."""
        alike = [each for each in self.series if each.differs_in(self.series[0], name)]
        found = {value: each.sizes for each in alike if (value := each.number(name)) is not None}
        common = set(self.by_workers).intersection(*found.values())
        every = {value: [trial for size in common for trial in sizes[size]] for value, sizes in found.items()}
        return {value: tuple(trials) for value, trials in every.items() if trials}

    def without(self, packed: Mapping[int, Mapping[str, float]]) -> MeasuredSizes:
        """A copy without the seconds that packing added to tasks; `packed` has them by number of workers and prefix."""

        def less(trial: Trial, own: Mapping[str, float]) -> Trial:
            assert trial.metrics is not None
            work = {
                name: replace(each, work_s=max(each.work_s - own.get(name, 0.0), 0.0))
                for name, each in work_of(trial).items()
            }
            return replace(trial, metrics=replace(trial.metrics, work_by_prefix=work))

        sizes = {size: tuple(less(each, packed[size]) for each in own) for size, own in self.by_workers.items()}
        return replace(self, by_workers=sizes)

    @property
    def mean_durations(self) -> dict[str, float]:
        """Mean seconds of a task in the base trial, by prefix."""
        return {name: work.work_s / work.tasks for name, work in work_of(self.base).items()}

    def shared_durations(self, trial: Trial) -> dict[str, float]:
        """Mean seconds of a task, by prefix, if the work of the base trial is divided among the tasks of `trial`."""
        tasks = {name: work.tasks for name, work in work_of(trial).items()}
        return {name: work.work_s / tasks[name] for name, work in work_of(self.base).items() if tasks.get(name)}

    def durations_at(self, workers: int) -> dict[str, float]:
        """Expected seconds of a task on `workers` workers, by prefix, if the task count depends on the workers.

        N tasks of a prefix take a + b N seconds together (a, b >= 0): a is work that all tasks divide, b is work that
        each task adds. N is extrapolated linearly from the measured sizes.
        """
        return {name: seconds * self._per_task(name, workers) for name, seconds in self.mean_durations.items()}

    def _per_task(self, prefix: str, workers: int) -> float:
        """Expected duration of a task of this prefix on `workers` workers, relative to the base trial."""
        known = [(trial.point.workers, work_of(trial)[prefix]) for trial in self.typical if prefix in work_of(trial)]
        rows = [(size, work.tasks, work.work_s) for size, work in known]
        sizes, tasks, seconds = np.array(rows, float).T
        if len(known) < 2 or max(tasks) <= SAME_GRAPH * min(tasks) or min(seconds) <= 0:
            return 1.0
        _, (shared_s, task_s) = straight_line(tasks, seconds) or (0.0, (1.0, 0.0))
        slope, first = np.polyfit(sizes, tasks, 1)
        at, base = (max(first + slope * n, min(tasks)) for n in (workers, self.largest))
        return float((shared_s / at + task_s) / (shared_s / base + task_s))

    def values_at(self, workers: int) -> dict[str, Any]:
        """Axis values for a size that was not measured."""
        values = {name: value for name, value in self.base.point.values.items() if name != CLUSTER}
        if ITEMS in values and self.grows:
            assert self.base.point.items is not None
            values[ITEMS] = max(1, round(self.base.point.items * workers / self.largest))
        return {**values, WORKERS: workers}

    def resized(self, graph: RecordedGraph, workers: int) -> RecordedGraph:
        """The graph of the base trial with the durations expected on `workers` workers."""
        growth = self._growth

        def resized(graph: RecordedGraph) -> RecordedGraph:
            factors = [_factor(growth.get(stage), self.largest, workers) for stage in graph.stages]
            if all(factor == 1.0 for factor in factors):
                return graph
            tasks = [replace(task, seconds=float(f"{task.seconds * factors[task.stage]:.4g}")) for task in graph.tasks]
            return replace(graph, tasks=tuple(tasks))

        return graph.changed(resized)

    @cached_property
    def _growth(self) -> dict[str, GrowthOfDurations]:
        """Growth of task durations with the number of workers, by stage name."""
        found: dict[str, dict[int, float]] = {}
        for workers, trials in self.by_workers.items():
            every = [work_of(trial) for trial in trials]
            for prefix in {name for work in every for name in work}:
                means = [work[prefix].work_s / work[prefix].tasks for work in every if prefix in work]
                found.setdefault(word(prefix), {})[workers] = median(means)
        return {name: GrowthOfDurations.fit(seconds, self.spread or 0.0) for name, seconds in found.items()}


def _medians(trials: Mapping[int, Sequence[Trial]]) -> dict[int, float]:
    return {workers: median(map(elapsed_s, own)) for workers, own in trials.items()}


def middle(trials: Sequence[Trial]) -> Trial:
    """The trial with the (lower) median time."""
    return sorted(trials, key=elapsed_s)[(len(trials) - 1) // 2]


def elapsed_s(trial: Trial) -> float:
    assert trial.metrics is not None
    return trial.metrics.elapsed_s or trial.metrics.makespan_s


def work_of(trial: Trial) -> Mapping[str, PrefixWork]:
    return (trial.metrics and trial.metrics.work_by_prefix) or {}


def _tasks(trial: Trial) -> int:
    assert trial.metrics is not None
    return trial.metrics.tasks


def _by_workers(sizes: Mapping[int, Sequence[Trial]]) -> bool:
    """Whether task counts differ because of the number of workers, not because of the order in which tasks end."""
    few, many = (work_of(middle(sizes[workers])) for workers in (min(sizes), max(sizes)))
    counts = [[side[name].tasks if name in side else 0 for side in (few, many)] for name in {*few, *many}]
    by_factor = [each for each in counts if max(each) >= BUILT * min(each)]
    return 2 * sum(abs(a - b) for a, b in by_factor) >= sum(abs(a - b) for a, b in counts)


def _factor(growth: GrowthOfDurations | None, base: int, workers: int) -> float:
    before = 0.0 if growth is None else growth.at(base)
    return 1.0 if growth is None or before <= 0 else growth.at(workers) / before
