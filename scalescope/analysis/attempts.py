"""Task attempts of a trial as arrays on one time axis, read from the tables of `model.records`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from scalescope.analysis.events import Columns, Tables, task_waits, told
from scalescope.errors import CaptureError
from scalescope.model.records import ACTOR_CALLS, OTHER_CLUSTER, STATUS_FINISHED, STATUS_LOST, complete

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NO_TASK = ("no task was recorded", "no task ran on the cluster")  # first words of the errors if no task ran
_Scalar = TypeVar("_Scalar", bound=np.generic)
_OnAxis = Callable[[Floats], Floats]  # times of the records -> seconds since `Attempts.epoch`, clipped to the trial


@dataclass(frozen=True)
class Members:
    """Presence of workers; one element per row of the table `workers`."""

    worker: Ints  # index into `Attempts.addresses`
    nthreads: Ints
    joined: Floats  # time at which the worker joined; `Attempts.begin` if it was there from the start
    left: Floats  # time at which the worker left; `Attempts.end` if it stayed


@dataclass(frozen=True)
class Pauses:
    """Pauses of workers; one element per pause."""

    worker: Ints  # index into `Attempts.addresses`
    begin: Floats  # `Attempts.begin` if paused from the start
    end: Floats  # `Attempts.end` if paused to the end


@dataclass(frozen=True)
class Calls:
    """Calls of actor methods; one element per series of consecutive calls on a worker."""

    worker: Ints  # index into `Attempts.addresses`
    begin: Floats
    end: Floats
    method: Sequence[str]  # method that took most of the series' time, such as `Counter.add`
    count: Ints  # calls in the series


@dataclass(frozen=True)
class Away:
    """Waits of tasks that had given up their thread (`secede`); one element per wait."""

    attempt: Ints  # index into `Attempts`; only attempts whose result was used
    begin: Floats
    end: Floats


@dataclass(frozen=True)
class Attempts:
    """All attempts that began to compute; arrays have one element per attempt. Times are seconds since `epoch`."""

    epoch: float  # time at which the first task became known, in seconds since the epoch of the cluster's clock
    makespan: float  # seconds from `epoch` to the end of the last computation or actor call
    begin: float  # time at which the workload was called, 0 or below; 0 if not recorded
    end: float  # time at which the workload returned, or the makespan if that is later
    pending: Floats  # (n, 2) disjoint intervals in which a graph was being received, or a known task had not ended
    elsewhere: Floats  # (n, 2) disjoint intervals outside `pending` in which the client waited for another cluster
    addresses: tuple[str, ...]  # addresses of all workers, also of those that occur only in the table `tasks`
    members: Members
    pauses: Pauses
    calls: Calls
    away: Away
    row: Ints  # row in the table `tasks`
    key: Sequence[str]
    graph: Ints  # row of the task's graph in the table `graphs`, counted from 1; 0 when unknown
    thread: Ints  # identifier of the thread on its worker; 0 when unknown
    worker: Ints  # index into `addresses`
    runnable: Floats  # time at which its inputs were in memory
    prepared_from: Floats  # time at which the scheduler assigned it; its inputs were fetched after that
    start: Floats  # time at which its computation began
    stop: Floats
    transfer: Floats  # seconds of fetching inputs
    deserialize: Floats  # seconds of deserialising the task
    disk_read: Floats  # seconds of reading spilled inputs
    disk_write: Floats  # seconds of spilling
    span: Floats  # seconds of the longest dependency path that ends with this task
    useful: Bools  # True if the task finished, and was not computed again because a worker died
    group: Sequence[str]  # task group
    prefix: Sequence[str]  # task prefix

    @property
    def elapsed(self) -> float:
        return self.end - self.begin

    @cached_property
    def not_client(self) -> Floats:
        """Union of `pending` and `elsewhere`: outside these intervals, idle threads wait for the client's own work."""
        return united(self.pending.T, self.elsewhere.T) if len(self.elsewhere) else self.pending

    @cached_property
    def here_s(self) -> float:
        """The makespan, without the waits for other clusters."""
        inside = np.clip(self.elsewhere, 0.0, self.makespan)
        return self.makespan - float((inside[:, 1] - inside[:, 0]).sum())

    @cached_property
    def seconds(self) -> Floats:
        """Seconds for which each attempt held its thread: computing, or waiting without giving it up."""
        away = np.bincount(self.away.attempt, weights=self.away.end - self.away.begin, minlength=len(self.start))
        found: Floats = self.stop - self.start - away
        return found

    @classmethod
    def read(cls, tables: Tables) -> Attempts:
        """Read the tables of one trial; raises `CaptureError` if there is nothing to measure or a table is ragged."""
        tasks, workers, events = (_table(tables, name) for name in ("tasks", "workers", "events"))
        if not len(tasks["key"]):
            raise _nothing(NO_TASK[0])
        known, over = _lifetimes(tasks)
        epoch = float(known.min())

        pick = _Pick(np.asarray(tasks["start"]) > 0)
        names, status = pick.texts(tasks["worker"]), pick(np.asarray(tasks["status"]))
        if not np.any(status == STATUS_FINISHED):
            why = "every task failed, was cancelled, or was lost with its worker"
            raise _nothing("no task finished", why, "read what the tasks raised in the log of the driver")
        start, stop = pick.floats(tasks["start"]), _ends(tasks, pick)
        calls = [call for _, call in told(events, ACTOR_CALLS) if call["end"] > epoch]
        makespan = max(float(stop[status != STATUS_LOST].max()), *(call["end"] for call in calls), 0.0) - epoch
        if not makespan > 0:
            why = "the tasks do nothing, or the workers' clocks stood still"
            raise _nothing("the recorded tasks took no time at all", why, "run tasks that take time")
        client = tables.get("client", {})
        begin, end = _call(client, epoch, makespan)

        def clip(times: Floats) -> Floats:
            return np.clip(times - epoch, 0.0, makespan)

        def within(times: Floats) -> Floats:
            return np.clip(times - epoch, begin, end)

        addresses, _ = codes([*workers["worker"], *dict.fromkeys(names)])
        index = {address: i for i, address in enumerate(addresses)}
        worker = _codes(names, index)
        useful = (status == STATUS_FINISHED) & ~_superseded(tasks, workers, pick, stop, status)
        runnable, prepared_from = _waits(tasks, pick)
        pending = within(united((known, over), _received(tables.get("graphs", {}))))
        return cls(
            epoch=epoch,
            makespan=makespan,
            begin=begin,
            end=end,
            pending=pending,
            elsewhere=_without(within(_elsewhere(client)), pending),
            addresses=addresses,
            members=_members(workers, index, worker, within),
            pauses=_pauses(events, index, within),
            calls=_calls(calls, index, clip),
            away=_away(tables, pick.rows, useful, clip),
            row=pick.rows,
            key=pick.texts(tasks["key"]),
            graph=pick(np.asarray(tasks["graph"], np.int64)),
            thread=pick(np.asarray(tasks["thread"], np.int64)),
            worker=worker,
            runnable=clip(runnable),
            prepared_from=clip(prepared_from),
            start=clip(start),
            stop=clip(stop),
            # durations below zero come from clocks that disagree
            transfer=np.maximum(pick.floats(tasks["transfer"]), 0.0),
            deserialize=np.maximum(pick.floats(tasks["deserialize"]), 0.0),
            disk_read=np.maximum(pick.floats(tasks["disk_read"]), 0.0),
            disk_write=np.maximum(pick.floats(tasks["disk_write"]), 0.0),
            span=pick.floats(tasks["span"]),
            useful=useful,
            group=pick.texts(tasks["group"]),
            prefix=pick.texts(tasks["prefix"]),
        )


