"""How far the simulated cluster is from real time, on every workload that sleeps.

    python -m evidence simulated [--repeats 3] [--local]

Runs each case on the simulated cluster and, interleaved with it, on the light (and local) one, and prints the error
of the simulated makespan: simulated / median of the real ones - 1. Cases beyond the emulation limit are left out.
"""

from __future__ import annotations

import argparse
import statistics
import time

from evidence.speed.trials import bench, table

LIGHT_CASES = [
    ("futures-map", 300, {"items": 300, "seconds": 2.0}),
    ("futures-map", 100, {"items": 300, "seconds": 1.0}),
    ("futures-map", 50, {"items": 100, "seconds": 0.5, "stages": 2}),
    ("bag-map", 100, {"items": 100, "seconds": 1.0}),
    ("bag-map", 100, {"items": 101, "seconds": 1.0}),
    ("tree-reduce", 64, {"items": 64, "seconds": 1.0, "reduce_seconds": 0.5}),
    ("beam-pardo", 100, {"items": 100, "seconds": 1.0, "npartitions": "items"}),
    ("beam-pardo", 50, {"items": 100, "seconds": 0.02}),
]
LOCAL_CASES = [
    ("futures-map", 4, {"items": 16, "seconds": 0.5}),
    ("bag-map", 4, {"items": 16, "seconds": 0.5}),
    ("tree-reduce", 4, {"items": 16, "seconds": 0.5, "reduce_seconds": 0.2}),
    ("beam-pardo", 4, {"items": 8, "seconds": 0.5, "npartitions": "items"}),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--local", action="store_true", help="against local processes too")
    arguments = parser.parse_args()
    rows: list[list[object]] = []
    errors: list[float] = []
    for kind, cases in (("light", LIGHT_CASES), ("local", LOCAL_CASES if arguments.local else [])):
        if not cases:
            continue
        cluster = {"kind": "light", "check_limit": False} if kind == "light" else kind
        with bench("simulated") as simulated, bench(cluster) as real:
            for workload, workers, params in cases:
                real.run(workload, workers, params)  # so that every process has imported what it needs
                began = time.monotonic()
                virtual_s = simulated.run(workload, workers, params).makespan_s
                cost_s = time.monotonic() - began
                real_s = [real.run(workload, workers, params).makespan_s for _ in range(arguments.repeats)]
                error = virtual_s / statistics.median(real_s) - 1
                errors.append(abs(error))
                spread = max(real_s) / min(real_s) - 1
                shown = ", ".join(f"{name}={value}" for name, value in params.items())
                figures = (f"{statistics.median(real_s):.3f}", f"{spread:.1%}", f"{virtual_s:.3f}", f"{error:+.1%}")
                rows.append([kind, workload, workers, shown, *figures, f"{cost_s:.1f}"])
                print(rows[-1], flush=True)
    header = ["real", "workload", "workers", "parameters", "real s", "spread", "simulated s", "error", "took s"]
    print(table(header, rows))
    print(f"\nmedian |error| {statistics.median(errors):.1%}, worst {max(errors):.1%}")
