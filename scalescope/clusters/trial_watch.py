"""Threads that watch a trial for lost workers, and for processes that stand still."""

from __future__ import annotations

import inspect
import resource
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import psutil

from scalescope.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Scheduler

LOOK_INTERVAL_S = 0.25
REASON_TIMEOUT_S = 8.0  # seconds for the batch system or Kubernetes to say why workers were lost
CANCEL_INTERVAL_S = 1.0  # seconds between two cancellations, since a workload may submit more
BEAT_S = 0.2  # seconds between two looks for a standstill

# A standstill spoils a trial if it exceeds both LEAST_S seconds and the share PART of the trial. On a busy host, a
# thread may wait tenths of a second for a core.
LEAST_S, PART = 1.0, 0.05

# Fewer sleeps per second of the watching thread than this mean a standstill: while it waits for the interpreter lock,
# it sleeps 5 ms at a time (`sys.getswitchinterval`); in a stopped process it does not run.
ASKS_PER_S = 5

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # CLOCK_BOOTTIME also counts while the host is suspended
_STOPPED = "process {} of the cluster stood still for {{:.1f}} s: it was stopped"
_THREAD = getattr(resource, "RUSAGE_THREAD", None)


class BackgroundThread(ABC):
    """A context that runs `_run` in a thread. Leaving it sets the event `_over` and waits for the thread."""

    def __init__(self, name: str) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """The thread's work; must return soon after `_over` is set."""


class WorkerWatch(BackgroundThread):
    """Notices lost workers, asks why, then cancels all futures: the workload could wait forever for lost results."""

    def __init__(
        self,
        expected: int,
        *,
        arrived: Callable[[], int],  # returns the number of present workers
        explain: Callable[[int], object],  # called with `arrived()`; raises `ClusterError` once the reason is known
        missing: Callable[[], str],  # names the jobs or pods without workers, and their hosts
        cancel: Callable[[], object],  # runs `cancel_everything`; raises `RuntimeError` once the cluster is closed
        what: str = "workers",
    ) -> None:
        super().__init__("scalescope-worker-watch")
        self.lost = ""  # why workers were lost; empty if none were
        self._expected, self._arrived, self._what = expected, arrived, what
        self._explain, self._missing, self._cancel = explain, missing, cancel

    def _run(self) -> None:
        over = False
        while self._arrived() >= self._expected:
            if over:
                return
            over = self._over.wait(LOOK_INTERVAL_S)  # look once more after the end: a loss may have ended the trial
        self.lost = self._reason()
        while not self._over.wait(CANCEL_INTERVAL_S):
            try:
                self._cancel()
            except RuntimeError:  # the driver is ending and has closed its cluster
                return

    def _reason(self) -> str:
        deadline, fewest = time.monotonic() + REASON_TIMEOUT_S, self._expected
        while time.monotonic() < deadline:
            present = self._arrived()
            fewest = min(fewest, present)  # losses of one host are noticed one after the other
            lost = f"{self._expected - fewest} of {self._expected} {self._what} were lost"
            try:
                self._explain(present)
            except ClusterError as error:
                return f"{lost}: {error}"
            time.sleep(LOOK_INTERVAL_S)  # wait even if the trial has ended, to learn the reason
        return f"{lost} ({self._missing()}); no reason is known after {REASON_TIMEOUT_S:g} s: a node may have died"


async def cancel_everything(dask_scheduler: Scheduler) -> None:
    """Cancel every future of every client."""
    keys = list(dask_scheduler.tasks)
    more: dict[str, Any] = {}
    if "reason" in inspect.signature(dask_scheduler.stimulus_cancel).parameters:  # distributed 2024 or newer
        more = {"reason": "workers were lost", "msg": "Scalescope ends this trial: workers were lost"}
    for client in list(dask_scheduler.clients):
        dask_scheduler.stimulus_cancel(keys=keys, client=client, force=True, **more)


class HaltWatch(BackgroundThread):
    """Notices that this process or a child stood still, which makes the makespan too long.

    A thread that wakes at intervals wakes late if this process was stopped, frozen or starved of CPU (Linux only). For
    children, the system tells whether a signal has stopped them. Real time only.
    """

    def __init__(self) -> None:
        super().__init__("scalescope-halts")
        self.reason = ""  # sentence on what stood still for too long, set on leaving; empty if nothing did
        self._seconds: dict[str, float] = defaultdict(float)  # seconds of standstill, by the sentence that reports them

    def __enter__(self) -> Self:
        self._below = psutil.Process().children(recursive=True)
        self._began = time.clock_gettime(_CLOCK)
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        limit_s = max(LEAST_S, PART * (time.clock_gettime(_CLOCK) - self._began))
        super().__exit__(*exception)
        longest = max(self._seconds, key=self._seconds.__getitem__, default="")
        if longest and self._seconds[longest] > limit_s:
            self.reason = longest.format(self._seconds[longest])

    def _run(self) -> None:
        before, asked, over = self._began, _sleeps(), False
        while not over:
            over = self._over.wait(BEAT_S)  # look once more after the end
            now, asks = time.clock_gettime(_CLOCK), _sleeps()
            late_s = now - before - BEAT_S
            if _THREAD is not None and late_s >= LEAST_S and asks - asked < ASKS_PER_S * late_s:
                self._seconds["the driver stood still for {:.1f} s: it was stopped, or got no CPU"] += late_s
            for process in self._below:
                with suppress(psutil.Error):
                    if process.status() == psutil.STATUS_STOPPED:
                        self._seconds[_STOPPED.format(process.pid)] += now - before
            before, asked = now, asks


def _sleeps() -> int:
    """Number of times that this thread has given up the CPU by itself."""
    return 0 if _THREAD is None else resource.getrusage(_THREAD).ru_nvcsw
