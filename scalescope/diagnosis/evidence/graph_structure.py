"""Causes in the structure of a point's graph: it offers fewer tasks than there are threads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scalescope.analysis.summary import PointSummary
from scalescope.diagnosis.cause import NOTEWORTHY, SEVERE, WITHOUT_TASKS
from scalescope.diagnosis.sweep_case import Measured, SweepCase, SweepCause
from scalescope.model.finding import Evidence
from scalescope.model.metrics import WORKING, Metrics
from scalescope.model.words import plural

CHAINED = 0.5  # tasks ready at once per task of the widest stage; below this, tasks of the stage wait for each other
LONG_PATH = 0.6  # least share of the makespan on the longest path and between its tasks, for the path to be the limit
FEW_BUSY = 0.7  # share of the threads busy on average, below which this path is the reason for idle threads
ONE_LONG = 0.7  # least share of the longest dependency path taken by one task, for that task to count as the path
WAVE_TOLERANCE = 0.05  # share of worker time by which idle time may differ from the prediction for uneven waves
MOSTLY_WAVES = 0.6  # share of the idle time without tasks that uneven waves must explain, to be its reason


def structure_of(summary: PointSummary) -> str:
    """Code of the cause that a point's own numbers give for its idle threads, or an empty string."""
    metrics = summary.metrics
    if metrics is None:
        return ""
    threads, items = summary.point.threads, summary.items
    if summary.share(*WITHOUT_TASKS) >= NOTEWORTHY:
        possible = threads if items is None else min(threads, items)
        # Tasks of one stage that could not all run at once depend on each other; a widest stage of one task is a chain.
        chained = metrics.widest_stage == 1 or metrics.peak_runnable < CHAINED * metrics.widest_stage
        sequential = _dependent(metrics, threads) and (metrics.tasks >= threads or chained) and not _one_long(metrics)
        if sequential and chained and items is None and summary.origin is None:
            return "sequential-graph"
        if metrics.peak_runnable < possible and (metrics.widest_stage < possible or in_rounds(metrics, possible)):
            return "too-few-partitions"
        if items is not None and items < threads and metrics.peak_runnable < threads:
            return "fewer-items-than-workers"
        if sequential:
            return "sequential-graph"
        if wave_tasks(summary, metrics):
            return "uneven-waves"
    return "idle-workers-cause-unknown" if 1 - summary.share_here(*WORKING) >= SEVERE else ""


def sound(case: SweepCase) -> list[PointSummary]:
    """Measured points whose idle threads need no explanation."""
    return [summary for summary, _ in case.measured if not structure_of(summary)]


def put_down_to(case: SweepCase, cause: SweepCause) -> list[Measured]:
    """Points whose idle threads this cause explains, worst first."""
    found = [
        (summary, metrics)
        for summary, metrics in (case.measured if cause.code == "idle-workers-cause-unknown" else case.graphs)
        if structure_of(summary) == cause.code
        and (cause.code == "idle-workers-cause-unknown" or case.idle(summary) >= NOTEWORTHY)
        and not case.ruled_out(summary, cause.code)
    ]
    return sorted(found, key=lambda item: (-round(case.idle(item[0]), 2), -item[0].point.threads))


def in_rounds(metrics: Metrics, threads: int) -> bool:
    """Whether independent tasks were sent in rounds: enough for all threads in total, but never at once."""
    return metrics.peak_runnable < threads <= min(metrics.widest_stage, metrics.parallelism)


def _dependent(metrics: Metrics, threads: int) -> bool:
    """Whether dependencies, and the time between dependent tasks, keep the tasks from filling the threads."""
    path_s = metrics.path_s or 0.0
    long = path_s >= LONG_PATH * metrics.makespan_s and metrics.work_s < FEW_BUSY * threads * path_s
    return metrics.parallelism < threads / 2 or long


def _one_long(metrics: Metrics) -> bool:
    return metrics.tasks > 1 and (metrics.longest_task_s or 0.0) > ONE_LONG * metrics.span_s


def wave_tasks(summary: PointSummary, metrics: Metrics) -> int:
    """Number of equal tasks whose last wave would leave as much idle as was measured; 0 if there is none."""
    threads = summary.point.threads
    for tasks in (metrics.widest_stage, summary.items or 0):
        unused = 1 - tasks / (threads * math.ceil(tasks / threads)) if tasks > threads else math.inf
        idle = summary.share(*WITHOUT_TASKS)
        explained = idle - WAVE_TOLERANCE <= unused or unused >= max(MOSTLY_WAVES * idle, NOTEWORTHY)
        if explained and unused <= 1 - summary.share_here(*WORKING) + WAVE_TOLERANCE:
            return tasks
    return 0


def points_of(found: Sequence[Measured]) -> list[PointSummary]:
    return [summary for summary, _ in found]


def idle_seconds(case: SweepCase, found: Sequence[Measured]) -> float:
    return sum(case.idle_s(summary) for summary, _ in found)


def structure_evidence(summary: PointSummary, metrics: Metrics) -> tuple[Evidence, ...]:
    point = summary.point
    source = "the point's parameters" if summary.origin is None else summary.origin.where
    items = () if summary.items is None else (Evidence("items", summary.items, source),)
    return (
        Evidence("threads asked for", point.threads, "the point"),
        *items,
        Evidence("workers used", metrics.workers_used, "table tasks"),
        Evidence("most tasks running or runnable at once", metrics.peak_runnable, "table tasks"),
        Evidence("tasks of the widest stage", metrics.widest_stage, "table tasks, by task group"),
        Evidence("tasks", metrics.tasks, "table tasks"),
        Evidence("share of worker time busy", round(summary.share(*WORKING), 4), "worker time"),
        Evidence("share without a runnable task", round(summary.share("no_runnable_task"), 4), "worker time"),
    )


def asked_and_used(summary: PointSummary, metrics: Metrics) -> str:
    point = summary.point
    threads = f" of {plural(point.threads_per_worker, 'thread')}" if point.threads_per_worker > 1 else ""
    return f"{plural(point.workers, 'worker')}{threads} asked for, {metrics.workers_used:,} used"
