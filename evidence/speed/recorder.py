"""What recording a trial costs the scheduler, and whether it loses anything.

    python -m evidence recorder [--tasks 10000] [--pairs 40]

One real scheduler process, one process of workers, and this process as the client, over tcp on loopback. The workers
are real `distributed.Worker`s, except that they answer each task at once. Batches of independent tasks are submitted by
`Client.map`, waited for and released. With `--saturation inf` all tasks are given out at once, which halves the
scheduler's own cost: ratios are upper bounds then.

Each round runs every mode once on the same scheduler, in an order drawn anew: nothing, twice; `Capture.trial`; looks as
`scalescope watch` takes them, but 20 times as often (divide what they add by 20). Ratios are to the mean of both
measurements of nothing in the same round. CPU is that of the scheduler until the records have been collected; wall is
the client's over the batches. What a trial costs once is told apart, by trials without a task.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import math
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import dask
import distributed
from distributed import Client, Scheduler, Worker

from evidence.speed.trials import table
from scalescope.capture.live.remote_calls import DirectCalls
from scalescope.capture.recording import Capture
from scalescope.model import spool
from scalescope.own_code.cluster_watch import INTERVAL_S, ClusterWatch

NOTHING, AGAIN = "nothing", "nothing again"
BATCH = 10_000
OFTENER = 20
SAME = 0.01  # how far two equal halves of a pair may differ for the other ratios to mean anything

_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.diagnostics.computations.max-history": 1,  # 100 remembered graphs would slow it down
}
_INT = pickle.dumps(int)


class InstantWorker(Worker):  # type: ignore[misc]
    """Answers every task at once, as a worker would that has just run it in no time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stream_handlers["compute-task"] = self.answer

    def answer(self, *, key: Any, stimulus_id: str, run_id: int = 0, **task: Any) -> None:
        now = time.time()
        message = {
            "op": "task-finished",
            "status": "OK",
            "key": key,
            "run_id": run_id,
            "nbytes": 28,
            "type": _INT,
            "typename": "int",
            "metadata": {},
            "thread": 140_000_000_000,
            "startstops": [{"action": "compute", "start": now, "stop": time.time()}],
            "stimulus_id": f"task-finished-{now}",
        }
        self.batched_stream.send(message)


@dataclass(frozen=True)
class Cost:
    """What one mode took in one round."""

    cpu_s: float  # of the scheduler
    running_cpu_s: float  # while the batches run
    wall_s: float
    wire_bytes: int = 0
    spool_bytes: int = 0
    missing: int = 0


class Nothing:
    """No recording. What `installed` does is not measured; what `recording` does after its `yield` collects records."""

    name = NOTHING

    @contextmanager
    def installed(self, client: Client) -> Iterator[None]:
        yield

    @contextmanager
    def recording(self, client: Client) -> Iterator[None]:
        yield

    def result(self, tasks: int) -> tuple[int, int, int]:  # bytes on the wire and in the spool, tasks missing
        return 0, 0, 0


class Again(Nothing):
    """No recording either: the noise of the same minutes."""

    name = AGAIN


class Recorder(Nothing):
    """This package."""

    name = "recorder"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "trial.spool"

    @contextmanager
    def installed(self, client: Client) -> Iterator[None]:
        self.capture = Capture(client)
        try:
            yield
        finally:
            self.capture.close()

    @contextmanager
    def recording(self, client: Client) -> Iterator[None]:
        with self.capture.trial(self.path) as self.trial:
            yield

    def result(self, tasks: int) -> tuple[int, int, int]:
        if not self.trial.complete:
            raise SystemExit(f"the record is not complete: {self.trial.reason}")
        keys = len(set(spool.read(self.path).get("tasks", {"key": []})["key"]))
        return self.trial.received_bytes, self.path.stat().st_size, tasks - keys


class Watched(Nothing):
    """Looks from outside, as `scalescope watch` takes them, and oftener."""

    name = f"watch x{OFTENER}"

    @contextmanager
    def recording(self, client: Client) -> Iterator[None]:
        over = threading.Event()

        def follow() -> None:
            with DirectCalls(client.scheduler.address) as asker:
                seen = ClusterWatch(asker)
                while not over.wait(INTERVAL_S / OFTENER):
                    seen.look()

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def run_tasks(client: Client, tasks: int) -> None:
    for begin in range(0, tasks, BATCH):
        futures = client.map(abs, range(begin, min(begin + BATCH, tasks)), pure=False)
        distributed.wait(futures)
        del futures


def run_mode(client: Client, mode: Nothing, tasks: int) -> Cost:
    with mode.installed(client):
        scheduler_cpu(client)
        client.run_on_scheduler(settle)
        cpu = scheduler_cpu(client)
        began = time.perf_counter()
        with mode.recording(client):
            run_tasks(client, tasks)
            wall_s = time.perf_counter() - began
            running_cpu_s = client.run_on_scheduler(time.process_time) - cpu
        cpu_s = scheduler_cpu(client) - cpu
    wire, spooled, missing = mode.result(tasks)
    return Cost(cpu_s, running_cpu_s, wall_s, wire, spooled, missing)


