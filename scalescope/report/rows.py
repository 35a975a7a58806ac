"""The contents of a report, as texts and tables that the terminal, JSON, Markdown, Prefect and the page show alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from scalescope.analysis.knee import Knee, of_sweep
from scalescope.analysis.summary import MeanInterval, PointSummary, label, order, settings, summarise, varied
from scalescope.clusters.kubernetes.counters import THROTTLED
from scalescope.diagnosis.evidence.graph_structure import structure_of
from scalescope.model.finding import Severity, Verdict
from scalescope.model.metrics import METRICS, PARTS, WORKER_TIME, WORKING, Metric, Metrics, Unit, numbers
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial
from scalescope.model.words import percent, plural, shortened
from scalescope.report.table import MISSING, Column, ReportTable, fitting, legend

WORTH_A_WORD = 0.05
"""Share of the worker time from which on it is said for what threads waited."""


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


def columns(summaries: Sequence[PointSummary]) -> tuple[Column[PointSummary], ...]:
    """The columns that say something about these points: what all share is left out."""
    found = [Column[PointSummary]("workers", "workers", lambda row: row.point.workers, count)]
    if any(summary.point.items is not None for summary in summaries):
        found.append(Column("items", "items", lambda row: row.point.items, count))
    for name in varied(summary.point for summary in summaries):
        short = name.rpartition(".")[2]  # of a key of Dask's configuration its last part
        found.append(Column(name, name, _setting(name), short=short if short != name else ""))
    found += MEASURED.values()
    if any(summary.failed or summary.invalid or summary.valid > 1 for summary in summaries):
        found.append(Column("valid", "valid", _valid))
    return tuple(found)


def points_table(
    summaries: Sequence[PointSummary], *, width: int | None = None, most: int | None = None
) -> tuple[ReportTable, str]:
    """The table of points and its legend, for all kinds of reports.

    Args:
        summaries: A row for each.
        width: Characters to fit into, by short headings and fewer columns; None: all.
        most: Rows at most; None: all.
    """
    kept = summaries[:most]
    shown = columns(summaries) if width is None else fitting(columns(summaries), kept, width)
    left_out = "" if len(kept) == len(summaries) else f"Shown are the first {len(kept):,} of {len(summaries):,} points."
    cells = ([column.cell(summary) for column in shown] for summary in kept)
    heads = [column.title for column in shown]
    return ReportTable.of("What was measured, a row per point", heads, cells, labels=0, notice=left_out), legend(shown)


def row(summary: PointSummary) -> dict[str, Any]:
    """One row for programs: all metrics, unrounded; of those with an interval the mean and its ends."""
    measured = dict.fromkeys(METRICS) if summary.metrics is None else numbers(summary.metrics)
    for name, mean in summary.intervals.items():
        measured |= {name: mean.mean, f"{name}_low": mean.low, f"{name}_high": mean.high}
    return {
        "id": summary.point.id,
        "point": summary.point.to_mapping(),
        "workers": summary.point.workers,
        "threads": summary.point.threads,
        "items": summary.point.items,
        **measured,
        "partitions": measured["widest_stage"],
        "valid": summary.valid,
        "failed": summary.failed,
        "invalid": summary.invalid,
        "reasons": [
            {"state": str(reason.state), "reason": reason.text, "trials": reason.count} for reason in summary.reasons
        ],
        "warnings": list(summary.warnings),
        "metrics": None if summary.metrics is None else summary.metrics.to_mapping(),
        "blamed": dict(summary.blamed),
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
    return f" To know more, measure {_listing(knee.refine)} workers (`refine` set to {len(knee.refine)} does)."


def _listing(numbers: Sequence[int]) -> str:
    texts = [f"{number:,}" for number in sorted(numbers)]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# ------------------------------------------------------------------ worker time


@dataclass(frozen=True)
class WorkerTimePart:
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


def worker_time_parts(metrics: Metrics) -> tuple[WorkerTimePart, ...]:
    """The parts that are not zero, in their fixed order."""
    seconds = {part: metrics.worker_time_s.get(part, 0.0) for part in WORKER_TIME}
    percents = apportion(list(seconds.values()), 100)
    return tuple(
        WorkerTimePart(name, PARTS[name].title, value, percent)
        for (name, value), percent in zip(seconds.items(), percents, strict=True)
        if value > 0
    )


def lost_to(summary: PointSummary) -> str:
    """To whom worker time was lost, with shares; empty where that is not known, or not worth a word."""
    whole = sum(summary.metrics.worker_time_s.values()) if summary.metrics else 0.0
    shares = [
        (text, seconds / whole) for text, seconds in summary.blamed.items() if seconds >= WORTH_A_WORD * whole > 0
    ]
    return "; ".join(f"{text} {percent(share)}" for text, share in shares)


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
    return min(measured.values(), key=lambda summary: summary.share(*WORKING), default=None)


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
class RunComparison:
    """Two runs side by side.

    Attributes:
        names: What differs between points of one run, besides workers and items.
        pairs: All points of both runs, in order.
    """

    names: tuple[str, ...]
    pairs: tuple[Pair, ...]


def compare(left: Run, right: Run) -> RunComparison:
    """Match two runs by workers, threads and items, and by all else that differs within one of them."""
    sides = [summarise(run.trials) for run in (left, right)]
    names = tuple(dict.fromkeys(name for side in sides for name in varied(summary.point for summary in side)))

    def key(point: Point) -> tuple[object, ...]:
        values = settings(point)
        return (point.workers, point.threads_per_worker, point.items, *(repr(values.get(name)) for name in names))

    lefts, rights = ({key(summary.point): summary for summary in side} for side in sides)
    found = [Pair(summary.point, lefts.get(at), rights.get(at)) for at, summary in (rights | lefts).items()]
    return RunComparison(names, tuple(sorted(found, key=lambda pair: order(pair.point))))


# ------------------------------------------------------------------ clusters


def cluster_lines(sweep: Sweep, trials: Iterable[Trial]) -> tuple[str, ...]:
    """What the trials ran on, what that can show and what it cannot; a line for each that differs. Then jobs, nodes."""
    found = [facts for trial in trials if isinstance(facts := trial.facts.get("cluster"), Mapping)]
    lines = tuple(dict.fromkeys(_cluster(facts, sweep) for facts in found))
    return (*(lines or (f"Cluster: {sweep.cluster.kind}.",)), *_jobs(found), *_nodes(found))


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


def _nodes(clusters: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Where the pods of all trials ran; nothing where there were none."""
    nodes = {pod["node"]: pod for facts in clusters for pod in facts.get("pods", ()) if pod.get("node")}
    if not nodes:
        return ()
    kinds = Counter(
        " ".join([str(each.get("instance_type", "of unknown type"))] + ["spot"] * bool(each.get("spot")))
        for each in nodes.values()
    )
    text = f"Pods: on {plural(len(nodes), 'node')}, {', '.join(f'{number} {kind}' for kind, number in kinds.items())}"
    counted = [facts["counters"]["workers"] for facts in clusters if "counters" in facts]
    throttled = sum(each[THROTTLED]["sum"] for each in counted if THROTTLED in each)
    text += f"; their CPU limit held workers up for {seconds(throttled)} s in all" if throttled else ""
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


