"""Causes that lie in the structure of the graph: at a point of the sweep it offers fewer tasks than there are threads.

Each measured point is put down to at most one of them (`structure_of`), and only for the idle threads that findings of
its trials leave unexplained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scalescope.analysis.summary import PointSummary
from scalescope.diagnosis.partitions import (
    BAG_OPTION,
    BEAM_128,
    BEAM_OPTION,
    CALL_OPTIONS,
    PartitionRule,
    matching,
)
from scalescope.diagnosis.registry import LAST, NOTEWORTHY, SEVERE, WITHOUT_TASKS
from scalescope.diagnosis.sweep_case import Measured, SweepCase, SweepCause
from scalescope.model.fields import Scalar
from scalescope.model.finding import Evidence, Finding, Gain, Severity
from scalescope.model.metrics import PARTS, WORKER_TIME, WORKING, Metrics
from scalescope.model.partition_calls import BAG, CREATE, DIVIDED, NPARTITIONS
from scalescope.model.words import number, percent, plural

MINOR = 0.20
"""Share of worker time below which a cause with a remedy is minor."""
ABOUT_HALF = 0.45
"""Share of worker time from which on a cause with a remedy is critical: 51 partitions on 100 workers must count."""
MOSTLY = 0.5
"""Share of the worker time not busy that findings of trials must explain for its cause to be known."""
CHAINED = 0.5
"""Most tasks ready at once, as a share of the widest stage, below which its tasks wait for each other."""
ONE_LONG = 0.7
"""Share of the longest dependency path from which on a single task is that path."""
WAVE_TOLERANCE = 0.05
"""How far, in shares of worker time, idle time may be from what uneven waves predict."""

TOO_FEW_PARTITIONS = SweepCause(
    code="too-few-partitions",
    title="Fewer partitions than threads",
    needs="A tenth of the worker time has no task to run; never as many tasks are runnable at once, and no stage has "
    "as many, as there are threads (or items, where there are fewer).",
    ruled_out_by="Fewer items than threads (fewer-items-than-workers); tasks enough that depend on each other "
    "(sequential-graph); idle threads that findings of the trials explain, such as results-awaited-in-loop.",
    remedy="Set the partitions: Beam `--dask_npartitions`, bag `npartitions=`, more files or smaller chunks. A "
    "library's default is named where it predicts every count that was measured",
    link="https://github.com/dask/dask/issues/10291",
    parts=WITHOUT_TASKS,
    workers_unused=True,
)
FEWER_ITEMS_THAN_WORKERS = SweepCause(
    code="fewer-items-than-workers",
    title="Not enough to do",
    needs="The point has fewer items than threads, and never as many tasks were runnable at once as there are.",
    ruled_out_by="Items enough that were put into few partitions (too-few-partitions).",
    remedy="Ask for no more workers than there are items, or for more items",
    parts=WITHOUT_TASKS,
    workers_unused=True,
    excusable=True,
)
SEQUENTIAL_GRAPH = SweepCause(
    code="sequential-graph",
    title="Tasks depend on each other",
    needs="There are as many tasks as threads or more, but work by longest dependency path (T1/T∞) is below half of "
    "the threads, no single task is most of that path, and a tenth of the worker time has no task to run.",
    ruled_out_by="Independent tasks that are sent one by one (results-awaited-in-loop, slow-submission); a long path "
    "of one long task (straggler, skewed-tasks, slow-worker).",
    remedy="Ask for about T1/T∞ threads, or shorten the longest dependency path",
    link="https://docs.dask.org/en/stable/phases-of-computation.html",
    parts=WITHOUT_TASKS,
)
UNEVEN_WAVES = SweepCause(
    code="uneven-waves",
    title="The last wave is not full",
    needs="More tasks than threads, and the idle time is within 5 % of what equal tasks leave in their last wave.",
    ruled_out_by="Long tasks (straggler, skewed-tasks).",
    remedy="Make the number of tasks a multiple of the threads, or the tasks smaller",
    parts=WITHOUT_TASKS,
    excusable=True,
)
UNKNOWN = SweepCause(
    code="idle-workers-cause-unknown",
    title="Idle, and nothing shows why",
    needs="30 % of the worker time is not busy, the structure of the graph does not show why, and the findings of the "
    "trials explain less than half of it.",
    ruled_out_by="Any cause above or below that explains most of it.",
    remedy="The next experiment, which the finding names by the largest part of the lost time",
    precedence=LAST + 1,
)
HEALTHY = SweepCause(
    code="healthy",
    title="No fault found",
    needs="Points were measured, and no finding is worse than information.",
    ruled_out_by="Any finding that is minor or worse.",
    remedy="",
    precedence=60,
)


def structure_of(summary: PointSummary) -> str:
    """The code of the cause to which the idle threads of one point are put down, or an empty string.

    Only its own numbers count, not what findings of its trials explain.
    """
    metrics = summary.metrics
    if metrics is None:
        return ""
    threads, items = summary.point.threads, summary.items
    if summary.share(*WITHOUT_TASKS) >= NOTEWORTHY:
        possible = threads if items is None else min(threads, items)
        # Tasks of one stage that could not run at once wait for each other, however few they are; one chain is a chain.
        chained = metrics.widest_stage == 1 or metrics.peak_runnable < CHAINED * metrics.widest_stage
        sequential = (
            metrics.parallelism < threads / 2 and (metrics.tasks >= threads or chained) and not _one_long(metrics)
        )
        if sequential and chained and items is None and summary.origin is None:
            return SEQUENTIAL_GRAPH.code
        if metrics.peak_runnable < possible and (metrics.widest_stage < possible or _in_rounds(metrics, possible)):
            return TOO_FEW_PARTITIONS.code
        if items is not None and items < threads and metrics.peak_runnable < threads:
            return FEWER_ITEMS_THAN_WORKERS.code
        if sequential:
            return SEQUENTIAL_GRAPH.code
        if _waves(summary, metrics):
            return UNEVEN_WAVES.code
    return UNKNOWN.code if 1 - summary.share(*WORKING) >= SEVERE else ""


@TOO_FEW_PARTITIONS.finds
def too_few_partitions(case: SweepCase) -> Finding | None:
    """The graph never has as many tasks at once as there are threads, although there are items enough."""
    found = _put_down_to(case, TOO_FEW_PARTITIONS)
    if not found:
        return None
    worst, metrics = found[0]
    alike = [item for item in found if item[0].point.environment == worst.point.environment]  # releases differ
    rule, confidence = (None, 0.9) if _partitions_asked(worst) else _rule_of(case, alike)
    idle = case.idle(worst)
    severity = Severity.LOW if idle < MINOR else Severity.MEDIUM if idle < ABOUT_HALF else Severity.HIGH
    if worst.items is None and worst.origin is None:
        severity, confidence = Severity.MEDIUM, 0.6
    return TOO_FEW_PARTITIONS.finding(
        severity,
        f"{_asked_and_used(worst, metrics)}: {_partition_cause(case, worst, metrics, rule)}.",
        _partition_remedy(case, worst, rule),
        *_structure(worst, metrics),
        *_prediction(rule, alike),
        confidence=confidence,
        link=rule.link if rule else "",
        points=_points(found),
        lost_s=_idle_s(case, found),
        gain=_gain(case, worst, metrics),
    )


@FEWER_ITEMS_THAN_WORKERS.finds
def fewer_items_than_workers(case: SweepCase) -> Finding | None:
    """There is not enough to do; nobody's fault."""
    found = _put_down_to(case, FEWER_ITEMS_THAN_WORKERS)
    if not found:
        return None
    worst, metrics = found[0]
    items, workers = worst.items or 0, worst.point.workers
    fewer = "fewer items than workers" if items < workers else "fewer items than threads"
    return FEWER_ITEMS_THAN_WORKERS.finding(
        Severity.INFO,
        f"{plural(items, 'item')} on {plural(workers, 'worker')}: {fewer}, so that at most "
        f"{plural(metrics.peak_runnable, 'task')} could run at once.",
        "ask for no more workers than there are items, or for more items",
        *_structure(worst, metrics),
        points=_points(found),
        lost_s=_idle_s(case, found),
    )


