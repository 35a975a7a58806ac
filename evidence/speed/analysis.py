"""How long the analysis of a large trial takes: `python -m evidence analysis [tasks]`.

Prints CPU seconds and the largest memory of this process; asserts nothing on time, only that nothing was lost. What-if
replays are measured on a tenth of the tasks, as many as reports replay.
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

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.graph import Graph
from scalescope.analysis.measure import measure, stages_of
from scalescope.analysis.replay import Replay
from scalescope.analysis.work_span import critical_path, profile, work_span
from scalescope.analysis.worker_time import busy_by_worker, divide
from scalescope.diagnosis import blame, causes
from scalescope.diagnosis.observation import Observation
from scalescope.model.metrics import Metrics
from scalescope.model.records import TABLES, TASKS
from scalescope.model.sweep import Point
from scalescope.model.trial import Trial, TrialState

WORKERS, USED = 300, 280


def tables(tasks: int, *, overheads: bool) -> dict[str, Any]:
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
        means = {"transfer": 0.005, "deserialize": 0.001, "disk_read": 0.002, "disk_write": 0.002}
        values |= {name: rng.exponential(mean, tasks) for name, mean in means.items()}
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
    members: dict[str, Any] = {name: ["" if kind == "str" else 0] * WORKERS for name, kind in TABLES["workers"].items()}
    members |= {"worker": addresses, "nthreads": [1] * WORKERS, "joined": [1e9 - 3] * WORKERS, "left": [0.0] * WORKERS}
    return {"tasks": columns, "workers": members}


def cpu_seconds(call: Callable[[], object]) -> float:
    """The better of two calls."""
    found = []
    for _ in range(2):
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)
    return min(found)


def binary_tree(tasks: int) -> dict[str, Any]:
    task = np.repeat(np.arange(tasks // 2 + 1, tasks), 2)
    return {"task": task, "needs": np.arange(len(task))}


def findings(records: dict[str, Any], attempts: Attempts, metrics: Metrics) -> None:
    trial = Trial("bench-r0", Point(WORKERS), 0, False, TrialState.VALID, metrics=metrics)
    seen = Observation(trial, records, attempts)
    causes.find(seen)
    blame.kept(seen)


def replays(tasks: int) -> dict[str, float]:
    records = tables(tasks, overheads=False)
    attempts = Attempts.read(records)
    found: dict[str, float] = {}
    for name, dependencies in (("bag", {}), ("tree", binary_tree(tasks))):
        graph = Graph.read(records | {"dependencies": dependencies}, attempts)
        replay = Replay.of(attempts, graph)
        if replay is None or len(graph.needs) != len(dependencies.get("task", ())):
            raise SystemExit(f"{name}: dependencies were lost")
        calls: dict[str, Callable[[], object]] = {
            "work_span": lambda g=graph: work_span(attempts, g),
            "critical_path": lambda g=graph: critical_path(attempts, g),
            "replay_of": lambda g=graph: Replay.of(attempts, g),
            "makespan": lambda r=replay: r.makespan(WORKERS),
        }
        found |= {f"{name}_{call}_cpu_s": round(cpu_seconds(calls[call]), 2) for call in calls}
    return found


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for overheads in (False, True):
        records = tables(tasks, overheads=overheads)
        metrics = measure(records, threads=WORKERS, elapsed_s=1.0)
        paid, total = WORKERS * metrics.makespan_s, sum(metrics.worker_time_s.values())
        if metrics.tasks != tasks or abs(total / paid - 1) > 1e-9:
            raise SystemExit(f"{metrics.tasks} tasks, {total} of {paid} thread-seconds")
        attempts = Attempts.read(records)
        tree = records | {"dependencies": binary_tree(tasks)}
        edges = np.linspace(0.0, attempts.makespan, 201)
        result = {
            "tasks": tasks,
            "overheads": overheads,
            "measure_cpu_s": round(cpu_seconds(lambda r=records: measure(r, threads=WORKERS, elapsed_s=1.0)), 2),
            "divide_cpu_s": round(cpu_seconds(lambda a=attempts: divide(a, threads=WORKERS)), 2),
            "busy_by_worker_cpu_s": round(cpu_seconds(lambda a=attempts, e=edges: busy_by_worker(a, e)), 2),
            "profile_cpu_s": round(cpu_seconds(lambda a=attempts: profile(a)), 2),
            "stages_cpu_s": round(cpu_seconds(lambda r=records: stages_of(Attempts.read(r))), 2),
            "findings_cpu_s": round(cpu_seconds(lambda r=records, a=attempts, m=metrics: findings(r, a, m)), 2),
            "findings_of_a_tree_cpu_s": round(cpu_seconds(lambda r=tree, a=attempts, m=metrics: findings(r, a, m)), 2),
            "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        print(json.dumps(result))
    print(json.dumps({"tasks": tasks // 10} | replays(tasks // 10)))
