"""Workers joined after the work had begun."""

from __future__ import annotations

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.placement import late_workers_of
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import percent, plural

LATE_WORKERS = TrialCause(
    code="late-workers",
    title="Workers joined after the work began",
    needs="Workers joined after the first task was known. Tasks waited before they came, or waited on other workers "
    "while the newcomers were idle.",
    ruled_out_by="Workers that replaced others (worker-died). Too few tasks to use them. Restricted tasks, which may "
    "not move (worker-restriction).",
    remedy="Call `client.wait_for_workers(n)` before the first task is sent",
    link="https://github.com/dask/distributed/issues/5599",
    parts=("late_start", "not_assigned"),
)


@LATE_WORKERS.finds
def late_workers(observation: Observation) -> Finding | None:
    """`lost_s`: missing threads that tasks waited for, and newcomers idle while tasks waited elsewhere."""
    late, attempts = late_workers_of(observation), observation.measured
    lost_s = late.missing_s + late.idle_s
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    joined = attempts.members.joined[late.members]
    names = [attempts.addresses[worker] for worker in attempts.members.worker[late.members]]
    unused = len(set(attempts.members.worker[late.members].tolist()) - set(attempts.worker.tolist()))
    little = f" ({unused:,} of them never got a task)" if unused else ""
    return LATE_WORKERS.finding(
        observation,
        lost_s,
        f"{plural(len(names), 'worker')} joined up to {words.duration(float(joined.max()))} after the first task was "
        f"known{little}, while tasks waited on the others: {percent(share)} of the worker time was lost as a result.",
        f"call `client.wait_for_workers({observation.trial.point.workers})` before the first task is sent"
        + (", and leave `distributed.scheduler.work-stealing` on" if late.idle_s > late.missing_s else ""),
        Evidence("workers that joined late", len(names), f"table workers: {words.some(names)}"),
        Evidence("last of them joined after, s", round(float(joined.max()), 3), "table workers"),
        Evidence("thread-seconds before they joined, tasks waiting", round(late.missing_s, 3), "tables workers, tasks"),
        Evidence("thread-seconds idle afterwards, tasks waiting", round(late.idle_s, 3), "tables workers, tasks"),
        confidence=0.9,
    )
