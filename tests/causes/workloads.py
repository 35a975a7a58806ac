"""Workloads whose bottleneck, or absence of one, is known beforehand.

Each is a function of a client, referenced as `workloads.py:NAME`. Those marked `modelled` stand for compute by sleeping
and run on the simulated cluster in virtual time; the others need real processes.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import dask
from distributed import Semaphore, as_completed, get_client, get_worker, wait, worker_client

Function = Callable[..., Any]


def modelled(function: Function) -> Function:
    function.modelled = True  # type: ignore[attr-defined]
    return function


# ------------------------------------------------------------------ tasks


class Sized:
    def __init__(self, nbytes: int):
        self.nbytes = nbytes

    def __sizeof__(self) -> int:
        return self.nbytes


def step(seconds: float, *inputs: object) -> float:
    time.sleep(seconds)
    return seconds


def step_to_bytes(seconds: float, nbytes: int, *inputs: object) -> Sized:
    time.sleep(seconds)
    return Sized(nbytes)


def join(inputs: Iterable[object]) -> int:
    return sum(1 for _ in inputs)


def block(durations: list[float], length: int, block_id: Any = None) -> Any:
    import numpy as np

    time.sleep(durations[block_id[0]])
    return np.ones(length)


# ------------------------------------------------------------------ durations


def profile_of(profile: str, items: int, seconds: float, amount: float, rng: random.Random) -> list[float]:
    """Durations of the tasks of one stage, by the name of their distribution.

    `amount` is the half width (`jitter`), the sigma (`lognormal`), or the ratio of the longest to the shortest.
    """
    factor_of: dict[str, Callable[[int], float]] = {
        "jitter": lambda i: rng.uniform(1 - amount, 1 + amount),
        "lognormal": lambda i: rng.lognormvariate(0, amount),
        "uniform": lambda i: rng.uniform(1, amount),
        "ramp": lambda i: 1 + (amount - 1) * i / max(items - 1, 1),
    }
    return [seconds * factor_of[profile](i) for i in range(items)]


def jittered(items: int, seconds: float, jitter: float, seed: int) -> list[float]:
    return profile_of("jitter", items, seconds, jitter, random.Random(seed))


def delay_some(durations: list[float], count: int, factor: float, where: str, rng: random.Random) -> list[float]:
    """Make `count` of the tasks take `factor` times as long; `where` among `random`, `first` and `last`."""
    places = list(range(len(durations)))
    if where == "random":
        rng.shuffle(places)
    chosen = set(places[-count:] if where == "last" else places[:count]) if count else set()
    return [seconds * factor if i in chosen else seconds for i, seconds in enumerate(durations)]


# ------------------------------------------------------------------ shapes


def run_stage(client, durations: list[float], shape: str, stage: int = 0):
    """One independent task per duration, and all results awaited."""
    name = f"work{stage}"
    if shape == "futures":
        client.gather(client.map(step, durations, key=name, pure=False))
    elif shape == "delayed":
        task = dask.delayed(step, pure=False)
        client.gather(
            client.compute([task(seconds, dask_key_name=f"{name}-{i}") for i, seconds in enumerate(durations)])
        )
    elif shape == "bag":
        import dask.bag as db

        bag = db.from_sequence(list(enumerate(durations)), npartitions=len(durations))
        client.gather(client.compute(bag.starmap(lambda i, seconds: step(seconds))))
    elif shape == "array":
        import dask.array as da
        import numpy as np

        blocks = ((1,) * len(durations),)
        rows = da.map_blocks(
            partial(block, durations, 1), chunks=blocks, dtype=float, meta=np.empty(0), name=f"{name}-x"
        )
        client.gather(client.compute(rows.sum()))
    else:
        raise ValueError(shape)


@modelled
def stages(
    client,
    *,
    items: int = 100,
    seconds: float = 1.0,
    profile: str = "jitter",
    amount: float = 0.0,
    late: int = 0,
    factor: float = 10.0,
    where: str = "random",
    stages: int = 1,
    link: str = "chain",
    shape: str = "futures",
    shrink: float = 1.0,
    nbytes: int = 0,
    seed: int = 0,
):
    """Stages of independent tasks.

    Args:
        amount: Parameter of the profile, see `profile_of`.
        late: Tasks of each stage that take `factor` times as long, at the places `where`.
        link: `chain` (each task after its counterpart), `barrier` (after all tasks of the stage before, inside the
            graph), or `client` (the client gathers each stage).
        shape: The API, for `link="client"` and for a single stage.
        shrink: Ratio of durations from one stage to the next.
        nbytes: Size of the result of a task of typical duration; 0 leaves it at a number's.
    """
    rng = random.Random(seed)
    futures: Any = None
    for stage in range(stages):
        durations = profile_of(profile, items, seconds * shrink**stage, amount, rng)
        durations = delay_some(durations, late, factor, where, rng)
        if (stages == 1 and not nbytes) or link == "client":
            run_stage(client, durations, shape, stage)
            continue
        inputs = [] if futures is None else [futures] if link == "chain" else [[client.submit(join, futures)] * items]
        key = f"stage{stage}"
        if nbytes:
            sizes = [int(nbytes * duration / seconds) for duration in durations]
            futures = client.map(step_to_bytes, durations, sizes, *inputs, key=key, pure=False)
        else:
            futures = client.map(step, durations, *inputs, key=key, pure=False)
    if futures is not None:
        wait(futures)


@modelled
def passed_on(client, *, items: int = 100):
    """Tasks that take results of 100 MB from four others, most of which other workers have."""
    made = client.map(step_to_bytes, [0.2] * items, [10**8] * items, key="make", pure=False)
    taken = [[made[(i + 7 * k) % items] for k in range(4)] for i in range(items)]
    wait([client.submit(step, 0.2, *found, key=f"use-{i}") for i, found in enumerate(taken)])


@modelled
def bag(client, *, items: int = 100, seconds: float = 1.0, npartitions: int | None = None, jitter: float = 0.0):
    """A bag as dask divides it, or in so many partitions, mapped twice."""
    import dask.bag as db

    durations = jittered(items, seconds / 2, jitter, 0)
    client.gather(client.compute(db.from_sequence(durations, npartitions=npartitions).map(step).map(step)))


@modelled
def chunks(client, *, length: int = 1000, chunk: int = 10, seconds: float = 1.0, reduce: bool = True):
    """A dask array of `length` in chunks; a chunk takes `seconds`."""
    import dask.array as da
    import numpy as np

    count = length // chunk
    rows = da.map_blocks(
        partial(block, [seconds] * count, chunk), chunks=((chunk,) * count,), dtype=float, meta=np.empty(0)
    )
    client.gather(client.compute(rows.sum() if reduce else rows))


@modelled
def frame(client, *, partitions: int = 20, seconds: float = 1.0):
    """A dask data frame of so many partitions, each mapped twice, and its length."""
    import dask.dataframe as dd
    import pandas as pd

    empty = pd.DataFrame({"value": pd.Series([], dtype="int64")})

    def load(index: int, seconds: float) -> Any:
        time.sleep(seconds)
        return pd.DataFrame({"value": [index]})

    def clean(part: Any, seconds: float) -> Any:
        time.sleep(seconds)
        return part

    table = dd.from_map(load, range(partitions), seconds=seconds / 3, meta=empty)
    for _ in range(2):
        table = table.map_partitions(clean, seconds=seconds / 3, meta=empty)
    client.gather(client.compute(table["value"].sum()))


@modelled
def tree(
    client,
    *,
    leaves: int = 128,
    seconds: float = 1.0,
    fan_in: int = 8,
    reduce_seconds: float = 0.1,
    shape: str = "futures",
):
    """Leaves and a tree of reductions."""
    if shape == "delayed":
        leaf, add = dask.delayed(step, pure=False), dask.delayed(step, pure=False)
        level: Any = [leaf(seconds, dask_key_name=f"leaf-{i}") for i in range(leaves)]
        while len(level) > 1:
            depth = len(level)
            level = [
                add(reduce_seconds, *level[i : i + fan_in], dask_key_name=f"add-{depth}-{i}")
                for i in range(0, len(level), fan_in)
            ]
        client.gather(client.compute(level[0]))
        return
    level = client.map(step, [seconds] * leaves, key="leaf", pure=False)
    while len(level) > 1:
        level = [
            client.submit(step, reduce_seconds, *level[i : i + fan_in], key=f"add-{len(level)}-{i}")
            for i in range(0, len(level), fan_in)
        ]
    wait(level)


@modelled
def pipeline(client, *, items: int = 100, seed: int = 0):
    """Load, process and save each item, as one graph of delayed calls, with 10 % of variation."""
    rng = random.Random(seed)
    one = dask.delayed(step, pure=False)
    last = []
    for i in range(items):
        value: Any = None
        for name, seconds in (("load", 0.1), ("work", 1.0), ("save", 0.2)):
            value = one(seconds * rng.uniform(0.9, 1.1), value, dask_key_name=f"{name}-{i}")
        last.append(value)
    client.gather(client.compute(last))


@modelled
def chain(client, *, length: int = 20, seconds: float = 1.0, chains: int = 1, shape: str = "futures"):
    """Chains of tasks, each of which needs the one before."""
    ends: list[Any] = []
    for lane in range(chains):
        value: Any = None
        for i in range(length):
            if shape == "delayed":
                value = dask.delayed(step, pure=False)(seconds, value, dask_key_name=f"step-{lane}-{i}")
            else:
                value = client.submit(step, seconds, value, key=f"step-{lane}-{i}")
        ends.append(value)
    if shape == "delayed":
        client.gather(client.compute(ends))
    else:
        wait(ends)


# ------------------------------------------------------------------ workers that differ


@modelled
def slow_workers(
    client, *, items: int = 40, seconds: float = 1.0, stages: int = 3, slow: int = 1, factor: float = 4.0, seed: int = 0
):
    """Stages with a barrier after each; on `slow` workers everything takes `factor` times as long."""
    rng = random.Random(seed)

    def on_worker(seconds: float, after: object = None):
        time.sleep(seconds * (factor if int(get_worker().name) % 1_000_000 < slow else 1.0))

    barrier: Any = None
    for stage in range(stages):
        durations = profile_of("jitter", items, seconds, 0.05, rng)
        futures = client.map(on_worker, durations, after=barrier, key=f"stage{stage}", pure=False)
        barrier = client.submit(join, futures, key=f"barrier-{stage}")
    wait(barrier)


# ------------------------------------------------------------------ how work is submitted


@modelled
def awaited(
    client,
    *,
    steps: int = 20,
    seconds: float = 0.5,
    width: int = 1,
    form: str = "result",
    jitter: float = 0.1,
    seed: int = 0,
):
    """A loop that waits for `width` tasks before it sends the next."""
    rng = random.Random(seed)
    for i in range(steps):
        durations = profile_of("jitter", width, seconds, jitter, rng)
        keys = [f"query-{i}-{j}" for j in range(width)]
        if form == "delayed":
            one = dask.delayed(step, pure=False)
            client.compute([one(s, dask_key_name=key) for s, key in zip(durations, keys, strict=True)], sync=True)
            continue
        if form == "map":
            client.gather(client.map(step, durations, key=keys))
            continue
        futures = [client.submit(step, s, key=key) for s, key in zip(durations, keys, strict=True)]
        if form == "as_completed":
            for _ in as_completed(futures):
                pass
        else:
            for future in futures:
                future.result()


@modelled
def slowly_sent(
    client, *, items: int = 100, seconds: float = 1.0, pause: float = 0.1, form: str = "submit", seed: int = 0
):
    """A loop that prepares each task for `pause` seconds, sends it, and does not wait."""
    rng = random.Random(seed)
    futures: list[Any] = []
    for i, duration in enumerate(profile_of("jitter", items, seconds, 0.1, rng)):
        time.sleep(pause * rng.uniform(0.8, 1.2))
        if form == "compute":
            futures.append(client.compute(dask.delayed(step, pure=False)(duration, dask_key_name=f"item-{i}")))
        elif form == "pairs":
            first = client.submit(step, duration / 2, key=f"read-{i}")
            futures.append(client.submit(step, duration / 2, first, key=f"parse-{i}"))
        else:
            futures.append(client.submit(step, duration, key=f"item-{i}"))
    wait(futures)


@modelled
def windowed(client, *, items: int = 200, seconds: float = 1.0, window: int = 40, jitter: float = 0.15, seed: int = 0):
    """Keep `window` tasks in flight: each that completes brings the next."""
    rest = iter(jittered(items, seconds, jitter, seed))
    running = as_completed([client.submit(step, length, pure=False) for length in itertools.islice(rest, window)])
    for _ in running:
        for length in itertools.islice(rest, 1):
            running.add(client.submit(step, length, pure=False))


@modelled
def thinking(
    client, *, rounds: int = 2, items: int = 100, seconds: float = 1.0, think: float = 10.0, when: str = "between"
):
    """Wide maps, before, between or after which the client does something else, without the cluster."""
    if when == "before":
        time.sleep(think)
    for i in range(rounds):
        if i and when == "between":
            time.sleep(think)
        client.gather(client.map(step, [seconds] * items, key=f"round{i}", pure=False))
    if when == "after":
        time.sleep(think)


def gathering(client, *, arrays: int = 8, mebibytes: int = 64):
    """The client fetches all results, which are large."""
    import numpy as np

    def make(i: int) -> object:
        time.sleep(0.1)
        return np.full(mebibytes * 2**17, float(i))

    assert len(client.gather(client.map(make, range(arrays), pure=False))) == arrays


@modelled
def nested(client, *, outer: int = 8, inner: int = 8, seconds: float = 1.0, form: str = "worker_client"):
    """Tasks that submit tasks and wait for them: holding their thread (`blocking`), or giving it back meanwhile."""

    def part(seconds: float, name: str, count: int):
        keys = [f"inner-{name}-{i}" for i in range(count)]
        if form == "worker_client":
            with worker_client() as own:
                own.gather(own.map(step, [seconds] * count, key=keys))
            return
        if form == "one_by_one":
            with worker_client() as own:
                for key in keys:
                    own.submit(step, seconds, key=key).result()
            return
        own = get_client()
        futures = own.map(step, [seconds] * count, key=keys, priority=10)
        while not all(future.done() for future in futures):  # blocks its thread
            time.sleep(0.05)

    futures = [client.submit(part, seconds, str(i), inner, key=f"outer-{i}") for i in range(outer)]
    wait(futures)


@modelled
def tiny(client, *, items: int = 2000, seconds: float = 0.001, shape: str = "futures", big: int = 0):
    """Tasks that last next to nothing, and `big` tasks of a second beside them."""
    others = client.map(step, [1.0] * big, key="big", pure=False)
    run_stage(client, [seconds] * items, shape)
    wait(others)


# ------------------------------------------------------------------ where tasks may run


async def give_resource(dask_worker: Any, name: str):
    """Let a worker offer one unit of a resource."""
    await dask_worker.set_resources(**{name: 1})


@modelled
def restricted(client, *, items: int = 100, allowed: int = 1, how: str = "workers", share: float = 1.0, seed: int = 0):
    """Tasks of which a `share` is confined to `allowed` workers, by address, annotation, name or resource.

    `how="loose"` lets others work too, and `"host"` confines to a host on which they all are.
    """
    durations = jittered(items, 1.0, 0.1, seed)
    confined = round(items * share)
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])[:allowed]
    free = client.map(step, durations[confined:], key="free", pure=False)
    options: dict[str, Any] = {"workers": addresses}
    if how == "resources":
        client.run(give_resource, name="GPU", workers=addresses)
        options = {"resources": {"GPU": 1}}
    elif how == "loose":
        options["allow_other_workers"] = True
    elif how == "name":
        options = {"workers": list(range(allowed))}
    elif how == "host":
        options = {"workers": ["127.0.0.1"]}
    if how == "annotate":
        task = dask.delayed(step, pure=False)
        with dask.annotate(workers=addresses):
            tasks = [task(s, dask_key_name=f"pinned-{i}") for i, s in enumerate(durations[:confined])]
        futures = client.compute(tasks, optimize_graph=False)
    else:
        futures = client.map(step, durations[:confined], key="pinned", pure=False, **options)
    wait([*free, *futures])


@modelled
def prioritised(client, *, items: int = 100, how: str = "priority", seed: int = 0):
    """Annotations that change nothing about where tasks may run."""
    durations = jittered(items, 1.0, 0.1, seed)
    if how == "priority":
        half = items // 2
        futures = client.map(step, durations[:half], key="later", pure=False, priority=-5)
        futures += client.map(step, durations[half:], key="sooner", pure=False, priority=5)
    elif how == "retries":
        futures = client.map(step, durations, key="retried", pure=False, retries=3)
    else:
        task = dask.delayed(step, pure=False)
        with dask.annotate(priority=3, retries=2):
            futures = client.compute([task(s, dask_key_name=f"noted-{i}") for i, s in enumerate(durations)])
    wait(futures)


@modelled
def near_data(
    client,
    *,
    items: int = 100,
    nbytes: int = 2_000_000_000,
    holders: int = 1,
    how: str = "scatter",
    broadcast: bool = False,
):
    """Tasks that all need data of `nbytes` which only `holders` workers have."""
    data: list[Any]
    if how == "scatter":
        addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])[:holders]
        data = [
            client.scatter(Sized(nbytes), workers=None if broadcast else [address], broadcast=broadcast, hash=False)
            for address in addresses
        ]
    else:
        data = [client.submit(step_to_bytes, 0.5, nbytes, key=f"load-{i}") for i in range(holders)]
        wait(data)
    inputs = [data[i % holders] for i in range(items)]
    wait(client.map(step, [0.5] * items, inputs, key="use", pure=False))


@modelled
def semaphore(client, *, items: int = 40, leases: int = 100):
    """Tasks that take a lease of a semaphore."""
    leases_of_all = Semaphore(max_leases=leases, name="leases")

    def leased(i: int):
        with leases_of_all:
            time.sleep(1.0)

    wait(client.map(leased, range(items), key="leased", pure=False))


@modelled
def shared(client, *, items: int = 64, serves: int = 2, start_up: float = 0.0, jitter: float = 0.0):
    """Tasks that share something outside Dask that serves `serves` threads at once; workers may need a start-up."""
    rng = random.Random(items)
    each = 0.5 * max(1.0, sum(client.nthreads().values()) / serves)

    def read(seconds: float):
        started = get_worker().__dict__.setdefault("started", [])
        time.sleep(seconds + (0.0 if started else start_up))
        started.append(True)

    durations = [each * rng.uniform(1 - jitter, 1 + jitter) for _ in range(items)]
    wait(client.map(read, durations, key="read", pure=False))


@modelled
def narrowing(client, *, items: int = 40, few: int = 2, rounds: int = 1):
    """Many tasks, then a few that need all of them, and so on."""
    needed: list[Any] = []
    for round in range(rounds):
        loads = client.map(step, [1.0] * items, [needed] * items, key=f"load-{round}", pure=False)
        needed = client.map(step, [5.0] * few, [loads] * few, key=f"train-{round}", pure=False)
    wait(needed)


# ------------------------------------------------------------------ the same again


@modelled
def again(client, *, items: int = 40, load: float = 1.0, use: float = 0.2, rounds: int = 4, form: str = "delayed"):
    """Several computations from the same loaded data; `persisted` keeps the data, `one_go` computes all at once."""
    one = dask.delayed(step, pure=False)
    if form == "bag":
        import dask.bag as db

        base = db.from_sequence([load] * items, npartitions=items).map(step)
        for i in range(rounds):
            client.gather(client.compute(base.map(lambda _, i: step(use, i), i), optimize_graph=False))
        return
    loaded: list[Any] = [one(load) for _ in range(items)]  # keys of Dask: those of the user may stand for other work
    if form == "persisted":
        loaded = list(client.persist(loaded))
    turns = [
        [one(use, value, dask_key_name=f"use{turn}-{i}") for i, value in enumerate(loaded)] for turn in range(rounds)
    ]
    for uses in [list(itertools.chain.from_iterable(turns))] if form == "one_go" else turns:
        client.gather(client.compute(uses, optimize_graph=False))


# ------------------------------------------------------------------ failures


@modelled
def raises(client, *, items: int = 40, seconds: float = 1.0, bad: int = 7, how: str = "task"):
    """A task that raises, a client that raises, or tasks that raise once and are tried again."""

    def fragile(index: int, seconds: float, seen: dict[str, int] | None = None) -> int:
        time.sleep(seconds)
        if how == "task" and index == bad:
            raise ValueError(f"item {index} has no header")
        if how == "retried" and index % bad == 0 and not _was_here(f"fragile-{index}"):
            raise OSError(f"item {index}: connection reset")
        return index

    futures = client.map(
        fragile, range(items), seconds=seconds, key="fragile", pure=False, retries=2 * (how == "retried")
    )
    if how == "client":
        wait(futures)
        raise RuntimeError("the output folder is not writable")
    client.gather(futures)


def _was_here(name: str) -> bool:
    """Whether this was asked for `name` before, on any worker of this cluster."""
    from distributed import Event

    event = Event(name)
    before = bool(event.is_set())
    event.set()
    return before


@modelled
def nothing(client) -> int:
    time.sleep(1.0)
    return sum(range(1000))


async def _remove(dask_scheduler: Any, count: int, graceful: bool):
    """Have workers leave, the last ones: retired, or gone from one moment to the next."""
    addresses = sorted(dask_scheduler.workers)[-count:]
    if graceful:
        await dask_scheduler.retire_workers(workers=addresses, close_workers=True, remove=True)
        return
    for address in addresses:
        await dask_scheduler.remove_worker(address, stimulus_id=f"lost-{address}", expected=False, close=True)


async def _add(dask_scheduler: Any, count: int, nthreads: int):
    """Have workers join a simulated cluster."""
    from scalescope.clusters.simulated.bookkeeping import SimulatedWorker
    from scalescope.clusters.simulated.clock import CLOCK
    from scalescope.clusters.simulated.executor import VirtualThreadPoolExecutor

    for i in range(count):
        pools = {"default": VirtualThreadPoolExecutor(CLOCK, nthreads), "actor": VirtualThreadPoolExecutor(CLOCK, 1)}
        await SimulatedWorker(
            dask_scheduler.address, name=1_000_000 + i, nthreads=nthreads, memory_limit=0, executor=pools
        )


@modelled
def workers_leave(client, *, items: int = 100, leave: int = 4, graceful: bool = False, back: float = -1.0):
    """Workers leave 1.5 s after the start; `back` seconds later as many join, unless it is negative."""
    futures = client.map(step, [1.0] * items, key="item", pure=False)
    time.sleep(1.5)
    client.run_on_scheduler(_remove, count=leave, graceful=graceful)
    if back >= 0:
        time.sleep(back)
        client.run_on_scheduler(_add, count=leave, nthreads=1)
    wait(futures)


# ------------------------------------------------------------------ for real processes


def spin(seconds: float, *inputs: object) -> float:
    """Compute in Python, without releasing the interpreter lock, for so many seconds of this thread's CPU time."""
    end, count = time.thread_time() + seconds, 0
    while time.thread_time() < end:
        for i in range(500):
            count += i
    return float(count)


