"""Records a cluster, through a separate client, while a user's program uses it.

This module needs only `distributed`: a script may run in an environment with nothing else.
"""

from __future__ import annotations

import platform
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dask
import distributed

from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.host import HostLoad, facts
from scalescope.capture.live.standing_tasks import Hang
from scalescope.capture.partition_calls import Notes
from scalescope.capture.quiet import hide_own_records
from scalescope.capture.recording import Capture, Recording, most_present, worker_rows
from scalescope.capture.settings import program, settings
from scalescope.driver.attempt import Attempt, describe, plain
from scalescope.errors import UsageError
from scalescope.model import spool
from scalescope.model.standstill import STANDSTILL
from scalescope.model.trial_state import RAN
from scalescope.model.words import duration
from scalescope.own_code.hang_watch import HangWatch
from scalescope.own_code.record import Recorded
from scalescope.owner import opener

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 20.0  # seconds in which the scheduler must answer the recorder
HELD_BACK_S = 1.0  # seconds that the record may lack if the process dies, besides the time since the last fetch
OBSERVER = "scalescope"  # name of the recorder's clients
NOT_OVER = "the program's process ended before the recording was closed"

# Recordings of this process, by scheduler address: a function that ends the recording; None if only its owner may.
_recorded: dict[str, Callable[[], object] | None] = {}