def settle() -> None:
    """Have the garbage collector start from nothing: one full collection more costs as much as all that is measured."""
    gc.collect()
    gc.freeze()


def scheduler_cpu(client: Client) -> float:
    while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
        time.sleep(0.05)
    return float(client.run_on_scheduler(time.process_time))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Order statistics around the median with at least 95 % confidence (sign test), or the range of too few values."""
    ordered, n = sorted(values), len(values)
    rank = 0
    while rank + 1 < n / 2 and 2 * sum(math.comb(n, i) for i in range(rank + 2)) / 2**n <= 0.05:
        rank += 1
    return ordered[rank], ordered[-1 - rank]


def ratios(costs: dict[str, list[Cost]], name: str, quantity: str) -> list[float]:
    """To nothing in the same round: to the mean of both its measurements; of its second, to its first."""
    measured, first, second = ([getattr(cost, quantity) for cost in costs[each]] for each in (name, NOTHING, AGAIN))
    plain = first
    if name not in (NOTHING, AGAIN):
        plain = [(one + other) / 2 for one, other in zip(first, second, strict=True)]
    return [cost / without for cost, without in zip(measured, plain, strict=True)]


def shown(costs: dict[str, list[Cost]], tasks: int) -> str:
    rows = []
    for name, measured in costs.items():
        cells = []
        for quantity in ("running_cpu_s", "cpu_s", "wall_s"):
            found = ratios(costs, name, quantity)
            cells.append("{:.3f} ({:.3f} to {:.3f})".format(median(found), *interval(found)))
        per_task = [median(getattr(cost, each) for cost in measured) / tasks for each in ("wire_bytes", "spool_bytes")]
        missing = f"{sum(cost.missing for cost in measured):,} of {tasks * len(measured):,}"
        cpu_us = 1e6 * median(cost.cpu_s for cost in measured) / tasks
        rows.append([name, f"{cpu_us:.0f}", *cells, *(f"{each:.0f}" for each in per_task), missing])
    head = ("mode", "scheduler CPU us/task", "CPU ratio, run", "CPU ratio, all", "wall ratio", "wire B/task")
    return table([*head, "spool B/task", "tasks missing"], rows)


@contextmanager
def role(name: str, saturation: float, *arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", "evidence", "recorder", "--role", name]
    command += ["--saturation", str(saturation), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def serve_scheduler() -> None:
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
        print(scheduler.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def serve_workers(address: str, count: int) -> None:
    gc.disable()  # what 64 workers remember grows, and with it the time in which the scheduler has nothing to do
    where = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    workers = [InstantWorker(address, nthreads=1, **where) for _ in range(count)]
    await asyncio.gather(*workers)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def bench(tasks: int, pairs: int, workers: int, saturation: float, only: Sequence[str]) -> dict[str, list[Cost]]:
    with (
        tempfile.TemporaryDirectory() as name,
        role("scheduler", saturation) as address,
        role("workers", saturation, "--scheduler", address, "--workers", str(workers)) as ready,
        Client(address) as client,
    ):
        assert ready == "ready"
        folder = Path(name)
        modes = [Nothing(), Again(), Recorder(folder), Watched()]
        modes = [mode for mode in modes if mode.name in (NOTHING, AGAIN, *only) or not only]
        run_tasks(client, min(tasks, BATCH))  # warm up
        costs: dict[str, list[Cost]] = {mode.name: [] for mode in modes}
        order = random.Random(0)
        for number in range(pairs):
            for mode in order.sample(modes, len(modes)):
                cost = run_mode(client, mode, tasks)
                costs[mode.name].append(cost)
                tell(f"round {number + 1} of {pairs}, {mode.name}: CPU {cost.cpu_s:.2f} s, wall {cost.wall_s:.2f} s")
        if Recorder.name in costs:
            once = [
                run_mode(client, Recorder(folder), 0).cpu_s - run_mode(client, Nothing(), 0).cpu_s for _ in range(15)
            ]
            tell(f"a trial costs the scheduler {1000 * median(once):.1f} ms besides, with {workers} workers")
        return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000, help="of each mode in each round")
    parser.add_argument("--pairs", type=int, default=40, help="rounds")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--saturation", type=float, default=1.1, help="`worker-saturation` of the scheduler")
    parser.add_argument("--only", nargs="*", default=[], help="modes besides `nothing`")
    parser.add_argument("--role", choices=["scheduler", "workers"], help=argparse.SUPPRESS)
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    options = parser.parse_args()
    dask.config.set({**_QUIET, "distributed.scheduler.worker-saturation": options.saturation})
    logging.getLogger("distributed").setLevel(logging.ERROR)
    if options.role == "scheduler":
        asyncio.run(serve_scheduler())
    elif options.role == "workers":
        asyncio.run(serve_workers(options.scheduler, options.workers))
    else:
        costs = bench(options.tasks, options.pairs, options.workers, options.saturation, options.only)
        print(shown(costs, options.tasks))
        if abs((ratio := median(ratios(costs, AGAIN, "running_cpu_s"))) - 1) > SAME:
            sys.exit(f"no figure to rely on: nothing beside nothing is {ratio:.3f}; take a quieter host, or more pairs")
