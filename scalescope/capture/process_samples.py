"""Samples of a process: memory and CPU of its system monitor, its GPU, and stacks of its tasks.

This source text is sent to schedulers and workers: it imports only the standard library and `distributed`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import platform
import sys
from contextlib import suppress
from typing import Any

from dask.system import CPU_COUNT

OFF_MS = 60_000.0  # milliseconds: a system monitor with a longer interval counts as off
_CALLERS = {"numpy", "torch"}  # modules that call a library with threads of its own (BLAS, OpenMP)
BEAT_S = 5.0  # longest wait for a heartbeat, in seconds; a GPU's driver that hangs must not delay the other samples


async def memory_samples(since: float, take: bool = True, dask_worker: Any = None) -> dict[str, Any]:
    """The samples of this process since a time on the scheduler's clock; `distributed` fills in `dask_worker`.

    Returns `process` (its identity), `cores` that it may use, `threads` that it has now, `pool` (`pool_threads`),
    `workers` and `first_worker` (their number and an address, on the scheduler), `interval_s` of the monitor, `samples`
    (time on the scheduler's clock, resident bytes, cores in use), `gpu` (`GpuSampler.taken`), `inside`
    (`InsideTasks.taken`) and `collections` (begin and end of full garbage collections). `take` fetches `pool` and the
    last three, and makes a monitored worker send its latest metrics to the scheduler.
    """
    monitor = dask_worker.monitor
    delay = getattr(dask_worker, "scheduler_delay", 0.0)
    callback = dask_worker.periodic_callbacks.get("monitor")
    quantities = monitor.quantities
    if take:
        await beat(dask_worker)
    ours = getattr(dask_worker.plugins.get("scalescope-worker"), "plugins", {}) if take else {}
    sampler, inside, garbage = (ours.get(f"scalescope-{name}") for name in ("gpu", "inside", "garbage"))
    garbage = garbage or dask_worker.plugins.get("scalescope-recorder")  # on the scheduler
    workers = getattr(dask_worker, "workers", ())
    rows = zip(quantities["time"], quantities["memory"], quantities["cpu"])  # noqa: B905  # Python 3.9
    return {
        "process": f"{platform.node()} {os.getpid()}",
        "cores": CPU_COUNT,
        "threads": monitor.proc.num_threads(),
        "pool": pool_threads() if take and not workers else 0,
        "workers": len(workers),
        "first_worker": next(iter(workers), None),
        "interval_s": callback.callback_time / 1000 if callback else float("inf"),
        "samples": [(at + delay, int(rss), percent / 100) for at, rss, percent in rows if at + delay >= since],
        "collections": [(begin + delay, end + delay) for begin, end in garbage.taken(since - delay)] if garbage else [],
        "gpu": sampler.taken(since - delay, delay) if sampler else {"absent": "NOT_SAMPLED"},
        "inside": inside.taken(since) if inside else None,
    }


async def beat(dask_worker: Any = None) -> None:
    """Send a heartbeat of a monitored worker, even while another heartbeat is on its way.

    A heartbeat awaits the metrics of a GPU. If another one begins meanwhile, an assertion in the extension `spans` ends
    the worker. So the method with the assertion, `collect_digests`, is replaced.
    """
    callback = dask_worker.periodic_callbacks.get("monitor")
    if not callback or callback.callback_time >= OFF_MS or not hasattr(dask_worker, "heartbeat"):
        return
    spans = dask_worker.extensions.get("spans")
    if spans is not None:

        def collect(*digests: Any) -> None:  # distributed 2023.9 passes no digests
            waiting, spans.digests_total_since_heartbeat = spans.digests_total_since_heartbeat, {}
            type(spans).collect_digests(spans, *digests)
            held = spans.digests_total_since_heartbeat
            held.update({key: value + held.get(key, 0) for key, value in waiting.items()})

        spans.collect_digests = collect
    await asyncio.wait({asyncio.ensure_future(dask_worker.heartbeat())}, timeout=BEAT_S)


def pool_threads() -> int:
    """Threads that a library (BLAS, OpenMP) starts per call, by threadpoolctl or else the environment; 0: unknown."""
    pools = []
    if not _CALLERS.isdisjoint(sys.modules):
        with suppress(ImportError):  # threadpoolctl is installed in many environments
            pools = importlib.import_module("threadpoolctl").threadpool_info()
    if not pools:
        set_to = (os.environ.get(f"{library}_NUM_THREADS", "") for library in ("OMP", "OPENBLAS", "MKL"))
        return max((int(number) for number in set_to if number.isdigit()), default=0)
    return max((int(pool["num_threads"]) for pool in pools), default=0)
