"""Computes the metrics of a trial from its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from scalescope.analysis.attempts import Attempts, Floats, codes, ordered
from scalescope.analysis.events import Tables
from scalescope.analysis.gpu import gpu_time
from scalescope.analysis.graph import Graph
from scalescope.analysis.inside_tasks import inside_tasks
from scalescope.analysis.replay import phases, thread_free
from scalescope.analysis.scattered import scattered_data
from scalescope.analysis.work_span import work_span
from scalescope.analysis.worker_time import divide
from scalescope.model.metrics import BUSY_TIME, Metrics, PrefixBusy, PrefixWork
from scalescope.model.records import STATUS_ERRED

MOST_PREFIXES = 10  # prefixes with the most work, whose numbers are kept in a trial's metrics
BRIEF = 0.05  # a peak of runnable tasks counts only if it lasts for this share of the makespan
BINS_S = 0.05  # shortest interval, in seconds, over which busy threads are averaged
AS_BEFORE = 0.9  # share of the busy threads before a fault from which the trial counts as recovered


def measure(tables: Tables, *, threads: int, elapsed_s: float, attempts: Attempts | None = None) -> Metrics:
    """Compute the metrics of one trial; raises `CaptureError` if no task finished.

    `threads`: P, the requested threads. `elapsed_s`: seconds of the workload's call, measured by the caller.
    """
    attempts = attempts or Attempts.read(tables)
    useful = attempts.useful
    durations = attempts.seconds[useful]
    work_s = float(durations.sum())
    span_s = float(max(attempts.span[useful].max(), durations.max()))
    if len(attempts.away.attempt):  # the recorder's `span` includes waits of tasks
        span_s = work_span(attempts, Graph.read(tables, attempts)).span_s
    ideal_s = max(work_s / threads, span_s)
    divided = divide(attempts, threads=threads)
    worker_time = divided.total()
    return Metrics(
        makespan_s=attempts.makespan,
        elapsed_s=elapsed_s,
        work_s=work_s,
        span_s=span_s,
        ideal_s=ideal_s,
        efficiency=(work_s + worker_time["actors"]) / (threads * attempts.makespan),
        schedule_quality=ideal_s / attempts.makespan,
        parallelism=work_s / span_s if span_s > 0 else 0.0,
        tasks=len(durations),
        widest_stage=max(Counter(_used(attempts.group, attempts)).values()),
        workers_used=len(np.unique(attempts.worker)),
        peak_parallelism=peak(attempts.start, attempts.stop),
        mean_parallelism=work_s / attempts.makespan,
        peak_runnable=peak(attempts.runnable[useful], attempts.stop[useful], BRIEF * attempts.makespan),
        worker_time_s=worker_time,
        longest_task_s=float(durations.max()),
        path_s=_path_s(tables, attempts),
        work_by_prefix=_by_prefix(_used(attempts.prefix, attempts), durations),
        **_lost(tables, attempts),
        **_memory(tables),
        transferred_bytes=_transferred(tables),
        recovery_s=_recovery(tables, attempts),
        **_gpu(tables, attempts, divided.parts["busy"][:-1]),
        **_busy(tables, attempts, worker_time["busy"]),
    )


def _path_s(tables: Tables, attempts: Attempts) -> float | None:
    graph, useful = Graph.read(tables, attempts), attempts.useful
    if not graph.known:
        return None
    began = np.minimum(np.maximum(thread_free(attempts), attempts.runnable), attempts.start)
    took, graph = (attempts.stop - began)[useful], graph.restricted(useful)
    phase, _, pauses = phases(attempts.runnable[useful], attempts.stop[useful], np.ones(len(took), bool))
    inside = phase[graph.node] == phase[graph.needs]
    graph = Graph.of(len(graph), graph.node[inside], graph.needs[inside])
    longest = np.zeros(len(pauses))
    np.maximum.at(longest, phase, graph.earliest(took) + took)
    return float(longest.sum())


def _lost(tables: Tables, attempts: Attempts) -> dict[str, Any]:
    erred = np.asarray(tables["tasks"]["status"])[attempts.row] == STATUS_ERRED
    return {"erred_tasks": float(erred.sum()), "recomputed_tasks": float((~erred & ~attempts.useful).sum())}


def _memory(tables: Tables) -> dict[str, Any]:
    table = tables.get("memory", {})
    names, place = codes(list(table.get("worker", ())))
    of_scheduler = place == names.index("scheduler") if "scheduler" in names else np.zeros(len(place), bool)
    rss, spilled, cpu = (np.asarray(table.get(name, ()), float) for name in ("rss", "spilled", "cpu"))
    found: dict[str, float] = {}
    if of_scheduler.any():
        found |= {"scheduler_cpu": float(cpu[of_scheduler].mean())}
        found |= {"scheduler_memory_bytes": float(rss[of_scheduler].max())}
    if not of_scheduler.all():
        own = rss[~of_scheduler]
        most = np.zeros(len(names))
        np.maximum.at(most, place[~of_scheduler], spilled[~of_scheduler])
        found |= {"peak_memory_bytes": float(own.max()), "mean_memory_bytes": float(own.mean())}
        found |= {"spilled_bytes": float(most.sum())}
    return found


def _gpu(tables: Tables, attempts: Attempts, busy: Floats) -> dict[str, Any]:
    found = gpu_time(tables, attempts, busy)
    if found is None:
        return {}
    return {
        "gpu_busy": found.busy,
        "gpu_memory_bytes": float(max(card.memory_peak for card in found.cards.values())),
        "gpus": float(len(found.cards)),
        "gpu_time_s": found.total(),
        "gpu_by_prefix": found.prefixes,
    }


def _busy(tables: Tables, attempts: Attempts, busy_s: float) -> dict[str, Any]:
    found = inside_tasks(tables, attempts, busy_s)
    if found is None:
        return {}
    most = sorted(found.items(), key=lambda item: -sum(item[1].seconds.values()))[:MOST_PREFIXES]
    return {
        "busy_time_s": {part: sum(each.seconds[part] for each in found.values()) for part in BUSY_TIME},
        "busy_by_prefix": {prefix: PrefixBusy(each.seconds, *each.mostly) for prefix, each in most},
    }


def _transferred(tables: Tables) -> float:
    needs = tables.get("dependencies", {})
    _, worker = codes(list(tables["tasks"]["worker"]))
    task, needed = (np.asarray(needs.get(name, ()), np.int64) for name in ("task", "needs"))
    moved = worker[task] != worker[needed]
    once = np.unique(np.column_stack([needed[moved], worker[task[moved]]]), axis=0)
    results = float(np.asarray(tables["tasks"]["nbytes"], float)[once[:, 0]].sum()) if len(once) else 0.0
    return results + float(scattered_data(tables).moved(tables)[1].sum())


def _recovery(tables: Tables, attempts: Attempts) -> float | None:
    # Seconds from the fault until threads are as busy as before; None without a fault or without recovery.
    faults = tables.get("faults", {})
    if not len(faults.get("begin", ())):
        return None
    begin, end = (float(faults[name][0]) - attempts.epoch for name in ("begin", "end"))
    # A worker that the fault stops computes nothing, although its recorded tasks go on.
    stopped = str(faults["worker"][0]) if faults["kind"][0] == "pause-worker" else ""
    width = max(BINS_S, 2 * float(np.median(attempts.stop - attempts.start)))
    before, after = int(begin / width), int((attempts.makespan - begin) / width)
    edges = np.arange(-before, after + 1, dtype=np.float64) * width + begin  # the fault begins at an edge
    busy = _running(attempts.start, attempts.stop, edges)
    if stopped in attempts.addresses:
        own = attempts.worker == attempts.addresses.index(stopped)
        start, stop = np.maximum(attempts.start[own], begin), np.minimum(attempts.stop[own], end)
        busy -= _running(start, np.maximum(stop, start), edges)
    computing = busy[:before][busy[:before] > 0]
    if not len(computing):
        return None
    level = AS_BEFORE * float(np.median(computing))
    less = np.flatnonzero(busy[before:] < level)
    if not len(less):
        return 0.0
    again = np.flatnonzero(busy[before + less[0] :] >= level)
    return float(width * (less[0] + again[0])) if len(again) else None


def _running(start: Floats, stop: Floats, edges: Floats) -> Floats:
    covered: Floats = np.array([np.clip(edge - start, 0, stop - start).sum() for edge in edges])
    return np.asarray(np.diff(covered) / np.diff(edges), np.float64)


def _by_prefix(prefixes: Sequence[str], durations: Floats) -> dict[str, PrefixWork]:
    names, place = codes(prefixes)
    order = ordered(place, durations)
    by_prefix = zip(names, np.split(durations[order], np.cumsum(np.bincount(place))[:-1]), strict=True)
    work = {name: PrefixWork(len(own), float(own.sum()), float(np.median(own))) for name, own in by_prefix}
    return dict(sorted(work.items(), key=lambda item: -item[1].work_s)[:MOST_PREFIXES])


@dataclass(frozen=True)
class Stage:
    """All tasks of one Dask task group. `client.map` and `client.submit` form one group per function."""

    group: str  # name of the task group
    prefix: str  # name of the group without its token
    tasks: int  # number of finished tasks
    workers: int  # number of workers on which these tasks ran
    work_s: float  # sum of the tasks' durations
    longest_s: float  # duration of the longest task
    begin_s: float  # start of its first task, in seconds since `Attempts.epoch`
    end_s: float  # end of its last task, in seconds since `Attempts.epoch`


def stages_of(attempts: Attempts) -> tuple[Stage, ...]:
    useful, group = attempts.useful, _used(attempts.group, attempts)
    prefix_of = dict(zip(group, _used(attempts.prefix, attempts), strict=True))
    groups, code = codes(group)
    start, stop, count = attempts.start[useful], attempts.stop[useful], len(groups)
    begin, end, longest = np.full(count, np.inf), np.zeros(count), np.zeros(count)
    np.minimum.at(begin, code, start)
    np.maximum.at(end, code, stop)
    np.maximum.at(longest, code, stop - start)
    work = np.bincount(code, weights=stop - start, minlength=count)
    tasks = np.bincount(code, minlength=count)
    pairs = np.unique(code * len(attempts.addresses) + attempts.worker[useful])
    workers = np.bincount(pairs // len(attempts.addresses), minlength=count)
    found = [
        Stage(
            name, prefix_of[name], int(tasks[i]), int(workers[i]), *map(float, (work[i], longest[i], begin[i], end[i]))
        )
        for i, name in enumerate(groups)
    ]
    return tuple(sorted(found, key=lambda stage: (stage.begin_s, stage.end_s, stage.group)))


def peak(start: Floats, stop: Floats, least_s: float = 0.0) -> int:
    """Most half-open intervals [start, stop) that overlap at one instant, or during at least `least_s` seconds."""
    times = np.concatenate([np.sort(stop), np.sort(start)])  # at one instant, ends come before starts
    order = np.argsort(times, kind="stable")
    level = np.cumsum(np.where(order < len(stop), -1, 1))
    if least_s <= 0 or not len(level):
        return int(level.max(initial=0))
    seconds = np.bincount(np.maximum(level[:-1], 0), weights=np.diff(times[order]), minlength=1)
    return int(np.flatnonzero(np.cumsum(seconds[::-1])[::-1] >= least_s).max(initial=0))


def _used(names: Sequence[str], attempts: Attempts) -> Sequence[str]:
    return names if bool(attempts.useful.all()) else list(compress(names, attempts.useful.tolist()))
