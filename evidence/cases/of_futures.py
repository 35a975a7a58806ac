"""Workloads written with `client.submit` and `client.map`."""

from __future__ import annotations

import time
from contextlib import nullcontext
from itertools import islice

import numpy as np
from declare import case, remedy
from distributed import as_completed, get_client, worker_client


@case("few-tasks-in-flight", 24, near="slow-submission too-few-partitions")
@remedy("twice as many as there are threads", max_submitted=48)
def limited_submission(client, max_submitted: int = 8, tiles: int = 144):
    """Limit number of currently submitted tasks to dask executor (max_submitted_tasks, on a larger cluster),
    mapchete/mapchete#373.
    """

    def process(tile):
        time.sleep(0.5 + (tile * 37 % 10) / 10)
        return tile

    rest = iter(range(tiles))
    seq = as_completed([client.submit(process, tile, pure=False) for tile in islice(rest, max_submitted)])
    for future in seq:
        future.result()
        for tile in islice(rest, 1):
            seq.add(client.submit(process, tile, pure=False))


@case("nested-client", 8, near="straggler too-few-partitions")
@remedy("secede before waiting", secede=True)
def steps_that_gather_their_data(client, steps: int = 6, files: int = 8, secede: bool = False):
    """Dask easy Deadlock with gather and compute (a step task gathers its data tasks), dask/distributed#7047."""

    def data(step, i):
        time.sleep(1)
        return i

    def step(number):
        with worker_client() if secede else nullcontext(get_client()) as client:
            return sum(client.gather(client.map(data, [number] * files, range(files), pure=False)))

    client.gather(client.map(step, range(steps), pure=False))


@case("healthy", 7, near="fewer-items-than-workers uneven-waves late-workers")
def seven_batches(client, items: int = 7, seconds: float = 10.0):
    """Assign tasks to idle workers rather than queuing them (7 batches), dask/distributed#7384."""

    def batch(i):
        time.sleep(seconds)

    client.gather([client.submit(batch, i) for i in range(items)])


@case("fewer-items-than-workers", 28, near="too-few-partitions")
@remedy("split the payload into as many batches as there are workers", items=28, seconds=2.5)
def seven_batches_on_28(client, items: int = 7, seconds: float = 10.0):
    """Assign tasks to idle workers rather than queuing them (7 batches, more workers), dask/distributed#7384."""
    seven_batches(client, items=items, seconds=seconds)


@case("data-locality", 16, near="too-few-partitions worker-restriction")
@remedy("as many parts as there are workers", parts=16)
def cuts_of_six_parts(client, parts: int = 6, cuts: int = 96):
    """Many Tasks assigned to one worker (here: to those that hold six large parts), dask/distributed#3126."""

    def load(i):
        time.sleep(6 / parts)
        return np.empty(2_400_000_000 // parts)

    def process(part, i):
        time.sleep(1)
        return i

    loaded = client.map(load, range(parts), pure=False)
    client.gather([client.submit(process, loaded[i % parts], i, pure=False) for i in range(cuts)])


@case("slow-worker", 10, near="straggler skewed-tasks")
@remedy("do without the slow machine", spare_slowest=True)
def one_busy_machine(client, trees: int = 6, spare_slowest: bool = False):
    """Distributed on shared clusters or non-homogenous machines, dmlc/xgboost#3104."""
    machines = sorted(client.scheduler_info(n_workers=-1)["workers"])

    def histogram(tree, part):
        from distributed import get_worker

        time.sleep(6 if get_worker().address == machines[0] else 1)
        return part

    used = machines[1:] if spare_slowest else machines
    for tree in range(trees):
        client.gather(
            [client.submit(histogram, tree, i, workers=[used[i % len(used)]], pure=False) for i in range(len(machines))]
        )
