"""Summarises the trials of a sweep, point by point."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median, median_low
from typing import Any

from scalescope.analysis.distributions import t_quantile
from scalescope.model.environment import Environment
from scalescope.model.fields import Scalar
from scalescope.model.finding import Severity, Verdict
from scalescope.model.metrics import METRICS, OTHER_CLUSTER, WORKER_TIME, WORKING, Combine, Metric, Metrics, Unit
from scalescope.model.partition_calls import PartitionCall
from scalescope.model.sweep import ENVIRONMENT, ITEMS, WORKERS, Point
from scalescope.model.trial import BLAMED, PASSED_ON, Trial, TrialState
from scalescope.model.words import plural

CONFIDENCE = 0.95
COMBINE: Mapping[Combine, Callable[[Sequence[Any]], Any]] = {
    Combine.MEDIAN: median,
    Combine.LOWER_MEDIAN: median_low,
    Combine.MEAN: fmean,
}


@dataclass(frozen=True)
class TrialReason:
    """A reason why trials are not data points."""

    state: TrialState  # `failed` or `invalid`
    text: str  # reason as the trials give it
    count: int  # number of trials with this reason


@dataclass(frozen=True)
class MeanInterval:
    """A mean and its 95 % interval over repeats."""

    mean: float  # geometric mean; arithmetic if a value is zero
    low: float | None = None  # ends of the interval; None with fewer than two repeats, or if a value is zero
    high: float | None = None

    @property
    def exact(self) -> bool:
        """Whether all repeats agree, as on a virtual clock."""
        return self.low is not None and self.low == self.high


@dataclass(frozen=True)
class PointSummary:
    """Metrics of a point's valid trials, and reasons why other trials do not count; warm-ups are left out."""

    point: Point
    valid: int = 0  # trials that are data points
    failed: int = 0  # trials whose workload raised
    invalid: int = 0  # trials spoilt by the cluster or the machine
    reasons: tuple[TrialReason, ...] = ()  # reasons of failed and invalid trials, most frequent first
    warnings: tuple[str, ...] = ()  # warnings about the capture of valid trials, without repetition
    metrics: Metrics | None = None  # means (or what each metric declares) over valid trials; None without valid trials
    intervals: Mapping[str, MeanInterval] = field(default_factory=dict)  # by name, for metrics declared to have one
    asked: tuple[PartitionCall, ...] = ()  # calls in the workload's code that set the number of partitions
    blamed: Mapping[str, float] = field(default_factory=dict)  # mean thread-seconds, by reason why threads waited
    passed_on: Mapping[str, float] = field(default_factory=dict)  # thread-seconds of `blamed` in waits for late tasks
    cores: int = 0  # cores of the host if all workers ran on this host; 0 otherwise or if unknown

    @property
    def origin(self) -> PartitionCall | None:
        """The call that made the widest stage; None if unknown. Two calls may share a stage: it made half or more."""
        widest = 0 if self.metrics is None else self.metrics.widest_stage
        made = [asked for asked in self.asked if asked.where and widest / 2 <= asked.partitions <= widest]
        return max(made, key=lambda asked: asked.partitions, default=None)

    @property
    def partitions(self) -> int:
        if self.origin is not None:
            return self.origin.partitions
        return 0 if self.metrics is None else self.metrics.widest_stage

    @property
    def items(self) -> int | None:
        if self.point.items is not None:
            return self.point.items
        return None if self.origin is None else self.origin.items

    def share(self, *parts: str) -> float:
        """The share of worker time in these parts, from 0 to 1; 0 without valid trials."""
        if self.metrics is None:
            return 0.0
        total = sum(self.metrics.worker_time_s.values())
        return sum(self.metrics.worker_time_s.get(part, 0.0) for part in parts) / total if total > 0 else 0.0

    def share_here(self, *parts: str) -> float:
        """The share of these parts in the worker time, not counting waits of the script for another cluster."""
        here = 1.0 - self.share(OTHER_CLUSTER)
        return self.share(*parts) / here if here > 0 else 0.0

    def seconds(self, *parts: str) -> float:
        if self.metrics is None:
            return 0.0
        return self.valid * sum(self.metrics.worker_time_s.get(part, 0.0) for part in parts)


def summarise(trials: Iterable[Trial]) -> tuple[PointSummary, ...]:
    by_point: dict[str, list[Trial]] = {}
    for trial in trials:
        if not trial.warmup:
            by_point.setdefault(trial.point.id, []).append(trial)
    return tuple(sorted(map(_summary, by_point.values()), key=lambda summary: order(summary.point)))


def spoilt_points(trials: Iterable[Trial]) -> tuple[PointSummary, ...]:
    """Summaries of the points without a valid trial, from their failed and invalid trials that have metrics."""
    trials = list(trials)
    counted = {trial.point.id for trial in trials if trial.counts}
    return summarise(
        replace(trial, state=TrialState.VALID)
        for trial in trials
        if trial.metrics is not None and trial.point.id not in counted
    )


def worst_point(summaries: Sequence[PointSummary], verdict: Verdict | None) -> PointSummary | None:
    """The first point of the worst finding, if it was measured; else the point with the smallest busy share."""
    measured = {summary.point.id: summary for summary in summaries if summary.metrics is not None}
    for finding in verdict.findings if verdict else ():
        if finding.severity is not Severity.INFO and finding.points and finding.points[0] in measured:
            return measured[finding.points[0]]
    return min(measured.values(), key=lambda summary: summary.share(*WORKING), default=None)


def order(point: Point) -> tuple[object, ...]:
    """A key that sorts points by workers, threads, items and then other settings."""
    rest = settings(point)
    items = -1 if point.items is None else point.items
    return (point.workers, point.threads_per_worker, items, tuple(_comparable(rest[name]) for name in sorted(rest)))


