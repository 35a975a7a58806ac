"""How fast the emulated clusters are.

    python -m evidence clusters [--repeats 3] [--quick]

Real time: makespan over ideal for sleeping tasks on hundreds of workers. Simulated: real seconds per trial.
"""

from __future__ import annotations

import argparse
import statistics
import time

from evidence.speed.trials import Bench, bench, table

CASES = [(300, 300, 1.0), (300, 900, 0.2), (1000, 1000, 1.0)]


def real_time(repeats: int, cases: list[tuple[int, int, float]]) -> list[list[object]]:
    rows: list[list[object]] = []
    with bench({"kind": "light", "check_limit": False}) as light:
        for workers, tasks, seconds in cases:
            ideal_s = seconds * tasks / workers
            params = {"items": tasks, "seconds": seconds}
            light.run("futures-map", workers, params)
            ratios = [light.run("futures-map", workers, params).makespan_s / ideal_s for _ in range(repeats)]
            rows.append([workers, tasks, seconds, f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}"])
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
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the smallest case of each only")
    arguments = parser.parse_args()
    print("Start, in seconds:", {workers: start(workers) for workers in (300, 1000)})
    rows = real_time(arguments.repeats, CASES[:1] if arguments.quick else CASES)
    print(table(["workers", "tasks", "s each", "makespan / ideal", "best"], rows))
    with bench("simulated") as run:
        cases = [(300, 900, 10.0)] if arguments.quick else [(300, 900, 10.0), (1000, 10_000, 10.0)]
        rows = [simulated(run, *case) for case in cases]
    print(table(["workers", "tasks", "s each", "light makespan s", "real s"], rows))
