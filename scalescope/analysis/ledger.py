"""Counts the threads of each worker by state, instant by instant, for `scalescope.analysis.worker_time`.

Each begin or end of a state on a worker is an event, packed into one integer, since sorting plain integers is fast:

    | worker | time in units of 2^-50 of the whole time, coarser above 255 workers | kind, 5 bits |

The running sum of events is the number of threads that want each state. States claim the worker's threads in the order
of `STATES`; the other threads are idle. The changes in idle threads are then merged with the times of waiting tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalescope.analysis.attempts import Attempts, Floats, Ints

# States of threads that are present and not idle, in the order in which they claim threads.
STATES = ("busy", "lost", "actors", "serialisation", "spill", "transfer", "paused")

Clock = Callable[[Floats], Floats]  # times since the epoch -> seconds counted until then, from any origin
Levels = npt.NDArray[np.int32]
_Keys = npt.NDArray[np.uint64]

# Kinds of events, in the order in which they count at one instant. A mark is an edge between bins. Boundary i of an
# attempt ends one state and begins the next: its kind is `_BOUNDARY + 2 * i`, plus one if the result was not used. A
# task is away while it waits without its thread. `_SETTLED` is the start of the last task of the trial.
_MARK, _JOIN, _LEAVE, _PAUSE, _RESUME, _CALL, _ANSWER, _BOUNDARY, _AWAY, _BACK, _SETTLED = *range(8), 29, 30, 31
_KIND_BITS = 5
_PIECE = 1 << 17  # events computed at once, so that they fit into a processor's cache; at least those of one worker


@dataclass(frozen=True)
class Idle:
    """Numbers of idle threads at each change and at each edge of a bin, ordered by worker, then by time."""

    time: Floats  # seconds since the epoch
    cell: Ints  # index of the first element of each bin of each worker
    level: Levels  # threads that are idle from this time on; 0 for a paused worker
    tail: Levels  # those of the idle threads that were in use when the last task of the trial started


@dataclass(frozen=True)
class Chain:
    """The states through which attempts pass before and after they run."""

    steps: tuple[tuple[str, Floats, Floats], ...]  # state, begins and ends; contiguous; only states that occur

    @classmethod
    def of(cls, attempts: Attempts) -> Chain:
        read = np.maximum(attempts.start - attempts.disk_read, attempts.prepared_from)
        deserialize = np.maximum(read - attempts.deserialize, attempts.prepared_from)
        transfer = np.maximum(deserialize - attempts.transfer, attempts.prepared_from)
        written = np.minimum(attempts.stop + attempts.disk_write, attempts.end)
        steps = (
            ("transfer", transfer, deserialize),
            ("serialisation", deserialize, read),
            ("spill", read, attempts.start),
            ("running", attempts.start, attempts.stop),
            ("spill", attempts.stop, written),
        )
        return cls(tuple(step for step in steps if step[0] == "running" or bool(np.any(step[2] > step[1]))))

    @classmethod
    def only_running(cls, attempts: Attempts) -> Chain:
        return cls((("running", attempts.start, attempts.stop),))

    @property
    def boundaries(self) -> list[Floats]:
        return [self.steps[0][1], *(end for _, _, end in self.steps)]

    def changes(self, *, paused: bool, called: bool, away: bool) -> dict[str, npt.NDArray[np.int8]]:
        """For each state, by kind of event: the change in the number of threads that want the state."""
        found = {state: np.zeros(1 << _KIND_BITS, np.int8) for state in STATES}
        for i, (step, _, _) in enumerate(self.steps):
            for wasted in (0, 1):
                state = ("busy", "lost")[wasted] if step == "running" else step
                found[state][_BOUNDARY + 2 * i + wasted] += 1
                found[state][_BOUNDARY + 2 * (i + 1) + wasted] -= 1
        if paused:
            found["paused"][[_PAUSE, _RESUME]] = 1, -1
        if called:
            found["actors"][[_CALL, _ANSWER]] = 1, -1
        if away:
            found["busy"][[_AWAY, _BACK]] = -1, 1
        return {state: change for state, change in found.items() if change.any()}


@dataclass(frozen=True)
class Events:
    """All events of all workers."""

    keys: _Keys  # packed events: from high to low bits worker, time in units, kind; ascending
    time_bits: int
    origin: float  # time zero, in seconds since the epoch
    unit: float  # seconds of a unit of time
    last_start: float  # start of the last task, in seconds since the epoch
    turnover: Ints  # threads that come (or go: negative) at each `_JOIN` and `_LEAVE`, in the order of `keys`
    changes: dict[str, npt.NDArray[np.int8]]  # result of `Chain.changes`
    workers: int
    edges: int  # number of edges, each with a `_MARK` per worker

    @classmethod
    def of(cls, attempts: Attempts, chain: Chain, edges: Floats) -> Events:
        """Pack all events; `edges` of bins rise from the begin of the trial to its end."""
        count, members, pauses, calls = len(attempts.addresses), attempts.members, attempts.pauses, attempts.calls
        time_bits = min(50, 58 - count.bit_length())
        origin, unit = attempts.begin, attempts.elapsed / (1 << time_bits)

        def pack(worker: Ints, time: Floats, kind: int | Ints) -> _Keys:
            keys = worker.astype(np.uint64) << np.uint64(time_bits + 1)  # the end itself needs one bit more
            keys |= ((time - origin) / unit).astype(np.uint64)
            keys <<= np.uint64(_KIND_BITS)
            keys |= np.asarray(kind, np.uint64)
            return keys

        workers = np.arange(count)
        left = np.maximum(members.left, members.joined)
        turnover = np.concatenate([pack(members.worker, members.joined, _JOIN), pack(members.worker, left, _LEAVE)])
        wasted = (~attempts.useful).astype(np.int64)
        last_start = float(attempts.start.max())
        keys = np.concatenate(
            [
                pack(np.repeat(workers, len(edges)), np.tile(edges, count), _MARK),
                turnover,
                pack(pauses.worker, pauses.begin, _PAUSE),
                pack(pauses.worker, pauses.end, _RESUME),
                pack(calls.worker, calls.begin, _CALL),
                pack(calls.worker, calls.end, _ANSWER),
                pack(attempts.worker[attempts.away.attempt], attempts.away.begin, _AWAY),
                pack(attempts.worker[attempts.away.attempt], attempts.away.end, _BACK),
                *(pack(attempts.worker, t, _BOUNDARY + 2 * i + wasted) for i, t in enumerate(chain.boundaries)),
                pack(workers, np.full(count, last_start), _SETTLED),
            ]
        )
        keys.sort()
        return cls(
            keys=keys,
            time_bits=time_bits,
            origin=origin,
            unit=unit,
            last_start=float(int((last_start - origin) / unit) * unit + origin),
            turnover=np.concatenate([members.nthreads, -members.nthreads])[np.argsort(turnover)],
            changes=chain.changes(
                paused=len(pauses.worker) > 0, called=len(calls.worker) > 0, away=len(attempts.away.attempt) > 0
            ),
            workers=count,
            edges=len(edges),
        )

    def occupied(self, clock: Clock) -> tuple[dict[str, Floats], Idle]:
        """Thread-seconds in each of `STATES`, of shape (workers, bins); and idle threads."""
        parts = {state: np.zeros((self.workers, self.edges - 1)) for state in STATES}
        found: list[Idle] = []
        turned = 0
        for first, last, keys in self._pieces():
            kind = (keys & np.uint64((1 << _KIND_BITS) - 1)).astype(np.intp)
            ticks = (keys >> np.uint64(_KIND_BITS)) & np.uint64((1 << self.time_bits + 1) - 1)
            time = ticks.astype(np.float64) * self.unit + self.origin
            # After the last event of a worker it has no threads, so the step to the next worker's events adds nothing.
            seconds = np.diff(clock(time), append=0.0)
            cell = np.flatnonzero(kind == _MARK)
            turns = np.flatnonzero((kind == _JOIN) | (kind == _LEAVE))
            idle = np.zeros(len(kind), np.int32)
            idle[turns] = self.turnover[turned : turned + len(turns)]
            idle, turned = _level(idle), turned + len(turns)
            used = np.zeros(len(kind), np.int32)
            for state, change in self.changes.items():
                taken = np.minimum(_level(change[kind]), idle)
                if state == "paused":
                    taken = np.where(taken > 0, idle, np.int32(0))
                else:
                    used += taken
                idle -= taken
                parts[state][first:last] = sums(taken, seconds, cell, self.edges)
            found.append(self._idle(kind, time, idle, used, cell))
        return parts, _joined(found)

    def _pieces(self) -> Iterator[tuple[int, int, _Keys]]:
        shift = np.uint64(self.time_bits + 1 + _KIND_BITS)
        starts = np.searchsorted(self.keys, np.arange(self.workers + 1, dtype=np.uint64) << shift)
        first = 0
        while first < self.workers:
            fitting = int(np.searchsorted(starts, starts[first] + _PIECE, side="right")) - 1
            last = min(max(fitting, first + 1), self.workers)
            yield first, last, self.keys[starts[first] : starts[last]]
            first = last

    def _idle(self, kind: Ints, time: Floats, idle: Levels, used: Levels, cell: Ints) -> Idle:
        changed = (kind == _MARK) | (np.diff(idle, prepend=np.int32(0)) != 0)
        changed |= np.diff(used, prepend=np.int32(0)) != 0
        late = np.flatnonzero(changed & (time >= self.last_start))
        worker = np.searchsorted(cell[:: self.edges], late, side="right") - 1
        tail = np.zeros(len(kind), np.int32)
        tail[late] = np.clip(used[kind == _SETTLED][worker] - used[late], 0, idle[late])
        return Idle(time[changed], np.flatnonzero(kind[changed] == _MARK), idle[changed], tail[changed])


def unwanted(idle: Idle, waiting: tuple[Floats, Floats], clock: Clock) -> Floats:
    """For each time of `idle`, the seconds until then, weighted with the share of idle threads that have no task.

    With i idle threads and r waiting tasks, the share is 1 - min(i, r) / i. `waiting`: begins and ends of all waits.
    """
    begin, end = waiting
    n = len(idle.time)
    time = np.concatenate([idle.time, begin, end])
    order = np.argsort(time)
    change = np.zeros(len(time), np.int32)
    change[:n] = np.diff(idle.level, prepend=np.int32(0))
    threads = np.maximum(_level(change[order])[:-1], 1)
    change[:n] = 0
    change[n : n + len(begin)] = 1
    change[n + len(begin) :] = -1
    tasks = np.minimum(_level(change[order])[:-1], threads)
    steps = np.diff(clock(time[order])) * (1.0 - tasks / threads)
    until = np.empty(len(time))
    until[order] = integral(steps)
    return until[:n]


def unoccupied(pending: Floats, clock: Clock) -> Clock:
    """A clock that stands still during the intervals of `pending` (`Attempts.pending`)."""
    bounds = pending.ravel()  # begins and ends of intervals, alternating
    counted = clock(bounds)
    passed = integral(counted[2::2] - counted[1:-1:2])

    def until(time: Floats) -> Floats:
        place = np.searchsorted(bounds, time, side="right")
        last = np.maximum(place - 1, 0)
        free: Floats = passed[last // 2] + np.where(place % 2 == 0, clock(time) - counted[last], 0.0)
        return free

    return until


def sums(levels: Levels, seconds: Floats, cell: Ints, edges: int) -> Floats:
    """Thread-seconds of shape (workers, bins); `cell` has the index of the first element of each cell."""
    totals: Floats = np.add.reduceat(levels * seconds, cell)
    return totals.reshape(-1, edges)[:, :-1]


def integral(steps: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(steps)])


def _joined(found: list[Idle]) -> Idle:
    offsets = np.cumsum([0, *(len(each.time) for each in found)])
    return Idle(
        np.concatenate([each.time for each in found]),
        np.concatenate([each.cell + offset for each, offset in zip(found, offsets[:-1], strict=True)]),
        np.concatenate([each.level for each in found]),
        np.concatenate([each.tail for each in found]),
    )


def _level(changes: npt.NDArray[np.int8] | Levels) -> Levels:
    return np.cumsum(changes, dtype=np.int32)
