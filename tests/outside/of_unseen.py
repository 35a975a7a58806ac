"""Scripts collected and labelled when all rules had been written: inside tasks, memory, and adaptive clusters.

The first count of them, and of those in `of_unseen_prefect.py`, is on the page of the set. A pod takes some seconds.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import pickle
import subprocess
import sys
import tempfile
import time

import dask
import dask.array as da
import numpy as np
from declare import mends_script, script
from distributed import Client, LocalCluster, Worker, get_worker, wait
from of_adaptive import QUICK, work
from of_inside import installed
from of_memory import MEBIBYTE, block

POD_S = 2.5


def local(workers: int = 2, threads: int = 1, memory: str | int = 0, processes: bool = True, **options) -> LocalCluster:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=processes,
        memory_limit=memory,
        dashboard_address=None,
        **options,
    )


class Pod(Worker):
    async def start_unsafe(self):
        await asyncio.sleep(POD_S)
        return await super().start_unsafe()


def pods(workers: int, **options) -> LocalCluster:
    return local(workers, processes=False, worker_class=Pod, **options)


# ------------------------------------------------------------------ inside busy tasks


class SlowHandler(logging.Handler):
    """Sends each record to a server of logs, as handlers of clouds do."""

    def emit(self, record):
        time.sleep(0.03)


def run_with_logs(lines, tiles=40):
    logger = logging.getLogger("pipeline")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.handlers = [SlowHandler()]

    def process(tile):
        for step in range(lines):
            time.sleep(0.005)
            logging.getLogger("pipeline").info("tile %s, step %s", tile, step)
        time.sleep(0.02)
        return tile

    with local(1, threads=4, processes=False) as made, Client(made) as client:
        client.gather(client.map(process, range(tiles), pure=False))


@script("lock-bound", near="undersubscribed-threads gil-bound waiting-tasks event-loop-blocked")
def log_lines_to_a_slow_handler():
    """Logger stalls (threads wait in `handle` for the lock of the handler), dask/distributed#1724."""
    run_with_logs(4)


@mends_script(log_lines_to_a_slow_handler, "fewer lines, or a QueueHandler")
def no_log_lines():
    run_with_logs(0)


def run_polls(threads):
    def sample(problem):
        job = subprocess.Popen(["sleep", "0.4"])  # it runs elsewhere
        while job.poll() is None:
            time.sleep(0.05)
        return problem

    with local(2, threads=threads) as made, Client(made) as client:
        client.gather(client.map(sample, range(24), pure=False))


@script("undersubscribed-threads", near="lock-bound healthy waiting-tasks")
def problems_polled_until_solved():
    """sampleset not returned for large number of async submissions (each problem is polled until it is solved),
    dwavesystems/dwave-system#218."""
    run_polls(1)


@mends_script(problems_polled_until_solved, "more threads for each worker", factor=2)
def problems_polled_by_more_threads():
    run_polls(6)


def run_vectorize(processes):
    def to_polygons(chunk):
        seen = 0
        for y in range(500):
            for x in range(600):
                if (x * 31 + y * 17 + chunk) % 7 == 0:
                    seen += x ^ y
        return seen

    workers, threads = (2, 1) if processes else (1, 2)
    with local(workers, threads, processes=processes) as made, Client(made) as client:
        client.gather(client.map(to_polygons, range(100), pure=False))


@script("gil-bound", near="event-loop-blocked healthy work-inflation")
def labels_vectorized_by_threads():
    """fix for to_polygons when using processes instead of threads in dask (the function does not release the GIL),
    scverse/spatialdata#756."""
    run_vectorize(processes=False)


@mends_script(labels_vectorized_by_threads, "processes instead of threads", factor=1.2)
def labels_vectorized_by_processes():
    run_vectorize(processes=True)


COMPILER = """
import time

class Dispatcher:
    def __init__(self, function):
        self.function, self.compiled = function, False

    def __call__(self, *args):
        if not self.compiled:
            self._compile_for_args()
        return self.function(*args)

    def _compile_for_args(self):
        self.compiled, end = True, time.thread_time() + 0.2
        while time.thread_time() < end:
            sum(range(1000))

jit = Dispatcher
"""


