"""Results that do not fit into memory, or only just; workers that pause; and many Python objects."""

from __future__ import annotations

import gc
import time

import dask
import numpy as np
from dask import delayed
from declare import case, remedy
from distributed import get_worker, wait

TINY = {"kind": "local", "memory_limit_mb": 400}
SMALL = {"kind": "local", "memory_limit_mb": 600}
AMPLE = {"kind": "local", "memory_limit_mb": 3_000}
MEBIBYTE = 2**17  # doubles


def block(i, mebibytes):
    return np.random.default_rng(i).random(mebibytes * MEBIBYTE)


def compute(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


# ------------------------------------------------------------------ what does not fit


@case("memory-spill", 1, SMALL, threads=2, near="gil-bound memory-paused", factor=1.2)
@remedy("more memory for each worker", cluster=AMPLE)
def shuffle_of_partitions(client, partitions: int = 20, mebibytes: int = 40):
    """OOMs on seemingly simple shuffle job (about as large as the memory of all workers), dask/dask#2456."""

    @delayed(pure=False)
    def load(i):
        return block(i, mebibytes)

    @delayed(pure=False)
    def split(rows, j):
        return rows[j::partitions].copy()

    @delayed(pure=False)
    def combine(parts):
        return float(np.concatenate(parts).mean())

    loaded = [load(i) for i in range(partitions)]
    dask.compute(*[combine([split(rows, j) for rows in loaded]) for j in range(partitions)])


@case("memory-spill", 2, TINY, near="gil-bound serialisation-bound garbage-collection", factor=1.3)
@remedy("arrays in place of Python objects", objects=False)
def bag_of_python_objects(client, objects: bool = True, files: int = 40, records: int = 150_000):
    """Memory explodes when reading multiple parquet files (a bag of Python objects), dask/dask#4256."""

    def read(i):
        rng = np.random.default_rng(i)
        values = rng.random(records)
        return [{"id": j, "value": value} for j, value in enumerate(values.tolist())] if objects else values

    def mean(found):
        time.sleep(0.02)
        return sum(each["value"] for each in found[:100]) if objects else float(found[:100].sum())

    read_files = client.map(read, range(files), pure=False)
    wait(read_files)
    client.gather(client.map(mean, read_files, pure=False))


@case(("worker-killing-task", "worker-died"), 2, SMALL, near="memory-paused memory-spill", timeout_s=90.0)
@remedy("smaller partitions", pieces=8)
def one_partition_too_large(client, pieces: int = 1, mebibytes: int = 900):
    """Dask cluster tips docs (exceeded 95% memory budget, KilledWorker), astronomy-commons/lsdb#617."""

    def read_pixel(i, size):
        kept = np.empty(0)
        for _ in range(size // 20):
            kept = np.concatenate([kept, np.ones(20 * MEBIBYTE)])
            time.sleep(0.02)
        return float(kept.sum())

    sizes = [40] * 6 + [mebibytes // pieces] * pieces
    client.gather(client.map(read_pixel, range(len(sizes)), sizes, pure=False))


# ------------------------------------------------------------------ pauses


@case("memory-paused", 2, SMALL, near="straggler slow-worker worker-restriction data-locality", timeout_s=25.0)
@remedy("let go of what is no longer used", kept_mebibytes=0)
def paused_for_ever(client, kept_mebibytes: int = 420, tasks: int = 60):
    """AMM: Restart paused workers after a certain timeout (a library keeps memory, so that the worker never takes
    tasks again), dask/distributed#5999.
    """

    def leak(mebibytes):
        get_worker().__dict__["leaked"] = np.ones(mebibytes * MEBIBYTE)

    first = next(iter(client.scheduler_info()["workers"]))
    client.submit(leak, kept_mebibytes, workers=[first], pure=False).result()
    client.gather(client.map(lambda i: time.sleep(0.1), range(tasks), pure=False))
    client.run(lambda dask_worker: dask_worker.__dict__.pop("leaked", None) is not None)


# ------------------------------------------------------------------ garbage collection


@case("garbage-collection", 2, "local", near="gil-bound work-inflation", factor=1.4)
@remedy("leave it to the interpreter", collect=False)
def collect_in_each_task(client, collect: bool = True, tasks: int = 40, known: int = 600_000):
    """New version bug (tasks that call gc.collect() take longer and longer), rapidsai/dask-cuda#1288."""

    def work(i):
        state = get_worker().__dict__
        if "known" not in state:
            state["known"] = [{"id": j} for j in range(known)]
        time.sleep(0.05)
        if collect:
            gc.collect()
        return i

    client.gather(client.map(work, range(tasks), pure=False))
    client.run(lambda dask_worker: dask_worker.__dict__.pop("known", None) is not None)


# ------------------------------------------------------------------ nothing wrong


@case("healthy", 2, TINY, near="memory-spill")
def spilled_and_read_behind_long_tasks(client, items: int = 10, mebibytes: int = 50):
    """Add Spill-to-disk policy for workers (excess data goes to disk), dask/distributed#485."""

    def load(i):
        time.sleep(0.8)
        return block(i, mebibytes)

    def fit(data):
        time.sleep(1.2)
        return float(data[0])

    loaded = client.map(load, range(items), pure=False)
    wait(loaded)
    client.gather(client.map(fit, loaded, pure=False))
