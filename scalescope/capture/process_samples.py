"""Functions that run on the scheduler or on workers.

The source text of this module is what is sent to them: the standard library and `distributed` alone.
"""

from __future__ import annotations

import os
import platform
import sys
from array import array
from typing import Any


def memory_samples(since: float, dask_worker: Any = None) -> dict[str, Any]:
    """Resident memory and CPU of this process since a time, from the system monitor of a worker or the scheduler.

    Args:
        since: Seconds since the epoch, on the scheduler's clock.
        dask_worker: The server, which `distributed` fills in; on the scheduler it is the scheduler.

    Returns:
        Identity of the process, address of some worker (asked of the scheduler), `interval_s` of the monitor, times (on
        the scheduler's clock), bytes and cores in use as raw items; what `gpu` returns.
    """
    monitor = dask_worker.monitor
    delay = getattr(dask_worker, "scheduler_delay", 0.0)
    callback = dask_worker.periodic_callbacks.get("monitor")
    quantities = monitor.quantities
    samples = [
        (when + delay, int(resident), percent / 100)
        for when, resident, percent in zip(  # noqa: B905  # Python 3.9
            quantities["time"], quantities["memory"], quantities["cpu"]
        )
        if when + delay >= since
    ]
    return {
        "process": f"{platform.node()} {os.getpid()}",
        "first_worker": next(iter(getattr(dask_worker, "workers", ())), None),
        "interval_s": callback.callback_time / 1000 if callback else float("inf"),
        "order": sys.byteorder,
        "time": array("d", [when for when, _, _ in samples]).tobytes(),
        "rss": array("q", [resident for _, resident, _ in samples]).tobytes(),
        "cpu": array("f", [cores for _, _, cores in samples]).tobytes(),
        "gpu": gpu(monitor, since - delay),
    }


def gpu(monitor: Any, since: float) -> dict[str, Any]:
    """The GPU of this process since a time, of which the system monitor keeps a record where NVML is there.

    Returns:
        `name`, `total` and `peak` bytes of its memory, whoever used it, `mean` and `highest` utilisation from 0 to 1;
        or `absent`: why there is nothing.
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
        "total": int(monitor.gpu_memory_total),
        "peak": max(used for used, _ in samples),
        "mean": sum(busy for _, busy in samples) / len(samples),
        "highest": max(busy for _, busy in samples),
    }
