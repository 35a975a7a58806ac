"""Tasks are shorter than what it takes to handle them."""

from __future__ import annotations

import math

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.placement import displaced_s
from scalescope.diagnosis.evidence.task_table import most_common_prefix
from scalescope.diagnosis.evidence.timeline import handed_over
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import TIMES, Evidence, Finding, Place
from scalescope.model.partition_calls import PartitionCall
from scalescope.model.words import percent, plural

HANDLING_S = 0.001  # seconds that scheduler and worker each spend on a task besides computing it
SLOW_S = 0.005  # seconds from a free thread to the next task in hand, from which the worker is slow at it
TRANSITIONS = 6  # transitions that the scheduler makes for a task that finishes

TINY_TASKS = TrialCause(
    code="tiny-tasks",
    title="Tasks too small",
    needs="The mean task is shorter than 1 ms times the number of threads (the scheduler cannot feed them), or than "
    "2 ms (the worker spends more on it than in it), and threads are idle while tasks wait. Or a worker takes 5 ms or "
    "more (the median) to begin a task that it has on a thread that is free, which costs 10 % of the worker time.",
    ruled_out_by="Short tasks on so few threads that the scheduler keeps up (5 ms on 2 threads). Waiting due to "
    "restrictions, data locality or late workers. Idle threads with no task waiting.",
    remedy="Let each task do more: lists of items, larger partitions or chunks",
    link="https://docs.dask.org/en/stable/best-practices.html#avoid-very-large-graphs",
    parts=("not_assigned",),
    by_times=True,
    changes=(Term.CLIENT,),
    premise="The tasks are shorter than what Dask needs for each.",
)


@TINY_TASKS.finds
def tiny_tasks(observation: Observation) -> Finding | None:
    """`lost_s`: the part `not_assigned`, less what restrictions, locality and late workers explain."""
    attempts = observation.measured
    if not observation.noteworthy("not_assigned"):
        return None
    durations = (attempts.stop - attempts.start)[attempts.useful]
    scheduler_s, worker_s = _handling(observation)
    mean_s, threads = float(durations.mean()), observation.threads
    by_scheduler = mean_s < threads * scheduler_s
    lost_s = observation.seconds("not_assigned") - displaced_s(observation)
    if len(durations) < 50 or observation.share_of(lost_s) < NOTEWORTHY:  # tasks; handling fewer is never felt
        return None
    if not (by_scheduler or mean_s < 2 * worker_s):
        worker_s = float(np.median(handed_over(observation)[attempts.useful]))
        lost_s = min(lost_s, worker_s * len(durations)) if worker_s >= SLOW_S else 0.0
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    rate = len(durations) / attempts.makespan
    prefix = most_common_prefix(observation, attempts.useful)
    enough = max(2 * threads * scheduler_s if by_scheduler else 0.0, 10 * worker_s)
    useful = max(1, round(float(durations.sum()) / attempts.makespan))
    times = math.ceil(enough / max(mean_s, 1e-6))
    elsewhere_s = float(np.diff(attempts.elsewhere).sum())
    beyond_s = attempts.elapsed - elsewhere_s - float(durations.sum()) / threads
    limit = (
        f"{rate:,.0f} tasks were handled per second, which keeps {plural(useful, 'thread')} of {threads:,} busy"
        if by_scheduler
        else f"a worker needs about {words.duration(worker_s)} more for each"
    )
    return TINY_TASKS.finding(
        observation,
        lost_s,
        f"{len(durations):,} tasks, most of them `{prefix}`, take {words.duration(mean_s)} on average: {limit}, and "
        f"{percent(share)} of the worker time is spent between tasks; more workers do not help.",
        Remedy(
            f"let each `{prefix}` task do about {times:,} times as much (a list of items "
            f"per call, larger partitions or chunks), so that it takes {words.duration(enough)} or more",
            saved_s=beyond_s * (1 - 1 / times),
        ),
        Evidence("mean duration of a task, s", round(mean_s, 6), "table tasks"),
        Evidence("tasks", len(durations), "table tasks"),
        Evidence(TIMES, times, "the time that a task should take"),
        Evidence("tasks per second", round(rate, 1), "tasks by makespan"),
        Evidence("assumed cost of a task to the scheduler, s", scheduler_s, "built in, or the cluster's facts"),
        Evidence("cost of a task to its worker, s", round(worker_s, 6), "the same, or table tasks where it is slow"),
        Evidence("share runnable, not assigned", round(observation.share("not_assigned"), 4), "worker time"),
        confidence=0.8,
        place=_divided_at(observation),
    )


def _divided_at(observation: Observation) -> Place | None:
    """The call that made most partitions."""
    asked = [PartitionCall.from_mapping(each) for each in observation.trial.facts.get("asked") or ()]
    most = max(asked, key=lambda each: each.partitions, default=None)
    return Place.of(most.where) if most else None


def _handling(observation: Observation) -> tuple[float, float]:
    """Seconds per task that the scheduler, and a worker, need besides computing."""
    cluster = observation.trial.facts.get("cluster", {})
    scheduler = TRANSITIONS * float(cluster.get("scheduler_us_per_transition") or 0.0) * 1e-6
    return max(HANDLING_S, scheduler), max(HANDLING_S, float(cluster.get("worker_us_per_task") or 0.0) * 1e-6)
