"""Scripts of public threads that no earlier set has, labelled by their remedy before their first verdict."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress

import dask.dataframe as dd
import numpy as np
import pandas as pd
from declare import mends, script
from distributed import Client, wait
from of_memory import MEBIBYTE, compute
from of_newest import local
from of_prefect import on_dask
from prefect import flow, task
from prefect.futures import wait as wait_for

# ------------------------------------------------------------------ the same again


def run_report(kept):
    def read(month):
        compute(0.25)
        return pd.DataFrame({"fare": np.arange(2000.0) + month, "zone": np.arange(2000) % 7})

    with local(2) as made, Client(made) as client:
        trips = dd.from_map(read, range(20), meta=pd.DataFrame({"fare": [0.0], "zone": [0]}))
        trips = trips[trips.fare > 3]
        if kept:
            trips = client.persist(trips)
        print("rows", len(trips))
        print("zones", trips.zone.nunique().compute())
        print("fare", trips.groupby("zone").fare.mean().compute())


@script("recomputation", near="healthy results-awaited-in-loop client-busy")
def table_printed_between_steps():
    """Why an easy workflow was horribly non-performant (each print computes everything again), dask/community#301."""
    run_report(kept=False)


@mends(table_printed_between_steps, "persist the table", factor=1.8)
def table_persisted_before_it_is_printed():
    run_report(kept=True)


# ------------------------------------------------------------------ locks, and the event loop


def run_notifications(function):
    with local(2, threads=4) as made, Client(made) as client:
        client.gather([client.submit(function, i, pure=False) for i in range(24)])


@script("event-loop-blocked", near="undersubscribed-threads gil-bound healthy")
def coroutine_that_sleeps():
    """Support asynchronous tasks (async def functions run in the event loop), dask/distributed#5151."""

    async def notify(i):
        time.sleep(0.35)
        return i

    run_notifications(notify)


@mends(coroutine_that_sleeps, "await asyncio.sleep", factor=2)
def coroutine_that_awaits():
    async def notify(i):
        await asyncio.sleep(0.35)
        return i

    run_notifications(notify)


@script("healthy", near="event-loop-blocked undersubscribed-threads tiny-tasks waiting-tasks")
def coroutines_that_await():
    """Asynchronous long-running tasks on workers (they yield at selected points), dask/distributed#731."""

    async def pump(i):
        for _ in range(4):
            await asyncio.sleep(0.1)
        return i

    with local(2, threads=4) as made, Client(made) as client:
        client.gather(client.map(pump, range(120), pure=False))


# ------------------------------------------------------------------ too small, too much


def run_objective(scattered, jobs=30):
    with local(2) as made, Client(made) as client:
        measured = {f"dose{i}": np.random.default_rng(i).random(100_000).tolist() for i in range(2)}
        [given] = client.scatter([measured], broadcast=True) if scattered else [measured]

        def fit(number, data):
            compute(0.05)
            return data["dose0"][number]

        client.gather([client.submit(fit, number, given) for number in range(jobs)])


@script(("serialisation-bound", "large-graph"), near="client-busy slow-submission gil-bound task-overhead")
def measurements_sent_with_each_job():
    """Parallelize objective calculation (the data goes with each job), lanl/PyBNF#95."""
    run_objective(scattered=False)


@mends(measurements_sent_with_each_job, "scatter them once", factor=1.5)
def measurements_scattered():
    run_objective(scattered=True)


def run_frames(released, frames=44):
    def correct(i):
        buffer = np.ones(40 * MEBIBYTE)
        if not released:
            vars(np).setdefault("buffers", []).append(buffer)  # a library keeps them
        time.sleep(0.25)
        return float(buffer[i])

    # where workers pause, nothing moves any more
    with local(2, memory="1GB") as made, Client(made) as client, suppress(TimeoutError):
        wait(client.map(correct, range(frames), pure=False), timeout=40)


@script(("memory-paused", "worker-killing-task", "worker-died"), near="healthy memory-spill straggler")
def buffers_kept_by_a_library():
    """Issues with unmanaged memory in Dask workers (a memory limit of 1 GB), LiberTEM/LiberTEM#1410."""
    run_frames(released=False)


@mends(buffers_kept_by_a_library, "free the buffers", factor=0)
def buffers_freed():
    run_frames(released=True)


# ------------------------------------------------------------------ Prefect


@task
def grow(i, kills=True):
    time.sleep(0.3)
    if i == 5 and kills:
        os.kill(os.getpid(), 9)
    return i


@script(("worker-killing-task", "worker-died"), near="healthy straggler retried-tasks recomputation")
@flow(task_runner=on_dask(2, processes=True))
def task_that_ends_its_workers():
    """Task not marked as Failed when task fails consistently in Dask cluster, PrefectHQ/prefect#21638."""
    for future in grow.map(range(12)):
        future.result(raise_on_failure=False)


@mends(task_that_ends_its_workers, "a task that needs no more than its worker has", factor=0)
@flow(task_runner=on_dask(2, processes=True))
def task_that_ends():
    wait_for(grow.map(range(12), kills=False))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
