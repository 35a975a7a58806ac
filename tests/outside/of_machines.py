"""Workloads that compute, move and keep real data, or end processes: workers are processes of this host."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import tempfile
import threading
import time
from itertools import combinations

import dask.array as da
import dask.bag as db
import numpy as np
from dask import delayed
from declare import case, mends, remedy
from distributed import get_worker

SMALL = {"kind": "local", "memory_limit_mb": 400}


def slice_of_pi(start, stop, step):
    total = 0.0
    for i in range(start, stop):
        x = (i + 0.5) * step
        total += 4.0 / (1.0 + x * x)
    return total


@case("gil-bound", 1, "local", threads=4, near="undersubscribed-threads event-loop-blocked")
@remedy("processes instead of threads", workers=4, threads=1)
def pi_by_slices(client, slices: int = 4_000_000, parts: int = 8):
    """Dask example (pi by slices, in Python), UCL-ARC/pi_examples#14."""
    size = slices // parts
    sums = client.map(slice_of_pi, range(0, slices, size), range(size, slices + 1, size), step=1 / slices, pure=False)
    return {"pi": sum(client.gather(sums)) / slices}


@case("gil-bound", 1, "local", threads=2, near="undersubscribed-threads host-overloaded")
@remedy("processes instead of threads", workers=2, threads=1)
def households_in_threads(client, households: int = 40):
    """Suggestion for those experiencing slow runtimes (processes=False), EAPD-DRB/OG-PHL#24."""

    def solve(h):
        guess = 1.0
        for i in range(500_000):
            guess = 0.5 * (guess + (h + 2 + i % 3) / guess)
        return guess

    client.gather(client.map(solve, range(households), pure=False))


@case("healthy", 1, "local", threads=4, near="gil-bound event-loop-blocked")
def requests_in_threads(client, requests: int = 40):
    """Dask documentation, Best Practices: https://docs.dask.org/en/stable/best-practices.html (processes and
    threads: threads do help what waits)."""

    def fetch(i):
        time.sleep(0.4)

    client.gather(client.map(fetch, range(requests), pure=False))


@case("undersubscribed-threads", 1, "local", near="healthy")
@remedy("more threads for each worker", threads=8)
def downloads_on_one_thread(client, files: int = 32):
    """Dask documentation, Best Practices: https://docs.dask.org/en/stable/best-practices.html (processes and
    threads: tasks that wait for a network)."""

    def download(i):
        time.sleep(0.15)

    client.gather(client.map(download, range(files), pure=False))


@case("undersubscribed-threads", 2, "local", near="healthy tiny-tasks")
@remedy("more threads for each worker", threads=6)
def queries_on_two_threads(client, queries: int = 36):
    """dask.delayed, parallelize any code (many small reads from a server, one thread for each worker):
    github.com/dask/dask-tutorial."""

    @delayed
    def read_sql(i):
        time.sleep(0.2)
        return i

    client.gather(client.compute([read_sql(i) for i in range(queries)]))


@case("transfer-bound", 4, "local", near="serialisation-bound data-locality")
@remedy("fewer, larger workers", workers=1, threads=4)
def all_pairs_of_images(client, images: int = 10, mebibytes: int = 24):
    """Fixing stack of delayed calls inside two-view-estimator (most of it is transfer), borglab/gtsfm#492."""

    def load(i):
        return np.full(mebibytes * 2**17, float(i))

    def two_view(a, b):
        return float(a[0] - b[0])

    loaded = client.map(load, range(images), pure=False)
    client.gather([client.submit(two_view, a, b, pure=False) for a, b in combinations(loaded, 2)])


@case("transfer-bound", 4, "local", near="memory-spill data-locality")
@remedy("fewer, larger workers", workers=1, threads=4)
def array_and_its_transpose(client, side: int = 6_000, chunk: int = 1_000):
    """x + x.T, Dask Array: https://examples.dask.org/array.html."""
    x = da.random.random((side, side), chunks=(chunk, chunk)).persist()
    for times in range(1, 4):
        y = x + times * x.T
        y[::500, ::500].sum().compute()


@case("client-waits", 4, "local", near="serialisation-bound slow-submission")
def large_array_to_all(client, mebibytes: int = 200, tasks: int = 8):
    """Data not shared in threaded Local Cluster (a large array, of which each task needs a part),
    dask/distributed#2270."""
    data = client.scatter(np.ones(mebibytes * 2**17))

    def myfunc(data, i):
        time.sleep(0.05)
        return float(data[i])

    client.gather([client.submit(myfunc, data, i, pure=False) for i in range(tasks)])


