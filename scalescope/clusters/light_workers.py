"""Workers and settings that are cheap enough for hundreds of workers in one process."""

from __future__ import annotations

import functools
import gc
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import dask
import distributed
import distributed.core
import distributed.scheduler
import distributed.versions
import distributed.worker
from distributed.system_monitor import SystemMonitor
from distributed.utils import DequeHandler, in_async_call

# Bookkeeping per process (profiler, ticks, monitors) is off, because every worker in the process would repeat it.
CONFIG: dict[str, Any] = {
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.tick.cycle": "1h",
    "distributed.admin.tick.interval": "1h",
    "distributed.admin.tick.limit": "10h",
    "distributed.client.heartbeat": "60s",
    "distributed.client.scheduler-info-interval": "1h",
    "distributed.diagnostics.nvml": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.worker.use-file-locking": False,
}


def apply() -> None:
    """Make `CONFIG` the defaults of this process; the user's settings override them."""
    dask.config.update_defaults(_nested(CONFIG))


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return nested


class LightWorker(distributed.Worker):  # type: ignore[misc]
    """A worker without an HTTP server, on the same clock as the scheduler."""

    _client: distributed.Client | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, heartbeat_interval="5s", **kwargs)

    @property
    def scheduler_delay(self) -> float:
        """Always 0: one host has one clock, so distributed's estimate from heartbeats is noise."""
        return 0.0

    @scheduler_delay.setter
    def scheduler_delay(self, value: float) -> None:
        pass

    def _get_client(self, timeout: float | None = None) -> distributed.Client:
        """A client for the tasks of this worker alone; distributed would share one client in the whole process."""
        if self._client is None:
            asynchronous = in_async_call(self.loop)
            self._client = distributed.Client(
                self.scheduler,
                loop=self.loop,
                security=self.security,
                set_as_default=False,
                asynchronous=asynchronous,
                direct_to_workers=True,
                name="worker",
                timeout=timeout or dask.config.get("distributed.comm.timeouts.connect"),
            )
            distributed.Worker._initialized_clients.add(self._client)
        self.log_event("worker-get-client", {"client": self._client.id})
        return self._client

    def _setup_logging(self, logger: logging.Logger) -> None:
        # One shared handler: with one each, every worker would handle the records of all workers (quadratic cost).
        self._deque_handler = _shared_handler()
        logger.addHandler(self._deque_handler)

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing, because an HTTP server would be most of a worker's cost."""


class LightScheduler(distributed.Scheduler):  # type: ignore[misc]
    """A scheduler without an HTTP server."""

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing, as in `LightWorker`."""


@contextmanager
def cheap_start(*, versions: bool = True) -> Iterator[None]:
    """Let workers of this process share one system monitor and one list of the installed packages.

    With `versions=False`, workers do not tell the scheduler their versions; it must have run `compare_no_versions`.
    """
    shared = _SHARED if versions else (*_SHARED, (distributed.worker, "get_versions", _no_versions))
    saved = [(module, name, getattr(module, name)) for module, name, _ in shared]
    for module, name, value in shared:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, original in saved:
            setattr(module, name, original)


def compare_no_versions() -> None:
    """Keep the scheduler in this process from comparing all workers' versions whenever one registers."""
    distributed.versions.get_versions = _no_versions
    distributed.versions.error_message = _no_error


_monitor: SystemMonitor | None = None
_shared_versions = functools.cache(distributed.versions.get_versions)


@functools.cache
def _shared_handler() -> logging.Handler:
    handler: logging.Handler = DequeHandler(n=dask.config.get("distributed.admin.log-length"))
    handler.setFormatter(logging.Formatter(dask.config.get("distributed.admin.log-format")))
    return handler


def _no_versions(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {}


def _no_error(*args: Any, **kwargs: Any) -> dict[str, str]:
    return {"warning": "", "error": ""}


def _shared_monitor(*args: Any, **kwargs: Any) -> SystemMonitor:
    global _monitor
    if _monitor is None:
        _monitor = SystemMonitor(*args, **kwargs)
    return _monitor


_SHARED: tuple[tuple[ModuleType, str, Any], ...] = (
    (distributed.core, "SystemMonitor", _shared_monitor),
    (distributed.versions, "error_message", _no_error),
    (distributed.versions, "get_versions", _shared_versions),
    (distributed.worker, "get_versions", _shared_versions),
)


def slow_heartbeats() -> None:
    """Let all workers together send at most 20 heartbeats a second; for the scheduler's process."""
    distributed.scheduler.heartbeat_interval = lambda workers: max(5.0, workers / 20)


def freeze_garbage_collector(*, collect: bool = True) -> None:
    """Exempt all loaded objects from garbage collection, and collect rarely."""
    if collect:
        gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
