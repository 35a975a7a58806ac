"""Clusters that come and go by themselves. A worker takes a second to start, as a pod or a job takes a minute."""

from __future__ import annotations

import asyncio
import sys
import time

from declare import mends, script
from distributed import Client, LocalCluster, Worker

START_S = 1.0
QUICK = {"interval": "200ms", "wait_count": 2, "target_duration": "1s"}


class SlowToStart(Worker):
    async def start_unsafe(self):
        await asyncio.sleep(START_S)
        return await super().start_unsafe()


def cluster(workers: int = 1, **options) -> LocalCluster:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        worker_class=SlowToStart,
        memory_limit=0,
        **options,
    )


def work(i, seconds=0.5):
    time.sleep(seconds)
    return i


@script(("late-workers", "adaptive-scaling"), near="workers-missing healthy")
def from_nothing():
    """Issue with AdaptiveScaling using Dask Kubernetes Operator (few workers, then many), dask/dask-kubernetes#674."""
    with cluster(1) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **QUICK)
        client.gather(client.map(work, range(16), pure=False))


@mends(from_nothing, "start with as many as are needed")
def from_nothing_all():
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=4, maximum=4, **QUICK)
        client.gather(client.map(work, range(16), pure=False))


@script(("workers-missing", "adaptive-scaling"), near="worker-died healthy")
def retired_by_hand():
    """Calling retire_workers while tasks wait (fewer workers than asked for), dask/distributed#8522."""
    with cluster(4) as made, Client(made) as client:
        futures = client.map(work, range(24), pure=False)
        time.sleep(0.6)
        client.retire_workers(list(client.scheduler_info(n_workers=-1)["workers"])[:3])
        client.gather(futures)


@mends(retired_by_hand, "retire nobody before the end")
def retired_by_nobody():
    with cluster(4) as made, Client(made) as client:
        client.gather(client.map(work, range(24), pure=False))


@script("healthy", near="adaptive-scaling workers-missing worker-died")
def one_of_many_retires():
    """A worker retires gracefully while others take over (its data moves first), dask/dask-kubernetes#436."""
    with cluster(4) as made, Client(made) as client:
        futures = client.map(work, range(28), pure=False)
        time.sleep(3.2)
        client.retire_workers(list(client.scheduler_info(n_workers=-1)["workers"])[:1])
        client.gather(futures)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
