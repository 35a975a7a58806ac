"""Workloads that check whether results stay right when workers come, go or run out of memory.

They change the workers of their cluster, so they run only on clusters where that can be undone. If a stage has not
finished after `limit_s` seconds, the state of the cluster is written to a file, and the error names this file.
"""

from __future__ import annotations

import os
import random
import tempfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.errors import UsageError, WrongAnswer
from scalescope.model.parameters import Parameter
from scalescope.workloads._common import check_same, check_stages, pass_on, wrong
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client, Worker

Tasks = Annotated[int, Parameter("Tasks of each of two stages.", minimum=1)]
Seconds = Annotated[float, Parameter("Seconds that each task sleeps.", minimum=0)]
Limit = Annotated[float, Parameter("Seconds that a stage may take.", minimum=1)]
made = partial(workload, packages=("dask",), kinds=("local",))


@made("worker-loss", stresses="recomputing the results of a killed worker", changes_workers=True)
def worker_loss(client: Client, *, items: Tasks = 200, seconds: Seconds = 0.05, limit_s: Limit = 300) -> dict[str, Any]:
    """Kill the worker that holds the most results, while the next stage begins."""
    first = settled(client, client.map(pass_on, range(items), seconds=seconds, key="first", pure=False), limit_s)
    victim, held = _busiest(client)
    client.run(end, workers=[victim], wait=False)
    second = client.map(pass_on, first, seconds=seconds, key="second", pure=False)
    check_stages(client.gather(settled(client, second, limit_s)), items=items, stages=2)
    if victim in client.nthreads():
        raise wrong(f"worker {victim} should have been killed, but is alive")
    return {"items": items, "results_lost": held}


@made("worker-retire", stresses="moving the results of a worker that leaves", changes_workers=True)
def worker_retire(
    client: Client, *, items: Tasks = 200, seconds: Seconds = 0.02, limit_s: Limit = 300
) -> dict[str, Any]:
    """Retire the worker that holds the most results, between two stages."""
    if len(client.nthreads()) < 2:
        raise UsageError("the workload needs two workers", where="workers", next_step="ask for 2 or more")
    first = settled(client, client.map(pass_on, range(items), seconds=seconds, key="first", pure=False), limit_s)
    victim, held = _busiest(client)
    client.retire_workers([victim])
    holders = client.who_has(first).values()
    if victim in client.nthreads() or not all(holders):
        raise wrong(f"worker {victim} left {sum(not each for each in holders)} results behind, or did not leave")
    second = client.map(pass_on, first, seconds=seconds, key="second", pure=False)
    check_stages(client.gather(settled(client, second, limit_s)), items=items, stages=2)
    return {"items": items, "results_moved": held}


@made("scale-up", stresses="starting a worker, and giving it tasks", changes_workers=True)
def scale_up(client: Client, *, items: Tasks = 200, seconds: Seconds = 0.02, limit_s: Limit = 300) -> dict[str, Any]:
    """Ask for one more worker during the first of two stages, and begin the second when the worker has joined."""
    before = set(client.nthreads())
    first = client.map(pass_on, range(items), seconds=seconds, key="first", pure=False)
    client.cluster.scale(len(before) + 1)
    client.wait_for_workers(len(before) + 1, timeout=limit_s)
    settled(client, first, limit_s)
    second = client.map(pass_on, range(1, items + 1), seconds=seconds, key="second", pure=False)
    settled(client, second, limit_s)
    (new,) = set(client.nthreads()) - before
    done = sum(new in holders for holders in client.who_has(second).values())
    check_stages(client.gather(second), items=items, stages=2)
    if not done:
        raise wrong(f"the new worker {new} was given no task")
    return {"items": items, "tasks_of_new_worker": done}


@made("spill", stresses="data that does not fit into memory: disk, out and in")
def spill(
    client: Client,
    *,
    items: Annotated[int, Parameter("Blocks.", minimum=1)] = 100,
    mib: Annotated[int, Parameter("Size of a block of random bytes in MiB.", minimum=1)] = 16,
    limit_s: Limit = 300,
) -> dict[str, Any]:
    """Hold more data than fits into the memory of workers, then use all of it again."""
    blocks = client.map(random_bytes, range(items), mib=mib, key="block", pure=False)
    settled(client, blocks, limit_s)
    spilled = [each for each in client.run(bytes_on_disk).values() if each]
    if not spilled:
        raise UsageError(
            "workload 'spill' spilled nothing",
            where="cluster.memory_limit_mb",
            cause=f"workers have no memory limit, or {items * mib} MiB fit into 60 % of the limit",
            next_step="use a local cluster with a memory_limit_mb, or more items",
        )
    intact = client.map(is_intact, range(items), blocks, key="intact", pure=False)
    check_same(client.gather(settled(client, intact, limit_s)), [True] * items)
    return {"mib": items * mib, "spilled_mib": round(sum(spilled) / 2**20)}


async def end() -> None:
    os._exit(1)


def random_bytes(number: int, mib: int) -> bytes:
    return random.Random(number).randbytes(mib * 2**20)


def is_intact(number: int, block: bytes) -> bool:
    return zlib.crc32(block) == zlib.crc32(random_bytes(number, len(block) // 2**20))


def bytes_on_disk(dask_worker: Worker) -> int:
    """Bytes that a worker holds on disk; 0 if it has no memory limit."""
    total = getattr(dask_worker.data, "spilled_total", None)
    return 0 if total is None else int(total.disk)


def settled(client: Client, futures: Sequence[Any], limit_s: float) -> Sequence[Any]:
    """Wait for futures; if they are late, dump the state of the cluster and raise `WrongAnswer`."""
    from distributed import wait

    try:
        with client.as_current():
            wait(futures, timeout=limit_s)
    except TimeoutError:
        path = Path(tempfile.mkdtemp(prefix="scalescope-cluster-"), "state")
        client.dump_cluster_state(str(path))
        raise WrongAnswer(
            f"{sum(not each.done() for each in futures)} tasks have not ended after {limit_s:g} s",
            where=f"{path}.msgpack.gz",
            cause="tasks wait for something that does not come, or the machine is slow",
            next_step="read the file with distributed.cluster_dump.DumpArtefact.from_url",
        ) from None
    return futures


def _busiest(client: Client) -> tuple[str, int]:
    return max(((address, len(keys)) for address, keys in client.has_what().items()), key=lambda each: each[1])