def number_crunch(seconds: float, *inputs: object) -> float:
    """Compute in numpy, which releases the interpreter lock, for so many seconds of this thread's CPU time."""
    import numpy as np

    values = np.linspace(0.0, 1.0, 200_000)
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        values = np.sin(values) + 1.0
    return float(values.sum())


def computing(client, *, items: int = 16, seconds: float = 0.3, how: str = "numpy"):
    """Tasks that compute: in numpy (`numpy`) or in Python (`python`)."""
    compute = spin if how == "python" else number_crunch
    wait(client.map(compute, [seconds] * items, key="compute", pure=False))


def make_array(mebibytes: int, index: int, seconds: float = 0.0) -> Any:
    """Random bytes, which do not compress: they repeat after a mebibyte."""
    import numpy as np

    spin(seconds)
    return np.tile(np.frombuffer(random.Random(index).randbytes(2**20), dtype=np.uint8), mebibytes)


def use_arrays(seconds: float, *arrays: Any) -> int:
    spin(seconds)
    return sum(int(array[0]) for array in arrays)


def exchange(
    client, *, items: int = 8, mebibytes: int = 32, seconds: float = 0.01, rounds: int = 1, across: bool = True
):
    """Tasks that take arrays from the other workers (`across`), or only one that is on theirs."""
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    count = len(addresses)
    places = [addresses[i % count] for i in range(items)]
    for turn in range(rounds):
        made = [
            client.submit(make_array, mebibytes, i, key=f"make{turn}-{i}", workers=place)
            for i, place in enumerate(places)
        ]
        wait(made)
        shifts = range(1, count) if across else range(1)
        inputs = [[made[(i + k) % items] for k in shifts] for i in range(items)]
        used = [
            client.submit(use_arrays, seconds, *arrays, key=f"use{turn}-{i}", workers=place)
            for i, (arrays, place) in enumerate(zip(inputs, places, strict=True))
        ]
        wait(used)


