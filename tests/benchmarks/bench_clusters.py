"""How fast the emulated clusters are.

    python tests/benchmarks/bench_clusters.py [--pairs 3] [--quick]

Real time: makespan over ideal for sleeping tasks on hundreds of workers, interleaved in pairs with the naive layout
(`LocalCluster(processes=False)` with default settings). Simulated: real seconds per trial.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import distributed
from clusters import Bench, bench, table

CASES = [(300, 300, 1.0), (300, 900, 0.2), (1000, 1000, 1.0)]


@contextmanager
def naive(workers: int) -> Iterator[distributed.Client]:
    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=None, silence_logs=50
        ) as cluster,
        cluster.get_client() as client,
    ):
        yield client


def naive_ratio(client: distributed.Client, tasks: int, seconds: float, ideal_s: float) -> float:
    began = time.monotonic()
    distributed.wait(client.map(lambda _: time.sleep(seconds), range(tasks), pure=False))
    return (time.monotonic() - began) / ideal_s


def real_time(pairs: int, cases: list[tuple[int, int, float]]) -> list[list[object]]:
    rows: list[list[object]] = []
    with bench({"kind": "light", "check_limit": False}) as light:
        for workers, tasks, seconds in cases:
            ideal_s = seconds * tasks / workers
            params = {"items": tasks, "seconds": seconds}
            light.run("futures-map", workers, params)
            ours, theirs = [], []
            with naive(min(workers, 300)) as client:
                for _ in range(pairs):
                    ours.append(light.run("futures-map", workers, params).makespan_s / ideal_s)
                    if workers <= 300:
                        theirs.append(naive_ratio(client, tasks, seconds, ideal_s))
            paired = [f"{ours_ / theirs_:.2f}" for ours_, theirs_ in zip(ours, theirs, strict=False)]
            median = f"{statistics.median(ours):.2f}"
            worst = f"{statistics.median(theirs):.2f}" if theirs else "not run"
            rows.append([workers, tasks, seconds, median, f"{min(ours):.2f}", worst, " ".join(paired)])
            print(rows[-1], flush=True)
    return rows


def start(workers: int) -> str:
    from scalescope.clusters.light.cluster import LightCluster
    from scalescope.clusters.light.spec import LightSpec

    began = time.monotonic()
    cluster = LightCluster(LightSpec(check_limit=False))
    cluster.open()
    cluster.scale(workers, 1)
    took = time.monotonic() - began
    cluster.close()
    return f"{took:.1f}"


def simulated(run: Bench, workers: int, tasks: int, seconds: float) -> list[object]:
    began = time.monotonic()
    metrics = run.run("futures-map", workers, {"items": tasks, "seconds": seconds})
    return [workers, tasks, seconds, f"{metrics.makespan_s:.2f}", f"{time.monotonic() - began:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the smallest case of each only")
    arguments = parser.parse_args()
    print("Start, in seconds:", {workers: start(workers) for workers in (300, 1000)})
    rows = real_time(arguments.pairs, CASES[:1] if arguments.quick else CASES)
    print(table(["workers", "tasks", "s each", "ratio", "best", "naive ratio", "ours / naive, in pairs"], rows))
    with bench("simulated") as run:
        cases = [(300, 900, 10.0)] if arguments.quick else [(300, 900, 10.0), (1000, 10_000, 10.0)]
        rows = [simulated(run, *case) for case in cases]
    print(table(["workers", "tasks", "s each", "light makespan s", "real s"], rows))


if __name__ == "__main__":
    main()