@SEQUENTIAL_GRAPH.finds
def sequential_graph(case: SweepCase) -> Finding | None:
    """There are tasks enough, but they wait for each other."""
    found = _put_down_to(case, SEQUENTIAL_GRAPH)
    if not found:
        return None
    worst, metrics = found[0]
    return SEQUENTIAL_GRAPH.finding(
        Severity.MEDIUM,
        f"{_asked_and_used(worst, metrics)}: its {plural(metrics.tasks, 'task')} depend on each other so that no more "
        f"than {number(metrics.parallelism)} threads can be busy on average (T1/T∞).",
        f"ask for about {max(1, math.ceil(metrics.parallelism)):,} threads, or shorten the longest dependency path "
        f"({number(metrics.span_s)} s)",
        *_structure(worst, metrics),
        Evidence("longest dependency path T∞, s", metrics.span_s, "column span of the tasks"),
        Evidence("work T1, s", metrics.work_s, "durations of the tasks"),
        confidence=0.9,
        points=_points(found),
        lost_s=_idle_s(case, found),
    )


@UNEVEN_WAVES.finds
def uneven_waves(case: SweepCase) -> Finding | None:
    """Equal tasks that do not divide by the threads: the last wave is not full."""
    found = _put_down_to(case, UNEVEN_WAVES)
    if not found:
        return None
    worst, metrics = found[0]
    threads, tasks = worst.point.threads, _waves(worst, metrics)
    return UNEVEN_WAVES.finding(
        Severity.INFO,
        f"{plural(tasks, 'task')} on {plural(threads, 'thread')} take {math.ceil(tasks / threads)} waves, and the last "
        f"one has only {(tasks - 1) % threads + 1:,} ({case.label(worst)}).",
        "make the number of tasks a multiple of the threads, or the tasks smaller",
        *_structure(worst, metrics),
        confidence=0.8,
        points=_points(found),
        lost_s=_idle_s(case, found),
    )


