"""Tasks are shorter than the time that scheduler and workers need to handle them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import codes
from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.host_cpu import host
from scalescope.diagnosis.evidence.inside_tasks import on_event_loops
from scalescope.diagnosis.evidence.placement import displaced_s
from scalescope.diagnosis.evidence.task_table import most_common_prefix, task_column, threads_of_workers
from scalescope.diagnosis.evidence.timeline import free_from, handed_over, occupied_from
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.diagnosis.partitions import fewer
from scalescope.model import words
from scalescope.model.finding import TIMES, Evidence, Finding, Place
from scalescope.model.partition_calls import PartitionCall
from scalescope.model.records import SENDING
from scalescope.model.trial import TrialState
from scalescope.model.words import percent, plural

HANDLING_S = 0.001  # seconds that scheduler and worker each spend on a task besides computing it
SLOW_S = 0.005  # least seconds from a free thread to its next task, for the worker to count as slow to begin tasks
TINY_S, FELT_S = 0.02, 0.5  # most mean seconds of tiny tasks; least seconds between tasks, per thread, that matter
TRANSITIONS = 6  # transitions that the scheduler makes for a task that finishes
LONG_ENOUGH_S = 0.1  # seconds of a task in a collection with larger partitions (Dask's best practices)
MANY = 50  # tasks or partitions; fewer never cost noticeable time
ENOUGH_BYTES, MOST_BYTES = 16 * 2**20, 128 * 2**20  # smallest and largest proposed partition, in bytes
KNOWN_BYTES = 2**10  # least bytes of a partition that a message shows; a killed script may leave none recorded
ROOM = 10  # least number of partitions of the proposed size that must fit into the memory of a thread
EACH = 4  # least number of partitions for each thread after the change

TINY_TASKS = TrialCause(
    code="tiny-tasks",
    title="Tasks too small",
    needs="Threads are idle while tasks wait, for 10 % of the worker time, and the mean task is shorter than 1 ms "
    "times the number of threads (the scheduler cannot feed them), or than 2 ms (the worker needs longer to handle a "
    "task than to run it). Or a worker with a free thread takes 5 ms or more (the median) to begin a task that it has. "
    "Or tasks take 20 ms or less, and the pauses between them (by the median) add up to half a second of the call.",
    ruled_out_by="Short tasks with short pauses between them, or too few tasks for the pauses to matter. Waiting due "
    "to restrictions, data locality or late workers. Idle threads with no task waiting. Coroutine functions that block "
    "the event loop of their worker (event-loop-blocked).",
    remedy="Let each task do more: lists of items, larger partitions or chunks",
    link="https://docs.dask.org/en/stable/best-practices.html#avoid-very-large-graphs",
    parts=("not_assigned",),
    by_times=True,
    changes=(Term.CLIENT,),
    premise="The tasks are shorter than the time that Dask needs to handle each.",
)


@TINY_TASKS.finds
def tiny_tasks(observation: Observation) -> Finding | None:
    """`lost_s`: the worker-time part `not_assigned`, less what restrictions, locality and late workers explain."""
    attempts = observation.measured
    blocked = on_event_loops(observation)
    if not observation.noteworthy("not_assigned") or (blocked and observation.share_of(blocked.seconds) >= NOTEWORTHY):
        return None
    useful, threads = attempts.useful, observation.threads
    durations = (attempts.stop - attempts.start)[useful]
    scheduler_s, worker_s = _handling(observation)
    mean_s = float(durations.mean())
    by_scheduler = mean_s < threads * scheduler_s
    lost_s = observation.seconds("not_assigned") - displaced_s(observation)
    if len(durations) < MANY or observation.share_of(lost_s) < NOTEWORTHY:
        return None
    slow_s = float(np.median(handed_over(observation)[useful]))
    if by_scheduler or mean_s < 2 * worker_s:
        worker_s = max(worker_s, slow_s)
    else:
        between = occupied_from(observation) - np.maximum(free_from(observation), attempts.runnable)
        between_s = max(float(np.median(between[useful])), 0.0)
        felt = mean_s <= TINY_S and between_s * len(durations) >= FELT_S * threads
        here = host(observation)
        full = here is not None and here.crowded and mean_s > TINY_S  # on a full host, every process begins tasks late
        worker_s = slow_s if slow_s >= SLOW_S and not full else between_s if felt else 0.0
        lost_s = min(lost_s, worker_s * len(durations))
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    rate = len(durations) / attempts.makespan
    prefix = most_common_prefix(observation, useful)
    enough = max(2 * threads * scheduler_s if by_scheduler else 0.0, 10 * worker_s)
    busy = max(1, round(float(durations.sum()) / attempts.makespan))
    times = math.ceil(enough / max(mean_s, 1e-6))
    larger = _larger(observation, max(times, math.ceil(LONG_ENOUGH_S / max(mean_s, 1e-6))))
    elsewhere_s = float(np.diff(attempts.elsewhere).sum())
    beyond_s = attempts.elapsed - elsewhere_s - float(durations.sum()) / threads
    limit = (
        f"{rate:,.0f} tasks were handled per second, which keeps {plural(busy, 'thread')} of {threads:,} busy"
        if by_scheduler
        else f"the worker needs another {words.duration(worker_s)} to begin each task"
    )
    size = f" and return {words.size(larger.nbytes)}" if larger and larger.nbytes >= KNOWN_BYTES else ""
    return TINY_TASKS.finding(
        observation,
        lost_s,
        f"{len(durations):,} tasks, most of them `{prefix}`, take {words.duration(mean_s)}{size} on "
        f"average: {limit}, and {percent(share)} of the worker time is spent between tasks; more "
        f"workers do not help.{larger.said if larger else _sent_at(observation)}",
        Remedy(
            larger.remedy
            if larger
            else f"let each `{prefix}` task do about {times:,} times as much (a list of items "
            f"per call, larger partitions or chunks), so that it takes {words.duration(enough)} or more",
            saved_s=beyond_s * (1 - 1 / (larger.times if larger else times)),
        ),
        Evidence("mean duration of a task, s", round(mean_s, 6), "table tasks"),
        Evidence("tasks", len(durations), "table tasks"),
        Evidence(TIMES, math.ceil(larger.times) if larger else times, "the time that a task should take"),
        Evidence("tasks per second", round(rate, 1), "tasks divided by makespan"),
        *(larger.evidence if larger else ()),
        Evidence("assumed time of the scheduler per task, s", scheduler_s, "built in, or the cluster's facts"),
        Evidence("time of the worker per task, besides running it, s", round(worker_s, 6), "built in, or table tasks"),
        Evidence("share of worker time not assigned", round(observation.share("not_assigned"), 4), "worker time"),
        confidence=0.8,
        place=_divided_at(observation),
    )


def _divided_at(observation: Observation) -> Place | None:
    """The call that made most partitions."""
    most = max(_calls(observation), key=lambda each: each.partitions, default=None)
    return Place.of(most.where) if most else None


def _calls(observation: Observation) -> list[PartitionCall]:
    """Calls in the user's code that divide data."""
    return [PartitionCall.from_mapping(each) for each in observation.trial.facts.get("asked") or ()]


