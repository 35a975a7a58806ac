"""Scripts of public threads that no earlier set has, labelled by their remedy before their first verdict."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from dask.utils import SerializableLock
from declare import mends, script
from distributed import Client, get_worker, wait
from of_memory import MEBIBYTE, compute
from of_newest import local
from of_prefect import on_dask
from prefect import flow, task
from prefect.futures import wait as wait_for

# ------------------------------------------------------------------ the same again


def run_matching(kept, pairs=30):
    with tempfile.TemporaryDirectory() as folder, local(2) as made, Client(made) as client:
        path = Path(folder, "detector.pkl")
        path.write_bytes(pickle.dumps([[float(i)] * 4 for i in range(100_000)]))

        def match(pair, path):
            worker = get_worker()
            if not kept or not hasattr(worker, "weights"):
                worker.weights = load_weights(path)
            compute(0.03)
            return worker.weights[pair][0]

        client.gather(client.map(match, range(pairs), path=str(path)))


def load_weights(path):
    with open(path, "rb") as file:
        return pickle.load(file)


@script("task-overhead", near="healthy gil-bound tiny-tasks garbage-collection serialisation-bound")
def model_read_by_each_pair():
    """Optimize inference with deep models (the model is read from disk every single time), borglab/gtsfm#110."""
    run_matching(kept=False)


@mends(model_read_by_each_pair, "keep the model in the worker", factor=1.5)
def model_kept_by_each_worker():
    run_matching(kept=True)


def run_cloud_mask(kept, scenes=24):
    def read_mask(block_info=None):
        compute(0.12)
        return np.full((1, 400, 400), block_info[None]["chunk-location"][0] % 5 == 0)

    with local(2) as made, Client(made) as client:
        chunks = ((1,) * scenes, (400,), (400,))
        cloudy = da.map_blocks(read_mask, chunks=chunks, dtype=bool, meta=np.empty((0, 0, 0), dtype=bool))
        good = 1 - cloudy.mean(axis=(1, 2))
        if kept:
            good = client.persist(good)
        enough = good > 0.9
        print("Filtering to", int(enough.sum().compute()), "of", scenes)
        chosen = np.flatnonzero(enough.compute())
        print(chosen[0], float(good.min().compute()))


@script("recomputation", near="results-awaited-in-loop healthy client-busy")
def mask_loaded_by_each_filter():
    """Fix double fmask load bug when using load_ard (a lazy condition is evaluated by each line),
    GeoscienceAustralia/dea-notebooks#763.
    """
    run_cloud_mask(kept=False)


@mends(mask_loaded_by_each_filter, "compute the condition once", factor=1.8)
def mask_loaded_once():
    run_cloud_mask(kept=True)


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


def run_reads(lock_of, threads=6):
    def getter(i):
        with SerializableLock(lock_of(i)):
            time.sleep(0.12)  # it reads
        compute(0.01)
        return i

    with local(1, threads=threads, processes=False) as made, Client(made):
        dask.compute(*[delayed(getter, pure=False)(i) for i in range(50)])


@script("lock-bound", near="undersubscribed-threads gil-bound waiting-tasks")
def blocks_read_under_one_file_lock():
    """Parallel non-locked read using dask.Client crashes (60 % of its time is a file lock), pydata/xarray#2190."""
    run_reads(lambda i: "test.nc")


@mends(blocks_read_under_one_file_lock, "no lock between reads", factor=2)
def blocks_read_under_many_locks():
    run_reads(lambda i: f"test-{i}.nc")


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


def run_preprocessor(steps, chunk):
    with local(2) as made, Client(made):
        field = da.random.random((steps, 90, 180), chunks=(chunk, 90, 180))
        anomaly = field - field.mean(axis=(1, 2), keepdims=True)
        abs(anomaly).mean().compute()


@script("tiny-tasks", near="healthy task-overhead large-graph client-busy")
def one_step_in_each_chunk():
    """Preprocessor creates too many small chunks, ESMValGroup/ESMValCore#2184."""
    run_preprocessor(600, 1)


@mends(one_step_in_each_chunk, "more steps in a chunk", factor=2)
def many_steps_in_each_chunk():
    run_preprocessor(600, 60)


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
def say(i):
    return i


@task
def say_all(numbers):
    return len(numbers)


@script(("prefect-overhead", "slow-submission"), near="tiny-tasks healthy few-tasks-in-flight client-busy")
@flow(task_runner=on_dask())
def many_small_tasks_mapped():
    """Mapped tasks start at about one a second, where Dask does hundreds, PrefectHQ/prefect#18191."""
    wait_for(say.map(range(120)))


@mends(many_small_tasks_mapped, "a task for each batch", factor=2)
@flow(task_runner=on_dask())
def batches_mapped():
    wait_for(say_all.map([list(range(i, i + 20)) for i in range(0, 120, 20)]))


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