def run_aggregations(kept):
    with local(2) as made, Client(made) as client, installed("numba", COMPILER) as folder:

        def aggregate(partition):
            if folder not in sys.path:
                sys.path.insert(0, folder)
            kernels = get_worker().__dict__.setdefault("kernels", [])
            if not (kept and kernels):
                kernels.append(__import__("numba").jit(sum))
            time.sleep(0.03)
            return kernels[-1]([partition])

        client.gather(client.map(aggregate, range(30), pure=False))


@script("task-overhead", near="gil-bound healthy tiny-tasks undersubscribed-threads")
def kernels_compiled_again():
    """Numba JIT caching does not work when using dask distributed scheduler (every aggregation compiles its kernels
    again), holoviz/datashader#684."""
    run_aggregations(kept=False)


@mends_script(kernels_compiled_again, "keep the compiled kernel in the process", factor=2)
def kernels_compiled_once():
    run_aggregations(kept=True)


def run_dumps(level):
    with local(2) as made, Client(made) as client, tempfile.TemporaryDirectory() as folder:

        def train(i):
            time.sleep(0.05)
            forest = [(j, j * 0.1, str(i * j)) for j in range(60_000)]
            with gzip.open(f"{folder}/{i}.sav", "wb", compresslevel=level) as file:
                pickle.dump(forest, file)
            return i

        client.gather(client.map(train, range(24), pure=False))


@script(("task-overhead", "serialisation-bound"), near="gil-bound healthy tiny-tasks")
def models_dumped_with_compression():
    """set joblib compress to 3 (1.2 s become 12 s for each forest), cta-observatory/cta-lstchain#947."""
    run_dumps(9)


@mends_script(models_dumped_with_compression, "no compression", factor=1.3)
def models_dumped_without_compression():
    run_dumps(0)


# ------------------------------------------------------------------ memory


def run_median(contiguous, images=48, rows=24):
    chunks = (images, 1, MEBIBYTE) if contiguous else (1, rows, MEBIBYTE)
    config = {"array.rechunk.method": "tasks", "array.chunk-size": "32MiB"}
    with local(2, memory="700MB") as made, Client(made) as client, dask.config.set(config):
        stack = da.random.random((images, rows, MEBIBYTE), chunks=chunks)
        wait(client.persist(da.median(stack, axis=0).sum(axis=1)))


@script("memory-spill", near="transfer-bound recomputation event-loop-blocked memory-paused")
def median_mosaic():
    """How to make a big-ish median mosaic (one chunk for each image: the whole stack is moved), as large as the memory
    of all workers, microsoft/PlanetaryComputer#12."""
    run_median(contiguous=False)


@mends_script(median_mosaic, "read chunks that are contiguous along time", factor=1.3)
def median_mosaic_of_contiguous_chunks():
    run_median(contiguous=True)


def run_merge(partly, parts=16, mebibytes=30):
    def load(i):
        time.sleep(0.3)
        return block(i, mebibytes)

    def merge(found):
        merged = np.concatenate(found)
        time.sleep(1.0)  # it sorts
        return float(merged[0])

    with local(2, memory="500MB") as made, Client(made) as client:
        loaded = client.map(load, range(parts), pure=False)
        if partly:
            loaded = client.map(lambda values: values[::100].copy(), loaded, pure=False)
        wait(client.submit(merge, loaded, pure=False))


@script(("worker-killing-task", "worker-died"), near="memory-spill memory-paused recomputation transfer-bound")
def results_merged_by_one_worker():
    """Specify memory required to merge computed worker results (larger than what one worker has),
    astronomy-commons/lsdb#678."""
    run_merge(partly=False)


@mends_script(results_merged_by_one_worker, "reduce each partition before the merge", factor=0)
def results_reduced_before_the_merge():
    run_merge(partly=True)


def run_parsers(collecting, files=40, records=80_000):
    def parse(i):
        return [{"id": j, "tags": [i, j]} for j in range(records)]

    with local(2) as made, Client(made) as client:
        if not collecting:
            client.run(gc.disable)
        wait(client.map(parse, range(files), pure=False))


@script("garbage-collection", near="gil-bound memory-spill healthy work-inflation")
def records_kept_as_dictionaries():
    """excessive CPU time spent on gc (even after manually adjust gc thresholds; memory use is low),
    dask/distributed#2801."""
    run_parsers(collecting=True)


@mends_script(records_kept_as_dictionaries, "collect less often, or keep arrays", factor=1.2)
def records_kept_without_collections():
    run_parsers(collecting=False)


