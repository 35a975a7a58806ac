"""The last wave of equal tasks is not full."""

from __future__ import annotations

import math

from scalescope.diagnosis.cause import WITHOUT_TASKS
from scalescope.diagnosis.evidence.graph_structure import (
    idle_seconds,
    points_of,
    put_down_to,
    structure_evidence,
    wave_tasks,
)
from scalescope.diagnosis.sweep_case import SweepCase, SweepCause
from scalescope.model.finding import Finding, Severity
from scalescope.model.words import plural

UNEVEN_WAVES = SweepCause(
    code="uneven-waves",
    title="The last wave is not full",
    needs="There are more tasks than threads, and the idle time is within 5 % of what equal tasks leave in their "
    "last wave.",
    ruled_out_by="Long tasks (straggler, skewed-tasks).",
    remedy="Make the number of tasks a multiple of the threads, or the tasks smaller",
    parts=WITHOUT_TASKS,
    excusable=True,
)


@UNEVEN_WAVES.finds
def uneven_waves(case: SweepCase) -> Finding | None:
    """Equal tasks that do not divide by the threads: the last wave is not full."""
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
    )
