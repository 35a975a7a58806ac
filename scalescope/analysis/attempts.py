"""The recorded attempts to run tasks, as arrays on one time axis whose zero is the first task known.

Everything else in this package computes on `Attempts`; only this module knows the tables of `scalescope.model.records`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from scalescope.errors import CaptureError
from scalescope.model.records import ACTOR_CALLS, STATUS_FINISHED, STATUS_LOST

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Columns = Mapping[str, Any]
"""Column name to `array.array`, numpy array or list, all of one length (`scalescope.model.records`)."""
Tables = Mapping[str, Columns]
_Number = TypeVar("_Number", np.float64, np.int64)


@dataclass(frozen=True)
class Members:
    """When which worker was there; one element per row of the table `workers`, by time relative to `Attempts.epoch`.

    Attributes:
        worker: Index into `Attempts.addresses`.
        nthreads: Threads.
        joined: Seconds; `Attempts.begin` for a worker that was there from the first.
        left: Seconds; `Attempts.end` for a worker that stayed.
    """

    worker: Ints
    nthreads: Ints
    joined: Floats
    left: Floats


@dataclass(frozen=True)
class Pauses:
    """When which worker was paused, by its events; one element per pause, by time relative to `Attempts.epoch`.

    Attributes:
        worker: Index into `Attempts.addresses`.
        begin: Seconds; `Attempts.begin` for a worker that was paused from the first.
        end: Seconds; `Attempts.end` for a worker that stayed so.
    """

    worker: Ints
    begin: Floats
    end: Floats


@dataclass(frozen=True)
class Calls:
    """When which worker ran methods of actors, one after another; by time relative to `Attempts.epoch`.

    Attributes:
        worker: Index into `Attempts.addresses`.
        begin: Seconds.
        end: Seconds.
        method: That which took longest of these, such as `Counter.add`.
        count: How many calls there were.
    """

    worker: Ints
    begin: Floats
    end: Floats
    method: Sequence[str]
    count: Ints


@dataclass(frozen=True)
class Attempts:
    """Attempts whose computation began, one element each; times in seconds since `epoch`, clipped to the makespan.

    Attributes:
        epoch: When the first task became known, in seconds since the epoch of the cluster's clock.
        makespan: From there to the end of the last computation, or call of an actor, in seconds.
        begin: When the workload was called, 0 or before; 0 in records without the table `client`.
        end: When it returned, or the makespan, if that is later.
        pending: From when to when a graph was taken in, or a task was known and the scheduler did not know its end;
            shape (n, 2), rising and apart.
        addresses: All workers, recorded or only named by a task.
        members: When which of them was there.
        pauses: When which of them was paused, for want of memory or by hand.
        calls: When which of them ran methods of actors, in a thread beside those of its tasks.
        row: Row of the table `tasks`.
        key: Task key.
        thread: Identifier of the thread on its worker; 0 when unknown.
        worker: Index into `addresses`.
        runnable: When the inputs were in memory.
        prepared_from: Not before this was anything fetched for it: when the scheduler assigned it.
        start: When its computation began.
        stop: When its computation ended.
        transfer: Seconds of fetching inputs.
        deserialize: Seconds of deserialising the task.
        disk_read: Seconds of reading spilled inputs.
        disk_write: Seconds of spilling.
        span: Longest dependency path that ends with it, in seconds.
        useful: Whether it finished and its result was not computed once more because its worker died.
        group: Task group of each.
        prefix: Task prefix of each.
    """

    epoch: float
    makespan: float
    begin: float
    end: float
    pending: Floats
    addresses: tuple[str, ...]
    members: Members
    pauses: Pauses
    calls: Calls
    row: Ints
    key: Sequence[str]
    thread: Ints
    worker: Ints
    runnable: Floats
    prepared_from: Floats
    start: Floats
    stop: Floats
    transfer: Floats
    deserialize: Floats
    disk_read: Floats
    disk_write: Floats
    span: Floats
    useful: Bools
    group: Sequence[str]
    prefix: Sequence[str]

    @property
    def elapsed(self) -> float:
        """Seconds from `begin` to `end`."""
        return self.end - self.begin

    @classmethod
    def read(cls, tables: Tables) -> Attempts:
        """Read the tables of one trial.

        Raises:
            CaptureError: A table or column is missing or short, or there is nothing to measure.
        """
        tasks = _CheckedTable("tasks", tables)
        if tasks.rows == 0:
            raise _nothing("no task was recorded")
        start, status = tasks.numbers("start"), tasks.numbers("status")
        began = start > 0
        if not bool(np.any(began & (status == STATUS_FINISHED))):
            raise _nothing("no task finished")
        runnable, assigned = tasks.numbers("runnable"), tasks.numbers("assigned")
        epoch = min(_first(runnable), _first(assigned), _first(start))
        known = np.min([np.where(each > 0, each, np.inf) for each in (runnable, assigned, start)], axis=0)
        over = np.max([known, start, tasks.numbers("stop"), tasks.numbers("done")], axis=0)

        pick = _Pick(began)
        start, status = pick(start), pick(status)
        stop = _ends(start, pick(tasks.numbers("stop")), pick(tasks.numbers("done")), status)
        called = [call for _, call in told(tables.get("events", {}), ACTOR_CALLS) if call["end"] > epoch]
        end = max(float(stop[status != STATUS_LOST].max()), *(call["end"] for call in called), 0.0)
        makespan = end - epoch
        if not makespan > 0:
            raise _nothing("the recorded tasks took no time at all")
        begin, end = _call(tables.get("client", {}), epoch, makespan)

        def clip(times: Floats) -> Floats:
            return np.clip(times - epoch, 0.0, makespan)

        def within(times: Floats) -> Floats:
            return np.clip(times - epoch, begin, end)

        # A task that is tried again waits since it was assigned again, not since its inputs were there.
        runnable, assigned = pick(runnable), pick(assigned)
        runnable = np.where(runnable > 0, runnable, np.where(assigned > 0, assigned, start))
        runnable = np.where(pick(tasks.numbers("retries")) > 0, np.maximum(runnable, assigned), runnable)
        runnable = np.minimum(runnable, start)
        prepared_from = np.where((assigned > 0) & (assigned <= start), np.maximum(assigned, runnable), runnable)

        workers = _CheckedTable("workers", tables)
        names = pick.texts(tasks.texts("worker"))
        addresses = tuple(dict.fromkeys([*workers.texts("worker"), *dict.fromkeys(names)]))
        index = {address: i for i, address in enumerate(addresses)}
        worker = _codes(names, index)
        members = _members(workers, index, worker, within)
        finished = status == STATUS_FINISHED
        return cls(
            epoch=epoch,
            makespan=makespan,
            begin=begin,
            end=end,
            pending=within(_united((known, over), _intake(tables.get("graphs", {})))),
            addresses=addresses,
            members=members,
            pauses=_pauses(tables.get("events", {}), index, within),
            calls=_calls(called, index, clip),
            row=np.flatnonzero(began),
            key=pick.texts(tasks.texts("key")),
            thread=pick(np.asarray(tasks.column("thread"), dtype=np.int64)),
            worker=worker,
            runnable=clip(runnable),
            prepared_from=clip(prepared_from),
            start=clip(start),
            stop=clip(stop),
            transfer=pick(tasks.seconds("transfer")),
            deserialize=pick(tasks.seconds("deserialize")),
            disk_read=pick(tasks.seconds("disk_read")),
            disk_write=pick(tasks.seconds("disk_write")),
            span=pick(tasks.numbers("span")),
            useful=finished & ~_superseded(pick, tasks, workers, names, stop, finished),
            group=pick.texts(tasks.texts("group")),
            prefix=pick.texts(tasks.texts("prefix")),
        )


class _CheckedTable:
    """Checked access to the columns of one table."""

    def __init__(self, name: str, tables: Tables) -> None:
        if name not in tables:
            what = "no task ran on the cluster" if name == "tasks" else f"the records have no table {name!r}"
            raise CaptureError(
                what,
                where=f"recorded: {', '.join(tables)}",
                next_step="run the work on the client that the workload is given" if name == "tasks" else "",
            )
        self.name = name
        self._columns = tables[name]
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) > 1:
            raise CaptureError(f"the columns of table {name!r} differ in length: {sorted(lengths)}")
        self.rows = lengths.pop() if lengths else 0

    def column(self, column: str) -> Any:
        if column not in self._columns:
            if self.rows == 0:
                return []
            raise CaptureError(f"table {self.name!r} has no column {column!r}", where=", ".join(self._columns))
        return self._columns[column]

    def numbers(self, column: str) -> Floats:
        return np.asarray(self.column(column), dtype=np.float64)

    def seconds(self, column: str) -> Floats:
        """Durations; below zero only by clock error."""
        return np.maximum(self.numbers(column), 0.0)

    def texts(self, column: str) -> Sequence[str]:
        values: Sequence[str] = self.column(column)
        return values


class _Pick:
    """Keeps the rows of a mask; costs nothing where it keeps them all."""

    def __init__(self, mask: Bools) -> None:
        self._mask = mask
        self._all = bool(mask.all())

    def __call__(self, values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        return values if self._all else values[self._mask]

    def texts(self, values: Sequence[str]) -> Sequence[str]:
        return values if self._all else list(compress(values, self._mask.tolist()))


def _nothing(what: str) -> CaptureError:
    return CaptureError(
        what,
        where="table tasks",
        cause="the workload ran nothing on this cluster, or the recorder was not on its scheduler",
        next_step="check that the workload computes through the client it is given",
    )


def _first(times: Floats) -> float:
    """The earliest time that is known (0 stands for unknown)."""
    return float(times[times > 0].min(initial=np.inf))


def _ends(start: Floats, stop: Floats, done: Floats, status: Floats) -> Floats:
    """When each attempt ended; of one that was lost only the scheduler's word may be known."""
    known = np.where((stop <= start) & (status == STATUS_LOST), done, stop)
    return np.maximum(known, start)


