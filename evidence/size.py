"""How good the clusters are that `scalescope size` chooses, against a sweep of all of them.

    python -m evidence size [--only NAME ...] [--simulated | --processes]

Each workload runs 6 to 24 times at 12 shapes (workers x threads) on the light cluster, or with `--simulated` on the
simulated one, which a busy host does not disturb; two limits of memory make 24 configurations. Tasks sleep and their
results claim a size, so that this host does not matter. `size` sees one trial each on 4 and 8 workers of one thread,
and what it chooses is run, too. Whether results fit is told by who held them. `--processes` runs choices of four cores
in real processes with the limits that were said, and looks for spilling, pauses and deaths.
"""

from __future__ import annotations

import argparse
import heapq
import math
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from dask import delayed
from distributed import as_completed, get_worker, wait

from scalescope.workloads.replay import SizedResult

if TYPE_CHECKING:
    from distributed import Client

    from scalescope.model.trial import Trial
    from scalescope.studies.sizing.choice import Configuration, Wanted

SHAPES = [(workers, threads) for workers in (1, 2, 4, 8, 16, 32) for threads in (1, 2)]
SEEN = [(4, 1), (8, 1)]
DASK, ALL = (8, 8), (32, 2)  # workers and threads: those of LocalCluster() on 64 cores, and the most allowed
CORES, MB, TARGET, NEAR = 64, 2**20, 0.6, 1.10
REPEATS, MOST = 6, 24  # trials of each shape, as two may differ by a third; more until their median's error is 3 %
REAL = bool(os.environ.get("SCALESCOPE_EVIDENCE_REAL"))  # results are arrays, for `--processes`


def nap(seconds: float, megabytes: float = 0.0, *needs: Any) -> Any:
    kept = np.ones(int(megabytes * MB / 80)) if REAL else None  # a tenth, in real memory
    time.sleep(seconds)
    return SizedResult.of(0, int(megabytes * MB)) if kept is None else kept


def gated(seconds: float, _: int) -> None:
    """Needs what all threads of a worker share for six tenths of its time, as the interpreter lock is."""
    gate = vars(get_worker()).setdefault("gate", threading.Lock())
    with gate:
        time.sleep(0.6 * seconds)
    time.sleep(0.4 * seconds)


def shared(client: Client) -> None:
    client.gather(client.map(gated, [0.5] * 48, range(48), pure=False))


def folds(client: Client) -> None:
    data = client.submit(nap, 0.5, 200, pure=False)
    parts = client.map(nap, [0.2] * 4, [150] * 4, [data] * 4, range(4), pure=False)
    fits = [client.submit(nap, 0.3 + 0.1 * (number % 12), 40, part, number) for number in range(15) for part in parts]
    client.gather(client.map(nap, [0.1] * 15, [1] * 15, *(fits[at::4] for at in range(4)), pure=False))


def tuning(client: Client) -> None:
    ended, model = list[Any](), client.submit(nap, 0.2, 20, pure=False)
    running = as_completed(client.map(nap, [0.6] * 16, [25] * 16, [model] * 16, range(16), pure=False))
    for number, one in enumerate(running):
        ended.append(one)
        if number % 8 == 7 and number < 64:
            model = client.submit(nap, 0.5, 20, *ended[-8:])
            running.update([client.submit(nap, 0.4 + 0.1 * (at * number % 5), 25, model, at) for at in range(8)])


def branching(client: Client) -> None:
    running = as_completed([problem := client.submit(nap, 0.4, 90, pure=False)])
    known, limits, best = list[Any](), {problem.key: (0, 1)}, 60
    for one in running:
        limit, node = limits[one.key]
        best = min(best, limit) if node > 3**5 else best
        for child in (3 * node, 3 * node + 1) if node <= 3**5 else ():
            heapq.heappush(known, (limit + 2 + (5 * child * child + 3 * child) % 13, child, one))
        while known and running.count() < 20:
            limit, node, parent = heapq.heappop(known)
            if limit < best:  # The order in which tasks end decides which are tried.
                seconds = 0.14 + 0.035 * (node * 7 % 11) + (0.5 if node % 17 == 3 else 0)
                running.add(branch := client.submit(nap, seconds, 10, problem, parent, node))
                limits[branch.key] = limit, node


