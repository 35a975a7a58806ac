"""Results that do not fit into memory, or only just; workers that pause; and many Python objects."""

from __future__ import annotations

import gc
import threading
import time

import dask
import dask.array as da
import numpy as np
from dask import delayed
from declare import case, remedy
from distributed import as_completed, get_worker, wait

TINY = {"kind": "local", "memory_limit_mb": 400}
MIDDLE = {"kind": "local", "memory_limit_mb": 800}
SMALL = {"kind": "local", "memory_limit_mb": 600}
AMPLE = {"kind": "local", "memory_limit_mb": 3_000}
MEBIBYTE = 2**17  # doubles


def block(i, mebibytes):
    return np.random.default_rng(i).random(mebibytes * MEBIBYTE)


def compute(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def total_of(values):
    return float(values.sum())


# ------------------------------------------------------------------ what does not fit


@case("memory-spill", 2, SMALL, near="transfer-bound recomputation")
@remedy("all statistics in one pass, nothing persisted", persist=False)
def persisted_for_three_statistics(client, persist: bool = True, chunks: int = 52, mebibytes: int = 24):
    """workers die at 50% memory usage when calling persist() (more than fits, then used), dask/dask#5778."""
    x = da.random.random((chunks, mebibytes * MEBIBYTE), chunks=(1, mebibytes * MEBIBYTE))
    if persist:
        x = x.persist()
        wait(x)
        x.mean().compute()
        x.std().compute()
        x.max().compute()
    else:
        dask.compute(x.mean(), x.std(), x.max())


@case("memory-spill", 2, SMALL, near="transfer-bound", factor=1.2)
@remedy("two passes: the mean first", passes=2)
def mean_normalisation(client, passes: int = 1, chunks: int = 52, mebibytes: int = 24):
    """Dask array subtraction with larger-than-memory data causes system crash (x - x.mean(), in one pass),
    dask/dask#5359."""
    x = da.random.random((chunks, mebibytes * MEBIBYTE), chunks=(1, mebibytes * MEBIBYTE))
    mean = x.mean()
    if passes == 2:
        mean = mean.compute()
    (x - mean).std().compute()


@case("memory-spill", 2, SMALL, near="few-tasks-in-flight serialisation-bound")
@remedy("return nothing that nobody reads", returned=False)
def results_nobody_reads(client, returned: bool = True, items: int = 100, mebibytes: int = 16):
    """Scheduler info tab shows workers are accumulating jobs "In-memory" (a list keeps every future),
    dask/distributed#3092."""

    def write_to_database(i):
        data = block(i, mebibytes)
        return data if returned else None

    futures = []
    for item in range(items):
        futures.append(client.submit(write_to_database, item, pure=False))
    wait(futures)


@case(("memory-spill", "worker-died"), 1, MIDDLE, threads=2, near="gil-bound memory-paused", factor=1.2)
@remedy("more memory for each worker", cluster=AMPLE)
def wide_to_tall(client, side: int = 10_000, parts: int = 25):
    """Rechunking from short-fat to tall-skinny, dask/dask#6552."""
    with dask.config.set({"array.rechunk.method": "tasks"}):
        x = da.random.random((side, side), chunks=(side // parts, side))
        x.rechunk((side, side // parts)).std(axis=0).sum().compute()


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


@case("memory-spill", 2, SMALL, near="recomputation transfer-bound", factor=1.3)
@remedy("one persist, of what is used", twice=False)
def persisted_twice(client, twice: bool = True, chunks: int = 40, mebibytes: int = 16):
    """Remove the second persist() call when using Dask (it was likely to lead to spilling), ludwig-ai/ludwig#1890."""
    raw = da.random.random((chunks, mebibytes * MEBIBYTE), chunks=(1, mebibytes * MEBIBYTE))
    if twice:
        raw = raw.persist()
        wait(raw)
    clean = (raw * 2.0 + 1.0).persist()
    wait(clean)
    for _ in range(3):
        clean.sum().compute()


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


@case(("client-busy", "client-waits"), 2, TINY, near="memory-spill slow-submission")
@remedy("each task saves its own result", in_tasks=True)
def client_saves_slowly(client, in_tasks: bool = False, items: int = 40, mebibytes: int = 12):
    """as_completed.batches() doesn't yield all ready results for large amount of tasks (results wait for the
    client), dask/distributed#5508."""

    def process(i):
        result = block(i, mebibytes)
        if in_tasks:
            time.sleep(0.1)
            return None
        return result

    futures = client.map(process, range(items), pure=False)
    for _, result in as_completed(futures, with_results=True):
        if result is not None:
            time.sleep(0.1)  # to a file


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


@case("memory-paused", 1, MIDDLE, threads=4, near="gil-bound skewed-tasks", factor=1.1)
@remedy("memory for as many as run at once", cluster=AMPLE)
def four_chunks_at_once(client, tasks: int = 80, mebibytes: int = 150):
    """allowed chunksize seems much smaller than worker memory limit (it depends on the number of threads),
    dask/dask#6677."""

    def work(i):
        copy = np.ones(mebibytes * MEBIBYTE)
        time.sleep(0.05)
        return float(copy[0])

    client.gather(client.map(work, range(tasks), pure=False))


@case("memory-paused", 2, SMALL, near="straggler slow-worker worker-restriction data-locality", timeout_s=25.0)
@remedy("let go of what is no longer used", kept_mebibytes=0)
def paused_for_ever(client, kept_mebibytes: int = 420, tasks: int = 60):
    """AMM: Restart paused workers after a certain timeout (a library keeps memory, so that the worker never takes
    tasks again), dask/distributed#5999."""

    def leak(mebibytes):
        get_worker().__dict__["leaked"] = np.ones(mebibytes * MEBIBYTE)

    first = next(iter(client.scheduler_info()["workers"]))
    client.submit(leak, kept_mebibytes, workers=[first], pure=False).result()
    client.gather(client.map(lambda i: time.sleep(0.1), range(tasks), pure=False))
    client.run(lambda dask_worker: dask_worker.__dict__.pop("leaked", None) is not None)


@case(
    ("memory-paused", "data-locality"),
    2,
    SMALL,
    near="straggler worker-restriction",
    factor=1.3,
    **{"distributed.scheduler.work-stealing": False},
)
@remedy("keep nothing in the process", keep_s=0.0)
def unbalanced_after_a_pause(client, keep_s: float = 1.0, pieces: int = 24):
    """A brief pause can cause severe work unbalancing (what follows stays where the data is),
    dask/distributed#7742."""

    def keep():
        if keep_s:
            kept = [np.ones(420 * MEBIBYTE)]
            threading.Timer(keep_s, kept.clear).start()

    def load(i):
        time.sleep(0.04)
        return block(i, 2)

    def fit(data):
        time.sleep(0.15)
        return total_of(data)

    first = next(iter(client.scheduler_info()["workers"]))
    client.submit(keep, workers=[first], pure=False).result()
    time.sleep(0.3)
    loaded = client.map(load, range(pieces), pure=False)
    wait(loaded)
    client.gather(client.map(fit, loaded, pure=False))


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


@case("garbage-collection", 2, "local", near="gil-bound work-inflation", factor=1.3)
@remedy("freeze what is kept (`gc.freeze()`), or keep arrays", freeze=True)
def tree_that_grows(client, freeze: bool = False, tasks: int = 40, nodes: int = 60_000):
    """Workers die when processing large tasks (full garbage collections took 16% CPU time),
    RS-DAT/JupyterDaskOnSLURM#60."""

    def work(i):
        kept = get_worker().__dict__.setdefault("tree", [])
        kept.append([[j, [j + 1]] for j in range(nodes)])
        if freeze:
            gc.freeze()
        return i

    client.gather(client.map(work, range(tasks), pure=False))
    client.run(lambda dask_worker: dask_worker.__dict__.pop("tree", None) is not None)


# ------------------------------------------------------------------ nothing wrong


@case("healthy", 2, TINY, near="memory-spill memory-paused")
def saved_and_kept(client, items: int = 20, mebibytes: int = 30):
    """Clear task memory without deleting future (results are saved by the tasks, and kept besides; none is read
    again), dask/distributed#1799."""

    def compute_and_save(i):
        time.sleep(0.6)
        return block(i, mebibytes)

    futures = client.map(compute_and_save, range(items), pure=False)
    wait(futures)


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


@case("healthy", 2, SMALL, near="memory-spill memory-paused recomputation")
def persisted_and_fits(client, chunks: int = 12):
    """persist() to disk (if ram is full): here it is not, dask/dask#6366."""

    def load(x):
        if x.size:
            time.sleep(0.3)
        return x

    def scale(x):
        return 2 * load(x)

    x = da.ones((chunks, 10 * MEBIBYTE), chunks=(1, 10 * MEBIBYTE)).map_blocks(load, dtype=float).persist()
    wait(x)
    x.map_blocks(load, dtype=float).mean().compute()
    x.map_blocks(scale, dtype=float).mean().compute()


@case("healthy", 2, SMALL, near="memory-paused memory-spill")
def large_inside_the_task_only(client, tasks: int = 24, mebibytes: int = 200):
    """Does a single thread need less memory? (much memory within a task, below the threshold),
    alteryx/featuretools#1158."""

    def features(i):
        data = np.ones(mebibytes * MEBIBYTE)
        time.sleep(0.4)
        return float(data[0])

    client.gather(client.map(features, range(tasks), pure=False))


@case("healthy", 2, TINY, near="memory-spill memory-paused garbage-collection")
def more_data_than_memory_in_a_stream(client, chunks: int = 40, mebibytes: int = 40):
    """Queuing does not prevent root task overproduction unless you have enough tasks (there are enough),
    dask/distributed#7273."""

    @delayed(pure=False)
    def load(i):
        compute(0.15)
        return block(i, mebibytes)

    @delayed(pure=False)
    def reduce(data):
        compute(0.15)
        return total_of(data)

    dask.compute(*[reduce(load(i)) for i in range(chunks)])