@dataclass(frozen=True)
class _Larger:
    """A call that makes many small partitions, and how many are enough."""

    said: str  # sentence about the call, with a leading space
    remedy: str
    times: float  # ratio of the proposed size of a partition to the present one
    nbytes: float  # bytes of the result of a task on one present partition
    evidence: tuple[Evidence, ...]


def _larger(observation: Observation, wanted: int) -> _Larger | None:
    # Each partition gets `wanted` times as much, and at least 16 MiB, as far as memory and threads allow: unlike
    # durations, bytes do not depend on how busy the host is.
    widest = max(stage.tasks for stage in observation.stages)
    ended = observation.trial.state is TrialState.FAILED  # a failed trial may have ended before all tasks had begun
    made = [
        each for each in _calls(observation) if each.where and MANY <= each.partitions <= (np.inf if ended else widest)
    ]
    if not made:
        return None
    call = max(made, key=lambda call: call.partitions)
    groups, group = codes(observation.measured.group)
    tasks = np.bincount(group, minlength=len(groups))
    mean = np.bincount(group, weights=task_column(observation, "nbytes"), minlength=len(groups)) / np.maximum(tasks, 1)
    nbytes = float(mean[tasks >= call.partitions].max(initial=1.0))
    limits = observation.numbers("workers", "memory_limit")
    room = float((limits[limits > 0] / threads_of_workers(observation).max() / ROOM).min(initial=MOST_BYTES))
    possible = min(room / nbytes, call.partitions / (EACH * observation.threads))
    times = int(min(max(wanted, ENOUGH_BYTES / nbytes), possible))
    if times < 2:
        return None
    how, left = fewer(call, times)
    each = nbytes * call.partitions / left
    part = "chunks" if call.chunk else "partitions"
    of = f" of {call.chunk}" if call.chunk else ""
    about = f" of about {words.size(each)}" if each >= KNOWN_BYTES else ""
    return _Larger(
        f" `{call.call}` at {call.where} makes {call.partitions:,} {part}{of}.",
        f"{how} (at {call.where}): {left:,} {part}{about} instead of {call.partitions:,}",
        call.partitions / left,
        nbytes,
        (
            Evidence("bytes of a task's result", round(nbytes), "table tasks"),
            Evidence("partitions that are enough", left, call.where),
        ),
    )


def _sent_at(observation: Observation) -> str:
    # sentence about the line that sent the tasks, with a leading space; empty if the line is not known
    seconds: dict[str, float] = {}
    for call, where, spent in zip(
        observation.client_calls,
        observation.column("client", "where"),
        observation.numbers("client", "seconds"),
        strict=True,
    ):
        if call in SENDING and where:
            seconds[where] = seconds.get(where, 0.0) + float(spent)
    return f" They are sent at {max(seconds, key=lambda where: seconds[where])}." if seconds else ""


def _handling(observation: Observation) -> tuple[float, float]:
    """Seconds per task that the scheduler, and a worker, need besides computing."""
    cluster = observation.trial.facts.get("cluster", {})
    scheduler = TRANSITIONS * float(cluster.get("scheduler_us_per_transition") or 0.0) * 1e-6
    return max(HANDLING_S, scheduler), max(HANDLING_S, float(cluster.get("worker_us_per_task") or 0.0) * 1e-6)