@UNKNOWN.finds
def idle_workers_cause_unknown(case: SweepCase) -> Finding | None:
    """Much worker time is not busy, and neither the structure nor the trials show why."""
    found = [
        (summary, metrics)
        for summary, metrics in _put_down_to(case, UNKNOWN)
        if case.explained_s(summary) < MOSTLY * (1 - summary.share(*WORKING)) * sum(metrics.worker_time_s.values())
    ]
    if not found:
        return None
    worst, metrics = max(found, key=lambda item: 1 - item[0].share(*WORKING))
    idle_parts = [part for part in WORKER_TIME if part not in WORKING]
    part = max(idle_parts, key=worst.share)
    return UNKNOWN.finding(
        Severity.MEDIUM,
        f"{percent(1 - worst.share(*WORKING))} of the worker time is not busy at {case.label(worst)}, most of it "
        f"`{PARTS[part].title}` ({percent(worst.share(part))}); the cause is not known yet.",
        NEXT_EXPERIMENT[part],
        *_structure(worst, metrics),
        confidence=0.2,
        points=_points(found),
        lost_s=sum(summary.seconds(*idle_parts) for summary, _ in found),
    )


def sound(case: SweepCase) -> list[PointSummary]:
    """Measured points whose idle threads need no explanation."""
    return [summary for summary, _ in case.measured if not structure_of(summary)]


@HEALTHY.finds
def healthy(case: SweepCase) -> Finding:
    """No fault was found; it is for `diagnose` to say whether there is any other finding."""
    good = sound(case)
    points = plural(len(case.measured), "point")
    where = f"all {points}" if len(good) > 1 else "the one point measured"
    evidence: tuple[Evidence, ...] = ()
    rest = ""
    if len(good) < len(case.measured):
        where = f"{len(good):,} of {points}"
        rest = "; at the others the number of tasks allows no more"
    if good:
        lowest = min(good, key=lambda summary: summary.share(*WORKING))
        evidence = (Evidence("lowest share of worker time busy", round(lowest.share(*WORKING), 4), case.label(lowest)),)
        where += f" (at least {percent(lowest.share(*WORKING))} of the worker time busy)"
    summary = f"No fault found: workers are used well at {where}{rest}."
    return HEALTHY.finding(Severity.INFO, summary, "", *evidence, points=_points(case.measured))


NEXT_EXPERIMENT: dict[str, str] = {
    "transfer": "next, compare with larger inputs per task or fewer workers: transfer should shrink",
    "serialisation": "next, look for large objects inside tasks (scatter them) and run again",
    "spill": "next, run with more memory per worker or smaller partitions: spilling should end",
    "paused": "next, run with more memory per worker or smaller partitions: workers should no longer pause",
    "no_runnable_task": "next, double the partitions (or items) at this point: if the time falls, there were too few",
    "client": "next, look what the client does at the lines named in the table `client`: move it into tasks",
    "not_assigned": "next, run this point on the simulated cluster with scheduler_us = 0: if the idle time goes, the "
    "scheduler is the limit, and tasks should be longer",
    "late_start": "next, look when workers joined (table `workers`): start the workload after the last one",
    "lost": "next, read the logs of the workers that died (table `logs`)",
    "tail": "next, compare the longest task of the last stage with the median one: split it, or start it first",
}
"""What to try when nothing but the kind of lost time is known."""