def _call(client: Columns, epoch: float, makespan: float) -> tuple[float, float]:
    """`Attempts.begin` and `Attempts.end`."""
    time, seconds = client.get("time", ()), client.get("seconds", ())
    if not len(time):
        return 0.0, makespan
    return min(float(time[0]) - epoch, 0.0), max(float(time[-1] + seconds[-1]) - epoch, makespan)


def _intake(graphs: Columns) -> tuple[Floats, Floats]:
    """From when to when the scheduler took in each graph."""
    time, seconds = (np.asarray(graphs.get(name, ()), np.float64) for name in ("time", "seconds"))
    return time, time + seconds


def _united(*intervals: tuple[Floats, Floats]) -> Floats:
    """What the intervals [begin, end) cover together, as intervals that are rising and apart."""
    begin, end = (np.concatenate(each) for each in zip(*intervals, strict=True))
    order = np.argsort(begin)
    begin, end = begin[order], np.maximum.accumulate(end[order])
    fresh = np.append(True, begin[1:] > end[:-1])
    return np.column_stack([begin[fresh], end[np.append(fresh[1:], True)]])


def codes(names: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    """The different names, and for each name its place among them."""
    different = tuple(dict.fromkeys(names))
    return different, _codes(names, {name: i for i, name in enumerate(different)})


def _codes(names: Sequence[str], index: Mapping[str, int]) -> Ints:
    return np.fromiter(map(index.__getitem__, names), np.int64, len(names))


def _members(workers: _CheckedTable, index: Mapping[str, int], used: Ints, clip: Any) -> Members:
    """Rows of `workers`, and one thread for the whole trial for each worker that only a task names."""
    left = workers.numbers("left")
    rows = Members(
        worker=_codes(workers.texts("worker"), index),
        nthreads=np.asarray(workers.column("nthreads"), dtype=np.int64),
        joined=clip(workers.numbers("joined")),
        left=clip(np.where(left > 0, left, np.inf)),
    )
    unknown = np.setdiff1d(np.unique(used), rows.worker)
    if not len(unknown):
        return rows
    ones = np.ones(len(unknown))
    return Members(
        worker=np.append(rows.worker, unknown),
        nthreads=np.append(rows.nthreads, np.ones(len(unknown), np.int64)),
        joined=np.append(rows.joined, clip(-np.inf * ones)),
        left=np.append(rows.left, clip(np.inf * ones)),
    )


def told(events: Columns, topic: str) -> list[tuple[float, Mapping[str, Any]]]:
    """Time and message of the structured events of one topic whose message is an object."""
    rows = zip(*(events.get(name, ()) for name in ("topic", "time", "message")), strict=True)
    found = [(float(when), json.loads(message)) for name, when, message in rows if name == topic]
    return [(when, message) for when, message in found if isinstance(message, dict)]


def _pauses(events: Columns, index: Mapping[str, int], clip: Any) -> Pauses:
    """From the changes of status of each worker, in the order in which the scheduler saw them."""
    since: dict[int, float] = {}
    seen: set[int] = set()
    found: list[tuple[int, float, float]] = []
    rows = zip(*(events.get(name, ()) for name in ("topic", "time", "message")), strict=True)
    for topic, time, message in rows:
        if topic not in index or "worker-status-change" not in message:
            continue
        change, worker = json.loads(message), index[topic]
        if not isinstance(change, dict) or change.get("action") != "worker-status-change":
            continue
        if worker not in seen and change.get("prev-status") == "paused":
            since[worker] = -np.inf
        seen.add(worker)
        if change.get("status") == "paused":
            since.setdefault(worker, time)
        elif worker in since:
            found.append((worker, since.pop(worker), time))
    found += [(worker, begin, np.inf) for worker, begin in since.items()]
    workers, begin, end = zip(*found, strict=True) if found else ((), (), ())
    return Pauses(np.array(workers, np.int64), clip(np.array(begin, np.float64)), clip(np.array(end, np.float64)))


def _calls(called: Sequence[Mapping[str, Any]], index: Mapping[str, int], clip: Any) -> Calls:
    """From what workers told of them."""
    known = [call for call in called if call["worker"] in index]
    end = np.array([call["end"] for call in known], np.float64)
    return Calls(
        worker=np.array([index[call["worker"]] for call in known], np.int64),
        begin=clip(end - np.array([call["seconds"] for call in known], np.float64)),
        end=clip(end),
        method=[max(call["methods"], key=lambda name: call["methods"][name][1]) for call in known],
        count=np.array([sum(int(entry[0]) for entry in call["methods"].values()) for call in known], np.int64),
    )


def _superseded(
    pick: _Pick, tasks: _CheckedTable, workers: _CheckedTable, names: Sequence[str], stop: Floats, finished: Bools
) -> Bools:
    """Attempts that finished on a worker that left later, and whose task finished once more."""
    result = np.zeros(len(stop), dtype=bool)
    left = {
        address: time for address, time in zip(workers.texts("worker"), workers.column("left"), strict=True) if time > 0
    }
    if not left:
        return result
    keys = pick.texts(tasks.texts("key"))
    last: dict[str, float] = {}
    for key, end in zip(compress(keys, finished), stop[finished].tolist(), strict=True):
        last[key] = max(end, last.get(key, end))
    for i in np.flatnonzero(finished).tolist():
        result[i] = names[i] in left and left[names[i]] >= stop[i] and last[keys[i]] > stop[i]
    return result