@mends(large_array_to_all, "each task loads its part")
def parts_loaded_where_needed(client, mebibytes: int = 200, tasks: int = 8):
    def myfunc(i):
        part = np.ones(mebibytes * 2**17 // tasks)
        time.sleep(0.05)
        return float(part[0])

    client.gather(client.map(myfunc, range(tasks), pure=False))


@case("healthy", 2, "local", near="transfer-bound memory-spill")
def chunks_reduced_in_place(client, chunks: int = 12):
    """Dask Array: https://examples.dask.org/array.html (each chunk reduced where it is)."""

    def block(x):
        if x.size:  # Dask calls it in the client with an empty array, which takes real code no time
            time.sleep(0.5)
        return x

    x = da.ones((chunks, 500_000), chunks=(1, 500_000)).map_blocks(block, dtype=float)
    x.mean().compute()


def random_block(i, mebibytes):
    return np.random.default_rng(i).random(mebibytes * 2**17)


def total_of(block):
    return float(block.sum())


def largest_of(block):
    return float(block.max())


@case("memory-spill", 2, SMALL, near="recomputation transfer-bound")
@remedy("one pass that keeps nothing", keep=False)
def kept_on_disk(client, keep: bool = True, blocks: int = 30, mebibytes: int = 24):
    """Dask workers spilling to disk too early (kept, although it is used once more only), dask/distributed#4061."""
    if keep:
        data = client.map(random_block, range(blocks), mebibytes=mebibytes, pure=False)
        client.gather(client.map(total_of, data, pure=False))
        client.gather(client.map(largest_of, data, pure=False))
    else:

        def both(i):
            block = random_block(i, mebibytes)
            return total_of(block), largest_of(block)

        client.gather(client.map(both, range(blocks), pure=False))


@case("memory-spill", 1, SMALL, threads=2, near="memory-paused gil-bound")
@remedy("more memory for the worker", cluster={"kind": "local", "memory_limit_mb": 4_000})
def ocean_on_a_small_worker(client, blocks: int = 40, mebibytes: int = 24):
    """memory spilling over to disk, pangeo-data/pangeo#679."""
    data = client.map(random_block, range(blocks), mebibytes=mebibytes, pure=False)
    for _ in range(2):
        client.gather(client.map(total_of, data, pure=False))


@case("healthy", 2, SMALL, near="memory-spill memory-paused")
def below_the_target(client, blocks: int = 12):
    """Dask documentation, Worker Memory Management (below its target):
    https://distributed.dask.org/en/stable/worker-memory.html."""

    def load(i):
        time.sleep(0.4)
        return np.ones(2**17)

    client.gather(client.map(total_of, client.map(load, range(blocks), pure=False), pure=False))


@case("memory-paused", 1, {"kind": "local", "memory_limit_mb": 600}, near="memory-spill straggler")
@remedy("keep nothing in the process", keep_s=0.0)
def alerts_kept_for_a_while(client, keep_s: float = 3.0, alerts: int = 24):
    """WIP: Memory management (unmanaged memory pauses workers and delays processing), skyportal/kowalski#226."""

    def process(i):
        kept = get_worker().__dict__.setdefault("alerts", [])
        if keep_s:
            kept.append(np.ones(40 * 2**17))
            if len(kept) == 1:
                threading.Timer(keep_s, kept.clear).start()
        time.sleep(0.05)
        return i

    client.gather(client.map(process, range(alerts), pure=False))


@case("memory-paused", 2, {"kind": "local", "memory_limit_mb": 600}, near="memory-spill data-locality")
@remedy("keep nothing in the process", keep_s=0.0)
def frames_kept_for_a_while(client, keep_s: float = 3.0, frames: int = 40):
    """A brief pause can cause severe work unbalancing, dask/distributed#7742."""

    def work(i):
        kept = get_worker().__dict__.setdefault("frames", [])
        if keep_s:
            kept.append(np.ones(80 * 2**17))
            if len(kept) == 1:
                threading.Timer(keep_s, kept.clear).start()
        time.sleep(0.1)
        return i

    client.gather(client.map(work, range(frames), pure=False))


@case("event-loop-blocked", 2, "local", threads=2, near="tiny-tasks slow-submission")
@remedy("do it in a task", in_tasks=True)
def run_freezes_the_loop(client, in_tasks: bool = False, tasks: int = 120):
    """client.run() generates a tornado event loop freeze, dask/distributed#7495."""

    def load_settings():
        time.sleep(1.0)

    futures = client.map(lambda i: time.sleep(0.05), range(tasks), pure=False)
    for _ in range(3):
        if in_tasks:
            client.submit(load_settings, pure=False, priority=10).result()
        else:
            client.run(load_settings)
    client.gather(futures)


@case("event-loop-blocked", 2, "local", threads=4, near="gil-bound skewed-tasks uneven-waves")
@remedy("await asyncio.sleep", awaits=True)
def async_tasks_that_block(client, tasks: int = 24, awaits: bool = False):
    """Support asynchronous tasks (they run within the event loop of the worker), dask/distributed#5151."""

    async def my_coro(arg):
        if awaits:
            await asyncio.sleep(0.3)
        else:
            time.sleep(0.3)
        return arg

    client.gather(client.map(my_coro, range(tasks), pure=False))


@case(
    "worker-died",
    4,
    "local",
    near="worker-killing-task recomputation retried-tasks",
    **{"distributed.scheduler.allowed-failures": 100},
)
@remedy("workers that are not preempted", preempted=False)
def preempted_workers(client, preempted: bool = True, n: int = 400):
    """Resilience against hardware failures: https://examples.dask.org/resilience.html."""
    pids = sorted(client.run(os.getpid).values())

    def multiply_by_two(x):
        time.sleep(0.02)
        return 2 * x

    summed = client.compute(db.from_sequence(range(n), npartitions=n // 2).map(multiply_by_two).sum())
    if preempted:
        for pid in pids[2:]:
            time.sleep(0.4)
            os.kill(pid, signal.SIGTERM)
    return {"sum": summed.result()}


@case("worker-died", 3, "local", near="worker-killing-task workers-missing")
@remedy("end before the walltime", walltime_s=0.0)
def walltime_reached(client, walltime_s: float = 1.0, tasks: int = 24):
    """How to handle a job queueing system's walltime killing workers:
    https://jobqueue.dask.org/en/latest/clusters-advanced-tips-and-tricks.html."""
    pids = sorted(client.run(os.getpid).values())
    futures = client.map(lambda i: time.sleep(0.25), range(tasks), pure=False)
    if walltime_s:
        time.sleep(walltime_s)
        for pid in pids[:2]:
            os.kill(pid, signal.SIGKILL)
    client.gather(futures)


@case("worker-killing-task", 2, "local", near="worker-died failed-trials retried-tasks")
@remedy("leave that item out", bad=-1)
def exits(client, bad: int = 5, items: int = 12):
    """Better handling of tasks that cause the worker to exit (submit(sys.exit, 1)), dask/distributed#301."""

    def analyse(i):
        if i == bad:
            os._exit(1)
        time.sleep(0.1)
        return i

    client.gather(client.map(analyse, range(items), pure=False))


@case("worker-killing-task", 2, "local", threads=2, near="worker-died failed-trials retried-tasks")
@remedy("leave that item out", bad=-1)
def segfaults(client, bad: int = 3, items: int = 16):
    """Debugging segfaults on workers, dask/distributed#2243."""

    def call_native(i):
        if i == bad:
            import ctypes

            ctypes.string_at(0)
        time.sleep(0.1)
        return i

    client.gather(client.map(call_native, range(items), pure=False))


@case("failed-trials", 3, "light", near="waiting-tasks")
@remedy("a file for each partition", files=12)
def all_lock_one_file(client, files: int = 1, partitions: int = 12):
    """dd.to_hdf produces HDF5ExtError (unable to lock file, errno = 11) on local cluster, dask/dask#7926."""
    with tempfile.TemporaryDirectory() as folder:

        def to_hdf(i):
            with open(f"{folder}/{i % files}.h5", "a") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                time.sleep(0.3)
            return i

        client.gather(client.map(to_hdf, range(partitions), pure=False))


@case("failed-trials", 2, "light", near="serialisation-bound")
@remedy("call the actor within the task", in_task=True)
def actor_future_as_argument(client, n: int = 4, in_task: bool = False):
    """Actor future can't be passed to submit (cannot pickle '_thread.lock' object), dask/distributed#4488."""

    class Actor:
        def foo(self):
            time.sleep(0.2)
            return (1, 2)

    actor = client.submit(Actor, actor=True, pure=False).result()
    if in_task:
        parts = [client.submit(lambda actor, i: actor.foo().result()[i % 2], actor, i, pure=False) for i in range(n)]
    else:
        future = actor.foo()
        parts = [client.submit(lambda pair, i: pair[i % 2], future, i, pure=False) for i in range(n)]
    client.gather(parts)