# ------------------------------------------------------------------ what the points show


def _put_down_to(case: SweepCase, cause: SweepCause) -> list[Measured]:
    """Measured points that are put down to a cause, worst first."""
    found = [
        (summary, metrics)
        for summary, metrics in case.measured
        if structure_of(summary) == cause.code
        and (cause is UNKNOWN or case.idle(summary) >= NOTEWORTHY)
        and not case.ruled_out(summary, cause.code)
    ]
    return sorted(found, key=lambda item: (-round(case.idle(item[0]), 2), -item[0].point.threads))


def _in_rounds(metrics: Metrics, threads: int) -> bool:
    """Whether independent tasks, enough for the threads all in all, were sent in rounds: never as many at once."""
    return metrics.peak_runnable < threads <= min(metrics.widest_stage, metrics.parallelism)


def _one_long(metrics: Metrics) -> bool:
    """Whether the longest dependency path is one long task: nothing waits for another then."""
    return metrics.tasks > 1 and (metrics.longest_task_s or 0.0) > ONE_LONG * metrics.span_s


def _waves(summary: PointSummary, metrics: Metrics) -> int:
    """How many equal tasks leave idle in their last wave just what was measured; 0 where no number does."""
    threads = summary.point.threads
    for tasks in (metrics.widest_stage, summary.items or 0):
        unused = 1 - tasks / (threads * math.ceil(tasks / threads)) if tasks > threads else math.inf
        idle = (summary.share(*WITHOUT_TASKS), 1 - summary.share(*WORKING))
        if any(abs(lost - unused) <= WAVE_TOLERANCE for lost in idle):
            return tasks
    return 0


def _points(found: Sequence[Measured]) -> list[PointSummary]:
    return [summary for summary, _ in found]


def _idle_s(case: SweepCase, found: Sequence[Measured]) -> float:
    return sum(case.idle_s(summary) for summary, _ in found)


def _structure(summary: PointSummary, metrics: Metrics) -> tuple[Evidence, ...]:
    """The numbers that every finding about idle threads rests on."""
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


def _asked_and_used(summary: PointSummary, metrics: Metrics) -> str:
    point = summary.point
    threads = f" of {plural(point.threads_per_worker, 'thread')}" if point.threads_per_worker > 1 else ""
    return f"{plural(point.workers, 'worker')}{threads} asked for, {metrics.workers_used:,} used"


# ------------------------------------------------------------------ who divides items into partitions


def _partitions_asked(summary: PointSummary) -> str:
    """The axis by which this point sets its partitions itself, or an empty string."""
    names = ("npartitions", "partition_size", NPARTITIONS)
    return next((name for name in names if summary.point.values.get(name) is not None), "")


def _by_default(found: Sequence[Measured]) -> set[tuple[int, int]]:
    """Items and tasks of the widest stage, of the points that leave the partitions to a library."""
    return {
        (summary.items, summary.partitions)
        for summary, _ in found
        if summary.items is not None and not _partitions_asked(summary)
    }


def _rule_of(case: SweepCase, found: Sequence[Measured]) -> tuple[PartitionRule | None, float]:
    """The library default that predicts the widest stage of every such point, and how sure the finding is."""
    counts = _by_default(found)
    rule = matching(counts)
    calls = {summary.origin.call for summary, _ in found if summary.origin is not None}
    is_bag = case.sweep.workload.startswith("bag-") or calls == {BAG}
    if rule is not None and (_is_beam(case, found[0][0]) or (is_bag and rule is not BEAM_128)):
        return rule, 1.0
    if calls:
        return None, 0.9
    # Where no call of the workload's own code is known, only the numbers are: they must agree more than once.
    several = len({partitions for _, partitions in counts}) > 1
    return (rule, 0.7) if rule is not None and several else (None, 0.9)


def _is_beam(case: SweepCase, summary: PointSummary) -> bool:
    return case.sweep.workload.startswith("beam-") or _own_beam(case, summary)


def _own_beam(case: SweepCase, summary: PointSummary) -> bool:
    """Whether Beam made the partitions of a workload of the user's own; if no call is known, whether Beam was there."""
    if summary.origin is not None:
        return summary.origin.call == CREATE
    return any(name.partition(".")[0] == "apache_beam" for name in case.imports)


