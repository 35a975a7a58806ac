"""Records trials on an open cluster: the client of the recorder, and samples fetched when a trial ends."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from operator import sub
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from distributed import Client

from scalescope.capture import (
    actors,
    blackbox,
    clock,
    garbage,
    gpu,
    inside_tasks,
    logs,
    memory,
    recorder,
    waits,
    worker_plugins,
)
from scalescope.capture.shipping import Shipment, register
from scalescope.capture.unheard import unheard
from scalescope.errors import CaptureError
from scalescope.model import spool
from scalescope.model.records import SAME_CALL, TABLES, Columns, from_rows
from scalescope.model.words import plural
from scalescope.owner import opener

CLOCK_ERROR_S = 0.05  # largest contradiction between clocks, in seconds, that causes no warning

SETTLE_S = 5.0
DRAIN_INTERVAL_S = 2.0
CALL_TIMEOUT_S = 60.0
_ATTEMPTS = 3
# columns of the table `workers` that worker processes report about themselves
OF_PROCESSES = ("cores", "process_threads", "pool_threads", "core_wait_s")

T = TypeVar("T")


@dataclass
class Recording:
    """The recording of one trial; final once `Capture.trial` has been left."""

    complete: bool = False  # True if the spool has as many task attempts as the scheduler counted
    reason: str = "the trial has not ended"  # why the recording is not complete
    no_room: bool = False  # True if the disk is full, so that the next trial would be incomplete, too
    warnings: list[str] = field(default_factory=list)  # sentences about the quality of the record
    notes: list[str] = field(default_factory=list)  # sentences about data that the cluster does not provide
    gpus: dict[str, Any] = field(default_factory=dict)  # result of `memory.gpus`
    unprofiled: str = ""  # why stacks of tasks are missing; empty if they are there
    tasks: int = 0  # recorded attempts: finished, erred and lost
    t_begin: float = 0.0  # start of the recording, in seconds on the scheduler's clock
    t_end: float = 0.0  # return of the workload, in seconds on the scheduler's clock
    ahead_s: float = 0.0  # seconds by which the scheduler's clock is ahead of ours, estimated from one call
    clock_error_s: float = 0.0  # largest contradiction between times of scheduler and worker, in seconds
    workers_left: list[str] = field(default_factory=list)  # addresses of workers that left during the recording
    threads: dict[str, int] = field(default_factory=dict)  # threads by worker address, at the moment with most workers
    received_bytes: int = 0  # bytes of packed task records
    members: list[tuple[Any, ...]] = field(default_factory=list)  # the scheduler's reports on workers that came or left


# Errors of calls to a scheduler that is gone; AttributeError: the client has set `scheduler` to None
_GONE = (OSError, TimeoutError, RuntimeError, ValueError, AttributeError)


class Capture:
    """Installs the recorder on a cluster's scheduler, and records trials one after another.

    A task belongs to a trial if it was assigned to a worker during the trial. Raises `CaptureError` if the recorder
    cannot be installed. `client` must not be asynchronous, and is not closed here.

    A thread fetches records every `drain_interval_s`; None, for a simulated cluster, fetches them at the end and does
    not watch the event loop. `log_folder` is for log records that outlive a worker, if each worker has its own
    process and nanny. Tasks that run when the workload returns may take `settle_s` more. The scheduler must answer
    within `call_timeout_s`; it holds records back for up to `held_back_s`, and these are lost if its process dies.
    """

    def __init__(
        self,
        client: Client,
        *,
        drain_interval_s: float | None = DRAIN_INTERVAL_S,
        log_folder: Path | None = None,
        settle_s: float = SETTLE_S,
        call_timeout_s: float = CALL_TIMEOUT_S,
        held_back_s: float = recorder.HELD_BACK_S,
    ) -> None:
        self.client = client
        self.drain_interval_s = drain_interval_s
        self.log_folder = log_folder
        self.settle_s = settle_s
        self.call_timeout_s = call_timeout_s
        self._installed: list[tuple[str, bool]] = []  # name of the plugin, and True if on nannies
        try:
            limits: dict[str, Any] = {"lag_interval_s": None, "undrained_s": None, "held_back_s": held_back_s}
            if drain_interval_s is not None:
                limits |= {"lag_interval_s": recorder.LAG_INTERVAL_S, "undrained_s": recorder.UNDRAINED_S}
            register(client, recorder, "Recorder", owner=client.id, **limits)
            kernel = client.run_on_scheduler(Shipment(clock, "this_kernel"))
            plugins = [Shipment(clock, "SameHostClock", {"kernel": kernel})]
            plugins += [Shipment(waits, "Waits", {}), Shipment(actors, "ActorCalls", {})]
            if drain_interval_s is not None:  # not a simulated cluster
                plugins += [Shipment(garbage, "GarbageCollections", {}), Shipment(gpu, "GpuSampler", {})]
                plugins += [Shipment(inside_tasks, "InsideTasks", {})]
            if log_folder is not None:
                plugins += [Shipment(blackbox, "BlackBox", {"folder": str(log_folder.absolute())})]
                self._install(blackbox, "ExitCodes", nanny=True)
            self._install(worker_plugins, "WorkerPlugins", plugins=plugins)
        except Exception as error:
            self.close()
            raise CaptureError(
                "the recorder could not be installed",
                where=str(client.scheduler.addr if client.scheduler else client),
                cause=f"{type(error).__name__}: {error}",
                next_step="check that the scheduler runs distributed 2023.5 or later and allows plugins (pickle)",
            ) from error

    def _install(self, module: Any, attribute: str, *, nanny: bool = False, **arguments: Any) -> None:
        register(self.client, module, attribute, **arguments)
        self._installed.append((getattr(module, attribute).name, nanny))

    @contextmanager
    def trial(self, spool_path: Path, drained: Callable[[], object] = lambda: None) -> Iterator[Recording]:
        """Record the cluster while the body runs, to a file (`scalescope.model.spool`).

        The thread that fetches records calls `drained` each time it has written records to the file.

        Raises `CaptureError` if recording cannot begin. The last records are fetched when the body ends, also when it
        raises; later errors are in `Recording.reason` and `warnings`.
        """
        recording = Recording()
        with _opened(spool_path, recording) as stream:
            run = _Run(self, recording, stream, drained)
            run.begin()
            told_to_stop = True
            try:
                yield recording
                told_to_stop = False
            except Exception:
                told_to_stop = False
                raise
            finally:
                run.end(settle_s=0.0 if told_to_stop else self.settle_s)

    def close(self) -> None:
        """Remove all plugins, if the cluster is still there."""
        with suppress(*_GONE):
            self._call("uninstall")
        while self._installed and self.client.scheduler is not None:
            name, nanny = self._installed.pop()
            with suppress(*_GONE):
                self.client.unregister_worker_plugin(name, nanny=nanny)

    def _call(self, command: str, *, timeout_s: float | None = None, **arguments: Any) -> Any:
        if self.client.scheduler is None:
            raise ConnectionError("the client has given up its connection to the scheduler")

        async def call() -> Any:
            remote_call = getattr(self.client.scheduler, f"scalescope_{command}")
            return await asyncio.wait_for(remote_call(**arguments), timeout_s or self.call_timeout_s)

        return self.client.sync(call)


class _Run:
    """Fetches the chunks of one recording, writes them, and checks that none is missing."""

    def __init__(self, capture: Capture, recording: Recording, stream: BinaryIO, drained: Callable[[], object]) -> None:
        self.capture = capture
        self.drained = drained
        self.recording = recording
        self.stream = stream
        self.token = ""
        self.acknowledged = 0
        self.managed: list[tuple[float, str, int, int]] = []
        self.broken = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- from the first task to the last

    def begin(self) -> None:
        before = time.time()
        reply = self._remote("begin")
        self.recording.ahead_s = max(reply["time"] - time.time(), min(reply["time"] - before, 0.0))
        if reply["protocol"] != recorder.PROTOCOL:
            raise CaptureError(
                f"the scheduler's recorder has protocol {reply['protocol']}, this Scalescope has {recorder.PROTOCOL}: "
                "another release of Scalescope put it there"
            )
        self.token = reply["recording"]
        self.recording.t_begin = reply["time"]
        if self.capture.drain_interval_s is not None:
            self._thread = threading.Thread(
                target=unheard(self._keep_draining, self._failed), name="scalescope-drain", daemon=True
            )
            self._thread.start()

    def end(self, *, settle_s: float) -> None:
        recording = self.recording
        try:
            self._join()
            limit_s = self.capture.call_timeout_s + settle_s
            summary = self._retry(
                lambda: self._remote("finish", recording=self.token, timeout_s=limit_s, settle_s=settle_s)
            )
            recording.t_end = summary["time"]
            while not self._retry(self._drain):
                pass
            self._write_rest()
            recording.reason = _why_incomplete(summary, recording.tasks)
            recording.complete = not recording.reason
            recording.warnings += _doubts(summary, recording.clock_error_s)
        except CaptureError as error:
            recording.complete = False
            recording.reason = f"{error.what}: {error.cause}" if error.cause else error.what

    def _keep_draining(self) -> None:
        interval_s = self.capture.drain_interval_s
        while not self._stop.wait(interval_s) and not self.broken:
            with suppress(CaptureError):  # the chunk is fetched again; only the last fetch, at the end, may raise
                self._drain()
                self.drained()

    def _failed(self, error: Exception) -> None:
        self.broken = f"{type(error).__name__}: {error}"

    def _join(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self.capture.call_timeout_s + 10)
            if self._thread.is_alive():
                raise CaptureError("the thread that fetches records is stuck", cause="the scheduler does not answer")

    # ---------------------------------------------------------------- chunks

    def _drain(self) -> bool:
        # True after the last chunk
        chunk = self._remote("drain", recording=self.token, ack=self.acknowledged)
        if chunk["seq"] != self.acknowledged + 1:
            self.broken = f"expected chunk {self.acknowledged + 1}, got {chunk['seq']}"
        if not self.broken:
            try:
                self._store(chunk)
                self.stream.flush()
                self.acknowledged = chunk["seq"]
            except CaptureError as error:
                self.broken = error.what
            except OSError as error:
                self.broken = _unwritten(self.recording, error)
        if self.broken:
            raise CaptureError("the task record is not complete", cause=self.broken)
        return bool(chunk["last"])

    def _store(self, chunk: Mapping[str, Any]) -> None:
        recording = self.recording
        for table in ("tasks", "dependencies"):
            if chunk[table]["rows"]:
                recording.received_bytes += spool.append(self.stream, chunk[table])
        if chunk["tasks"]["rows"]:
            recording.tasks += chunk["tasks"]["rows"]
            recording.clock_error_s = max(recording.clock_error_s, _clock_error(chunk["tasks"]))
        for table in ("events", "lag", "graphs"):
            if chunk[table]:
                rows = (dict(zip(TABLES[table], row, strict=True)) for row in chunk[table])
                spool.write_chunk(self.stream, table, from_rows(table, rows))
        recording.members += chunk["members"]
        self.managed += chunk["memory"]

    def _write_rest(self) -> None:
        recording = self.recording
        workers = worker_rows(recording.members)
        recording.workers_left = [
            address for address, left in zip(workers["worker"], workers["left"], strict=True) if left
        ]
        recording.threads = most_present(workers)
        if recording.workers_left and not any(workers["reason"]):
            recording.notes.append("this release of distributed does not say why a worker left")  # distributed 2023.5
        gathered = memory.gather(self.capture.client, recording.t_begin, self.managed)
        recording.warnings += gathered.warnings
        recording.notes += gathered.notes
        recording.gpus = gathered.gpus
        virtual = self.capture.drain_interval_s is None
        recording.unprofiled = "the time of this cluster is virtual" if virtual else gathered.unprofiled
        for row, address in enumerate(workers["worker"]):
            for name, value in zip(OF_PROCESSES, gathered.processes.get(address, (0, 0, 0, 0.0)), strict=True):
                workers[name][row] = value
        try:
            spool.write_chunk(self.stream, "workers", workers)
            spool.write_chunk(self.stream, "memory", gathered.columns)
            if gathered.monitored:
                self._write_fine_metrics()
            if gathered.gpu_samples["worker"]:
                spool.write_chunk(self.stream, "gpu", gathered.gpu_samples)
            if gathered.inside["prefix"]:
                spool.write_chunk(self.stream, "inside", gathered.inside)
            if gathered.same_calls:
                rows = [
                    {"time": recording.t_end, "topic": SAME_CALL, "message": json.dumps(each)}
                    for each in gathered.same_calls
                ]
                spool.write_chunk(self.stream, "events", from_rows("events", rows))
            if self.capture.log_folder is not None:
                left = set(recording.workers_left)
                spool.write_chunk(self.stream, "logs", logs.read(self.capture.log_folder, left))
        except OSError as error:
            raise CaptureError(_unwritten(self.recording, error)) from error

    def _write_fine_metrics(self) -> None:
        try:
            rows = self._retry(lambda: self._remote("fine_metrics", recording=self.token))
        except CaptureError as error:
            self.recording.warnings.append(f"distributed's own metrics could not be fetched: {error.cause}")
            return
        if rows:
            metrics = (dict(zip(TABLES["fine_metrics"], row, strict=True)) for row in rows)
            spool.write_chunk(self.stream, "fine_metrics", from_rows("fine_metrics", metrics))

    # ---------------------------------------------------------------- calls

    def _remote(self, command: str, **arguments: Any) -> Any:
        try:
            reply = self.capture._call(command, **arguments)
        except Exception as error:
            raise CaptureError(
                f"the scheduler's recorder did not answer {command!r}",
                cause=str(error) or type(error).__name__,
                next_step="check that the scheduler is alive",
            ) from error
        if reply is None:
            raise CaptureError(
                f"the scheduler knows no recorder for {command!r}",
                cause="the recorder was removed or replaced, or removed itself as nobody fetched records for "
                f"{recorder.UNDRAINED_S / 60:.0f} minutes",
            )
        return reply

    def _retry(self, call: Callable[[], T]) -> T:
        for _ in range(_ATTEMPTS - 1):
            try:
                return call()
            except CaptureError:
                if self.broken:
                    raise
        return call()


@contextmanager
def _opened(path: Path, recording: Recording) -> Iterator[BinaryIO]:
    try:
        stream = open(path, "wb", opener=opener)  # noqa: SIM115 - closed below
    except OSError as error:
        raise spool.unwritable(path, error) from error
    try:
        yield stream
    finally:
        try:
            stream.close()
        except OSError as error:  # buffered data could not be written
            recording.complete = False
            reason = _unwritten(recording, error)
            recording.reason = recording.reason or reason


def _unwritten(recording: Recording, error: OSError) -> str:
    recording.no_room = recording.no_room or error.errno in spool.NO_ROOM
    return f"records could not be written: {error}"


def _clock_error(tasks: Mapping[str, Any]) -> float:
    # A task cannot end after the scheduler was told of its end, or start before it was assigned.
    names = ("assigned", "start", "stop", "done")
    assigned, start, stop, done = (spool.unpack_numbers(tasks["columns"][name], "d") for name in names)
    early = (gap for gap, begin in zip(map(sub, assigned, start), start, strict=True) if begin)
    return max(0.0, max(map(sub, stop, done), default=0.0), max(early, default=0.0))


def worker_rows(members: Iterable[Sequence[Any]]) -> Columns:
    """The table `workers`, from the scheduler's reports of workers that came and left."""
    rows: list[dict[str, Any]] = []
    present: dict[str, dict[str, Any]] = {}
    for when, what, address, *details in members:
        if what == "joined":
            row = dict(zip(("name", "host", "nthreads", "memory_limit"), details, strict=True))
            row |= {"worker": address, "joined": when}
            rows.append(row)
            present[address] = row
        elif address in present:
            present.pop(address).update(left=when, reason=details[0])
    return from_rows("workers", rows)