class Parcel:
    """Many small Python objects, which take long to unpack."""

    def __init__(self, objects: int):
        self.content = {f"name-{i}": (i, str(i), [i, i + 1]) for i in range(objects)}


def unpack(parcel: Parcel, seconds: float) -> int:
    spin(seconds)
    return len(parcel.content)


def with_parcels(client, *, items: int = 12, objects: int = 60_000):
    """Tasks that carry their data within them, instead of as a result of another task."""
    task = dask.delayed(unpack, pure=False)
    parcel = Parcel(objects)
    tasks = [task(parcel, 0.02, dask_key_name=f"unpack-{i}") for i in range(items)]
    client.gather(client.compute(tasks, optimize_graph=False))


def make_parcel(objects: int, index: int) -> Parcel:
    return Parcel(objects + index)


def exchanged_parcels(client, *, objects: int = 60_000, rounds: int = 3):
    """Results of many small objects, each used on every other worker."""
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    count = len(addresses)
    for turn in range(rounds):
        made = [
            client.submit(make_parcel, objects, i, key=f"make{turn}-{i}", workers=[addresses[i % count]])
            for i in range(6)
        ]
        wait(made)
        futures = [
            client.submit(unpack, parcel, 0.02, key=f"unpack{turn}-{i}-{k}", workers=[addresses[(i + k) % count]])
            for i, parcel in enumerate(made)
            for k in range(1, count)
        ]
        wait(futures)