def _partition_cause(case: SweepCase, worst: PointSummary, metrics: Metrics, rule: PartitionRule | None) -> str:
    point, items, origin, asked = worst.point, worst.items, worst.origin, _partitions_asked(worst)
    if _in_rounds(metrics, point.threads):
        tasks, rounds = plural(metrics.widest_stage, "task"), f"rounds of at most {metrics.peak_runnable:,}"
        return f"the {tasks} of the widest stage come in {rounds}, for {plural(point.threads, 'thread')}"
    at = "" if origin is None else f" (`{origin.call}` at {origin.where})"
    if rule is not None and items is not None:
        by_bag = f"Apache Beam leaves it to {rule.library}, which"
        by = by_bag if _is_beam(case, worst) and rule is not BEAM_128 else rule.library
        become = "is" if items == 1 else "are"
        return f"{by} {rule.text}, so {plural(items, 'item')} {become} {plural(worst.partitions, 'partition')}{at}"
    tasks = plural(metrics.widest_stage, "task")
    if asked:
        return f"{asked}={point.values[asked]} was asked for, so the widest stage has {tasks}"
    if origin is not None:
        of = "" if items is None else f" out of {plural(items, 'item')}"
        return f"`{origin.call}` at {origin.where} makes {plural(origin.partitions, 'partition')}{of}"
    given = "" if items is None else f" and {plural(items, 'item')}"
    return f"the widest stage of the graph has {tasks} for {plural(point.threads, 'thread')}{given}"


def _partition_remedy(case: SweepCase, worst: PointSummary, rule: PartitionRule | None) -> str:
    point, items, origin, asked = worst.point, worst.items, worst.origin, _partitions_asked(worst)
    enough = _enough(worst)
    if worst.metrics is not None and _in_rounds(worst.metrics, point.threads):
        return f"make at least {enough:,} tasks of each round; where none needs the one before, send all rounds at once"
    here = " (in a sweep: params: {npartitions: items})" if "npartitions" in point.params else ""
    if asked in ("npartitions", NPARTITIONS):
        return f"set {asked} to at least {enough:,}{here}"
    if asked == "partition_size":
        return f"set partition_size to at most {max(1, (items or 1) // enough):,}"
    if rule is None and _own_beam(case, worst):
        return f"pass Beam --dask_npartitions={enough:,} or more{here}"
    if rule is None and origin is not None:
        return f"{CALL_OPTIONS.get(origin.call, 'make')} at least {enough:,} partitions at {origin.where}"
    if rule is None:
        return f"divide the input into at least {enough:,} partitions{here}"
    if rule is BEAM_128:
        return BEAM_OPTION + here
    return (f"upgrade Apache Beam to 2.63 or later and {BEAM_OPTION}" if _is_beam(case, worst) else BAG_OPTION) + here


def _enough(summary: PointSummary) -> int:
    """Partitions for all threads, as far as there are items."""
    threads, items = summary.point.threads, summary.items
    return threads if items is None else max(1, min(threads, items))


def _gain(case: SweepCase, worst: PointSummary, metrics: Metrics) -> Gain:
    """The makespan becomes that of as many threads as there may be partitions, used as now without the idle time.

    It is never less than the waves of whole items take: ceil(items / threads) of T1 / items each.
    """
    point, items, enough = worst.point, worst.items, _enough(worst)
    makespan_s = (point.threads * metrics.makespan_s - case.idle_s(worst) / worst.valid) / enough
    if items:
        makespan_s = max(makespan_s, math.ceil(items / enough) * metrics.work_s / items)
    change: dict[str, Scalar] = {}
    if "npartitions" in point.params:
        change = {"npartitions": items or enough}
    elif "partition_size" in point.params:
        change = {"partition_size": max(1, (items or 1) // enough)}
    elif worst.origin is not None and worst.origin.call in DIVIDED:
        change = {NPARTITIONS: enough}
    saved_s = max(metrics.makespan_s - makespan_s, 0.0)
    return Gain(metrics.elapsed_s, metrics.elapsed_s - saved_s, change)


def _prediction(rule: PartitionRule | None, found: Sequence[Measured]) -> tuple[Evidence, ...]:
    items = found[0][0].items
    if rule is None or items is None:
        return ()
    return (
        Evidence("partitions that this default predicts", rule.partitions(items), rule.formula),
        Evidence("pairs of items and partitions that it predicts exactly", len(_by_default(found)), "all that differ"),
    )
