"""The numbers of a report as cells of a table: one place for the terminal, JSON, Markdown and Prefect's tables."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from scalescope.analysis.knee import Knee, of_sweep
from scalescope.analysis.summary import (
    Estimate,
    PointSummary,
    label,
    order,
    percent,
    plural,
    settings,
    summarise,
    varied,
)
from scalescope.analysis.worker_time import TITLES
from scalescope.diagnosis.causes.structure import structure_of
from scalescope.model.fields import Scalar
from scalescope.model.finding import Severity, Verdict
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import WORKER_TIME, Metrics, Trial

MISSING = "–"
"""A cell without a number."""


class Run(Protocol):
    """A finished run of a sweep, such as the store's `SweepRun`."""

    @property
    def sweep(self) -> Sweep:
        """The question."""

    @property
    def trials(self) -> Sequence[Trial]:
        """What was run."""

    @property
    def verdict(self) -> Verdict | None:
        """The answer; None while there is none."""


@dataclass(frozen=True)
class Column:
    """A column of the table of points.

    Attributes:
        key: Name in rows for programs; its unit is part of it.
        title: Heading for people, short.
        help: What it is, for a legend.
        value: Reads the number from a row, None where there is none.
        show: How it is written.
        rank: The higher, the sooner it is left out where the terminal is narrow; 0 never is.
    """

    key: str
    title: str
    help: str
    value: Callable[[PointSummary], Any]
    show: Callable[[Any], str]
    rank: int = 0


def columns(summaries: Sequence[PointSummary]) -> tuple[Column, ...]:
    """The columns that say something about these points: what all share is left out."""
    names = varied(summary.point for summary in summaries)
    has_items = any(summary.point.items is not None for summary in summaries)
    spoilt = any(summary.failed or summary.invalid for summary in summaries)
    repeated = any(summary.valid > 1 for summary in summaries)
    found = [Column("workers", "workers", "workers asked for", lambda row: row.point.workers, _count)]
    if has_items:
        found.append(Column("items", "items", "items of the workload", lambda row: row.point.items, _count))
    found += [Column(name, name, "parameter", _setting(name), _scalar) for name in names]
    found += MEASURED
    if spoilt or repeated:
        found.append(Column("valid", "valid", "trials that count, of those run", _valid, str))
    return tuple(found)


def cells(summary: PointSummary, shown: Iterable[Column]) -> list[str]:
    """One row of the table as text."""
    return [column.show(column.value(summary)) for column in shown]


def legend(shown: Iterable[Column]) -> str:
    """What the headings mean that do not say so themselves."""
    named = ("partitions", "workers_used", "peak_parallelism", "mean_parallelism", "ideal_s", "efficiency", "busy")
    return "; ".join(f"{column.title}: {column.help}" for column in shown if column.key in named)


def row(summary: PointSummary) -> dict[str, Any]:
    """One row for programs: all columns, unrounded, with all metrics."""
    mean = summary.efficiency
    return {
        "id": summary.point.id,
        "point": summary.point.to_mapping(),
        "workers": summary.point.workers,
        "threads": summary.point.threads,
        "items": summary.point.items,
        **{column.key: column.value(summary) for column in MEASURED},
        "efficiency": None if mean is None else mean.mean,
        "efficiency_low": None if mean is None else mean.low,
        "efficiency_high": None if mean is None else mean.high,
        "valid": summary.valid,
        "failed": summary.failed,
        "invalid": summary.invalid,
        "reasons": [
            {"state": str(reason.state), "reason": reason.text, "trials": reason.count} for reason in summary.reasons
        ],
        "warnings": list(summary.warnings),
        "metrics": None if summary.metrics is None else summary.metrics.to_mapping(),
        "cause": structure_of(summary) or "none",
    }


# ------------------------------------------------------------------ scaling


def knees(sweep: Sweep, trials: Sequence[Trial]) -> list[tuple[str, str]]:
    """Where throughput stops growing: a title and a sentence for each series of at least three worker counts."""
    found = [knee for knee in of_sweep(sweep, trials) if len(knee.series.points) > 2]
    return [(_capital(knee.title), knee.line + _to_measure(knee)) for knee in found]


def _to_measure(knee: Knee) -> str:
    if not knee.refine:
        return ""
    return f" To know more, measure {_listing(knee.refine)} workers (`--refine {len(knee.refine)}` does)."


def _listing(numbers: Sequence[int]) -> str:
    texts = [f"{number:,}" for number in sorted(numbers)]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# ------------------------------------------------------------------ worker time


