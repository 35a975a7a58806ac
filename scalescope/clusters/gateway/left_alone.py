"""Ends a cluster whose owner is dead, in case nobody runs `scalescope reap`. Sent to the scheduler."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Scheduler

LOOK_S = 5.0
_OWN = ("fire-and-forget", "Client-worker-")  # name prefixes of clients that belong to the cluster, not to a user


async def end_when_alone(limit_s: float, dask_scheduler: Scheduler) -> None:
    """Close the scheduler once it has had no client for `limit_s` seconds; the server then removes the cluster."""

    async def watch() -> None:
        seen = time.monotonic()
        while time.monotonic() - seen < limit_s:
            if any(not name.startswith(_OWN) for name in dask_scheduler.clients):
                seen = time.monotonic()
            await asyncio.sleep(LOOK_S)
        await dask_scheduler.close()

    dask_scheduler.scalescope_watch = asyncio.ensure_future(watch())  # the event loop keeps no reference to it
