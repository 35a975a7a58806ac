"""Tables of a run for all kinds of reports: points, scaling, and two runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from scalescope.analysis.factors import TITLES, WORK
from scalescope.analysis.knee import Knee
from scalescope.analysis.summary import (
    MeanInterval,
    PointSummary,
    label,
    order,
    settings,
    spoilt_points,
    summarise,
    varied,
)
from scalescope.diagnosis.evidence.graph_structure import structure_of
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import Verdict
from scalescope.model.metrics import METRICS, Metric, Unit, numbers
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState, ran_what
from scalescope.model.words import capital, count, plural, seconds, shortened, size
from scalescope.report.table import Column, ReportTable, fitting, legend

MOST_TRACEBACKS = 3  # most tracebacks in a report
MOST_SIZES = 8  # most sizes (columns) in the table of factors
ACCEPTABLE = 0.8  # factors below this are marked, as in the POP project


class ShownRun(Protocol):
    """A run of a sweep, such as the store's `SweepRun`."""

    @property
    def sweep(self) -> Sweep: ...

    @property
    def trials(self) -> Sequence[Trial]: ...

    @property
    def verdict(self) -> Verdict | None: ...


def verdict_of(run: ShownRun) -> Verdict:
    """The verdict of a run; if the run has not finished, a verdict on its trials so far."""
    return run.verdict or diagnose(run.sweep, run.trials)


def points(trials: Sequence[Trial]) -> tuple[PointSummary, ...]:
    """The points of a sweep; for a user's program, the recorded points even if their trials do not count."""
    found = summarise(trials)
    if not ran_what(trials):
        return found
    recorded = spoilt_points(trials) or tuple(each for each in found if each.metrics is not None)
    return tuple(
        replace(each, valid=own.valid, failed=own.failed, invalid=own.invalid)
        for each, own in zip(recorded, found, strict=False)
    )


def columns(summaries: Sequence[PointSummary]) -> tuple[Column[PointSummary], ...]:
    """Columns for the settings in which these points differ, and for their metrics."""
    found = [Column[PointSummary]("workers", "workers", lambda row: row.point.workers, count)]
    if any(summary.point.items is not None for summary in summaries):
        found.append(Column("items", "items", lambda row: row.point.items, count))
    for name in varied(summary.point for summary in summaries):
        short = name.rpartition(".")[2]  # the last part of a key of Dask's configuration
        found.append(Column(name, name, _setting(name), short=short if short != name else ""))
    measured = [summary for summary in summaries if summary.metrics is not None]
    unknown = {name for name, each in MEASURED.items() if all(each.value(row) is None for row in measured)}
    found += [each for name, each in MEASURED.items() if name not in unknown]
    trials = [summary.valid + summary.failed + summary.invalid for summary in summaries]
    if sum(trials) > 1 and (max(trials) > 1 or any(not summary.valid for summary in summaries)):
        found.append(Column("valid", "valid", lambda row: f"{row.valid}/{row.valid + row.failed + row.invalid}"))
    return tuple(found)


def points_table(
    summaries: Sequence[PointSummary], *, width: int | None = None, most: int | None = None
) -> tuple[ReportTable, str]:
    """The table of at most `most` points, and its legend. `width`: most characters of a row."""
    kept = summaries[:most]
    shown = columns(summaries) if width is None else fitting(columns(summaries), kept, width)
    left_out = "" if len(kept) == len(summaries) else f"Shown are the first {len(kept):,} of {len(summaries):,} points."
    cells = ([column.cell(summary) for column in shown] for summary in kept)
    heads = [column.title for column in shown]
    return ReportTable.of("What was measured, a row per point", heads, cells, labels=0, notice=left_out), legend(shown)


def row(summary: PointSummary) -> dict[str, Any]:
    """A point as a mapping for programs: all metrics, unrounded; means also with the ends of their intervals."""
    found = dict.fromkeys(METRICS) | measured(summary)
    return {
        "id": summary.point.id,
        "point": summary.point.to_mapping(),
        "workers": summary.point.workers,
        "threads": summary.point.threads,
        "items": summary.point.items,
        **found,
        "partitions": found["widest_stage"],
        "valid": summary.valid,
        "failed": summary.failed,
        "invalid": summary.invalid,
        "reasons": [
            {"state": str(reason.state), "reason": reason.text, "trials": reason.count} for reason in summary.reasons
        ],
        "warnings": list(summary.warnings),
        "metrics": None if summary.metrics is None else summary.metrics.to_mapping(),
        "blamed": dict(summary.blamed),
        "passed_on": dict(summary.passed_on),
        "cause": structure_of(summary) or "none",
    }


def measured(summary: PointSummary) -> dict[str, Any]:
    """Measured metrics by name; for metrics with an interval, the mean and both ends."""
    found: dict[str, Any] = {} if summary.metrics is None else numbers(summary.metrics)
    for name, mean in summary.intervals.items():
        found |= {name: mean.mean, f"{name}_low": mean.low, f"{name}_high": mean.high}
    return found


def knees(found: Sequence[Knee]) -> list[tuple[str, str]]:
    """Knees of throughput: title and sentence of each series of at least three worker counts."""
    several = [knee for knee in found if len(knee.series.points) > 2]
    return [(capital(knee.title), knee.line + knee.falls + to_measure(knee)) for knee in several]


def worst_factors(found: Sequence[Knee]) -> ReportTable | None:
    """`factors_table` for the series whose speed-up per thread falls most; None if no series has factors."""
    known = [knee for knee in found if knee.series.factors]
    if not known:
        return None
    return factors_table(min(known, key=lambda knee: knee.series.factors[-1].speedup / knee.series.factors[0].speedup))