def most_present(workers: Columns) -> dict[str, int]:
    """Threads by worker address, at the moment with the largest number of workers."""
    rows = list(zip(*(workers[name] for name in ("worker", "nthreads", "joined", "left")), strict=True))
    steps = sorted([(row[2], 1) for row in rows] + [(row[3], -1) for row in rows if row[3]])
    counts = list(accumulate(step for _, step in steps))
    when = steps[counts.index(max(counts))][0] if counts else 0.0
    return {worker: threads for worker, threads, since, left in rows if since <= when and not 0 < left <= when}


def _why_incomplete(summary: Mapping[str, Any], received: int) -> str:
    if summary["dropped"]:
        return f"{summary['dropped']:,} task attempts were lost: the scheduler holds only a limited number of rows"
    if received != summary["rows"]:
        return f"{summary['rows'] - received:,} of {summary['rows']:,} task attempts did not arrive"
    if summary["restarted"]:
        return "the scheduler was restarted during the trial, so that its own count of tasks is lost"
    ended = summary["rows"] - summary["unassigned"] + summary["unfinished"]
    if summary["assigned"] is not None and summary["assigned"] != ended:
        return f"the scheduler assigned {summary['assigned']:,} task attempts, but {ended:,} are in the record"
    return ""


def _doubts(summary: Mapping[str, Any], clock_error_s: float) -> list[str]:
    doubts = []
    if summary["unfinished"]:
        keys = ", ".join(summary["unfinished_keys"])
        doubts.append(f"{plural(summary['unfinished'], 'task')} still ran when the trial was closed, such as {keys}")
    if summary["foreign"]:
        doubts.append(
            f"{plural(summary['foreign'], 'earlier task')} ended during the trial; earlier tasks are not recorded"
        )
    if summary["assigned"] is None and not summary["restarted"]:
        doubts.append("the task record could not be checked: this release of distributed does not count tasks")
    if summary["edges_dropped"]:
        doubts.append(f"{summary['edges_dropped']:,} dependencies were lost: the scheduler holds only a limited number")
    for table, rows in summary["full"].items():
        doubts.append(f"{rows:,} rows of the table of {table} were lost: the scheduler holds only a limited number")
    if clock_error_s > CLOCK_ERROR_S:
        doubts.append(f"clocks of workers and scheduler disagree by at least {clock_error_s * 1000:.0f} ms")
    return doubts