def estimate(value: MeanInterval) -> str:
    """A mean from 0 to 1 and its interval: `0.52 (0.49–0.55)`; without one where all repeats agree."""
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
        f"{reason.count} × {reason.state} at {label(summary.point, names)}: "
        + shortened(reason.text.strip() or "no reason given", 600)
        for summary in summaries
        for reason in summary.reasons
    ]


def warnings(summaries: Sequence[PointSummary]) -> list[str]:
    """All warnings about the capture, each once."""
    return list(dict.fromkeys(warning for summary in summaries for warning in summary.warnings))


def count(value: float) -> str:
    """A whole number as it is, another one with a digit after the point where that says something."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes with three digits that count: `12.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.3g} TiB"


WRITTEN: Mapping[Unit, Callable[[float], str]] = {
    Unit.SECONDS: seconds,
    Unit.SHARE: lambda value: f"{value:.2f}",
    Unit.BYTES: size,
}
"""How numbers of a unit are written; all others are counts."""


def _setting(name: str) -> Callable[[PointSummary], Any]:
    return lambda row: settings(row.point).get(name)


def _valid(row: PointSummary) -> str:
    return f"{row.valid}/{row.valid + row.failed + row.invalid}"


def _column(metric: Metric) -> Column[PointSummary]:
    def value(row: PointSummary) -> Any:
        if metric.interval:
            return row.intervals.get(metric.name)
        return None if row.metrics is None else getattr(row.metrics, metric.name)

    show = estimate if metric.interval else WRITTEN.get(metric.unit, count)
    return Column(metric.name, metric.title, value, show, metric.short, metric.legend, metric.rank or 0)


MEASURED = {metric.name: _column(metric) for metric in METRICS.values() if metric.rank is not None}
"""The columns of metrics in the table of points, by name."""
