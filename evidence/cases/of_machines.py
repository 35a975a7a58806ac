"""Workloads that compute, move and keep real data, or end processes: workers are processes of this host."""

from __future__ import annotations

import os
import signal
import time

import dask.array as da
import dask.bag as db
import numpy as np
from declare import case, mends, remedy


@case("transfer-bound", 4, "local", near="memory-spill data-locality")
@remedy("fewer, larger workers", workers=1, threads=4)
def array_and_its_transpose(client, side: int = 6_000, chunk: int = 1_000):
    """X + x.T, Dask Array: https://examples.dask.org/array.html."""
    x = da.random.random((side, side), chunks=(chunk, chunk)).persist()
    for times in range(1, 4):
        y = x + times * x.T
        y[::500, ::500].sum().compute()


@case("client-waits", 4, "local", near="serialisation-bound slow-submission")
def large_array_to_all(client, mebibytes: int = 200, tasks: int = 8):
    """Data not shared in threaded Local Cluster (a large array, of which each task needs a part),
    dask/distributed#2270.
    """
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
