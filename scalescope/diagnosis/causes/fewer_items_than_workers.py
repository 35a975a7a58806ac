"""Fewer items than workers."""

from __future__ import annotations

from scalescope.diagnosis.cause import WITHOUT_TASKS
from scalescope.diagnosis.evidence.graph_structure import idle_seconds, points_of, put_down_to, structure_evidence
from scalescope.diagnosis.sweep_case import SweepCase, SweepCause
from scalescope.model.finding import Finding, Severity
from scalescope.model.words import plural

FEWER_ITEMS_THAN_WORKERS = SweepCause(
    code="fewer-items-than-workers",
    title="Not enough to do",
    needs="The point has fewer items than threads, and fewer tasks were ready at once than there are threads.",
    ruled_out_by="Enough items that were put into too few partitions (too-few-partitions).",
    remedy="Ask for no more workers than there are items, or for more items",
    parts=WITHOUT_TASKS,
    workers_unused=True,
    excusable=True,
)


@FEWER_ITEMS_THAN_WORKERS.finds
def fewer_items_than_workers(case: SweepCase) -> Finding | None:
    """Not enough to do, which is nobody's fault."""
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
