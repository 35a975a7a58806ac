"""What recording a trial costs the scheduler, and whether it loses anything.

    python tests/benchmarks/bench_recorder.py [--tasks 10000] [--pairs 40] [--json]

One real scheduler process, one process of workers, and this process as the client, over tcp on loopback. The workers
are real `distributed.Worker`s in all but one thing: they answer each task at once instead of running it. A task's
messages are those of a real worker. Batches of independent tasks are submitted by `Client.map`, waited for, released.

With Dask's default `worker-saturation` a task costs this scheduler 0.4 to 0.8 ms of CPU, as with workers that work.
With `--saturation inf` all tasks are given out at once, which costs half as much: a million tasks take minutes on two
cores, and the ratios are upper bounds.

Each round runs every mode once on the same scheduler, in an order drawn anew: nothing, twice; `Capture.trial`, of a
`Capture` that is installed before and removed after it; looks as `scalescope watch` takes them, but 20 times as often,
since what these cost is less than equal halves differ by: divide what they add by 20; `Client.get_task_stream`;
`Client.performance_report` (up to 100,000 tasks). Ratios are those of a mode to nothing in the same round, of which
there are two measurements: to their mean, which varies less than either. Many short rounds say more than a few long
ones, but what a trial costs once weighs more in them. That is told apart, by trials without a task: beginning, ending,
and asking every worker for its memory, which is 0.1 to 0.2 ms for each. Before each, the scheduler collects its garbage
and freezes the rest: what earlier batches left grows, and the moment of a full collection (0.2 to 0.5 s) would be
chance. CPU is that of the scheduler process, from before the first batch to the end of the last, and until the records
have been collected; wall is the client's over the batches. The interval is that of order statistics with at least 95 %
confidence, or the whole range of too few rounds. The client decodes and writes records while the batches run, on the
same two cores.

`--instructions` counts those of the scheduler process by valgrind's callgrind instead of its seconds: the same on a
busy host, to within 1 %, but without the kernel's part and without what caches cost. The process is some 40 times as
slow then, so what happens by the clock (draining, looks at the event loop, heartbeats) is made as much rarer.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import math
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import dask
import distributed
from distributed import Client, Scheduler, Worker, protocol
from distributed.diagnostics.plugin import SchedulerPlugin

from scalescope.capture import recorder
from scalescope.capture.live.remote_calls import DirectCalls
from scalescope.capture.recording import DRAIN_INTERVAL_S, Capture
from scalescope.model import spool
from scalescope.run import cluster_watch
from scalescope.run.cluster_watch import ClusterWatch

BATCH = 10_000
OFTENER = 20
SLOWER = 40
"""How many times as long a process takes under callgrind."""
STILL = {"distributed.admin.tick.interval": "1h", "distributed.admin.system-monitor.interval": "1h"}
"""What happens by the clock on a scheduler beside all that."""
SAME = 0.01
"""How far two equal halves of a pair may differ, all in all, for the other ratios to mean anything."""
REPORT_TASKS = 100_000
"""Beyond this Dask's performance report shows only the newest tasks, and blocks the scheduler for a minute."""

_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.diagnostics.computations.max-history": 1,  # 100 graphs that it remembers would slow it down by and by
    "distributed.scheduler.dashboard.tasks.task-stream-length": REPORT_TASKS,
}
_INT = pickle.dumps(int)