@dataclass(frozen=True)
class Part:
    """One part of the worker time of a point.

    Attributes:
        name: Of `WORKER_TIME`.
        title: As reports name it.
        seconds: Thread-seconds.
        percent: Whole percent; those of all parts add up to 100.
    """

    name: str
    title: str
    seconds: float
    percent: int


def worker_time_parts(metrics: Metrics) -> tuple[Part, ...]:
    """The parts that are not zero, in their fixed order."""
    seconds = {part: metrics.worker_time_s.get(part, 0.0) for part in WORKER_TIME}
    percents = apportion(list(seconds.values()), 100)
    return tuple(
        Part(name, TITLES[name], value, percent)
        for (name, value), percent in zip(seconds.items(), percents, strict=True)
        if value > 0
    )


def apportion(amounts: Sequence[float], total: int) -> list[int]:
    """Whole numbers in proportion to `amounts` that add up to `total` exactly (largest remainders, Hamilton's method).

    All zeros where there is nothing to divide.
    """
    whole = math.fsum(amounts)
    if not whole > 0:
        return [0] * len(amounts)
    exact = [amount / whole * total for amount in amounts]
    result = [math.floor(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (result[i] - exact[i], i))
    for i in by_remainder[: total - sum(result)]:
        result[i] += 1
    return result


def worst_point(summaries: Sequence[PointSummary], verdict: Verdict | None) -> PointSummary | None:
    """The point of the first finding that was measured, or else the one with the least busy worker time."""
    measured = {summary.point.id: summary for summary in summaries if summary.metrics is not None}
    for finding in verdict.findings if verdict else ():
        if finding.severity is not Severity.INFO and finding.points and finding.points[0] in measured:
            return measured[finding.points[0]]
    return min(measured.values(), key=lambda summary: summary.share("busy"), default=None)


# ------------------------------------------------------------------ side by side


@dataclass(frozen=True)
class Pair:
    """The same point in two runs.

    Attributes:
        point: As the left run has it, or else the right one.
        left: Its summary there; None where that run has no such point.
        right: Likewise.
    """

    point: Point
    left: PointSummary | None
    right: PointSummary | None

    @property
    def speedup(self) -> float | None:
        """How many times shorter the makespan on the right is; None unless both were measured."""
        if self.left is None or self.right is None or self.left.metrics is None or self.right.metrics is None:
            return None
        return self.left.metrics.makespan_s / self.right.metrics.makespan_s


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        names: What differs between points of one run, besides workers and items.
        pairs: All points of both runs, in order.
    """

    names: tuple[str, ...]
    pairs: tuple[Pair, ...]


def compare(left: Run, right: Run) -> Comparison:
    """Match two runs by workers, threads and items, and by all else that differs within one of them."""
    sides = [summarise(run.trials) for run in (left, right)]
    names = tuple(dict.fromkeys(name for side in sides for name in varied(summary.point for summary in side)))

    def key(point: Point) -> tuple[object, ...]:
        values = settings(point)
        return (point.workers, point.threads_per_worker, point.items, *(repr(values.get(name)) for name in names))

    lefts, rights = ({key(summary.point): summary for summary in side} for side in sides)
    found = [Pair(summary.point, lefts.get(at), rights.get(at)) for at, summary in (rights | lefts).items()]
    return Comparison(names, tuple(sorted(found, key=lambda pair: order(pair.point))))


# ------------------------------------------------------------------ clusters


def cluster_lines(sweep: Sweep, trials: Iterable[Trial]) -> tuple[str, ...]:
    """What the trials ran on, what that can show and what it cannot; a line for each that differs. Then their jobs."""
    found = [facts for trial in trials if isinstance(facts := trial.facts.get("cluster"), Mapping)]
    lines = tuple(dict.fromkeys(_cluster(facts, sweep) for facts in found))
    return (*(lines or (f"Cluster: {sweep.cluster.kind}.",)), *_jobs(found))


def _jobs(clusters: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What a batch system knows of the jobs of all trials; nothing where there were none."""
    clusters = [facts for facts in clusters if "slurm" in facts]
    each = {job["id"]: job for facts in clusters for job in facts["slurm"]["jobs"]}
    if not each:
        return ()
    most = max(len(facts["jobs"]) for facts in clusters)
    nodes = {job["nodes"] for job in each.values() if job.get("nodes")}
    waits = [job["queue_wait_s"] for job in each.values() if job.get("queue_wait_s") is not None]
    text = f"Jobs: up to {most} at a time, {len(each)} in all, on {plural(len(nodes), 'node')}"
    text += f"; the longest waited {seconds(max(waits))} s in the queue" if waits else ""
    replaced: dict[str, int] = {}  # each cluster counts on from trial to trial
    for facts in clusters:
        replaced[facts["label"]] = max(facts["jobs_replaced"], replaced.get(facts["label"], 0))
    text += f"; replaced after losses: {sum(replaced.values())}" if any(replaced.values()) else ""
    return (f"{text}.",)


def _cluster(facts: Mapping[str, Any], sweep: Sweep) -> str:
    parts = [f"Cluster: {facts.get('kind', sweep.cluster.kind)}"]
    if facts.get("clock"):
        parts[0] += f", {facts['clock']} clock"
    for name, verb in (("shows", "Shows"), ("cannot_show", "Cannot show")):
        if facts.get(name):
            parts.append(f"{verb} {facts[name]}")
    return ". ".join(str(part).rstrip(".") for part in parts) + "."


# ------------------------------------------------------------------ text


def seconds(value: float | None) -> str:
    """Seconds with three digits that count: `0.0123`, `1.23`, `12.3`, `1,234`."""
    if value is None:
        return MISSING
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{min(max(2 - math.floor(math.log10(value)), 0), 6)}f}"


