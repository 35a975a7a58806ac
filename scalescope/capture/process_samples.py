"""Memory, CPU and GPU of a process, as the system monitor of its worker or scheduler sampled them.

The source text is sent to schedulers and workers: the standard library and `distributed` alone.
"""

from __future__ import annotations

import os
import platform
from typing import Any


def memory_samples(since: float, dask_worker: Any = None) -> dict[str, Any]:
    """The samples of this process since a time on the scheduler's clock; `distributed` fills in `dask_worker`.

    Returns `process` (its identity), `first_worker` (an address, on the scheduler), `interval_s` of the monitor,
    `samples` (time on the scheduler's clock, resident bytes, cores in use) and `gpu`.
    """
    monitor = dask_worker.monitor
    delay = getattr(dask_worker, "scheduler_delay", 0.0)
    callback = dask_worker.periodic_callbacks.get("monitor")
    quantities = monitor.quantities
    rows = zip(quantities["time"], quantities["memory"], quantities["cpu"])  # noqa: B905  # Python 3.9
    return {
        "process": f"{platform.node()} {os.getpid()}",
        "first_worker": next(iter(getattr(dask_worker, "workers", ())), None),
        "interval_s": callback.callback_time / 1000 if callback else float("inf"),
        "samples": [(at + delay, int(rss), percent / 100) for at, rss, percent in rows if at + delay >= since],
        "gpu": gpu(monitor, since - delay),
    }


def gpu(monitor: Any, since: float) -> dict[str, Any]:
    """The GPU of this process since a time, as the system monitor saw it with NVML.

    Memory is in bytes, whoever used it; utilisation from 0 to 1. `absent` says why there is nothing.
    """
    if not getattr(monitor, "gpu_name", None):
        from distributed.diagnostics import nvml

        state = getattr(getattr(nvml, "NVML_STATE", None), "name", "UNINITIALIZED")
        return {"absent": state}
    rows = zip(  # noqa: B905  # Python 3.9
        monitor.quantities["time"], monitor.quantities["gpu_memory_used"], monitor.quantities["gpu_utilization"]
    )
    samples = [(int(used), busy / 100) for when, used, busy in rows if when >= since]
    if not samples:
        return {"absent": "NO_SAMPLES"}
    return {
        "name": str(monitor.gpu_name),
        "memory_total": int(monitor.gpu_memory_total),
        "memory_peak": max(used for used, _ in samples),
        "utilisation_mean": sum(busy for _, busy in samples) / len(samples),
        "utilisation_peak": max(busy for _, busy in samples),
    }