def factors_table(knee: Knee) -> ReportTable | None:
    """The factors of the efficiency of a series, a column per size; None if unknown, or if no thread ever waited."""
    sizes = knee.series.factors
    if not sizes:
        return None
    step = max(len(sizes) - 1, 1) / (min(len(sizes), MOST_SIZES) - 1)
    shown = [sizes[round(i * step)] for i in range(min(len(sizes), MOST_SIZES))]
    rows = [(title, [size.factors[name] for size in shown]) for name, title in TITLES.items()]
    rows = [row for row in rows if any(f"{value:.2f}" != "1.00" for value in row[1])]
    if not rows:
        return None
    work = [rows.pop()] if rows[-1][0] == TITLES[WORK] else []
    rows.append(("= efficiency", [size.efficiency for size in shown]))
    if work:
        rows += [*work, ("= speed-up / threads", [size.speedup for size in shown])]
    notice = f"!: below {ACCEPTABLE}. Factors that are 1.00 at all sizes are left out."
    if len(shown) < len(sizes):
        notice = f"Shown are {len(shown)} of {len(sizes)} sizes. {notice}"
    return ReportTable.of(
        f"Factors of the efficiency: {knee.title}",
        ["workers", *(f"{size.point.workers:,}" for size in shown)],
        [(title, *(f"{'!' if value < ACCEPTABLE else ''}{value:.2f}" for value in values)) for title, values in rows],
        notice=notice,
    )


def to_measure(knee: Knee) -> str:
    """A sentence, with a leading space, on what to measure next to locate the knee better; empty if nothing would."""
    if not knee.refine:
        return ""
    *most, last = (f"{number:,}" for number in sorted(knee.refine))
    listed = f"{', '.join(most)} and {last}" if most else last
    return f" To know more, measure {listed} workers (`refine` set to {len(knee.refine)} does that)."


@dataclass(frozen=True)
class Pair:
    """The same point in two runs."""

    point: Point  # the point, from the left run if it has it
    left: PointSummary | None  # None if the left run has no such point
    right: PointSummary | None  # None if the right run has no such point

    @property
    def speedup(self) -> float | None:
        """Makespan on the left divided by that on the right; None unless both were measured."""
        if self.left is None or self.right is None or self.left.metrics is None or self.right.metrics is None:
            return None
        return self.left.metrics.makespan_s / self.right.metrics.makespan_s


def compare(left: ShownRun, right: ShownRun) -> tuple[tuple[str, ...], list[Pair]]:
    """All points of two runs, matched by workers, threads, items, and the settings that differ within either run.

    Returns the names of these settings, then the pairs.
    """
    sides = [summarise(run.trials) for run in (left, right)]
    names = tuple(dict.fromkeys(name for side in sides for name in varied(summary.point for summary in side)))
    lefts, rights = ({key(summary.point, names): summary for summary in side} for side in sides)
    found = [Pair(summary.point, lefts.get(at), rights.get(at)) for at, summary in (rights | lefts).items()]
    return names, sorted(found, key=lambda pair: order(pair.point))


def key(point: Point, names: Sequence[str]) -> tuple[object, ...]:
    """A key of the point, equal in both runs; `names`: settings that differ within a run."""
    values = settings(point)
    return (point.workers, point.threads_per_worker, point.items, *((name, repr(values.get(name))) for name in names))


def estimate(value: MeanInterval) -> str:
    """A mean from 0 to 1, such as `0.52 (0.49–0.55)`; without the interval if that is unknown or all repeats agree."""
    if value.low is None or value.high is None or value.exact:
        return f"{value.mean:.2f}"
    return f"{value.mean:.2f} ({value.low:.2f}–{value.high:.2f})"


def reasons(summaries: Sequence[PointSummary]) -> list[str]:
    """Reasons why trials do not count, one line each."""
    names = varied(summary.point for summary in summaries)
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for summary in summaries:
        for reason in summary.reasons:
            text = shortened(reason.text.strip() or "no reason given", 600)
            found.setdefault((reason.state, text), []).append((label(summary.point, names), reason.count))
    return [
        f"{sum(count for _, count in at)} × {state} at {at[0][0]}"
        + (f", and at {plural(len(at) - 1, 'more point')}" if len(at) > 1 else "")
        + f": {text}"
        for (state, text), at in found.items()
    ]


def tracebacks(trials: Sequence[Trial]) -> list[str]:
    """Tracebacks of failed trials, without repetition."""
    failed = [trial for trial in trials if trial.state is TrialState.FAILED]
    found = [str((trial.facts.get("error") or {}).get("traceback", "")).strip() for trial in failed]
    return list(dict.fromkeys(filter(None, found)))[:MOST_TRACEBACKS]


def warnings(summaries: Sequence[PointSummary]) -> list[str]:
    return list(dict.fromkeys(warning for summary in summaries for warning in summary.warnings))


# Formats of numbers, by unit; numbers in other units are shown as counts
WRITTEN: Mapping[Unit, Callable[[float], str]] = {
    Unit.SECONDS: seconds,
    Unit.SHARE: lambda value: f"{value:.2f}",
    Unit.BYTES: size,
}


def _setting(name: str) -> Callable[[PointSummary], Any]:
    return lambda row: settings(row.point).get(name)


def _column(metric: Metric) -> Column[PointSummary]:
    def value(row: PointSummary) -> Any:
        if metric.interval:
            return row.intervals.get(metric.name)
        return None if row.metrics is None else getattr(row.metrics, metric.name)

    show = estimate if metric.interval else WRITTEN.get(metric.unit, count)
    return Column(metric.name, metric.title, value, show, metric.short, metric.legend, metric.rank or 0)


# columns of metrics in the table of points, by name
MEASURED = {metric.name: _column(metric) for metric in METRICS.values() if metric.rank is not None}