def backtest(client: Client) -> None:
    prices = [delayed(nap)(0.25, 70, month) for month in range(48)]
    signals = [delayed(nap)(0.3, 110, prices[month], prices[month + 1]) for month in range(47)]
    holdings = [delayed(nap)(0.1, 2)]
    for month in range(12, 47):
        window, took = signals[month - 12 : month], [0.5 + 0.1 * (month * model % 5) for model in (1, 2, 3)]
        fits = [delayed(nap)(seconds, 6, model, *window) for model, seconds in enumerate(took)]
        holdings.append(delayed(nap)(0.2, 2, holdings[-1], signals[month], *fits))
    wait(client.compute(delayed(nap)(0.4, 1, *holdings)))


def checkpoints(client: Client) -> None:
    data = client.map(nap, [0.6] * 6, [90] * 6, range(6), pure=False)
    state, scores = client.submit(nap, 0.3, 130, pure=False), list[Any]()
    for _ in range(14):
        state = client.submit(nap, 0.7, 130, state)
        scores += [client.submit(nap, 0.5 + 0.15 * at, 2, state, each) for at, each in enumerate(data)]
    client.gather(client.submit(nap, 0.2, 1, *scores))


WORKLOADS = {each.__name__: each for each in (shared, folds, tuning, backtest, checkpoints, branching)}


@dataclass
class Swept:
    """What was measured of a workload, by (workers, threads)."""

    name: str
    store: str
    cluster: dict[str, Any]
    seconds: dict[tuple[int, int], float] = field(default_factory=dict)
    needs: dict[tuple[int, int], float] = field(default_factory=dict)  # bytes of a limit with which results fit
    taken: dict[tuple[int, int], list[float]] = field(default_factory=dict)  # seconds of each trial
    spent: list[float] = field(default_factory=list)  # core-seconds of each run

    def run(self, shapes: Iterable[tuple[int, int]], repeats: int = 1, **fields: Any) -> str:
        from scalescope.run.sweep import run_sweep

        points = [{"workers": workers, "threads_per_worker": threads} for workers, threads in shapes]
        asked = {"workload": f"{os.path.abspath(__file__)}:{self.name}", "points": points}
        asked |= {"cluster": {**self.cluster, **fields}, "store": self.store, "fresh": True}
        for _ in range(repeats):  # with the same seed, a simulated trial would repeat itself
            done = run_sweep({**asked, "seed": len(self.spent)})
            self.spent.append(sum(one.point.threads * one.metrics.elapsed_s for one in done.run.trials if one.metrics))
            for trial in done.run.trials:
                if trial.counts and trial.metrics and not trial.point.has_zero_length_tasks:
                    shape = trial.point.workers, trial.point.threads_per_worker
                    self.taken.setdefault(shape, []).append(trial.metrics.elapsed_s)
                    self.needs[shape] = max(self.needs.get(shape, 0.0), held(trial, self.store) / TARGET)
        self.seconds = {shape: statistics.median(own) for shape, own in self.taken.items()}
        return done.run_id

    def settle(self, shapes: Iterable[tuple[int, int]]) -> None:
        left = [*shapes]
        while left:
            self.run(left, REPEATS)
            needed = {one: (1.25 * statistics.stdev(map(math.log, self.taken[one])) / 0.03) ** 2 for one in left}
            left = [one for one in left if len(self.taken[one]) < min(needed[one], MOST)]  # 1.25 σ/√n: a median's error


def held(trial: Trial, store: str) -> float:
    from scalescope.diagnosis.evidence.held_results import most_on_one_worker
    from scalescope.diagnosis.observation import Observation
    from scalescope.store.store import Store

    with Store.open(store) as opened:
        return most_on_one_worker(Observation.of(trial, opened.tables(trial)))


def sized(swept: Swept, run: str, wanted: Wanted) -> Configuration | None:
    from scalescope.studies.running import run_study
    from scalescope.studies.sizing.choice import Sizing

    given = {"run": run, "cores": wanted.cores, "threads": "1,2", "store": swept.store, "others_code": True}
    given |= {"memory": str(wanted.memory or ""), "deadline": str(wanted.deadline_s or ""), "fresh": True}
    return Sizing.from_mapping(run_study("size", given).result).chosen


@dataclass
class Choice:
    """One question, and what was chosen."""

    name: str
    asked: str
    chosen: str
    ratio: float  # time, or cost, over the best of all that keep the limits; infinite if it does not keep the deadline
    fits: bool  # in memory
    others: dict[str, float]  # the same ratio of other rules, infinite where they do not fit, either


