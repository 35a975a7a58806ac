"""Workers and settings cheap enough for hundreds of workers in one process."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed
import distributed.scheduler
import distributed.versions
import distributed.worker

CONFIG: dict[str, Any] = {
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.tick.cycle": "1h",
    "distributed.admin.tick.interval": "1h",
    "distributed.admin.tick.limit": "10h",
    "distributed.diagnostics.nvml": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.use-file-locking": False,
}
"""Settings that make hundreds of workers a process affordable; what is switched off is bookkeeping of the process
itself (profiler, ticks, monitors), which would be counted once per worker. The largest single gain is the profiler's."""

_versions: dict[str, Any] = {}
_lock = threading.Lock()


class LeanWorker(distributed.Worker):  # type: ignore[misc]
    """A worker without an HTTP server of its own, whose clock is the scheduler's."""

    @property
    def scheduler_delay(self) -> float:
        """Always 0: on one host there is one clock, and distributed's estimate from heartbeats is only noise."""
        return 0.0

    @scheduler_delay.setter
    def scheduler_delay(self, value: float) -> None:
        pass

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: a server per worker would be most of its cost."""


class LeanScheduler(distributed.Scheduler):  # type: ignore[misc]
    """A scheduler without an HTTP server: nothing is served, nothing listens but the scheduler itself."""

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


@contextmanager
def quiet_versions() -> Iterator[None]:
    """Scan installed packages once, not once per worker, and skip comparing a process with itself."""
    with _lock:
        if not _versions:
            _versions.update(distributed.versions.get_versions())
        saved = distributed.versions.get_versions, distributed.worker.get_versions, distributed.versions.error_message
        distributed.versions.get_versions = distributed.worker.get_versions = lambda packages=None: _versions
        distributed.versions.error_message = lambda *args, **kwargs: {"warning": "", "error": ""}
        try:
            yield
        finally:
            distributed.versions.get_versions, distributed.worker.get_versions, distributed.versions.error_message = (
                saved
            )


def freeze_garbage_collector() -> None:
    """Take everything loaded so far out of garbage collection, and collect rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
