"""Threads that watch a trial: are all workers there, and did a process of it stand still?"""

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

REASON_TIMEOUT_S = 8.0
"""Seconds for the batch system, or Kubernetes, to say why workers were lost; then the trial ends without a reason."""

CANCEL_INTERVAL_S = 1.0
"""Seconds between two cancellations: a workload may go on to submit more."""

BEAT_S = 0.2
"""Seconds between two looks for a standstill."""

LEAST_S, PART = 1.0, 0.05
"""A trial is spoilt by a standstill of more than this many seconds, if it is also more than this share of the trial. On
a busy host a thread may wait tenths of a second for a core."""

ASKS_PER_S = 5
"""A thread that waits for the interpreter lock asks for it every 5 ms (`sys.getswitchinterval`) and sleeps in between.
A thread of a stopped process does neither, so fewer sleeps per second than this mean a standstill."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the former goes on while the host is suspended
_STOPPED = "process {} of the cluster stood still for {{:.1f}} s: stopped"
_THREAD = getattr(resource, "RUSAGE_THREAD", None)


class BackgroundThread(ABC):
    """Runs `_run` in a thread while it is entered. Leaving sets the event `_over` and waits for the thread."""

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
        """The work; it must end soon after `_over` is set."""


class WorkerWatch(BackgroundThread):
    """Notices lost workers, finds out why, then cancels what the workload still waits for.

    A trial that lost a worker is invalid, and its workload may wait forever for results that went with the worker.
    """

    def __init__(
        self,
        expected: int,
        *,
        arrived: Callable[[], int],  # workers that are there now
        explain: Callable[[int], object],  # told `arrived`; raises `ClusterError` with the reason once it is known
        missing: Callable[[], str],  # which jobs or pods lack workers, and where they run
        cancel: Callable[[], object],  # runs `cancel_everything`; raises `RuntimeError` once the cluster is closed
        what: str = "workers",
    ) -> None:
        super().__init__("scalescope-worker-watch")
        self.lost = ""  # why workers were lost; empty if none was
        self._expected, self._arrived, self._what = expected, arrived, what
        self._explain, self._missing, self._cancel = explain, missing, cancel

    def _run(self) -> None:
        over = False
        while self._arrived() >= self._expected:
            if over:
                return
            over = self._over.wait(LOOK_INTERVAL_S)  # then look once more: the loss may be why the trial is over
        self.lost = self._reason()
        while not self._over.wait(CANCEL_INTERVAL_S):
            try:
                self._cancel()
            except RuntimeError:  # the driver ends, and its cluster was closed meanwhile
                return

    def _reason(self) -> str:
        lost = f"{self._expected - self._arrived()} of {self._expected} {self._what} were lost"
        deadline = time.monotonic() + REASON_TIMEOUT_S
        while time.monotonic() < deadline:  # Slurm learns of the loss after us
            try:
                self._explain(self._arrived())
            except ClusterError as error:
                return f"{lost}: {error}"
            time.sleep(LOOK_INTERVAL_S)  # even if the trial ends meanwhile: the reason is worth the wait
        return (
            f"{lost}, of {self._missing()}; nothing says why within {REASON_TIMEOUT_S:g} s. "
            "A node that died is noticed late"
        )


async def cancel_everything(dask_scheduler: Scheduler) -> None:
    """Cancel every future of every client."""
    keys = list(dask_scheduler.tasks)
    more: dict[str, Any] = {}
    if "reason" in inspect.signature(dask_scheduler.stimulus_cancel).parameters:  # from 2024 on
        more = {"reason": "workers were lost", "msg": "Scalescope ends this trial: workers were lost"}
    for client in list(dask_scheduler.clients):
        dask_scheduler.stimulus_cancel(keys=keys, client=client, force=True, **more)


class HaltWatch(BackgroundThread):
    """Notices that this process, or one below it, stood still: the makespan then contains time that measures nothing.

    This process: a thread asks to be woken at intervals, and is woken late if the process was stopped, frozen or
    starved of CPU (on Linux; elsewhere that looks like waiting for the interpreter lock). Processes below: the system
    says whether a signal has stopped them. Real time only.
    """

    def __init__(self) -> None:
        super().__init__("scalescope-halts")
        self.reason = ""  # what stood still for too long, once it is left; empty if nothing did
        self._seconds: dict[str, float] = defaultdict(float)  # by the sentence that reports them

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
            over = self._over.wait(BEAT_S)  # then look once more: it may have stood still until the end
            now, asks = time.clock_gettime(_CLOCK), _sleeps()
            late_s = now - before - BEAT_S
            if _THREAD is not None and late_s >= LEAST_S and asks - asked < ASKS_PER_S * late_s:
                self._seconds["the driver stood still for {:.1f} s: stopped or starved"] += late_s
            for process in self._below:
                with suppress(psutil.Error):
                    if process.status() == psutil.STATUS_STOPPED:
                        self._seconds[_STOPPED.format(process.pid)] += now - before
            before, asked = now, asks


def _sleeps() -> int:
    """How often this thread has gone to sleep by itself."""
    return 0 if _THREAD is None else resource.getrusage(_THREAD).ru_nvcsw