def estimate(value: Estimate | None) -> str:
    """A mean from 0 to 1 and its interval: `0.52 (0.49–0.55)`; without one where all repeats agree."""
    if value is None:
        return MISSING
    if value.low is None or value.high is None or value.exact:
        return f"{value.mean:.2f}"
    return f"{value.mean:.2f} ({value.low:.2f}–{value.high:.2f})"


def speedup(value: float | None) -> str:
    """A ratio with three digits that count: `1.02×`, `128×`."""
    return MISSING if value is None else f"{seconds(value)}×"


def reasons(summaries: Sequence[PointSummary]) -> list[str]:
    """Why trials do not count, a line or a few for each reason and point."""
    names = varied(summary.point for summary in summaries)
    return [
        f"{reason.count} × {reason.state} at {label(summary.point, names)}: " + _shortened(reason.text)
        for summary in summaries
        for reason in summary.reasons
    ]


def warnings(summaries: Sequence[PointSummary]) -> list[str]:
    """All warnings about the capture, each once."""
    return list(dict.fromkeys(warning for summary in summaries for warning in summary.warnings))


def markdown_text(text: object) -> str:
    """Text that neither Markdown nor HTML can misread, on one line."""
    flat = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*_{}\[\]|~#])", r"\\\1", flat)


def _shortened(text: str, lines: int = 6, limit: int = 600) -> str:
    kept = "\n".join((text.strip() or "no reason given").splitlines()[:lines])
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def _count(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def _scalar(value: Scalar) -> str:
    return MISSING if value is None else str(value)


def _parallelism(value: float | None) -> str:
    return MISSING if value is None else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _setting(name: str) -> Callable[[PointSummary], Any]:
    return lambda row: settings(row.point).get(name)


def _valid(row: PointSummary) -> str:
    return f"{row.valid}/{row.valid + row.failed + row.invalid}"


def _busy(row: PointSummary) -> float | None:
    return None if row.metrics is None else row.share("busy")


def _percent(value: float | None) -> str:
    return MISSING if value is None else percent(value)


def _metric(read: Callable[[Metrics], Any]) -> Callable[[PointSummary], Any]:
    return lambda row: None if row.metrics is None else read(row.metrics)


MEASURED = (
    Column("tasks", "tasks", "tasks that ran", _metric(lambda m: m.tasks), _count, 2),
    Column("partitions", "parts", "tasks of the widest stage", _metric(lambda m: m.widest_stage), _count),
    Column("workers_used", "used", "workers that ran a task", _metric(lambda m: m.workers_used), _count),
    Column("peak_parallelism", "peak", "most tasks at once", _metric(lambda m: m.peak_parallelism), _count, 3),
    Column(
        "mean_parallelism", "mean", "tasks at once on average", _metric(lambda m: m.mean_parallelism), _parallelism, 4
    ),
    Column("makespan_s", "time s", "makespan", _metric(lambda m: m.makespan_s), seconds),
    Column("ideal_s", "ideal s", "max(T1/P, T∞)", _metric(lambda m: m.ideal_s), seconds, 1),
    Column(
        "efficiency", "efficiency", "ideal / time of the graph as it was built", lambda row: row.efficiency, estimate
    ),
    Column("parallelism", "T1/T∞", "parallelism of the graph", _metric(lambda m: m.parallelism), _parallelism, 5),
    Column("busy", "busy", "share of worker time", _busy, _percent),
)