def run_lookups(memory, queries=60, mebibytes=110):
    def look_up(query, table):
        wanted = table * 2.0
        time.sleep(0.2)
        return float(wanted[query])

    with local(2, threads=2, memory=memory) as made, Client(made) as client:
        (table,) = client.scatter([block(0, mebibytes)], broadcast=True)
        client.gather(client.map(look_up, range(queries), table=table, pure=False))


@script(("memory-paused", "memory-spill"), near="undersubscribed-threads healthy straggler data-locality")
def a_table_on_every_worker():
    """Should distributed have "broadcast" functionality (a large lookup table that all nodes need; each task copies
    it), dask/distributed#84."""
    run_lookups("560MB")


@mends_script(a_table_on_every_worker, "more memory for each worker", factor=1.15)
def a_table_on_every_larger_worker():
    run_lookups("3GB")


# ------------------------------------------------------------------ adaptive clusters


def run_after_a_look(client):
    time.sleep(1.2)  # it reads its configuration
    client.gather(client.map(work, range(24), [0.4] * 24, pure=False))


@script(("adaptive-scaling", "late-workers"), near="client-busy workers-missing slow-submission")
def gone_before_the_first_task():
    """Rewrite dask-jobqueue with SpecCluster (the worker that was started with the cluster is killed by adaptive before
    it is used), dask/dask-jobqueue#307."""
    with pods(4) as made, Client(made) as client:
        made.adapt(minimum=0, maximum=4, **QUICK)
        run_after_a_look(client)


@mends_script(gone_before_the_first_task, "adapt(minimum=4)", factor=1.2)
def kept_until_the_first_task():
    with pods(4) as made, Client(made) as client:
        made.adapt(minimum=4, maximum=4, **QUICK)
        run_after_a_look(client)


def run_trainings(client):
    client.gather(client.map(work, range(8), [2.0] * 8, pure=False))


@script(("adaptive-scaling", "late-workers", "workers-missing"), near="healthy straggler too-few-partitions")
def long_jobs_of_unknown_length():
    """`Adaptive` doesn't scale quickly for long-running jobs (it stays at the minimum until one has ended),
    dask/distributed#3627."""
    with pods(1) as made, Client(made) as client:
        made.adapt(minimum=1, maximum=4, **{**QUICK, "target_duration": "5s"})
        run_trainings(client)


@mends_script(long_jobs_of_unknown_length, "as many workers as jobs can use, from the start", factor=1.3)
def long_jobs_on_all_workers():
    with pods(4) as made, Client(made) as client:
        made.adapt(minimum=4, maximum=4, **QUICK)
        run_trainings(client)


def run_with_lifetime(**lifetime):
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "500ms"}), pods(4, **lifetime) as made:
        made.adapt(minimum=4, maximum=4, **QUICK)
        with Client(made) as client:
            client.gather(client.map(work, range(32), pure=False))


@script(("adaptive-scaling", "workers-missing", "late-workers"), near="worker-died recomputation healthy")
def allocations_that_expire():
    """Handling workers with expiring allocation requests (a lifetime for each worker, and adapt for new ones),
    dask/dask-jobqueue#122."""
    run_with_lifetime(lifetime="6s", lifetime_stagger="1s")


@mends_script(allocations_that_expire, "allocations that last as long as the work", factor=1.2)
def allocations_that_last():
    run_with_lifetime()


# ------------------------------------------------------------------ nothing wrong


@script("healthy", near="undersubscribed-threads lock-bound task-overhead")
def a_program_for_each_parameter():
    """Several millions tasks and Client.map (each starts a scientific code, which computes), dask/distributed#2181."""

    def run_process(parameter):
        subprocess.run([sys.executable, "-S", "-c", "for i in range(8_000_000): pass"], check=True)
        return parameter

    with local(2) as made, Client(made) as client:
        client.gather(client.map(run_process, range(20), pure=False))


@script("healthy", near="memory-spill memory-paused results-awaited-in-loop recomputation")
def centres_of_persisted_points():
    """k-means Memory usage (points are persisted, each iteration needs the centres of the one before),
    dask/dask-ml#39."""

    def assign(points, centre):
        time.sleep(0.5)
        return float(np.abs(points - centre).mean())

    with local(2, memory="800MB") as made, Client(made) as client:
        points = client.map(block, range(8), [24] * 8, pure=False)
        wait(points)
        centre = 0.5
        for _ in range(4):
            centre = sum(client.gather(client.map(assign, points, centre=centre, pure=False))) / len(points)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