def large_graph(
    client, *, tasks: int = 8, mebibytes: int = 8, seconds: float = 0.1, rounds: int = 1, how: str = "constants"
):
    """Graphs with large constants in them: arrays, or many small `objects`."""
    one = dask.delayed(use_arrays, pure=False)
    for turn in range(rounds):
        if how == "constants":
            arrays = [make_array(mebibytes, turn * tasks + i) for i in range(tasks)]
            graph = [one(seconds, array, dask_key_name=f"use{turn}-{i}") for i, array in enumerate(arrays)]
        else:
            row = {f"{turn} {j}": [j, str(j)] for j in range(mebibytes * 4_000)}
            rows = [dict(row) for i in range(tasks)]
            small = dask.delayed(lambda seconds, row: spin(seconds), pure=False)
            held = [dask.delayed(row, name=f"row{turn}-{i}", traverse=False) for i, row in enumerate(rows)]
            graph = [small(seconds, row, dask_key_name=f"use{turn}-{i}") for i, row in enumerate(held)]
        client.gather(client.compute(graph, optimize_graph=False))


def hold(mebibytes: int, seconds: float, index: int) -> bytes:
    spin(seconds)
    return random.Random(index).randbytes(2**20) * mebibytes


def measure_length(data: bytes) -> int:
    return len(data)


