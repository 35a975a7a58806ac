"""Memory and CPU of a process, as its system monitor sampled them, its GPU, and what its tasks did inside.

The source text is sent to schedulers and workers: the standard library and `distributed` alone.
"""

from __future__ import annotations

import os
import platform
from typing import Any


def memory_samples(since: float, take: bool = True, dask_worker: Any = None) -> dict[str, Any]:
    """The samples of this process since a time on the scheduler's clock; `distributed` fills in `dask_worker`.

    Returns `process` (its identity), `first_worker` (an address, on the scheduler), `interval_s` of the monitor,
    `samples` (time on the scheduler's clock, resident bytes, cores in use), `gpu` (`GpuSampler.taken`) and `inside`
    (`InsideTasks.taken`); `take` takes what these two have gathered away.
    """
    monitor = dask_worker.monitor
    delay = getattr(dask_worker, "scheduler_delay", 0.0)
    callback = dask_worker.periodic_callbacks.get("monitor")
    quantities = monitor.quantities
    sampler, inside = (dask_worker.plugins.get(f"scalescope-{name}") if take else None for name in ("gpu", "inside"))
    rows = zip(quantities["time"], quantities["memory"], quantities["cpu"])  # noqa: B905  # Python 3.9
    return {
        "process": f"{platform.node()} {os.getpid()}",
        "first_worker": next(iter(getattr(dask_worker, "workers", ())), None),
        "interval_s": callback.callback_time / 1000 if callback else float("inf"),
        "samples": [(at + delay, int(rss), percent / 100) for at, rss, percent in rows if at + delay >= since],
        "gpu": sampler.taken(since - delay, delay) if sampler else {"absent": "NOT_SAMPLED"},
        "inside": inside.taken(since) if inside else None,
    }