def varied(points: Iterable[Point]) -> tuple[str, ...]:
    """Names of the settings that differ between points, besides workers and items."""
    given = [settings(point) for point in points]
    names = dict.fromkeys(name for values in given for name in values)
    return tuple(name for name in names if len({_comparable(values.get(name)) for values in given}) > 1)


def settings(point: Point) -> dict[str, Scalar]:
    """The settings of a point besides workers and items; the environment by its label."""
    rest = {name: value for name, value in point.values.items() if name not in (WORKERS, ITEMS)}
    if point.environment:
        rest[ENVIRONMENT] = Environment.parse(point.environment).label
    return rest


def label(point: Point, names: Iterable[str] = ()) -> str:
    parts = [plural(point.workers, "worker")]
    if point.items is not None:
        parts.append(plural(point.items, "item"))
    values = settings(point)
    return ", ".join(parts + [f"{name}={_short(values[name])}" for name in names if name in values])


def _short(value: Scalar) -> Scalar:
    """The last part of a value that is a path; other values stay as they are."""
    return value.rpartition("/")[2] if isinstance(value, str) and value.startswith("/") else value


def is_meant(point: Point, text: str) -> bool:
    """Whether a text selects a point: settings such as `workers=200,items=199`, or the start of the point's id."""
    if "=" not in text:
        return point.id.startswith(text)
    known = {"workers": point.workers, "items": point.items, **settings(point)}
    wanted = [part.partition("=") for part in text.split(",")]
    return all(name.strip() in known and _same(known[name.strip()], value.strip()) for name, _, value in wanted)


def _same(value: Scalar, text: str) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return json.dumps(value).strip('"').lower() == text.lower()


def interval(values: Sequence[float]) -> MeanInterval:
    """Geometric mean and its 95 % t-interval over repeats, on the log scale since times spread by factors."""
    if not values:
        raise ValueError("a mean needs at least one value")
    if min(values) == max(values):
        return MeanInterval(values[0], *((values[0], values[0]) if len(values) > 1 and values[0] > 0 else ()))
    if min(values) <= 0:
        return MeanInterval(fmean(values))
    logs = [math.log(value) for value in values]
    mean, count = fmean(logs), len(logs)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in logs) / (count - 1))
    half = t_quantile((1 + CONFIDENCE) / 2, count - 1) * deviation / math.sqrt(count)
    return MeanInterval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def _summary(trials: Sequence[Trial]) -> PointSummary:
    states = Counter(trial.state for trial in trials)
    reasons = Counter((trial.state, trial.reason) for trial in trials if trial.state is not TrialState.VALID)
    valid = [trial for trial in trials if trial.counts]
    measured = [trial.metrics for trial in valid if trial.metrics is not None]
    return PointSummary(
        point=trials[0].point,
        valid=states[TrialState.VALID],
        failed=states[TrialState.FAILED],
        invalid=states[TrialState.INVALID],
        reasons=tuple(TrialReason(state, text, count) for (state, text), count in reasons.most_common()),
        warnings=tuple(dict.fromkeys(warning for trial in valid for warning in trial.warnings)),
        metrics=_typical(measured) if measured else None,
        intervals=_intervals(measured),
        asked=tuple(map(PartitionCall.from_mapping, valid[0].facts.get("asked", ()))) if valid else (),
        cores=_cores(valid[0]) if valid else 0,
        blamed=_means([trial.facts.get(BLAMED, {}) for trial in valid]),
        passed_on=_means([trial.facts.get(PASSED_ON, {}) for trial in valid]),
    )


def _cores(trial: Trial) -> int:
    cluster, host = trial.facts.get("cluster") or {}, trial.facts.get("host") or {}
    return int((host.get("load") or {}).get("cpus", 0)) if cluster.get("kind") == "local" else 0


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    texts = dict.fromkeys(text for each in found for text in each)
    means = {text: fmean(each.get(text, 0.0) for each in found) for text in texts}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _intervals(measured: Sequence[Metrics]) -> dict[str, MeanInterval]:
    # Cut the interval of a share at 1: with two noisy repeats, it would reach far beyond.
    found = {}
    for metric in METRICS.values():
        values = _values(measured, metric) if metric.interval else []
        if values:
            found[metric.name] = mean = interval(values)
            if metric.unit is Unit.SHARE and mean.high is not None and mean.high > 1:
                found[metric.name] = replace(mean, high=max(mean.mean, 1.0))
    return found


def _typical(measured: Sequence[Metrics]) -> Metrics:
    typical: dict[str, Any] = {}
    for metric in METRICS.values():
        values = _values(measured, metric)
        typical[metric.name] = COMBINE[metric.combine](values) if values else None
    middle = sorted(measured, key=lambda m: m.work_s)[(len(measured) - 1) // 2]
    return Metrics(
        **typical,
        worker_time_s={part: fmean(m.worker_time_s.get(part, 0.0) for m in measured) for part in WORKER_TIME},
        work_by_prefix=middle.work_by_prefix,
        gpu_time_s=middle.gpu_time_s,
        gpu_by_prefix=middle.gpu_by_prefix,
        busy_time_s=middle.busy_time_s,
        busy_by_prefix=middle.busy_by_prefix,
    )


def _values(measured: Sequence[Metrics], metric: Metric) -> list[Any]:
    return [value for value in (getattr(each, metric.name) for each in measured) if value is not None]


def _comparable(value: Scalar) -> tuple[int, float, str]:
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, str):
        return (3, 0.0, value)
    return (1 if isinstance(value, bool) else 2, float(value), "")
