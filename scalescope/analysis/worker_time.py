"""Where the worker time went: P × makespan, divided without remainder.

P is the number of threads asked for, so `P × makespan` is what the trial cost whether or not it was used. At every
instant each of the P threads is in exactly one state:

| part | the thread |
| --- | --- |
| `busy` | computes a task whose result was used |
| `lost` | computes an attempt that erred, was lost, or had to be repeated; or its worker has left |
| `serialisation` | has no task to compute, while its worker deserialises one |
| `spill` | the same, while its worker reads or writes spilled data |
| `transfer` | the same, while its worker fetches a task's inputs |
| `tail` | was occupied when the last task of the trial started, and is idle now: it waits for stragglers |
| `not_assigned` | is idle although a task is runnable and waits: the price of scheduling and communication |
| `no_runnable_task` | is idle, and no task waits: the graph offers fewer tasks than there are threads |
| `late_start` | does not exist yet: its worker had not joined, or never did |

Rules where the records leave a choice:

- A worker never counts for more threads than it has: tasks that seceded, or overlap by clock error, are clipped.
- The record has seconds of transfer, deserialisation and disk access, not when they were. They are taken to lie
  directly before the start of their task, in the order in which a worker does them (transfer, deserialise, read), and
  not before the task was assigned; writing directly after its end. Where the thread computed meanwhile, they cost
  nothing.
- At an instant with `i` idle threads and `r` waiting tasks, `min(i, r)` threads are `not_assigned`, the rest have
  `no_runnable_task`; each idle thread takes an equal share of both.
- Threads idle at the moment at which the last task starts have `no_runnable_task` to the end: a stage of two tasks on a
  hundred workers is not a tail.
- Where more workers are there than were asked for, all of them are scaled down to P threads.

Zero-length attempts cost nothing. Totals agree with P × makespan up to rounding of floating point (below 1e-9).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalescope.analysis.attempts import Attempts, Floats, Ints, Members, Tables
from scalescope.model.trial import WORKER_TIME

TITLES: dict[str, str] = {
    "busy": "busy",
    "transfer": "transfer",
    "serialisation": "serialisation",
    "spill": "spill to disk",
    "no_runnable_task": "no runnable task",
    "not_assigned": "runnable, not assigned",
    "late_start": "late start",
    "lost": "lost",
    "tail": "tail",
}
"""The parts as reports name them."""

Levels = npt.NDArray[np.int32]
_STATES = ("busy", "lost", "serialisation", "spill", "transfer")
"""States that occupy a thread, in the order in which they claim it."""


@dataclass(frozen=True)
class WorkerTime:
    """P × makespan by worker and part.

    Attributes:
        workers: Addresses; the last, empty, stands for threads that were asked for and never came.
        parts: Thread-seconds per worker for each part of `WORKER_TIME`.
    """

    workers: tuple[str, ...]
    parts: dict[str, Floats]

    def total(self) -> dict[str, float]:
        """Thread-seconds per part over all workers, in the order of `WORKER_TIME`."""
        return {part: float(self.parts[part].sum()) for part in WORKER_TIME}


def worker_time(tables: Tables, *, threads: int) -> WorkerTime:
    """Divide the worker time of one trial.

    Args:
        tables: The records of the trial (`scalescope.model.records`).
        threads: P, the threads asked for.

    Raises:
        CaptureError: There is nothing to measure.
    """
    return divide(Attempts.read(tables), threads=threads)


def divide(attempts: Attempts, *, threads: int) -> WorkerTime:
    """Divide the worker time of attempts already read."""
    count = len(attempts.addresses)
    events = _events(attempts)
    order = np.argsort(events.time)
    local = np.flatnonzero(order < len(events.worker))
    # Sorting by worker afterwards, stably, is a radix sort for few workers.
    by_worker = np.argsort(events.worker[order[local]].astype(np.min_scalar_type(count)), kind="stable")
    position = local[by_worker]
    index = order[position]
    time, worker = events.time[index], events.worker[index]

    capacity = _level(events.capacity[index])
    idle = capacity
    occupied: dict[str, Levels] = {}
    for state, changes in events.running.items():
        occupied[state] = np.minimum(_level(changes[index]), idle)
        idle = idle - occupied[state]
    whole, wanting = _clocks(events, order, position, time, idle, threads)

    def integrate(level: Levels, clock: Floats) -> Floats:
        # Every level is zero after a worker's last event, so the step on to the next worker's first adds nothing.
        return _sum(worker[:-1], level[:-1] * np.diff(clock), count)

    parts = {state: integrate(occupied[state], whole) if state in occupied else np.zeros(count) for state in _STATES}
    unused, unwanted = integrate(idle, whole), integrate(idle, wanting)
    tail = _tail(attempts, time, worker, idle, capacity - idle, wanting)
    parts["not_assigned"] = np.maximum(unused - unwanted, 0.0)
    parts["no_runnable_task"] = np.maximum(unwanted - tail, 0.0)
    parts["tail"] = tail

    late, lost = _absent(attempts.members, attempts.makespan, threads, count)
    parts = {part: np.append(seconds, 0.0) for part, seconds in parts.items()}
    parts["lost"] = parts["lost"] + lost
    parts["late_start"] = late
    return WorkerTime(workers=(*attempts.addresses, ""), parts={part: parts[part] for part in WORKER_TIME})


@dataclass(frozen=True)
class _Events:
    """Changes of level, in no order.

    Attributes:
        time: Seconds since the trial's epoch.
        worker: Of the first events; the others, at which a task begins to wait, concern no worker.
        capacity: Change in threads there.
        waiting: Change in tasks waiting.
        running: Change per state of `_STATES` that occurs at all, in that order.
    """

    time: Floats
    worker: Ints
    capacity: Levels
    waiting: npt.NDArray[np.int8]
    running: dict[str, npt.NDArray[np.int8]]


def _events(attempts: Attempts) -> _Events:
    """Each attempt passes through its states in turn; each boundary is one event that ends one and begins the next."""
    read = np.maximum(attempts.start - attempts.disk_read, attempts.prepared_from)
    deserialize = np.maximum(read - attempts.deserialize, attempts.prepared_from)
    transfer = np.maximum(deserialize - attempts.transfer, attempts.prepared_from)
    written = np.minimum(attempts.stop + attempts.disk_write, attempts.makespan)
    chain = [
        ("transfer", transfer, deserialize),
        ("serialisation", deserialize, read),
        ("spill", read, attempts.start),
        ("running", attempts.start, attempts.stop),
        ("spill", attempts.stop, written),
    ]
    chain = [step for step in chain if step[0] == "running" or bool(np.any(step[2] > step[1]))]
    members, n, rows = attempts.members, len(attempts.start), len(attempts.members.worker)
    workers = np.arange(len(attempts.addresses))
    boundaries = [chain[0][1], *(end for _, _, end in chain)]
    marks = np.repeat([attempts.start.max(), attempts.makespan], len(workers))
    left = np.maximum(members.left, members.joined)
    waits = attempts.runnable < transfer
    time = np.concatenate([*boundaries, members.joined, left, marks, attempts.runnable[waits]])
    worker = np.concatenate([*[attempts.worker] * len(boundaries), members.worker, members.worker, workers, workers])

    capacity = np.zeros(len(worker), np.int32)
    first = n * len(boundaries)
    capacity[first : first + rows] = members.nthreads
    capacity[first + rows : first + 2 * rows] = -members.nthreads
    waiting = np.zeros(len(time), np.int8)
    waiting[:n] -= waits
    waiting[len(worker) :] = 1

    running: dict[str, npt.NDArray[np.int8]] = {}
    for state in _STATES:
        step = "running" if state in ("busy", "lost") else state
        counted = ~attempts.useful if state == "lost" else attempts.useful if state == "busy" else np.ones(n, np.bool_)
        if not any(name == step for name, _, _ in chain) or not counted.any():
            continue
        running[state] = np.zeros(len(worker), np.int8)
        for i, (name, _, _) in enumerate(chain):
            if name == step:
                running[state][i * n : (i + 1) * n] += counted
                running[state][(i + 1) * n : (i + 2) * n] -= counted
    return _Events(time, worker, capacity, waiting, running)


def _clocks(
    events: _Events, order: Ints, position: Ints, time: Floats, idle: Levels, threads: int
) -> tuple[Floats, Floats]:
    """Two integrals over time, read at each event of a worker, in the order of `position`.

    Returns:
        Seconds, scaled down while more than P threads are there; and the same seconds weighted with the share of idle
        threads for which no task waits.
    """
    step = np.diff(events.time[order])
    change = np.zeros(len(order), np.int32)
    change[position] = events.capacity[order[position]]
    present = _level(change)[:-1]
    whole = time
    if present.max(initial=0) > threads:
        step = step * (threads / np.maximum(present, threads))
        whole = _integral(step)[position]
    change[position] = np.diff(idle, prepend=np.int32(0))
    total = np.maximum(_level(change)[:-1], 1)
    waiting = np.minimum(_level(events.waiting[order])[:-1], total)
    return whole, _integral(step * (1.0 - waiting / total))[position]


def _tail(attempts: Attempts, time: Floats, worker: Ints, idle: Levels, used: Levels, wanting: Floats) -> Floats:
    """Thread-seconds per worker of threads used when the last task of the trial started, and idle since."""
    count, last_start = len(attempts.addresses), attempts.start.max()
    last = np.flatnonzero(time >= last_start)[:-1]
    seconds = np.diff(wanting)[last]
    # Events at that very time are in no order: what holds right after it stands with the last of them.
    settled = last[(time[last] == last_start) & (time[last + 1] > last_start)]
    base = np.zeros(count, np.int32)
    base[worker[settled]] = used[settled]
    waiting = np.minimum(np.maximum(base[worker[last]] - used[last], 0), idle[last])
    return _sum(worker[last], waiting * seconds, count)


def _level(changes: npt.NDArray[np.int8] | Levels) -> Levels:
    return np.cumsum(changes, dtype=np.int32)


def _integral(steps: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(steps)])


def _sum(worker: Ints, seconds: Floats, count: int) -> Floats:
    return np.bincount(worker, weights=seconds, minlength=count).astype(np.float64)


def _absent(members: Members, makespan: float, threads: int, count: int) -> tuple[Floats, Floats]:
    """Thread-seconds of threads asked for and not there: before they joined, and after they left; per worker."""
    times = np.unique(np.concatenate([[0.0, makespan], members.joined, members.left]))
    left = np.maximum(members.left, members.joined)

    def threads_until(moments: Floats) -> Floats:
        """Threads whose moment has come, per step between two `times`."""
        sums = _sum(np.searchsorted(times, moments), members.nthreads.astype(np.float64), len(times))
        return np.cumsum(sums)[:-1]

    joined, gone = threads_until(members.joined), threads_until(left)
    coming = members.nthreads.sum() - joined
    missing = np.maximum(threads - (joined - gone), 0.0)
    lost = np.minimum(missing, gone)
    late = np.minimum(missing - lost, coming)
    steps = np.diff(times)
    late_clock = _integral(steps * late / np.maximum(coming, 1.0))
    lost_clock = _integral(steps * lost / np.maximum(gone, 1.0))
    late_s = members.nthreads * late_clock[np.searchsorted(times, members.joined)]
    lost_s = members.nthreads * (lost_clock[-1] - lost_clock[np.searchsorted(times, left)])
    never_s = float((steps * (missing - lost - late)).sum())
    return (
        np.append(_sum(members.worker, late_s, count), never_s),
        np.append(_sum(members.worker, lost_s, count), 0.0),
    )
