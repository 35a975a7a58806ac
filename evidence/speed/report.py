"""How long the report of a large trial takes, and how large it is: `python -m evidence report [tasks]`.

Prints CPU seconds with the records in memory, bytes and bars; fails only where the file is larger than 5 MB.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from array import array
from typing import Any

import numpy as np

from evidence.speed.analysis import WORKERS, tables
from scalescope.analysis.measure import measure
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.records import TABLES
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.report.html import render
from scalescope.store.schema import RunState
from scalescope.store.store import SweepRun

MOST_BYTES = 5_000_000


def chained(tasks: dict[str, Any]) -> dict[str, array[int]]:
    order = np.lexsort((tasks["start"], tasks["worker"]))
    worker = np.asarray(tasks["worker"])[order]
    same = worker[1:] == worker[:-1]
    return {
        "task": array("i", order[1:][same].astype("i").tobytes()),
        "needs": array("i", order[:-1][same].astype("i")),
    }


def memory(addresses: list[str], begin: float, end: float) -> dict[str, Any]:
    times = np.arange(begin, end, 2.0)
    count = len(times) * len(addresses)
    values = {"worker": np.repeat(addresses, len(times)).tolist(), "time": np.tile(times, len(addresses))}
    return {name: values.get(name, np.full(count, 2**30)) for name in TABLES["memory"]}


def run(tasks: int) -> tuple[SweepRun, dict[str, Any]]:
    records = tables(tasks, overheads=True)
    records["dependencies"] = chained(records["tasks"])
    begin, end = min(records["tasks"]["start"]), max(records["tasks"]["stop"])
    records["memory"] = memory(records["workers"]["worker"], begin, end)
    records["workers"] |= {"name": list(map(str, range(WORKERS))), "host": ["h"] * WORKERS, "reason": [""] * WORKERS}
    point = Point(WORKERS, 1, {"items": tasks})
    trial = Trial(
        f"{point.id}-r0",
        point,
        repeat=0,
        warmup=False,
        state=TrialState.VALID,
        metrics=measure(records, threads=WORKERS, elapsed_s=1.0),
        records="in memory",
    )
    sweep = Sweep("futures-map")
    verdict = diagnose(sweep, [trial])
    return SweepRun("bench", sweep, 1, RunState.COMPLETE, 1, (trial,), verdict, "2026-01-01T00:00:00"), records


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    found, records = run(tasks)
    seconds = []
    for _ in range(2):
        begin = time.process_time()
        text = render(found, lambda trial: records)
        seconds.append(time.process_time() - begin)
    size = len(text.encode())
    result = {
        "tasks": tasks,
        "cpu_s": round(min(seconds), 2),
        "bytes": size,
        "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(result))
    if size > MOST_BYTES:
        raise SystemExit(f"{size} bytes are more than {MOST_BYTES}")