class Block:
    """Records into a folder from `begin` to `end`; both may raise `ScalescopeError`, errors of Dask or `OSError`."""

    def __init__(
        self,
        client: distributed.Client,
        folder: Path,
        name: str,
        what: str,  # `script`, `block` or `cluster`
        *,
        watch: ClientWatch | None = None,  # watch of the thread that uses the client; None: unknown
        notes: Notes | None = None,  # notes of calls that decide partitions
        says: Callable[[Hang, float], object] = lambda found, now: None,  # called with a standstill and the time
        made: str = "",  # line of code that made the cluster
        gives_way: Callable[[], object] | None = None,  # ends this block if another block starts on the cluster
        failed: Callable[[Exception], object] = lambda error: None,  # called if records cannot be written
        processes: Collection[int] | None = None,  # ids of the program's root processes; None: this process
    ) -> None:
        self.address, self.folder, self._what, self._name, self._made = address_of(client), folder, what, name, made
        self._watch, self._notes, self._says = watch, Notes() if notes is None else notes, says
        self._security, cluster = client.security, cluster_of(client)
        self._kind = type(cluster).__name__ if cluster is not None else "running scheduler"
        self._is_here = isinstance(cluster, distributed.LocalCluster)
        # True if the scheduler runs on an asynchronous client's loop: its lag shows when the program blocks that loop.
        self._shares_loop = self._is_here and client._asynchronous and cluster.loop is client.loop
        self._cluster = weakref.ref(cluster) if cluster is not None else lambda: None
        self._observing, self._recording = ExitStack(), ExitStack()
        self._gives_way, self._failed = gives_way, failed
        self._host = facts() if self._is_here else None
        self._code, self._settings = "" if what == "cluster" else program(), settings()
        self._attempt, self._threads = Attempt(), dict[str, int]()
        self._load = HostLoad(processes)
        self._hang: HangWatch | None = None

    def begin(self) -> None:
        if give_way := _recorded.get(self.address):
            give_way()
        if self.address in _recorded:
            raise UsageError(
                "Another block already records this cluster",
                where=self.address,
                next_step="use only the outer block, or one block after the other",
            )
        _recorded[self.address] = self._gives_way
        self._observing.callback(_recorded.pop, self.address, None)
        hide_own_records()
        try:
            observer = distributed.Client(
                self.address,
                security=self._security,
                set_as_default=False,
                timeout=CONNECT_TIMEOUT_S,
                name=OBSERVER,
            )
            self._observing.enter_context(observer)
            capture = Capture(observer, settle_s=0.0, call_timeout_s=ANSWER_TIMEOUT_S, held_back_s=HELD_BACK_S)
            self._observing.callback(capture.close)
            self._threads = dict(observer.nthreads())
            self._began, self._clock = datetime.now(UTC), time.monotonic()
            enter = self._recording.enter_context
            self.recording: Recording = enter(capture.trial(self.folder / "tasks.spool", self._keep_so_far))
            enter(self._load)
            self._hang = enter(HangWatch(observer, self._says, self._watch))
            if self._watch:
                self._client_spool = open(self.folder / "client.spool", "wb", opener=opener)  # noqa: SIM115
                self._observing.callback(self._client_spool.close)
                enter(self._watch)
        except BaseException:
            self._recording.close()
            self._observing.close()
            raise

    def end(self, error: BaseException | None = None) -> None:
        """End the recording; `error` is the exception that ended the program's use of the cluster, and is noted."""
        attempt = self._attempt
        if error is not None:
            attempt.error = describe(error)
            attempt.raised = f"the {self._what} raised {attempt.error['message']}"
            if isinstance(error, KeyboardInterrupt):
                attempt.raised = f"you stopped the {self._what} after {duration(time.monotonic() - self._clock)}"
        try:
            self._recording.close()  # without the error: passing through a generator would change its traceback
            attempt.missing = "" if self.recording.complete else self.recording.reason
            attempt.warnings += self.recording.warnings
            self._threads = max(self._threads, self.recording.threads, key=len)  # workers of batch systems come late
            self._keep(over=True)
        finally:
            self._observing.close()

    def _keep_so_far(self) -> None:
        try:
            self._keep()
        except Exception as error:  # noqa: BLE001 - the thread that calls this goes on
            self._failed(error)

    def _keep(self, over: bool = False) -> None:
        """Write all facts so far, since the process may end at any time."""
        attempt, watch, recording = self._attempt, self._watch, self.recording
        if watch:
            rows = watch.taken(recording.ahead_s)
            if rows["time"]:
                spool.write_chunk(self._client_spool, "client", rows)
            self._client_spool.flush()
        attempt.elapsed_s = watch.ended - watch.began if watch else time.monotonic() - self._clock
        attempt.facts = self._facts()
        threads, members = self._threads, recording.members
        if not over:
            attempt.missing = NOT_OVER
            threads = max(threads, most_present(worker_rows(members)), key=len)
        started_at, real_s = self._began.isoformat(timespec="seconds"), time.monotonic() - self._clock
        kept = [] if over else [list(each) for each in members]
        Recorded(attempt, self._name, self.address, threads, started_at, real_s, over, kept).write(self.folder)

    def _facts(self) -> dict[str, Any]:
        load, found = self._load.so_far(), self._hang and self._hang.found
        cluster = {"kind": self._kind, "address": self.address, **adaptive(self._cluster())}
        cluster |= {"shares_loop": True} if self._shares_loop else {}
        limits = worker_rows(self.recording.members)["memory_limit"]
        cluster |= {"protocol": self.address.partition("://")[0], "memory_bytes_per_worker": max(limits, default=0)}
        known, end = self._settings, settings()  # the program may have set some in a `with` block that has ended
        return {
            RAN: self._what,
            STANDSTILL: found and found.to_mapping(),
            **self._notes.facts(),
            "cluster": {**cluster, **({"made_at": self._made} if self._made else {})},
            **({"host": {**self._host, "load": load and load.to_mapping()}} if self._host else {}),
            **{module.__name__: module.__version__ for module in (dask, distributed)},
            "python": platform.python_version(),
            "code": self._code,
            **{name: {**known[name], **end[name]} for name in known},
            "error": self._attempt.error,
        }


def cluster_of(client: distributed.Client) -> Any:
    """The cluster that a client was given, or else this process's cluster with the same address; None: unknown."""
    if client.cluster is not None:
        return client.cluster
    address = client.scheduler.address
    return next((each for each in distributed.SpecCluster._instances if each.scheduler_address == address), None)


def adaptive(cluster: Any) -> dict[str, Any]:
    """The fact `adaptive` of a cluster that scales itself; empty for any other."""
    scaling = getattr(cluster, "_adaptive", None)
    names = ("minimum", "maximum", "interval", "wait_count", "target_duration")
    return {"adaptive": {name: plain(getattr(scaling, name, None)) for name in names}} if scaling else {}


def address_of(client: distributed.Client) -> str:
    return str(client.scheduler.address)
