"""Divides the worker time, which is P × the time of the workload's call, into parts without remainder.

P is the number of requested threads. The call lasts from the call of the workload to its return, or to the end of its
last task if that is later; if it was not recorded, the makespan is used. At every instant, each of the P threads is in
one state (`scalescope.model.metrics.PARTS`), by these rules:

- A worker never counts for more threads than it has: tasks that seceded, or overlap by clock error, are clipped.
- The records have the durations of transfers, deserialisation and disk reads, but not their times. They are placed in
  this order directly before the start of their task, but not before it was assigned; disk writes directly after its
  end. While the thread computed, they cost nothing.
- Idle threads of a paused worker are `paused`, even if tasks wait; the next rules do not count these threads.
- At an instant with `i` idle threads and `r` waiting tasks, `min(i, r)` threads are `not_assigned`, the rest have
  `no_runnable_task`; each idle thread takes an equal share of both.
- A task is known from when it is runnable or assigned until the scheduler learns that it ended. While no task is known,
  idle threads are `other_cluster` if the client waited for another cluster, else `client`.
- Threads that are idle when the last task starts have `no_runnable_task` to the end, not `tail`.
- If more threads are present than requested, all of them are scaled down to P threads.

The parts add up to P × the call's time within 1e-9. `scalescope.analysis.ledger` counts the threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Attempts, Floats, Ints, Members
from scalescope.analysis.ledger import Chain, Clock, Events, integral, sums, unoccupied, unwanted
from scalescope.model.metrics import WORKER_TIME


@dataclass(frozen=True)
class WorkerTime:
    """P × the time of the workload's call by worker and part."""

    workers: tuple[str, ...]  # addresses; the last is empty and stands for requested threads that never came
    parts: dict[str, Floats]  # thread-seconds per worker for each part of `WORKER_TIME`

    def total(self) -> dict[str, float]:
        return {part: float(self.parts[part].sum()) for part in WORKER_TIME}


def divide(attempts: Attempts, *, threads: int) -> WorkerTime:
    cells = _divide(attempts, threads, np.array([attempts.begin, attempts.end]))
    return WorkerTime((*attempts.addresses, ""), {part: seconds[:, 0] for part, seconds in cells.items()})


def over_time(attempts: Attempts, edges: Floats, *, threads: int) -> dict[str, Floats]:
    """Thread-seconds per part and bin, over all workers. `edges` rise from `Attempts.begin` to `Attempts.end`."""
    return {part: seconds.sum(axis=0) for part, seconds in _divide(attempts, threads, edges).items()}


def busy_by_worker(attempts: Attempts, edges: Floats) -> Floats:
    """Busy thread-seconds, shape (workers, bins), in the order of `Attempts.addresses`; `edges` rise."""
    inside = np.clip(edges, attempts.begin, attempts.end)
    events = Events.of(attempts, Chain.only_running(attempts), np.array([attempts.begin, *inside, attempts.end]))
    parts, _ = events.occupied(lambda time: time)
    return parts["busy"][:, 1:-1]


def _divide(attempts: Attempts, threads: int, edges: Floats) -> dict[str, Floats]:
    chain, clock = Chain.of(attempts), _clock(attempts, threads)
    parts, idle = Events.of(attempts, chain, edges).occupied(clock)
    waits = attempts.runnable < chain.boundaries[0]
    until = unwanted(idle, (attempts.runnable[waits], chain.boundaries[0][waits]), clock)
    whole, without_task = np.diff(clock(idle.time), append=0.0), np.diff(until, append=0.0)
    none_known = np.diff(unoccupied(attempts.pending, clock)(idle.time), append=0.0)
    of_client = none_known
    if len(attempts.elsewhere):
        of_client = np.diff(unoccupied(attempts.not_client, clock)(idle.time), append=0.0)
    parts["client"] = sums(idle.level, of_client, idle.cell, len(edges))
    parts["other_cluster"] = sums(idle.level, np.maximum(none_known - of_client, 0.0), idle.cell, len(edges))
    parts["not_assigned"] = sums(idle.level, np.maximum(whole - without_task, 0.0), idle.cell, len(edges))
    without_task = np.maximum(without_task - none_known, 0.0)
    parts["no_runnable_task"] = sums(idle.level - idle.tail, without_task, idle.cell, len(edges))
    parts["tail"] = sums(idle.tail, without_task, idle.cell, len(edges))

    late, lost = _absent(attempts.members, threads, len(attempts.addresses), edges)
    none = np.zeros((1, len(edges) - 1))
    parts = {part: np.vstack([seconds, none]) for part, seconds in parts.items()}
    parts |= {"late_start": late, "lost": parts["lost"] + lost}
    return {part: parts[part] for part in WORKER_TIME}


def _clock(attempts: Attempts, threads: int) -> Clock:
    # A clock that runs slower while more than P threads are present.
    members = attempts.members
    left = np.maximum(members.left, members.joined)
    times = np.unique(np.concatenate([[attempts.begin], members.joined, left]))
    present = _threads_until(times, members.joined, members.nthreads) - _threads_until(times, left, members.nthreads)
    if present.max(initial=0) <= threads:
        return lambda time: time
    counted = integral(np.diff(times) * np.minimum(1.0, threads / np.maximum(present, 1.0)))
    return lambda time: np.interp(time, times, counted)


def _threads_until(times: Floats, moments: Floats, nthreads: Ints) -> Floats:
    due = np.bincount(np.searchsorted(times, moments), weights=nthreads, minlength=len(times))
    return np.cumsum(due, dtype=np.float64)[:-1]


def _absent(members: Members, threads: int, count: int, edges: Floats) -> tuple[Floats, Floats]:
    # Thread-seconds of missing threads by worker and bin: of late threads, and of lost ones. Missing threads count as
    # lost up to the number that has left, and as late beyond. All late threads share their seconds equally, and so do
    # all that left. Threads that never come have no worker.
    left = np.maximum(members.left, members.joined)
    times = np.unique(np.concatenate([edges, members.joined, left]))
    joined = _threads_until(times, members.joined, members.nthreads)
    gone = _threads_until(times, left, members.nthreads)
    coming = members.nthreads.sum() - joined
    missing = np.maximum(threads - (joined - gone), 0.0)
    lost = np.minimum(missing, gone)
    late = np.minimum(missing - lost, coming)
    steps = np.diff(times)
    late_clock = integral(steps * late / np.maximum(coming, 1.0))
    lost_clock = integral(steps * lost / np.maximum(gone, 1.0))
    never_clock = integral(steps * (missing - lost - late))

    def by_worker(clock: Floats, until: Floats) -> Floats:
        seconds = np.diff(clock[np.searchsorted(times, until)], axis=1) * members.nthreads[:, None]
        cells = np.zeros((count + 1, len(edges) - 1))
        np.add.at(cells, members.worker, seconds)
        return cells

    late_s = by_worker(late_clock, np.minimum(edges, members.joined[:, None]))
    late_s[-1] = np.diff(never_clock[np.searchsorted(times, edges)])
    return late_s, by_worker(lost_clock, np.maximum(edges, left[:, None]))
