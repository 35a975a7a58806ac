"""Functions that the driver sends to the scheduler and to workers.

The source text of this module is what is sent (`scalescope.capture.shipping`): the standard library and `distributed`
alone.
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
    """Who is there and what there is to do.

    Returns:
        `workers`: address -> [name, threads, status]; `tasks`: tasks known; `processing`: tasks assigned to workers.
    """
    workers = dask_scheduler.workers
    return {
        "workers": {address: [str(ws.name), ws.nthreads, ws.status.name] for address, ws in workers.items()},
        "tasks": len(dask_scheduler.tasks),
        "processing": sum(len(ws.processing) for ws in workers.values()),
    }


async def import_modules(modules: Sequence[str], dask_worker: Any = None) -> None:
    """Import what there is of these, off the event loop; what a task needs and cannot be imported, it says itself.

    A worker says with each heartbeat how slow its loop was within a second, and would go on to say so in the trial: it
    begins a second anew.
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
    """Tasks that a worker runs, in threads or, if they are coroutines, on its event loop."""
    return len({*dask_worker.active_threads.values(), *(task.key for task in dask_worker.state.executing)})


def forget(bandwidth: int, dask_scheduler: Any = None) -> bool:
    """Drop what the scheduler learnt from earlier trials: durations by task prefix, and measured bandwidth.

    It decides by both where a task runs and what is stolen, so a trial would depend on those before it. What workers
    measured of the bandwidth they keep, and report again.

    Args:
        bandwidth: Bytes per second to start from.
        dask_scheduler: The scheduler.

    Returns:
        Whether it was done; it is not while there are tasks, which refer to their prefixes.
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
