"""Clusters that come and go by themselves. A worker takes a second to start, as a pod or a job takes a minute."""

from __future__ import annotations

import asyncio
import sys
import time

import numpy as np
from declare import mends_script, script
from distributed import Client, LocalCluster, Worker, as_completed, wait

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


def run_fast_steps_then_heavy(client):
    for step in range(30):  # lazy steps, each of which ends at once
        client.submit(work, step, 0.05, pure=False).result()
    client.gather(client.map(work, range(16), pure=False))


@script("adaptive-scaling", near="results-awaited-in-loop late-workers workers-missing narrow-stage")
def fast_steps_then_heavy():
    """Adaptive SLURM scaling kills workers before compute step runs, esm-tools/pycmor#267."""
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **QUICK)
        run_fast_steps_then_heavy(client)


@mends_script(fast_steps_then_heavy, "a fixed number of workers", factor=1.2)
def fast_steps_then_heavy_fixed():
    with cluster(4) as made, Client(made) as client:
        run_fast_steps_then_heavy(client)


def run_rounds(client):
    for _ in range(4):
        client.gather(client.map(work, range(8), pure=False))
        time.sleep(0.8)


@script("adaptive-scaling", near="client-busy late-workers workers-missing")
def up_and_down():
    """Adaptive KubeCluster with Operator losing work and unexpectedly scaling up and down, dask/dask-kubernetes#633."""
    with cluster(0) as made, Client(made) as client:
        made.adapt(minimum=0, maximum=4, **QUICK)
        run_rounds(client)


@mends_script(up_and_down, "adapt(minimum=4)", factor=1.2)
def up_and_down_minimum():
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=4, maximum=4, **QUICK)
        run_rounds(client)


def run_barrier(client, seconds=2.0):
    first = client.map(work, range(8), pure=False)
    barrier = client.submit(lambda _: time.sleep(seconds), first, pure=False)
    client.gather([client.submit(lambda _, i: work(i), barrier, i, pure=False) for i in range(16)])


# The workers stay: the scheduler takes a task of unknown duration for a short one.
@script("narrow-stage", near="adaptive-scaling late-workers workers-missing sequential-graph")
def fan_out_barrier_fan_out():
    """Integration tests: Adaptive scaling (a map, a slow barrier, a map), coiled/benchmarks#134."""
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **QUICK)
        run_barrier(client)


@mends_script(fan_out_barrier_fan_out, "a faster barrier", factor=1.2)
def fan_out_fast_barrier_fan_out():
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **QUICK)
        run_barrier(client, 0.2)


def run_protocol(client):
    for width, seconds in ((8, 0.3), (1, 1.5), (8, 0.4), (1, 1.5), (8, 0.4)):
        client.gather(client.map(work, range(width), [seconds] * width, pure=False))


@script("adaptive-scaling", near="narrow-stage late-workers workers-missing")
def stages_of_a_protocol():
    """adaptive cluster doesn't scale down properly (20 wide, then compile, then 20 wide), dask/dask-jobqueue#190."""
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **QUICK)
        run_protocol(client)


@mends_script(stages_of_a_protocol, "a larger wait_count", factor=1.15)
def stages_of_a_protocol_patient():
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **{**QUICK, "wait_count": 400})
        run_protocol(client)


@script(("late-workers", "adaptive-scaling"), near="workers-missing healthy")
def from_nothing():
    """Issue with AdaptiveScaling using Dask Kubernetes Operator (few workers, then many), dask/dask-kubernetes#674."""
    with cluster(1) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **QUICK)
        client.gather(client.map(work, range(16), pure=False))


@mends_script(from_nothing, "start with as many as are needed")
def from_nothing_all():
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=4, maximum=4, **QUICK)
        client.gather(client.map(work, range(16), pure=False))


@script("healthy", near="adaptive-scaling too-few-partitions")
def never_more_than_one():
    """adaptive cluster doesn't scale down properly (a `target_duration` of an hour, as its author set it),
    dask/dask-jobqueue#190."""
    with cluster(1) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **{**QUICK, "target_duration": "3600s"})
        client.gather(client.map(work, range(8), pure=False))


def run_with_data(client, looks=1.5):
    kept = client.map(lambda i: np.full(400_000, i), range(16), pure=False)
    wait(kept)
    time.sleep(looks)  # at the first results
    client.gather(client.map(lambda x: work(float(x[0])), kept, pure=False))


# The workers stay: the scheduler does not retire those that hold much of what is in memory.
@script("client-busy", near="adaptive-scaling data-locality late-workers healthy")
def looks_at_results_between_two_maps():
    """Autoscaler closes workers as others are starting/scaling up, dask/dask-kubernetes#659."""
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **QUICK)
        run_with_data(client)


@mends_script(looks_at_results_between_two_maps, "look at them later", factor=1.2)
def looks_at_results_later():
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **QUICK)
        run_with_data(client, 0)


@script(("workers-missing", "adaptive-scaling"), near="worker-died healthy")
def retired_by_hand():
    """Calling retire_workers while tasks wait (fewer workers than asked for), dask/distributed#8522."""
    with cluster(4) as made, Client(made) as client:
        futures = client.map(work, range(24), pure=False)
        time.sleep(0.6)
        client.retire_workers(list(client.scheduler_info(n_workers=-1)["workers"])[:3])
        client.gather(futures)


@mends_script(retired_by_hand, "retire nobody before the end")
def retired_by_nobody():
    with cluster(4) as made, Client(made) as client:
        client.gather(client.map(work, range(24), pure=False))


def run_two_stages(client, scale=lambda workers: None):
    client.gather(client.map(work, range(8), pure=False))
    scale(1)
    time.sleep(0.5)
    futures = client.map(work, range(16), pure=False)
    scale(4)
    client.gather(futures)


@script(("adaptive-scaling", "late-workers"), near="worker-died workers-missing client-busy healthy")
def scaled_by_hand():
    """SpecCluster does not retire workers when scaling down (scale down, and up again), dask/distributed#4069."""
    with cluster(4) as made, Client(made) as client:
        run_two_stages(client, made.scale)


@mends_script(scaled_by_hand, "keep the workers", factor=1.1)
def not_scaled_by_hand():
    with cluster(4) as made, Client(made) as client:
        run_two_stages(client)


@script("healthy", near="adaptive-scaling late-workers")
def adaptive_between_equal_bounds():
    """Adapt "bouncing" tearing down all workers (with minimum=32, maximum=32 it works), dask/distributed#6880."""
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=4, maximum=4, **QUICK)
        for future in as_completed(client.map(work, range(24), pure=False)):
            future.result()


@script("healthy", near="adaptive-scaling workers-missing")
def down_at_the_end():
    """Adaptive deployments: workers leave when there is nothing more to do, dask/dask#3371."""
    with cluster(4) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **QUICK)
        client.gather(client.map(work, range(28), pure=False))
        time.sleep(0.5)


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