def memory(client, *, items: int = 24, mebibytes: int = 30, seconds: float = 0.02, passes: int = 2):
    """Results that are kept, and read again in several passes."""
    kept = client.map(hold, [mebibytes] * items, [seconds] * items, range(items), key="hold", pure=False)
    wait(kept)
    for turn in range(passes):
        wait(client.map(measure_length, kept, key=f"measure{turn}", pure=False))


def hoarding(client, *, items: int = 20, mebibytes: int = 400):
    """Tasks of which the first on each worker allocates memory outside Dask's view, and frees it seconds later."""

    def task(index: int) -> int:
        import __main__ as process  # one per worker process

        if not hasattr(process, "hoard"):
            process.hoard = [b"\1" * (mebibytes * 2**20)]  # type: ignore[attr-defined]
            threading.Timer(4.0, process.hoard.clear).start()  # type: ignore[attr-defined]
        time.sleep(0.1)
        return index

    wait(client.map(task, range(items), key="item", pure=False))


def worker_killing(client, *, how: str = "exit"):
    """One task ends the process that runs it, each time."""

    def task(index: int) -> int:
        if index == 5:
            spin(0.1)
            if how == "segv":
                os.kill(os.getpid(), signal.SIGSEGV)
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(3)
        spin(0.2)
        return index

    client.gather(client.map(task, range(20), key="item", pure=False))


