"""Workloads of futures, bags and delayed functions, with many, small, uneven or late tasks for the scheduler."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import PartitionSize, check_same, check_stages, fresh, partitions, pass_on, require
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

Tasks = Annotated[int, Parameter("Tasks.", minimum=0)]
Seconds = Annotated[float, Parameter("Seconds that each task sleeps.", minimum=0)]
BAG_RULE = "one item each up to 100 items, then ceil(sqrt(items) / 10) items each"
made = partial(workload, packages=("dask",))


@made("futures-map", stresses="the throughput of the scheduler itself", modelled=True)
def futures_map(
    client: Client,
    *,
    items: Annotated[int, Parameter("Futures of each stage.", minimum=0)] = 100,
    seconds: Seconds = 1.0,
    stages: Annotated[
        int, Parameter("Stages; each task of a stage needs the same item's task of the previous stage.", minimum=1)
    ] = 1,
) -> dict[str, Any]:
    """Client.map of a sleep over items, in one or more stages."""
    futures: Sequence[Any] = range(items)
    for stage in range(1, stages + 1):
        futures = client.map(pass_on, futures, seconds=seconds, key=f"stage{stage}", pure=False)
    check_stages(client.gather(futures), items=items, stages=stages)
    return {"items": items, "stages": stages}


@made("bag-map", stresses="how a bag divides items into partitions", modelled=True)
def bag_map(
    client: Client,
    *,
    items: Annotated[int, Parameter("Items of the bag.", minimum=0)] = 100,
    seconds: Annotated[float, Parameter("Seconds that each item sleeps in each stage.", minimum=0)] = 1.0,
    stages: Annotated[int, Parameter("Maps, one after another.", minimum=1)] = 1,
    npartitions: Annotated[
        int | Literal["items"] | None,
        Parameter(f"Partitions, or 'items' for one per item; null takes dask's rule ({BAG_RULE}).", minimum=1),
    ] = None,
    partition_size: PartitionSize = None,
) -> dict[str, Any]:
    """dask.bag.from_sequence and maps that sleep."""
    db = require("dask.bag", "")
    bag = db.from_sequence(range(items), **partitions(items, npartitions, partition_size))
    token = fresh()
    for _ in range(stages):
        bag = bag.map(pass_on, seconds=seconds, token=token)
    check_stages(client.gather(client.compute(bag)), items=items, stages=stages)
    return {"items": items, "stages": stages, "partitions": bag.npartitions}


@made("tree-reduce", stresses="the narrow end of a graph", modelled=True)
def tree_reduce(
    client: Client,
    *,
    items: Annotated[int, Parameter("Leaves.", minimum=1)] = 100,
    seconds: Annotated[float, Parameter("Seconds that each leaf sleeps.", minimum=0)] = 1.0,
    split_every: Annotated[int, Parameter("Results that one reduction takes in.", minimum=2)] = 8,
    reduce_seconds: Annotated[float, Parameter("Seconds that each reduction sleeps.", minimum=0)] = 0.1,
) -> dict[str, Any]:
    """Sleeping leaves and a tree of reductions."""
    level = client.map(leaf, range(items), seconds=seconds, key="leaf", pure=False)
    depth = 0
    while len(level) > 1:
        depth += 1
        groups = [level[start : start + split_every] for start in range(0, len(level), split_every)]
        level = client.map(reduce, groups, seconds=reduce_seconds, key=f"reduce{depth}", pure=False)
    check_same([client.gather(level[0])], [items * (items - 1) // 2])
    return {"items": items, "depth": depth}


def leaf(value: int, seconds: float) -> int:
    time.sleep(seconds)
    return value


def reduce(values: Sequence[int], seconds: float) -> int:
    time.sleep(seconds)
    return sum(values)


@made("delayed-many", stresses="large graphs: the client, and tasks per second of the scheduler", modelled=True)
def delayed_many(client: Client, *, items: Tasks = 10_000) -> dict[str, Any]:
    """One graph of tasks that do nothing, with dask.delayed."""
    delayed = require("dask", "").delayed
    one = delayed(pass_on, pure=False)
    total = client.gather(client.compute(delayed(sum)([one(number, 0) for number in range(items)])))
    check_same([total], [items * (items + 1) // 2])
    return {"items": items}


@made("futures-sequence", stresses="latency of one task: client, scheduler, worker and back", modelled=True)
def futures_sequence(client: Client, *, items: Tasks = 500, seconds: Seconds = 0.0) -> dict[str, Any]:
    """One task after another: each is sent when the result of the one before has been fetched."""
    value = 0
    for _ in range(items):
        value = client.submit(pass_on, value, seconds, pure=False).result()
    check_same([value], [items])
    return {"items": items}


@made("futures-window", stresses="latency, and a client that decides what comes next", modelled=True)
def futures_window(
    client: Client,
    *,
    items: Tasks = 1_000,
    seconds: Seconds = 0.01,
    ahead: Annotated[int, Parameter("Tasks in flight per thread.", minimum=1)] = 2,
) -> dict[str, Any]:
    """A window of tasks: a new task is sent whenever one ends, with as_completed."""
    from distributed import as_completed

    numbers = iter(range(items))
    width = min(items, ahead * sum(client.nthreads().values()))
    results = []
    with client.as_current():
        running = as_completed([client.submit(pass_on, next(numbers), seconds, pure=False) for _ in range(width)])
        for future in running:
            results.append(future.result())
            if (number := next(numbers, None)) is not None:
                running.add(client.submit(pass_on, number, seconds, pure=False))
    check_stages(sorted(results), items=items, stages=1)
    return {"items": items}


@made("futures-lognormal", stresses="balance of uneven tasks, and work stealing", modelled=True)
def futures_lognormal(
    client: Client,
    *,
    items: Tasks = 1_000,
    seconds: Annotated[float, Parameter("Mean seconds that a task sleeps.", minimum=0)] = 0.05,
    sigma: Annotated[float, Parameter("Standard deviation of the logarithm.", minimum=0, maximum=3)] = 1.0,
    seed: Annotated[int, Parameter("Seed of the durations.", minimum=0)] = 0,
) -> dict[str, Any]:
    """A map of sleeps with log-normal durations."""
    drawn = random.Random(seed)
    naps = [seconds * math.exp(drawn.gauss(-(sigma**2) / 2, sigma)) for _ in range(items)]
    results = client.gather(client.map(pass_on, range(items), naps, key="lognormal", pure=False))
    check_stages(results, items=items, stages=1)
    return {"items": items, "sleep_s": sum(naps)}


@made("futures-straggler", stresses="one long task that begins last", modelled=True)
def futures_straggler(
    client: Client,
    *,
    items: Tasks = 200,
    seconds: Seconds = 0.05,
    factor: Annotated[float, Parameter("How much longer the last task sleeps.", minimum=1)] = 40.0,
) -> dict[str, Any]:
    """A map of sleeps; the last one is much longer."""
    naps = [seconds] * (items - 1) + [seconds * factor] * min(items, 1)
    results = client.gather(client.map(pass_on, range(items), naps, key="straggler", pure=False))
    check_stages(results, items=items, stages=1)
    return {"items": items}


@made("futures-scatter", stresses="data of the client that every worker needs")
def futures_scatter(
    client: Client,
    *,
    items: Tasks = 200,
    mib: Annotated[int, Parameter("Size of the value that all tasks need, in MiB.", minimum=1)] = 16,
) -> dict[str, Any]:
    """Scatter one value to all workers, and take its length in every task."""
    data = random.Random(0).randbytes(mib * 2**20)
    shared = client.scatter(data, broadcast=True, hash=False)
    sizes = client.gather(client.map(measured, range(items), shared=shared, pure=False))
    check_same(sizes, [(number, len(data), data[number]) for number in range(items)])
    return {"items": items}


def measured(number: int, shared: bytes) -> tuple[int, int, int]:
    return number, len(shared), shared[number % len(shared)]


@made("futures-fan-in", stresses="results that are fetched from all workers by one task")
def futures_fan_in(
    client: Client, *, items: Tasks = 64, kib: Annotated[int, Parameter("Size of each result in KiB.", minimum=1)] = 512
) -> dict[str, Any]:
    """Many results that one task needs."""
    parts = client.map(bytes, [kib * 1024] * items, pure=False)
    check_same([client.submit(lengths, parts, pure=False).result()], [items * kib * 1024])
    return {"items": items}


def lengths(parts: list[bytes]) -> int:
    return sum(map(len, parts))


@made("futures-nested", stresses="tasks that send tasks and wait for them", modelled=True)
def futures_nested(
    client: Client,
    *,
    items: Annotated[int, Parameter("Tasks that send other tasks.", minimum=0)] = 20,
    children: Annotated[int, Parameter("Tasks that each of these sends.", minimum=1)] = 5,
    seconds: Annotated[float, Parameter("Seconds that each sent task sleeps.", minimum=0)] = 0.02,
) -> dict[str, Any]:
    """Tasks that send other tasks with a client of their worker, and add up the results."""
    sums = client.gather(client.map(parent, range(items), children=children, seconds=seconds, pure=False))
    check_same(sums, [children * number + children * (children + 1) // 2 for number in range(items)])
    return {"items": items}


def parent(number: int, children: int, seconds: float) -> int:
    from distributed import worker_client

    with worker_client() as client:
        return sum(client.gather(client.map(pass_on, range(number, number + children), seconds=seconds, pure=False)))