def questions(swept: Swept) -> Iterator[tuple[str, Wanted]]:
    from scalescope.studies.sizing.choice import Wanted

    needs = [swept.needs[shape] for shape in SHAPES]
    for limit in (max(1.2 * statistics.median(needs), 100 * MB), max(1.5 * max(needs), 100 * MB)):
        fastest = min(swept.seconds[shape] for shape in SHAPES if swept.needs[shape] <= limit)
        for deadline_s in (None, 2.2 * fastest):
            what = "fastest" if deadline_s is None else f"cheapest in {deadline_s:.1f} s"
            yield f"{what}, {limit / MB:.0f} MiB", Wanted(CORES, memory=limit, deadline_s=deadline_s)


def choices(swept: Swept, run: str) -> Iterator[Choice]:
    for text, wanted in questions(swept):

        def value(shape: tuple[int, int], *, memory: bool = True, wanted: Wanted = wanted) -> float:
            late = wanted.deadline_s is not None and swept.seconds[shape] > wanted.deadline_s
            if late or (memory and swept.needs[shape] > (wanted.memory or 0)):
                return float("inf")
            return swept.seconds[shape] * (1 if wanted.deadline_s is None else math.prod(shape))

        one = sized(swept, run, wanted)
        best = min(map(value, SHAPES))
        if (shape := (one.workers, one.threads) if one else ALL) not in swept.seconds:
            swept.settle([shape])
        fits = one is not None and swept.needs[shape] <= min(one.memory_mb * MB, wanted.memory or 0)
        others = {name: round(value(other) / best, 2) for name, other in (("Dask", DASK), ("all", ALL))}
        yield Choice(swept.name, text, str(shape), round(value(shape, memory=False) / best, 3), fits, others)


def in_processes(swept: Swept) -> str:
    """Runs what is chosen for four cores, with its limit, in real processes whose tasks hold real memory."""
    from scalescope.store.store import Store
    from scalescope.studies.sizing.choice import Wanted

    os.environ["SCALESCOPE_EVIDENCE_REAL"] = "1"
    run = swept.run([(2, 1)])
    if (one := sized(swept, run, Wanted(4))) is None:
        return f"{swept.name}: nothing chosen"
    again = swept.run([(one.workers, one.threads)], memory_limit_mb=one.memory_mb)
    with Store.open(swept.store) as opened:
        tables = opened.tables(opened.run(again).trials[0])
    spilled, left = max(tables["memory"]["spilled"]), sum(each > 0 for each in tables["workers"]["left"])
    paused = sum("paused" in message for message in tables["events"]["message"])
    most = max(tables["memory"]["rss"]) / MB
    return f"{swept.name}: {one.shape}, {most:.0f} MiB used; {spilled} spilled, {paused} pauses, {left} workers lost"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*WORKLOADS], default=[*WORKLOADS], metavar="NAME")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--simulated", action="store_true")
    where.add_argument("--processes", action="store_true")
    given = parser.parse_args()
    os.nice(-10 if os.geteuid() == 0 else 0)  # priority: sleeping tasks must wake in time on a busy host
    cluster = {"kind": "simulated" if given.simulated else "local" if given.processes else "light"}
    cluster |= {"check_limit": False} if cluster["kind"] == "light" else {}
    found, costs = list[Choice](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only:
            if name == "shared" and given.simulated:
                continue  # its trials are invalid there: the simulated clock does not wait for locks of a worker
            swept = Swept(name, f"{folder}/runs.db", cluster)
            if given.processes:
                print(in_processes(swept), flush=True)
                continue
            run = swept.run(SEEN)
            swept.settle([*SHAPES, DASK])
            costs.append(swept.spent[0] / sum(2 * math.prod(shape) * swept.seconds[shape] for shape in SHAPES))
            for each in choices(swept, run):
                found.append(each)
                print(*astuple(each), sep=" | ", flush=True)
    if found:
        near = sum(each.ratio <= NEAR for each in found)
        print(f"within 10 % of the best: {near} of {len(found)}; fits: {sum(each.fits for each in found)}")
        print({name: sum(each.others[name] <= NEAR for each in found) for name in ("Dask", "all")})
        print(f"cost of what was seen, median: {statistics.median(costs):.1%} of the sweep")
