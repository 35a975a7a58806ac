"""Trials that are added to a sweep while it runs: points around a knee, then remedies and experiments."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scalescope.analysis.knee import further
from scalescope.analysis.summary import summarise
from scalescope.diagnosis.causes.no_known_cause import UNKNOWN
from scalescope.diagnosis.verdict import diagnose
from scalescope.errors import InvalidField
from scalescope.model.cluster import MEMORY_LIMIT_MB
from scalescope.model.fields import Scalar
from scalescope.model.finding import UNSURE, Finding
from scalescope.model.partition_calls import DIVIDED, NPARTITIONS
from scalescope.model.sweep import CLUSTER, DEFAULT_CLUSTER, WORKERS, ZERO_LENGTH, PlannedTrial, Point, Sweep
from scalescope.model.trial import Trial
from scalescope.model.workload import Workload
from scalescope.run.parameters import Execution

UNASKED_S = 30.0  # real seconds; experiments that nobody asked for are run only if they probably take no longer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExtraTrial:
    """A trial that is added to a sweep while it runs."""

    point: Point
    repeat: int  # number of this trial among the trials of its point, from 0
    warmup: bool = False


# Chooses further trials from all finished trials, in their order. The choice must depend on nothing else, so that a
# killed run adds the same trials when it continues
Growth = Callable[[Sequence[Trial]], Sequence[ExtraTrial]]


@dataclass(frozen=True)
class SweepGrowth:
    """Adds points around a knee that is not known well enough, then remedies and experiments."""

    sweep: Sweep
    workload: Workload
    planned: frozenset[str]  # ids of the points planned at the start
    execution: Execution

    @classmethod
    def of(cls, sweep: Sweep, workload: Workload, plan: Sequence[PlannedTrial], execution: Execution) -> SweepGrowth:
        """The growth that the options ask for; if they ask for none, only short experiments."""
        return cls(sweep, workload, frozenset(planned.point.id for planned in plan), execution)

    def __call__(self, done: Sequence[Trial]) -> list[ExtraTrial]:
        sweep, execution = self.sweep, self.execution
        tried = {trial.point.id for trial in done}  # includes points without a valid trial, which are not run again
        between = [point for point in further(sweep, done) if point.id not in tried] if execution.refine else []
        points = between[: max(execution.refine - len(tried - self.planned), 0)]
        if not points:
            findings = diagnose(sweep, done).findings
            unsure = execution.explain and findings[0].confidence < UNSURE
            values = remedies(findings if execution.verify else findings[:unsure], done)
            tried_here = experiments(sweep, findings, done)
            values += tried_here if execution.explain else simulated(sweep, findings, done, tried_here)
            points = [point for point in self._points(values) if point.id not in tried]
        rng = random.Random(f"{sweep.seed} {len(done)}")
        return [
            ExtraTrial(point, repeat, warmup)
            for turns, warmup in ((sweep.warmups, True), (sweep.repeats, False))
            for repeat in range(turns)
            for point in rng.sample(points, len(points))
        ]

    def _points(self, found: Sequence[Mapping[str, Scalar]]) -> list[Point]:
        """Points with these values, without duplicates; a point that cannot run here is logged and left out."""
        points = {}
        for values in found:
            try:
                point = self.sweep.point(values, self.workload)
            except InvalidField as problem:
                logger.warning("a point that the sweep would add cannot run here, and is left out: %s", problem)
            else:
                points[point.id] = point
        return list(points.values())


def simulated(
    sweep: Sweep, findings: Sequence[Finding], done: Sequence[Trial], tried: list[dict[str, Scalar]]
) -> list[dict[str, Scalar]]:
    """Those experiments of `tried` that run unasked: simulated and short ones, if no cause of idle workers is known."""
    if findings[0].code != UNKNOWN.code:
        return []
    tried = [each for each in tried if not sweep.cluster.real_time or CLUSTER in each]
    took_s = max(trial.real_s for trial in done if trial.point.id == findings[0].points[0])
    return tried if took_s * len(tried) * (sweep.repeats + sweep.warmups) <= UNASKED_S else []


def remedies(findings: Sequence[Finding], done: Sequence[Trial]) -> list[dict[str, Scalar]]:
    """Values of each finding's first point with the advised change; advice on the memory limit is left out."""
    points = {trial.point.id: trial.point for trial in done}
    gains = ((points[finding.points[0]], finding.gain) for finding in findings if finding.points)
    return [
        {**point.values, **gain.change}
        for point, gain in gains
        if gain and gain.change and MEMORY_LIMIT_MB not in gain.change
    ]


def experiments(sweep: Sweep, findings: Sequence[Finding], done: Sequence[Trial]) -> list[dict[str, Scalar]]:
    """Values of experiments, each a change of the first finding's point; none if that point is itself an experiment.

    A single worker is tried only if the trial would probably keep its time limit.
    """
    summaries = {each.point.id: each for each in summarise(done)}
    first = next((finding for finding in findings if finding.points), None)
    worst = summaries[first.points[0]] if first else None
    if worst is None or worst.metrics is None or worst.point.cluster or NPARTITIONS in worst.point.dask_config:
        return []
    point, changes = worst.point, list[dict[str, Scalar]]()
    if point.workers >= 4:
        changes.append({WORKERS: point.workers // 2})
    if point.workers >= 2 and worst.metrics.work_s / point.threads_per_worker < sweep.trial_timeout_s / 2:
        changes.append({WORKERS: 1})
    if isinstance(count := point.params.get("npartitions"), int):
        changes.append({"npartitions": 2 * count})
    elif worst.origin is not None and worst.origin.call in DIVIDED:
        changes.append({NPARTITIONS: 2 * worst.origin.partitions})
    if not point.environment and not point.groups:
        simulated: dict[str, Scalar] = {CLUSTER: DEFAULT_CLUSTER} if sweep.cluster.real_time else {}
        changes += [simulated] if simulated else []
        changes.append({**simulated, ZERO_LENGTH: True})
    return [{**point.values, **change} for change in changes]
