"""Tasks depend on each other."""

from __future__ import annotations

import math

from scalescope.diagnosis.cause import WITHOUT_TASKS
from scalescope.diagnosis.evidence.graph_structure import (
    asked_and_used,
    idle_seconds,
    points_of,
    put_down_to,
    structure_evidence,
)
from scalescope.diagnosis.sweep_case import SweepCase, SweepCause
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.words import number, plural

SEQUENTIAL_GRAPH = SweepCause(
    code="sequential-graph",
    title="Tasks depend on each other",
    needs="There are at least as many tasks as threads, but the total task time divided by the longest chain of "
    "dependent tasks (T1/T∞) is below half of the threads. No single task is most of that chain, and at least 10 % "
    "of the worker time had no task to run.",
    ruled_out_by="Independent tasks that were sent one by one (results-awaited-in-loop, slow-submission). A chain "
    "that is one long task (straggler, skewed-tasks, slow-worker).",
    remedy="Ask for about T1/T∞ threads, or shorten the longest chain of dependent tasks",
    link="https://docs.dask.org/en/stable/phases-of-computation.html",
    parts=WITHOUT_TASKS,
)


@SEQUENTIAL_GRAPH.finds
def sequential_graph(case: SweepCase) -> Finding | None:
    """There are tasks enough, but they wait for each other."""
    found = put_down_to(case, SEQUENTIAL_GRAPH)
    if not found:
        return None
    worst, metrics = found[0]
    return SEQUENTIAL_GRAPH.finding(
        Severity.MEDIUM,
        f"{asked_and_used(worst, metrics)}: its {plural(metrics.tasks, 'task')} depend on each other so that no more "
        f"than {number(metrics.parallelism)} threads can be busy on average (T1/T∞).",
        f"ask for about {max(1, math.ceil(metrics.parallelism)):,} threads, or shorten the longest dependency path "
        f"({number(metrics.span_s)} s)",
        *structure_evidence(worst, metrics),
        Evidence("longest dependency path T∞, s", metrics.span_s, "column span of the tasks"),
        Evidence("work T1, s", metrics.work_s, "durations of the tasks"),
        confidence=0.9,
        points=points_of(found),
        lost_s=idle_seconds(case, found),
    )
