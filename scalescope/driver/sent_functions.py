"""Functions that the driver sends to the scheduler and to workers, as source text (`scalescope.capture.shipping`).

This module may use the standard library and `distributed` only.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

TICKS_S = 0.1
"""Long enough for a few ticks of an event loop."""


def census(dask_scheduler: Any = None) -> dict[str, Any]:
    """`workers`: address -> [name, threads, status]; `tasks`: tasks known; `processing`: tasks assigned to workers."""
    workers = dask_scheduler.workers
    return {
        "workers": {address: [str(ws.name), ws.nthreads, ws.status.name] for address, ws in workers.items()},
        "tasks": len(dask_scheduler.tasks),
        "processing": sum(len(ws.processing) for ws in workers.values()),
    }


async def import_modules(modules: Sequence[str], dask_worker: Any = None) -> None:
    """Import these modules off the event loop, as far as they can be imported.

    Each heartbeat of a worker reports how slow its loop was during a second. A new second begins here, so that the
    imports are not reported in the trial.
    """
    await asyncio.get_running_loop().run_in_executor(None, _import, modules)
    if hasattr(dask_worker, "heartbeat") and getattr(dask_worker, "_tick_counter", False):  # not the scheduler
        dask_worker._cycle_ticks()
        await asyncio.sleep(TICKS_S)
        dask_worker._cycle_ticks()
        await dask_worker.heartbeat()


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        with suppress(Exception, SystemExit):  # whatever a foreign module does
            importlib.import_module(name)


def running(dask_worker: Any = None) -> int:
    """How many tasks a worker runs, in threads or, if they are coroutines, on its event loop."""
    return len({*dask_worker.active_threads.values(), *(task.key for task in dask_worker.state.executing)})


def forget(bandwidth: int, dask_scheduler: Any = None) -> bool:
    """Drop the durations by task prefix, and the bandwidth, that the scheduler learnt from earlier trials.

    By both it decides where tasks run and what is stolen, so a trial would depend on those before it. Workers keep the
    bandwidth that they measured, and report it again. Returns False, and drops nothing, while there are tasks, which
    refer to their prefixes. `bandwidth` is in bytes per second.
    """
    if dask_scheduler.tasks:
        return False
    dask_scheduler.task_prefixes.clear()
    dask_scheduler.task_groups.clear()
    dask_scheduler.computations.clear()
    dask_scheduler.bandwidth = bandwidth
    dask_scheduler.bandwidth_workers.clear()
    dask_scheduler.bandwidth_types.clear()
    for owner in (dask_scheduler, dask_scheduler.extensions.get("stealing")):  # older and newer distributed
        getattr(owner, "unknown_durations", {}).clear()
    return True
