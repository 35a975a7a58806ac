"""Content of the page about one trial: charts over its time, stages and critical path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.events import Tables
from scalescope.analysis.graph import Graph
from scalescope.analysis.summary import PointSummary, label, varied
from scalescope.analysis.work_span import critical_path, work_span
from scalescope.diagnosis.observation import Observation
from scalescope.errors import CaptureError, StoreError
from scalescope.model.trial import Trial, TrialState
from scalescope.model.words import percent, plural, seconds
from scalescope.report import worker_time
from scalescope.report.html import flames, over_time, page, stages
from scalescope.report.html.charts import Canvas
from scalescope.report.html.over_time import TimeChart
from scalescope.report.table import ReportTable
from scalescope.store.store import SweepRun

ReadTables = Callable[[Trial], Tables]
MOST_PREFIXES = 20


@dataclass(frozen=True)
class TrialPage:
    """Content of the page about one trial."""

    title: str  # the point in words
    why: str  # reason why this trial is shown
    missing: str = ""  # reason why nothing can be drawn; empty: charts follow
    charts: tuple[TimeChart, ...] = ()
    inside: flames.Inside | None = None  # flame charts of time inside tasks
    stages: ReportTable | None = None  # a row per stage
    path: ReportTable | None = None  # the critical path; None if the graph is not known
    path_text: str = ""


def choose(run: SweepRun, summaries: Sequence[PointSummary], key: str = "") -> tuple[Trial, str] | None:
    """The trial to show in detail, and the reason for this choice; None if no trial was recorded."""
    if key:
        return {trial.key: trial for trial in run.trials}[key], "chosen by its key"
    recorded = [trial for trial in run.trials if trial.records and not trial.warmup]
    worst = worker_time.worst_point(summaries, run.verdict)
    if worst is not None:
        of_point = [trial for trial in recorded if trial.counts and trial.point.id == worst.point.id and trial.metrics]
        if of_point:
            of_point.sort(key=lambda trial: trial.metrics.makespan_s if trial.metrics else 0.0)
            middle = of_point[(len(of_point) - 1) // 2]
            repeats = f"; of its {len(of_point)} trials the one with the median makespan" if len(of_point) > 1 else ""
            return middle, page.worst_why(worst, run.verdict) + repeats
    for state, why in ((TrialState.VALID, "a valid trial"), (TrialState.FAILED, "a trial that failed")):
        for trial in recorded:
            if trial.state is state:
                return trial, why
    return (recorded[0], "a trial that was excluded") if recorded else None


def build(
    run: SweepRun, summaries: Sequence[PointSummary], read: ReadTables, canvas: Canvas, key: str = ""
) -> TrialPage:
    """Draw the charts of one trial, with words and tables that say the same."""
    chosen = choose(run, summaries, key)
    if chosen is None:
        return TrialPage("", "", missing="No trial of this run has records of its tasks, so there is nothing to draw.")
    trial, why = chosen
    title = label(trial.point, varied(summary.point for summary in summaries))
    if trial.state is not TrialState.VALID:
        why += f", {trial.state}: {trial.reason.strip().partition(chr(10))[0] or 'no reason given'}"
    if not trial.records:
        return TrialPage(title, why, missing="Nothing was recorded of this trial.")
    try:
        tables = read(trial)
        attempts = Attempts.read(tables)
    except (StoreError, CaptureError) as error:  # the rest of the report does not need these records
        return TrialPage(title, why, missing=str(error))
    seen = Observation(trial, tables, attempts)
    graph = Graph.read(seen.tables, attempts)
    groups = stages.Groups.of(seen.stages, attempts)
    path, path_text = _path(attempts, graph)
    return TrialPage(
        title,
        why,
        charts=tuple(over_time.draw(seen, attempts, groups, canvas)),
        inside=flames.draw(seen),
        stages=stages.table(seen, attempts, groups),
        path=path,
        path_text=path_text,
    )


def _path(attempts: Attempts, graph: Graph) -> tuple[ReportTable | None, str]:
    """Table of the critical path, and a sentence on what its length means."""
    spans = work_span(attempts, graph)
    longest = critical_path(attempts, graph)
    useful = f"With more than about {plural(spans.useful_workers, 'thread')}, this graph gets less than 5 % faster."
    if longest is None:
        return None, f"The tasks on the critical path are not known, because dependencies were not recorded. {useful}"
    shares, count = longest.shares(), dict.fromkeys(longest.by_prefix, 0)
    for prefix in longest.prefixes:
        count[prefix] += 1
    cells = tuple(
        (prefix, f"{count[prefix]:,}", seconds(taken), percent(shares[prefix]))
        for prefix, taken in list(longest.by_prefix.items())[:MOST_PREFIXES]
    )
    text = (
        f"The longest path has {plural(len(longest.keys), 'task')} and takes {seconds(longest.span_s)} s, "
        f"{percent(longest.span_s / attempts.makespan)} of the makespan: no number of workers makes this graph faster "
        f"than that. {useful}"
    )
    return ReportTable.of(
        "What the critical path consists of", ("task prefix", "tasks", "seconds", "share"), cells
    ), text
