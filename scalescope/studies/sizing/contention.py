"""Predicts how much longer tasks take if more of them share a Python interpreter.

A task needs the interpreter lock for a share of its time. The duration of n such tasks in a process follows from a
closed queue with one server, by mean value analysis (Reiser and Lavenberg 1980). The share comes from trials with
different numbers of threads, or else from the profile of one trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scalescope.analysis.graph_from_records import word
from scalescope.analysis.inside_tasks import Stack, is_users
from scalescope.diagnosis.evidence.inside_tasks import inside
from scalescope.diagnosis.observation import Observation
from scalescope.model.metrics import PrefixWork
from scalescope.model.recorded_graph import RecordedGraph
from scalescope.model.sweep import THREADS
from scalescope.model.trial import Trial
from scalescope.studies.prediction.measured import MeasuredSizes
from scalescope.studies.prediction.series import series_of

# Modules whose C functions keep the interpreter lock; C functions of other modules are assumed to release it.
HOLDING = frozenset({"_json", "_pickle", "_random", "builtins", "itertools", "json", "math", "operator", "re", "_sre"})
_SHARES = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True)
class Contention:
    """How much tasks need the interpreter lock."""

    measured: int  # threads of a worker in the base trial
    shares: Mapping[str, float] = field(default_factory=dict)  # share of a task's time with the lock, by prefix
    compared: tuple[int, ...] = ()  # other numbers of threads per worker that were measured
    told: bool = True  # False: nothing is known, not even a profile, and no task is assumed to need the lock
    virtual: bool = False  # True: the cluster was simulated, and its threads share no interpreter

    def factor(self, prefix: str, threads: int) -> float:
        """Expected duration of a task on workers with `threads` threads, relative to the base trial."""
        share = self.shares.get(word(prefix), 0.0)
        return longer(share, threads) / longer(share, self.measured)

    def sure(self, threads: int) -> bool:
        """Whether workers with `threads` threads were measured, or need not be since the cluster is simulated."""
        return self.virtual or threads in (self.measured, *self.compared)


@dataclass(frozen=True)
class ThreadedSizes(MeasuredSizes):
    """Measured sizes with task durations changed to those expected on workers with `threads` threads."""

    contention: Contention = Contention(1)
    threads: int = 1

    @classmethod
    def on(cls, measured: MeasuredSizes, contention: Contention, threads: int) -> ThreadedSizes:
        return cls(**vars_of(measured), contention=contention, threads=threads)

    def durations_at(self, workers: int) -> dict[str, float]:
        found = super().durations_at(workers)
        return {name: seconds * self.contention.factor(name, self.threads) for name, seconds in found.items()}

    def resized(self, graph: RecordedGraph, workers: int) -> RecordedGraph:
        def longer_tasks(each: RecordedGraph) -> RecordedGraph:
            factors = [self.contention.factor(stage, self.threads) for stage in each.stages]
            tasks = (replace(task, seconds=task.seconds * factors[task.stage]) for task in each.tasks)
            return replace(each, tasks=tuple(tasks))

        return super().resized(graph, workers).changed(longer_tasks)


def vars_of(measured: MeasuredSizes) -> dict[str, Any]:
    return {name: getattr(measured, name) for name in MeasuredSizes.__dataclass_fields__}


def longer(share: float, threads: int) -> float:
    """Duration of a task if all threads of its process run such tasks, relative to a task that runs alone."""
    served = share
    for others in range(1, threads):
        served = share * (1 + others * served / (served + 1 - share))
    return served + 1 - share


def contention(measured: MeasuredSizes, observation: Observation) -> Contention:
    base = measured.base
    own = base.point.threads_per_worker
    others = {each.point.threads_per_worker: each for each in _other_threads(measured)}
    if others:
        shares = [_compared(base, trial) for _, trial in sorted(others.items())]
        mean = {name: float(np.mean([each[name] for each in shares if name in each])) for name in set().union(*shares)}
        return Contention(own, mean, tuple(sorted(others)))
    if base.virtual:
        return Contention(own, virtual=True)
    profiles = {word(name): each for name, each in inside(observation).items() if each.samples}
    holding = {name: each.share([one for one in each.stacks if holds(one)]) for name, each in profiles.items()}
    return Contention(
        own, {name: _share_from_profile(each, own) for name, each in holding.items()}, told=bool(profiles)
    )


def holds(stack: Stack) -> bool:
    """Whether a sampled thread held or wanted the interpreter lock, judged by the function it was in."""
    module, dot, _ = stack.call.rpartition(".")
    if not stack.call:
        return True
    if dot:
        return module.partition(".")[0] in HOLDING
    return len(stack.frames) < 2 or is_users(stack.frames[-2])  # False: probably a library's own C function


def _share_from_profile(seen: float, threads: int) -> float:
    """A lone task's share of time with the lock, if on `threads` threads it held or wanted it for the share `seen`."""
    shares = np.array([1 - (1 - each) / longer(float(each), threads) for each in _SHARES])
    return float(_SHARES[np.abs(shares - seen).argmin()])


def _other_threads(measured: MeasuredSizes) -> Iterable[Trial]:
    """Trials that differ from the base trial in threads per worker, and perhaps in workers and items."""
    own = {
        name: value for name, value in measured.base.point.values.items() if name not in ("workers", THREADS, "items")
    }
    trials = [each for each in measured.run.trials if each.counts and each.metrics is not None]
    for series in series_of(measured.run, trials):
        for trial in (each for every in series.sizes.values() for each in every):
            same = {name: value for name, value in trial.point.values.items() if name in own} == own
            if same and trial.point.threads_per_worker != measured.base.point.threads_per_worker:
                yield trial


def _compared(base: Trial, other: Trial) -> dict[str, float]:
    """The share of time with the lock, by prefix, that best explains the durations of both trials."""
    own, found = _work(base), dict[str, float]()
    few, many = (each.point.threads_per_worker for each in (base, other))
    ratios = np.array([longer(float(each), many) / longer(float(each), few) for each in _SHARES])
    for name, work in _work(other).items():
        if name in own and own[name].work_s > 0:
            ratio = work.work_s / work.tasks * own[name].tasks / own[name].work_s
            found[word(name)] = float(_SHARES[np.abs(ratios - ratio).argmin()])
    return found


def _work(trial: Trial) -> Mapping[str, PrefixWork]:
    return (trial.metrics and trial.metrics.work_by_prefix) or {}
