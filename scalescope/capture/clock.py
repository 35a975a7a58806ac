"""Makes times of workers on the scheduler's host agree exactly with the scheduler's clock.

A worker adds to its times an estimate of the difference between the scheduler's clock and its own, from the round trip
of its last heartbeat. On the scheduler's host the true difference is 0, but the estimate is wrong by tens of
milliseconds under load. On other hosts the estimate stays. This source text is sent to workers: it imports only the
standard library and `distributed`.
"""

from __future__ import annotations

import platform
import socket
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

from scalescope.capture.quiet import hide_own_records as hide_own_records  # sends `quiet` with this first plugin


class SameHostClock(WorkerPlugin):  # type: ignore[misc]
    """Fixes `Worker.scheduler_delay` at 0 if the worker reads the same clock as the scheduler.

    The worker sets the attribute after every heartbeat, so its class gets a property that ignores assignments, like
    `NoSchedulerDelayWorker` in upstream's tests. `kernel`: `this_kernel()` of the scheduler.
    """

    name = "scalescope-same-host-clock"
    idempotent = True

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.original: type | None = None

    def setup(self, worker: Any) -> None:
        if this_kernel() == self.kernel:
            self.original = type(worker)
            worker.__class__ = _with_fixed_delay(self.original)

    def teardown(self, worker: Any) -> None:
        if self.original is not None:
            worker.__class__ = self.original


_classes: dict[type, type] = {}


def _with_fixed_delay(worker_class: type) -> type:
    if worker_class not in _classes:  # one class for all workers of a process
        delay = property(lambda worker: 0.0, lambda worker, value: None)
        _classes[worker_class] = type(worker_class.__name__, (worker_class,), {"scheduler_delay": delay})
    return _classes[worker_class]


def this_kernel() -> str:
    """Identity of the kernel whose clock this process reads; containers of one machine share it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return f"{platform.node()} {socket.gethostname()}"
