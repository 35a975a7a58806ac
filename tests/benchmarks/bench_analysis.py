"""How long the analysis of a large trial takes: `python tests/benchmarks/bench_analysis.py [tasks]`.

Prints CPU seconds and the largest memory of this process; asserts nothing on time, only that nothing was lost.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from scalescope.analysis.measure import measure, stages
from scalescope.model.records import TASKS

WORKERS, USED = 300, 280


def tables(tasks: int, *, overheads: bool) -> dict[str, Any]:
    """Tasks one after another on each worker, with small gaps, in no order."""
    rng = np.random.default_rng(0)
    worker = rng.integers(0, USED, tasks)
    seconds = rng.exponential(0.3, tasks)
    gap = rng.exponential(0.02, tasks)
    start = np.empty(tasks)
    for each in range(USED):
        own = np.flatnonzero(worker == each)
        start[own] = 1e9 + np.cumsum(seconds[own] + gap[own]) - seconds[own]
    addresses = [f"tcp://10.0.0.{i}:4000" for i in range(WORKERS)]
    values: dict[str, Any] = dict.fromkeys(TASKS, np.zeros(tasks))
    values |= {"start": start, "stop": start + seconds, "done": start + seconds, "assigned": start - 0.01}
    values |= {"span": seconds, "runnable": np.full(tasks, 1e9)}
    if overheads:
        values |= {"transfer": rng.exponential(0.005, tasks), "deserialize": rng.exponential(0.001, tasks)}
    texts: dict[str, list[str]] = {
        "key": [f"('work-3f2ac0ffee', {i})" for i in range(tasks)],
        "prefix": ["work"] * tasks,
        "group": [f"work-{i % 20}" for i in range(tasks)],
        "worker": [addresses[i] for i in worker],
    }
    columns = {
        name: texts[name] if kind == "str" else array(kind, values[name].astype(kind).tobytes())
        for name, kind in TASKS.items()
    }
    members = {"worker": addresses, "nthreads": [1] * WORKERS, "joined": [1e9 - 3] * WORKERS, "left": [0.0] * WORKERS}
    return {"tasks": columns, "workers": members}


def cpu_seconds(call: Callable[[], object]) -> float:
    """The better of two calls."""
    found = []
    for _ in range(2):
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)
    return min(found)


def main() -> None:
    """Measure, with and without transfers."""
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for overheads in (False, True):
        records = tables(tasks, overheads=overheads)
        metrics = measure(records, threads=WORKERS, elapsed_s=1.0)
        paid, total = WORKERS * metrics.makespan_s, sum(metrics.worker_time_s.values())
        if metrics.tasks != tasks or abs(total / paid - 1) > 1e-9:
            raise SystemExit(f"{metrics.tasks} tasks, {total} of {paid} thread-seconds")
        result = {
            "tasks": tasks,
            "transfers": overheads,
            "measure_cpu_s": round(cpu_seconds(lambda r=records: measure(r, threads=WORKERS, elapsed_s=1.0)), 2),
            "stages_cpu_s": round(cpu_seconds(lambda r=records: stages(r)), 2),
            "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