class InstantWorker(Worker):  # type: ignore[misc]
    """Answers every task at once, as a worker would that has just run it in no time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stream_handlers["compute-task"] = self.answer

    def answer(self, *, key: Any, stimulus_id: str, run_id: int = 0, **task: Any) -> None:
        """Tell the scheduler that the task has finished."""
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
    """Of one mode in one round.

    Scheduler CPU, in all and while the batches run, and wall, in seconds; bytes; tasks that are not there.
    """

    cpu_s: float
    running_cpu_s: float
    wall_s: float
    wire_bytes: int = 0
    spool_bytes: int = 0
    missing: int = 0


class Nothing:
    """No recording."""

    name = "nothing"

    @contextmanager
    def installed(self, client: Client) -> Iterator[None]:
        """What is done once for many trials, and not measured."""
        yield

    @contextmanager
    def recording(self, client: Client) -> Iterator[None]:
        """Hold while the batches run; what follows the `yield` is the collection of records."""
        yield

    def result(self, tasks: int) -> tuple[int, int, int]:
        """Bytes on the wire, bytes in the spool, tasks missing."""
        return 0, 0, 0


class Again(Nothing):
    """No recording either: what two equal halves of a pair differ by, in the same minutes."""

    name = "nothing again"


class Told(SchedulerPlugin):  # type: ignore[misc]
    """Is told of every transition, and does nothing."""

    name = "told"

    def transition(self, key: Any, start: str, finish: str, /, **details: Any) -> None:
        """Six times a task."""


class Empty(Nothing):
    """What a plugin costs that is told of transitions and looks at nothing."""

    name = "empty plugin"

    @contextmanager
    def recording(self, client: Client) -> Iterator[None]:
        """Be told."""
        client.register_plugin(Told())
        try:
            yield
        finally:
            client.unregister_scheduler_plugin(Told.name)


class Recorder(Nothing):
    """This package; what it does by the clock, so many times rarer."""

    name = "recorder"

    def __init__(self, folder: Path, rarer: int = 1) -> None:
        self.path = folder / "trial.spool"
        self.rarer = rarer

    @contextmanager
    def installed(self, client: Client) -> Iterator[None]:
        """Have the plugins on scheduler and workers."""
        with patch.object(recorder, "LAG_INTERVAL_S", self.rarer * recorder.LAG_INTERVAL_S):
            self.capture = Capture(client, drain_interval_s=self.rarer * DRAIN_INTERVAL_S)
        try:
            yield
        finally:
            self.capture.close()

    @contextmanager
    def recording(self, client: Client) -> Iterator[None]:
        """Record, drain, check."""
        with self.capture.trial(self.path) as self.trial:
            yield

    def result(self, tasks: int) -> tuple[int, int, int]:
        """Count distinct keys in the file."""
        if not self.trial.complete:
            raise SystemExit(f"the record is not complete: {self.trial.reason}")
        keys = len(set(spool.read(self.path).get("tasks", {"key": []})["key"]))
        return self.trial.received_bytes, self.path.stat().st_size, tasks - keys


class Watched(Nothing):
    """Looks from outside, as `scalescope watch` takes them, and oftener; on a slow clock so many times rarer."""

    name = f"watch x{OFTENER}"

    def __init__(self, rarer: int = 1) -> None:
        self.interval_s, self.call_s = rarer * cluster_watch.INTERVAL_S / OFTENER, rarer * cluster_watch.CALL_S

    @contextmanager
    def recording(self, client: Client) -> Iterator[None]:
        """Look at once, and again and again."""
        over = threading.Event()

        def follow() -> None:
            with DirectCalls(client.scheduler.address) as asker:
                seen = ClusterWatch(asker)
                while not over.wait(self.interval_s):
                    seen.look()

        thread = threading.Thread(target=follow)
        with patch.object(cluster_watch, "CALL_S", self.call_s):
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()


class TaskStream(Nothing):
    """Dask's own stream of tasks, which keeps the newest 100,000."""

    name = "get_task_stream"

    @contextmanager
    def recording(self, client: Client) -> Iterator[None]:
        """Attach, and fetch everything at the end."""
        client.get_task_stream(start=0, stop=0)
        try:
            yield
            self.stream = client.get_task_stream(start=0)
        finally:
            client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.remove_plugin(name="task-stream"))

    def result(self, tasks: int) -> tuple[int, int, int]:
        """Count distinct keys."""
        wire = sum(len(frame) for frame in protocol.dumps(self.stream))
        return wire, 0, tasks - len({entry["key"] for entry in self.stream})


class Report(Nothing):
    """Dask's own performance report."""

    name = "performance_report"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "report.html"

    @contextmanager
    def recording(self, client: Client) -> Iterator[None]:
        """As its documentation has it."""
        try:
            with distributed.performance_report(filename=str(self.path)):
                yield
        finally:
            client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.remove_plugin(name="task-stream"))

    def result(self, tasks: int) -> tuple[int, int, int]:
        """Its size; it does not say what is in it."""
        return self.path.stat().st_size, 0, 0


def run_tasks(client: Client, tasks: int) -> None:
    """Submit, wait for and release tasks, in batches."""
    for begin in range(0, tasks, BATCH):
        futures = client.map(abs, range(begin, min(begin + BATCH, tasks)), pure=False)
        distributed.wait(futures)
        del futures


def run_mode(client: Client, mode: Nothing, tasks: int) -> Cost:
    """One mode once."""
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
    """CPU seconds that the scheduler process has used, once it has forgotten all tasks of the batches before."""
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


