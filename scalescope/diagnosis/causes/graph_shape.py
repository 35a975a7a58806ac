"""The structure of the graph leaves threads idle: few items, a chain, an uneven last wave."""

from __future__ import annotations

import math

from scalescope.diagnosis.cause import WITHOUT_TASKS, Term
from scalescope.diagnosis.evidence.graph_structure import (
    asked_and_used,
    idle_seconds,
    points_of,
    put_down_to,
    structure_evidence,
    wave_tasks,
)
from scalescope.diagnosis.sweep_case import SweepCase, SweepCause
from scalescope.model.finding import Evidence, Finding, Place, Severity
from scalescope.model.words import number, plural

MUCH_BETWEEN = 1.2  # least ratio of the longest path, with time between tasks, to T∞ for the finding to tell both

FEWER_ITEMS_THAN_WORKERS = SweepCause(
    code="fewer-items-than-workers",
    title="Not enough to do",
    needs="The point has fewer items than threads, and fewer tasks were ready at once than there are threads.",
    ruled_out_by="Enough items that were put into too few partitions (too-few-partitions).",
    remedy="Ask for no more workers than there are items, or for more items",
    parts=WITHOUT_TASKS,
    changes=(Term.THREADS,),
    workers_unused=True,
    excusable=True,
    premise="There are fewer items than threads, so fewer workers are as fast.",
)


@FEWER_ITEMS_THAN_WORKERS.finds
def fewer_items_than_workers(case: SweepCase) -> Finding | None:
    """There are fewer items than threads; nobody is to blame."""
    found = put_down_to(case, FEWER_ITEMS_THAN_WORKERS)
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
        *structure_evidence(worst, metrics),
        points=points_of(found),
        lost_s=idle_seconds(case, found),
    )


SEQUENTIAL_GRAPH = SweepCause(
    code="sequential-graph",
    title="Tasks depend on each other",
    needs="There are at least as many tasks as threads, but the total task time divided by the longest chain of "
    "dependent tasks (T1/T∞) is below half of the threads; or that chain, with fetching inputs and handing tasks over, "
    "takes 60 % of the makespan and keeps less than 70 % of the threads busy. No single task is most of that chain, "
    "and at least 10 % of the worker time had no task to run.",
    ruled_out_by="Independent tasks that were sent one by one (results-awaited-in-loop, slow-submission). A chain "
    "that is one long task (straggler, skewed-tasks, slow-worker).",
    remedy="Shorten the longest chain of dependent tasks, or ask for about T1/T∞ threads",
    link="https://docs.dask.org/en/stable/phases-of-computation.html",
    parts=WITHOUT_TASKS,
    changes=(Term.SPAN, Term.THREADS),
    premise="The edges of the graph show how many threads can be busy.",
)


@SEQUENTIAL_GRAPH.finds
def sequential_graph(case: SweepCase) -> Finding | None:
    """There are enough tasks, but they wait for each other."""
    found = put_down_to(case, SEQUENTIAL_GRAPH)
    if not found:
        return None
    worst, metrics = found[0]
    path_s, span_s = max(metrics.path_s or 0.0, metrics.span_s), metrics.span_s
    busy, why, fewer = metrics.parallelism, " (total task time / longest chain of tasks).", ""
    if path_s > MUCH_BETWEEN * span_s:
        busy, fewer = metrics.work_s / path_s, ", and make fewer, longer tasks, so that less time passes between them"
        why = (
            f": the longest path takes {number(path_s)} s, {number(span_s)} s of that in tasks, the rest to fetch "
            "their inputs and to hand tasks to threads."
        )
    return SEQUENTIAL_GRAPH.finding(
        Severity.MEDIUM,
        f"{asked_and_used(worst, metrics)}: the {plural(metrics.tasks, 'task')} depend on each other so that no more "
        f"than {number(busy)} threads can be busy on average{why}",
        f"shorten the longest dependency path ({number(span_s)} s): where results are combined one after another, "
        f"combine them pairwise, in a tree{fewer}; or ask for about {max(1, math.ceil(busy)):,} threads",
        *structure_evidence(worst, metrics),
        Evidence("longest dependency path T∞, s", span_s, "column span of the tasks"),
        Evidence("longest path with fetching and handing over, s", path_s, "tables tasks and dependencies"),
        Evidence("work T1, s", metrics.work_s, "durations of the tasks"),
        confidence=0.9,
        points=points_of(found),
        lost_s=idle_seconds(case, found),
    )


UNEVEN_WAVES = SweepCause(
    code="uneven-waves",
    title="The last wave is not full",
    needs="There are more tasks than threads, and the idle time differs by at most 5 % from that of equally long tasks "
    "whose last wave does not fill the threads.",
    ruled_out_by="Long tasks (straggler, skewed-tasks).",
    remedy="Make the number of tasks a multiple of the threads, or the tasks smaller",
    parts=WITHOUT_TASKS,
    excusable=True,
    premise="Equally long tasks run in waves of as many tasks as there are threads.",
)


@UNEVEN_WAVES.finds
def uneven_waves(case: SweepCase) -> Finding | None:
    """Equal tasks whose number is no multiple of the threads: the last wave is not full."""
    found = put_down_to(case, UNEVEN_WAVES)
    if not found:
        return None
    worst, metrics = found[0]
    threads, tasks = worst.point.threads, wave_tasks(worst, metrics)
    return UNEVEN_WAVES.finding(
        Severity.INFO,
        f"{plural(tasks, 'task')} on {plural(threads, 'thread')} take {math.ceil(tasks / threads)} waves, and the last "
        f"one has only {(tasks - 1) % threads + 1:,} ({case.label(worst)}).",
        "make the number of tasks a multiple of the threads, or the tasks smaller",
        *structure_evidence(worst, metrics),
        confidence=0.8,
        points=points_of(found),
        lost_s=idle_seconds(case, found),
        place=Place.of(worst.origin.where) if worst.origin else None,
    )