class _Pick:
    """Selects rows of columns by a mask, without a copy if the mask selects all rows."""

    def __init__(self, mask: Bools) -> None:
        self._mask = mask
        self._all = bool(mask.all())
        self.rows = np.flatnonzero(mask)

    def __call__(self, values: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
        return values if self._all else values[self._mask]

    def floats(self, values: Any) -> Floats:
        return self(np.asarray(values, np.float64))

    def texts(self, values: Sequence[str]) -> Sequence[str]:
        return values if self._all else list(compress(values, self._mask.tolist()))


def _table(tables: Tables, name: str) -> Columns:
    if "tasks" not in tables:
        raise _nothing(NO_TASK[1])
    if "workers" not in tables:
        raise CaptureError("the records have no table 'workers'", where=f"recorded: {', '.join(tables)}")
    columns = tables.get(name, {})
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise CaptureError(f"the columns of table {name!r} differ in length: {sorted(lengths)}")
    return complete(name, columns, *(lengths or {0}))


def _nothing(what: str, cause: str = "", next_step: str = "") -> CaptureError:
    return CaptureError(
        what,
        where="table tasks",
        cause=cause or "the workload sent no task to this cluster",
        next_step=next_step or "check that the workload computes with the client that it gets as its first argument",
    )


def _lifetimes(tasks: Columns) -> tuple[Floats, Floats]:
    times = [np.asarray(tasks[name], np.float64) for name in ("runnable", "assigned", "start")]
    known = np.min([np.where(each > 0, each, np.inf) for each in times], axis=0)  # infinity: the time is not known
    return known, np.max([known, times[2], tasks["stop"], tasks["done"]], axis=0)


def _ends(tasks: Columns, pick: _Pick) -> Floats:
    start, stop, done = (pick.floats(tasks[name]) for name in ("start", "stop", "done"))
    # The worker of a lost attempt may not have reported when it ended: take the scheduler's time instead.
    lost = pick(np.asarray(tasks["status"])) == STATUS_LOST
    return np.maximum(np.where((stop <= start) & lost, done, stop), start)


def _waits(tasks: Columns, pick: _Pick) -> tuple[Floats, Floats]:
    runnable, assigned, start = (pick.floats(tasks[name]) for name in ("runnable", "assigned", "start"))
    runnable = np.where(runnable > 0, runnable, np.where(assigned > 0, assigned, start))
    # A retried attempt was runnable from its new assignment on, not since its inputs were in memory.
    again = pick(np.asarray(tasks["retries"])) > 0
    runnable = np.minimum(np.where(again, np.maximum(runnable, assigned), runnable), start)
    return runnable, np.where((assigned > 0) & (assigned <= start), np.maximum(assigned, runnable), runnable)


def _call(client: Columns, epoch: float, makespan: float) -> tuple[float, float]:
    time, seconds = client.get("time", ()), client.get("seconds", ())
    if not len(time):
        return 0.0, makespan
    return min(float(time[0]) - epoch, 0.0), max(float(time[-1] + seconds[-1]) - epoch, makespan)


def _received(graphs: Columns) -> tuple[Floats, Floats]:
    time, seconds = (np.asarray(graphs.get(name, ()), np.float64) for name in ("time", "seconds"))
    return time, time + seconds


def _elsewhere(client: Columns) -> Floats:
    rows = [row for row, what in enumerate(client.get("what", ())) if what == OTHER_CLUSTER]
    if not rows:
        return np.zeros((0, 2))
    begin, seconds = (np.asarray(client[name], np.float64)[rows] for name in ("time", "seconds"))
    return united((begin, begin + seconds))


def _without(intervals: Floats, others: Floats) -> Floats:
    # The parts of `intervals` outside `others`; both are disjoint and in order of time.
    if not len(intervals):
        return intervals
    edges = np.unique(np.concatenate([intervals, others]))
    middle = (edges[:-1] + edges[1:]) / 2
    inside, taken = (np.searchsorted(each.ravel(), middle) % 2 == 1 for each in (intervals, others))
    kept = inside & ~taken
    return united((edges[:-1][kept], edges[1:][kept])) if kept.any() else np.zeros((0, 2))


def united(*intervals: Floats | tuple[Floats, Floats]) -> Floats:
    """The union of intervals, each given as (begins, ends): disjoint, in order of time, of shape (n, 2)."""
    begin, end = (np.concatenate(each) for each in zip(*intervals, strict=True))
    order = np.argsort(begin)
    begin, end = begin[order], np.maximum.accumulate(end[order])
    fresh = np.append(True, begin[1:] > end[:-1])
    return np.column_stack([begin[fresh], end[np.append(fresh[1:], True)]])


def codes(names: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    """The distinct names, and the index of each name among them."""
    different = tuple(dict.fromkeys(names))
    return different, _codes(names, {name: i for i, name in enumerate(different)})


def ordered(code: Ints, values: Floats) -> Ints:
    """Indices sorted stably by code (none negative), then by value; faster than `numpy.lexsort((values, code))`."""
    order = np.argsort(values, kind="stable")
    small = code.astype(np.min_scalar_type(int(code.max(initial=0))))  # numpy sorts small integers by radix
    return order[np.argsort(small[order], kind="stable")]


def _codes(names: Sequence[str], index: Mapping[str, int]) -> Ints:
    return np.fromiter(map(index.__getitem__, names), np.int64, len(names))


def _members(workers: Columns, index: Mapping[str, int], used: Ints, on_axis: _OnAxis) -> Members:
    # A worker that occurs only in the table `tasks` is given one thread for the whole trial.
    recorded = _codes(workers["worker"], index)
    unknown = np.setdiff1d(np.unique(used), recorded)
    joined, left = (np.asarray(workers[name], np.float64) for name in ("joined", "left"))
    ones = np.ones(len(unknown))
    return Members(
        worker=np.append(recorded, unknown),
        nthreads=np.append(np.asarray(workers["nthreads"], np.int64), ones.astype(np.int64)),
        joined=on_axis(np.append(joined, -np.inf * ones)),
        left=on_axis(np.append(np.where(left > 0, left, np.inf), np.inf * ones)),
    )


def _pauses(events: Columns, index: Mapping[str, int], on_axis: _OnAxis) -> Pauses:
    since: dict[int, float] = {}
    seen: set[int] = set()
    found: list[tuple[int, float, float]] = []
    for topic, time, message in zip(events["topic"], events["time"], events["message"], strict=True):
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
    return Pauses(np.array(workers, np.int64), on_axis(np.array(begin, float)), on_axis(np.array(end, float)))


def _away(tables: Tables, rows: Ints, useful: Bools, on_axis: _OnAxis) -> Away:
    place = {row: i for i, row in enumerate(rows.tolist()) if useful[i]} if (found := task_waits(tables)) else {}
    waits = [
        (place[row], begin, end) for row, own in found.items() for begin, end, held in own if row in place and not held
    ]
    attempt, begin, end = np.array(waits, np.float64).reshape(-1, 3).T
    return Away(attempt.astype(np.int64), on_axis(begin), on_axis(end))


def _calls(called: Sequence[Mapping[str, Any]], index: Mapping[str, int], on_axis: _OnAxis) -> Calls:
    known = [call for call in called if call["worker"] in index]
    end = np.array([call["end"] for call in known], np.float64)
    return Calls(
        worker=np.array([index[call["worker"]] for call in known], np.int64),
        begin=on_axis(end - np.array([call["seconds"] for call in known], np.float64)),
        end=on_axis(end),
        method=[max(call["methods"], key=lambda name: call["methods"][name][1]) for call in known],
        count=np.array([sum(int(entry[0]) for entry in call["methods"].values()) for call in known], np.int64),
    )


def _superseded(tasks: Columns, workers: Columns, pick: _Pick, stop: Floats, status: npt.NDArray[Any]) -> Bools:
    # True for finished attempts whose worker left later and whose task then finished again elsewhere.
    result = np.zeros(len(stop), dtype=bool)
    left = {address: time for address, time in zip(workers["worker"], workers["left"], strict=True) if time > 0}
    if not left:
        return result
    keys, names, finished = pick.texts(tasks["key"]), pick.texts(tasks["worker"]), status == STATUS_FINISHED
    last: dict[str, float] = {}
    for key, end in zip(compress(keys, finished), stop[finished].tolist(), strict=True):
        last[key] = max(end, last.get(key, end))
    for i in np.flatnonzero(finished).tolist():
        result[i] = names[i] in left and left[names[i]] >= stop[i] and last[keys[i]] > stop[i]
    return result