def summarise(costs: dict[str, list[Cost]], tasks: int) -> list[dict[str, Any]]:
    """Median ratios to nothing in the same round: to the mean of both its measurements; of its second, to its first."""
    rows = []
    first, second = costs[Nothing.name], costs[Again.name]
    for name, measured in costs.items():
        row: dict[str, Any] = {"mode": name, "tasks": tasks, "rounds": len(measured)}
        for quantity in ("cpu_s", "running_cpu_s", "wall_s"):
            plain = [getattr(cost, quantity) for cost in first]
            if name not in (Nothing.name, Again.name):
                again = [getattr(cost, quantity) for cost in second]
                plain = [(one + other) / 2 for one, other in zip(plain, again, strict=True)]
            pairs = list(zip([getattr(cost, quantity) for cost in measured], plain, strict=True))
            ratios = [cost / plain for cost, plain in pairs]
            label = quantity.removesuffix("_s")
            row[f"{label}_us_per_task"] = median(cost for cost, _ in pairs) / tasks * 1e6
            row[f"{label}_ratio"] = median(ratios)
            row[f"{label}_ratio_interval"] = interval(ratios)
            row[f"{label}_extra_us_per_task"] = median(cost - plain for cost, plain in pairs) / tasks * 1e6
        row["wire_bytes_per_task"] = median(cost.wire_bytes for cost in measured) / tasks
        row["spool_bytes_per_task"] = median(cost.spool_bytes for cost in measured) / tasks
        row["missing"] = sum(cost.missing for cost in measured)
        rows.append(row)
    return rows


