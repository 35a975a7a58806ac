"""The trace of a trial for https://ui.perfetto.dev or chrome://tracing: gzipped JSON trace events.

The trace has a process per worker and a track per worker thread. Transfers, deserialisation and disk are drawn next to
their task, because the records have their durations but not their times. Events of a track never overlap: overlaps by
clock error are clipped, and tasks that really overlap on a thread (coroutines on the event loop) get separate tracks.
Arrows lead from a task to the tasks that needed its result.

Format: "Trace Event Format", Google, 2016; times in microseconds since the first task was known.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from scalescope.analysis.attempts import Attempts, Floats, Ints
from scalescope.analysis.events import Tables
from scalescope.analysis.graph import Graph
from scalescope.analysis.summary import is_meant, label, summarise, varied
from scalescope.errors import UsageError
from scalescope.model.finding import Verdict
from scalescope.model.records import STATUS_ERRED, STATUS_LOST
from scalescope.model.trial import Trial
from scalescope.report.files import replacing
from scalescope.report.worker_time import worst_point

Event = dict[str, Any]
CLUSTER = 0  # number of the process with the counters; workers have numbers from 1
COUNTED = 20_000  # most samples of a counter; viewers slow down with more
SAME_NS = 1_000_000  # shorter overlaps of tasks on a thread are clock error; for longer ones, tasks get separate tracks
COMPRESSION = 5  # level of gzip; level 1 is hardly faster and makes larger files
ARROWS = 20_000  # most arrows; those between workers are drawn first
_BATCH = 5_000
_STATUS = {STATUS_ERRED: "erred", STATUS_LOST: "lost"}


def write(tables: Tables, place: str | Path, *, title: str = "") -> int:
    """Write the trace of one trial to a path or address (`*.json.gz`), and return the number of events.

    Raises:
        CaptureError: There is nothing to show.
    """
    found = events(tables)
    first = next(found)  # errors in the records are raised here, before a file is written
    with (
        replacing(place, "trace") as temporary,
        gzip.open(temporary, "wt", compresslevel=COMPRESSION, encoding="utf-8") as stream,
    ):
        return _write(stream, first, found, title)


def events(tables: Tables) -> Iterator[Event]:
    """All events of one trial, track by track.

    Raises:
        CaptureError: There is nothing to show.
    """
    trial = _TraceTrial.read(tables)
    yield _meta(CLUSTER, "process_name", name="cluster")
    yield _meta(CLUSTER, "process_sort_index", sort_index=-1)
    yield from _counters(trial.attempts)
    yield from _arrivals(trial)
    by_worker = np.argsort(trial.attempts.worker, kind="stable")
    bounds = np.searchsorted(trial.attempts.worker[by_worker], np.arange(len(trial.attempts.addresses) + 1))
    for worker, address in enumerate(trial.attempts.addresses):
        yield _meta(1 + worker, "process_name", name=trial.names.get(address, address))
        yield _meta(1 + worker, "process_sort_index", sort_index=worker)
        members = by_worker[bounds[worker] : bounds[worker + 1]]
        if not len(members):  # viewers hide workers without events, but idle workers matter most
            yield _instant(1 + worker, "ran no task", 0)
        yield from _worker(trial, 1 + worker, members)
    yield from _arrows(trial, Graph.read(tables, trial.attempts))


def choose(trials: Sequence[Trial], verdict: Verdict | None, *, point: str = "", trial: str = "") -> Trial:
    """The trial to show, if possible a valid one: of the given point, else of the point that the verdict is about.

    `point`: settings such as `workers=200,items=199`, or the start of a point's id. `trial`: the start of a key.

    Raises:
        UsageError: There is no such trial, or its records were not kept.
    """
    of_point = [one for one in trials if is_meant(one.point, point)]
    meant = [one for one in of_point if one.key.startswith(trial)]
    if not meant:
        asked = " ".join(part for part in (point and f"point {point!r}", trial and f"trial {trial!r}") if part)
        names = varied(one.point for one in trials)
        keys = dict.fromkeys(f"{one.key} ({label(one.point, names)})" for one in of_point or trials)
        known = "; ".join([*keys][:8] + ["..."] * (len(keys) > 8))
        raise UsageError(f"The run has no {asked or 'trials'}", next_step=f"There are: {known}." if known else "")
    recorded = [one for one in meant if one.records]
    if not recorded:
        raise UsageError(
            f"Trial {meant[0].key} has no records", cause=meant[0].reason, next_step="Choose another with --trial."
        )
    if not point and not trial:
        worst = worst_point(summarise(recorded), verdict)
        recorded = [one for one in recorded if worst and one.point.id == worst.point.id] or recorded
    return next((one for one in recorded if one.counts), recorded[0])


@dataclass(frozen=True)
class _TraceTrial:
    """Attempts, and further data for the trace; arrays have one element per attempt."""

    attempts: Attempts
    rows: Ints  # rows of the attempts in the table of tasks
    tasks: Mapping[str, Any]
    thread: Ints  # thread identifiers
    names: Mapping[str, str]  # names of workers, by address
    workers: Mapping[str, Any]
    slices: dict[int, Event] = field(default_factory=dict)  # the drawn event of each attempt

    @classmethod
    def read(cls, tables: Tables) -> _TraceTrial:
        attempts = Attempts.read(tables)
        tasks, workers = tables["tasks"], tables["workers"]
        rows = np.flatnonzero(np.asarray(tasks["start"], dtype=np.float64) > 0)
        thread = np.asarray(tasks["thread"], dtype=np.int64)[rows]
        addresses = workers.get("worker", ())
        names = {
            address: f"worker {name}" if name and name != address else f"worker {address}"
            for address, name in zip(addresses, workers.get("name", addresses), strict=True)
        }
        return cls(attempts, rows, tasks, thread, names, workers)


@dataclass
class _Track:
    """The events of one thread, in order of time; times are nanoseconds."""

    pid: int
    tid: int
    until: int = 0
    found: list[Event] = field(default_factory=list)

    def add(self, name: str, category: str, begin: int, end: int, arguments: Mapping[str, Any] | None = None) -> None:
        """Add an event, clipped so that it begins after all earlier ones."""
        begin = max(begin, self.until)
        if end <= begin and category != COMPUTE:
            return
        end = max(begin, end)
        event: Event = {"ph": "X", "name": name, "cat": category, "pid": self.pid, "tid": self.tid}
        event |= {"ts": begin / 1000, "dur": (end - begin) / 1000}
        if arguments:
            event["args"] = arguments
        self.until = end
        self.found.append(event)


COMPUTE = "compute"


def _worker(trial: _TraceTrial, pid: int, members: Ints) -> Iterator[Event]:
    attempts = trial.attempts
    threads = trial.thread[members]
    order = np.lexsort((attempts.start[members], threads))
    members, threads = members[order], threads[order]
    cuts = np.flatnonzero(np.diff(threads)) + 1
    tid = 1
    for number, own in enumerate(np.split(members, cuts) if len(members) else (), start=1):
        for lane, group in enumerate(_lanes(attempts, own)):
            yield _meta(pid, "thread_name", tid=tid, name=f"thread {number}" + (f", beside ({lane})" if lane else ""))
            yield _meta(pid, "thread_sort_index", tid=tid, sort_index=tid)
            yield from _track(trial, _Track(pid, tid), group)
            tid += 1


def _lanes(attempts: Attempts, own: Ints) -> list[Ints]:
    """Divide the attempts of one thread, sorted by start, into lanes without overlaps."""
    start, stop = _ns(attempts.start[own]), _ns(attempts.stop[own])
    if len(own) < 2 or bool((start[1:] >= np.maximum.accumulate(stop)[:-1] - SAME_NS).all()):
        return [own]
    lanes: list[list[int]] = []
    ends: list[int] = []
    for i, (begin, end) in enumerate(zip(start.tolist(), stop.tolist(), strict=True)):
        free = next((lane for lane, last in enumerate(ends) if begin >= last - SAME_NS), None)
        if free is None:
            lanes.append([])
            ends.append(0)
            free = len(lanes) - 1
        lanes[free].append(i)
        ends[free] = max(ends[free], end)
    return [own[lane] for lane in lanes]


def _track(trial: _TraceTrial, track: _Track, group: Ints) -> Iterator[Event]:
    attempts, tasks = trial.attempts, trial.tasks
    begin, end = _ns(attempts.start[group]).tolist(), _ns(attempts.stop[group]).tolist()
    earliest = _ns(attempts.prepared_from[group]).tolist()
    before = [
        ("disk-read", _ns(attempts.disk_read[group]).tolist()),
        ("deserialise", _ns(attempts.deserialize[group]).tolist()),
        ("transfer", _ns(attempts.transfer[group]).tolist()),
    ]
    written = _ns(attempts.disk_write[group]).tolist()
    keys, status, nbytes, retries = (tasks[name] for name in ("key", "status", "nbytes", "retries"))
    following = [*begin[1:], None]
    for i, (attempt, row) in enumerate(zip(group.tolist(), trial.rows[group].tolist(), strict=True)):
        _prepare(track, begin[i], earliest[i], [(name, durations[i]) for name, durations in before])
        arguments: dict[str, Any] = {"key": keys[row], "nbytes": int(nbytes[row])}
        if retries[row]:
            arguments["retries"] = int(retries[row])
        if int(status[row]) in _STATUS:
            arguments["status"] = _STATUS[int(status[row])]
        stop = end[i] if following[i] is None else min(end[i], following[i])
        track.add(attempts.prefix[attempt], COMPUTE, begin[i], stop, arguments)
        trial.slices[attempt] = track.found[-1]
        if written[i]:
            until = end[i] + written[i]
            track.add("disk-write", "disk", end[i], until if following[i] is None else min(until, following[i]))
        yield from track.found
        track.found.clear()


def _prepare(track: _Track, begin: int, earliest: int, parts: Sequence[tuple[str, int]]) -> None:
    """Draw the preparations of a task, backwards from its start, but not before `earliest` or earlier events."""
    room, placed = max(track.until, earliest), []
    for name, duration in parts:
        first = max(begin - duration, room)
        if first < begin:
            placed.append((name, first, begin))
            begin = first
    for name, first, last in reversed(placed):
        track.add(name, name.partition("-")[0], first, last)


def _arrows(trial: _TraceTrial, graph: Graph) -> Iterator[Event]:
    worker = trial.attempts.worker
    here, there = graph.needs, graph.node
    between = np.argsort(worker[here] == worker[there], kind="stable")[:ARROWS]
    for number, edge in enumerate(between.tolist(), 1):
        made, needed = trial.slices[int(here[edge])], trial.slices[int(there[edge])]
        known = {"name": "result", "cat": "result", "id": number}
        end = made["ts"] + max(made["dur"] - 0.001, 0.0)  # just inside the slice, so that the arrow belongs to it
        yield {"ph": "s", "pid": made["pid"], "tid": made["tid"], "ts": end, **known}
        yield {"ph": "f", "bp": "e", "pid": needed["pid"], "tid": needed["tid"], "ts": needed["ts"], **known}


def _counters(attempts: Attempts) -> Iterator[Event]:
    """Counters of running and of waiting tasks, at each change, or at regular times if changes are too many."""
    start, stop, runnable = np.sort(attempts.start), np.sort(attempts.stop), np.sort(attempts.runnable)
    times: Floats = np.unique(np.concatenate([start, stop, runnable]))
    if len(times) > COUNTED:
        times = np.linspace(0.0, attempts.makespan, COUNTED)
    begun, ended, ready = (np.searchsorted(values, times, side="right") for values in (start, stop, runnable))
    for at, running, waiting in zip(
        _ns(times).tolist(), (begun - ended).tolist(), (ready - begun).tolist(), strict=True
    ):
        for name, value in (("running tasks", running), ("runnable tasks, waiting", waiting)):
            yield {"ph": "C", "name": name, "pid": CLUSTER, "tid": 0, "ts": at / 1000, "args": {"tasks": value}}


def _arrivals(trial: _TraceTrial) -> Iterator[Event]:
    attempts, workers = trial.attempts, trial.workers
    index = {address: i for i, address in enumerate(attempts.addresses)}
    reasons = workers.get("reason", [""] * len(workers.get("worker", ())))
    for row, address in enumerate(workers.get("worker", ())):
        for what, moment in (("joined", float(workers["joined"][row])), ("left", float(workers["left"][row]))):
            if moment <= attempts.epoch:
                continue
            name = f"{what}: {reasons[row]}" if what == "left" and reasons[row] else what
            yield _instant(1 + index[address], name, round(1e9 * (moment - attempts.epoch)))


def _write(stream: TextIO, first: Event, rest: Iterator[Event], title: str) -> int:
    head = {"displayTimeUnit": "ms", "otherData": {"title": title, "by": "scalescope"}}
    stream.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
    count = 0
    found = chain((first,), rest)
    while batch := list(islice(found, _BATCH)):
        stream.write((",\n" if count else "") + encode(batch)[1:-1])  # in batches, which saves a seventh of the time
        count += len(batch)
    stream.write("\n]}\n")
    return count


def _meta(pid: int, what: str, tid: int = 0, **arguments: Any) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": arguments}


def _instant(pid: int, name: str, at: int) -> Event:
    return {"ph": "i", "s": "p", "name": name, "pid": pid, "tid": 0, "ts": at / 1000}


def _ns(seconds: Floats) -> npt.NDArray[np.int64]:
    return np.rint(seconds * 1e9).astype(np.int64)