def killed_workers(client):
    """Somebody ends a worker process while it works."""
    pid = next(iter(client.run(os.getpid).values()))
    futures = client.map(spin, [0.2] * 20, key="item", pure=False)
    time.sleep(0.7)
    os.kill(pid, signal.SIGKILL)
    client.gather(futures)


def blocked_loops(client, *, items: int = 60, stall: float = 0.8, stalls: int = 4, where: str = "scheduler"):
    """Something blocks the event loop of the scheduler, or of the workers, again and again."""
    futures = client.map(spin, [0.05] * items, key="item", pure=False)

    def trouble():
        for _ in range(stalls):
            time.sleep(0.1)
            if where == "scheduler":
                client.run_on_scheduler(time.sleep, stall)
            else:
                client.run(time.sleep, stall)

    thread = threading.Thread(target=trouble)
    thread.start()
    wait(futures)
    thread.join()


def beside_others(client, *, items: int = 16, others: int = 8, last: float = 8.0):
    """Other people's processes use the host meanwhile."""
    burn = f"import time; end = time.monotonic() + {last}\nwhile time.monotonic() < end: pass"
    # Through a process that ends at once, so that these are not the driver's own.
    start = f"import subprocess, sys\nfor _ in range({others}): subprocess.Popen([sys.executable, '-c', {burn!r}])"
    subprocess.run([sys.executable, "-c", start], check=True)
    wait(client.map(spin, [0.3] * items, key="item", pure=False))


def lasting(client, *, seconds: float = 10.0):
    client.submit(time.sleep, seconds).result()