def show(rows: list[dict[str, Any]]) -> str:
    """A Markdown table."""
    lines = [
        "| mode | scheduler CPU us/task | CPU ratio, run | CPU ratio, all | wall ratio | wire B/task | spool B/task "
        "| tasks missing |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        ratios = []
        for label in ("running_cpu", "cpu", "wall"):
            low, high = row[f"{label}_ratio_interval"]
            ratios.append(f"{row[f'{label}_ratio']:.3f} ({low:.3f} to {high:.3f})")
        lines.append(
            f"| {row['mode']} | {row['cpu_us_per_task']:.0f} | {' | '.join(ratios)} |"
            f" {row['wire_bytes_per_task']:.0f} | {row['spool_bytes_per_task']:.0f} |"
            f" {row['missing']:,} of {row['tasks'] * row['rounds']:,} |"
        )
    return "\n".join(lines)


@contextmanager
def role(name: str, saturation: float, *arguments: str, under: Sequence[str] = ()) -> Iterator[str]:
    """Run this file as another process, perhaps under a program; gives the first line that it prints."""
    command = [*under, sys.executable, __file__, "--role", name, "--saturation", str(saturation), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def serve_scheduler() -> None:
    """The scheduler process; ends with its standard input."""
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
        print(scheduler.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def serve_workers(address: str, count: int, *, still: bool) -> None:
    """The process of the workers, perhaps without heartbeats; ends with its standard input."""
    gc.disable()  # what 64 workers remember grows, and with it the time in which the scheduler has nothing to do
    where = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    workers = [InstantWorker(address, nthreads=1, **where) for _ in range(count)]
    await asyncio.gather(*workers)
    for callback in [each for worker in workers for each in worker.periodic_callbacks.values()] if still else ():
        callback.stop()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def bench(
    tasks: int, pairs: int, workers: int, saturation: float, only: Sequence[str], tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Run all rounds."""
    with (
        tempfile.TemporaryDirectory() as name,
        role("scheduler", saturation) as address,
        role("workers", saturation, "--scheduler", address, "--workers", str(workers)) as ready,
        Client(address) as client,
    ):
        assert ready == "ready"
        folder = Path(name)
        modes = [
            Nothing(),
            Again(),
            Recorder(folder),
            Watched(),
            TaskStream(),
            *([Report(folder)] if tasks <= REPORT_TASKS else []),
        ]
        modes = [mode for mode in modes if mode.name.startswith("nothing") or not only or mode.name in only]
        run_tasks(client, min(tasks, BATCH))  # warm up
        costs: dict[str, list[Cost]] = {mode.name: [] for mode in modes}
        order = random.Random(0)
        for number in range(pairs):
            for mode in order.sample(modes, len(modes)):
                cost = run_mode(client, mode, tasks)
                costs[mode.name].append(cost)
                tell(f"round {number + 1} of {pairs}, {mode.name}: CPU {cost.cpu_s:.2f} s, wall {cost.wall_s:.2f} s")
        rows = summarise(costs, tasks)
        if Recorder.name in costs:
            once = [
                run_mode(client, Recorder(folder), 0).cpu_s - run_mode(client, Nothing(), 0).cpu_s for _ in range(15)
            ]
            (row,) = [row for row in rows if row["mode"] == Recorder.name]
            row["cpu_once_ms"] = 1000 * median(once)
            tell(f"a trial costs the scheduler {row['cpu_once_ms']:.1f} ms besides, with {workers} workers")
        return rows


class Instructions:
    """Those of a process under callgrind: each call returns how many since the call before."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid, self._folder, self._calls = pid, folder, 0

    def __call__(self) -> int:
        self._calls += 1
        subprocess.run(["callgrind_control", "--dump", str(self._pid)], check=True, capture_output=True)
        path = self._folder / f"callgrind.{self._calls}"
        while not (path.exists() and (found := re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE))):
            time.sleep(0.05)
        return int(found[1])


def count(tasks: int, pairs: int, workers: int, saturation: float, tell: Callable[[str], None]) -> bool:
    """Print instructions per task, and ratios; whether nothing beside nothing is the same."""
    with (
        tempfile.TemporaryDirectory() as name,
        dask.config.set({"distributed.comm.timeouts.connect": "120s", "distributed.comm.timeouts.tcp": "300s"}),
        role(
            "scheduler",
            saturation,
            "--still",
            under=["valgrind", "--tool=callgrind", f"--callgrind-out-file={name}/callgrind", f"--log-file={name}/log"],
        ) as address,
        role("workers", saturation, "--still", "--scheduler", address, "--workers", str(workers)) as ready,
        Client(address) as client,
    ):
        assert ready == "ready"
        counted = Instructions(client.run_on_scheduler(os.getpid), Path(name))
        run_tasks(client, min(tasks, BATCH))  # warm up
        found: dict[str, list[tuple[float, float]]] = {}
        for number in range(pairs):
            for mode in (Nothing(), Recorder(Path(name), SLOWER), Empty(), Watched(SLOWER), Again()):
                with mode.installed(client):
                    scheduler_cpu(client)
                    client.run_on_scheduler(settle)
                    counted()
                    with mode.recording(client):
                        run_tasks(client, tasks)
                        running = counted()
                    scheduler_cpu(client)
                    found.setdefault(mode.name, []).append((running / tasks, (running + counted()) / tasks))
                tell(f"round {number + 1} of {pairs}, {mode.name}: {running / tasks:,.0f} a task while they run")
    print("| mode | instructions a task | ratio, run | ratio, all |\n| --- | --- | --- | --- |")
    ratios = {}
    for called, each in found.items():
        ratios[called] = [median(a[i] / b[i] for a, b in zip(each, found["nothing"], strict=True)) for i in (0, 1)]
        print(f"| {called} | {median(a[1] for a in each):,.0f} | {ratios[called][0]:.3f} | {ratios[called][1]:.3f} |")
    return abs(ratios["nothing again"][0] - 1) <= SAME


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000, help="of each mode in each round")
    parser.add_argument("--pairs", type=int, default=40, help="rounds")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--saturation", type=float, default=1.1, help="`worker-saturation` of the scheduler")
    parser.add_argument("--only", nargs="*", default=[], help="modes besides `nothing`")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument(
        "--instructions", action="store_true", help="count them by valgrind (try --pairs 3 --workers 16)"
    )
    parser.add_argument("--still", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--role", choices=["scheduler", "workers"], help=argparse.SUPPRESS)
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    options = parser.parse_args()
    still = STILL if options.still else {}
    dask.config.set({**_QUIET, **still, "distributed.scheduler.worker-saturation": options.saturation})
    logging.getLogger("distributed").setLevel(logging.ERROR)
    if options.role == "scheduler":
        asyncio.run(serve_scheduler())
    elif options.role == "workers":
        asyncio.run(serve_workers(options.scheduler, options.workers, still=options.still))
    else:
        tell = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
        if options.instructions:
            sys.exit(not count(options.tasks, options.pairs, options.workers, options.saturation, tell))
        rows = bench(options.tasks, options.pairs, options.workers, options.saturation, options.only, tell)
        print(json.dumps(rows, indent=2) if options.json else show(rows))
        if abs((ratio := rows[1]["running_cpu_ratio"]) - 1) > SAME:
            sys.exit(f"no figure to rely on: nothing beside nothing is {ratio:.3f}; take a quieter host, or more pairs")


if __name__ == "__main__":
    main()
