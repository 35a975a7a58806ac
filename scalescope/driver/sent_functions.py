"""Functions sent to scheduler and workers as source text; they import only the standard library and `distributed`."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

TICKS_S = 0.1  # seconds in which an event loop makes a few ticks


def census(dask_scheduler: Any = None) -> dict[str, Any]:
    """`workers`: address -> [name, threads, status]; `tasks`: tasks known; `processing`: tasks assigned to workers."""
    workers = dask_scheduler.workers
    return {
        "workers": {address: [str(ws.name), ws.nthreads, ws.status.name] for address, ws in workers.items()},
        "tasks": len(dask_scheduler.tasks),
        "processing": sum(len(ws.processing) for ws in workers.values()),
    }


async def import_modules(modules: Sequence[str], dask_worker: Any = None) -> None:
    """Import these modules outside the event loop's thread; a module that cannot be imported is skipped."""
    await asyncio.get_running_loop().run_in_executor(None, _import, modules)
    # A heartbeat reports how slow the worker's event loop was in the last second. Begin a new second, so that the
    # trial's first heartbeat does not include the imports.
    if hasattr(dask_worker, "heartbeat") and getattr(dask_worker, "_tick_counter", False):  # workers only
        dask_worker._cycle_ticks()
        await asyncio.sleep(TICKS_S)
        dask_worker._cycle_ticks()


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        with suppress(Exception, SystemExit):  # a module can raise anything while it is imported
            importlib.import_module(name)


def running(dask_worker: Any = None) -> int:
    """Number of tasks that a worker runs, in threads or as coroutines on its event loop."""
    return len({*dask_worker.active_threads.values(), *(task.key for task in dask_worker.state.executing)})


def forget(bandwidth: int, dask_scheduler: Any = None) -> bool:
    """Drop the durations and bandwidth that the scheduler learnt. Drops nothing and returns False if there are tasks.

    The scheduler places and steals tasks by these values, so a trial would depend on earlier trials. Workers keep the
    bandwidth that they measured, and report it again. `bandwidth`: the scheduler's new value, in bytes per second.
    """
    if dask_scheduler.tasks:
        return False
    dask_scheduler.task_prefixes.clear()
    dask_scheduler.task_groups.clear()
    dask_scheduler.computations.clear()
    dask_scheduler.bandwidth = bandwidth
    dask_scheduler.bandwidth_workers.clear()
    dask_scheduler.bandwidth_types.clear()
    for owner in (dask_scheduler, dask_scheduler.extensions.get("stealing")):  # one of them, by version of distributed
        getattr(owner, "unknown_durations", {}).clear()
    return True
