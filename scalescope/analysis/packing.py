"""Estimates how much longer tasks took because their worker packed and unpacked data meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from scalescope.analysis.attempts import Floats, Ints
from scalescope.analysis.events import Tables
from scalescope.analysis.inside_tasks import thread_seconds
from scalescope.analysis.scattered import first_uses
from scalescope.model.records import STATUS_FINISHED


def fetches(tables: Tables) -> tuple[Ints, Ints]:
    """Pairs of rows of `tasks`: a task whose worker fetched a result from another worker, and the task that made it."""
    tasks, dependencies = tables["tasks"], tables.get("dependencies", {})
    node, need = (np.asarray(dependencies.get(name, ()), np.int64) for name in ("task", "needs"))
    workers = np.unique(np.asarray(tasks["worker"], dtype=object).astype(str), return_inverse=True)[1]
    finished = np.asarray(tasks["status"]) == STATUS_FINISHED
    # If several tasks wait for one transfer, only one of them has its seconds in the records.
    noted = finished & (np.asarray(tasks["transfer"], np.float64) > 0)
    far = np.flatnonzero((workers[node] != workers[need]) & noted[node])
    far = far[first_uses(need[far], workers[node[far]], np.asarray(tasks["start"])[node[far]])]
    return node[far], need[far]


def packing_in_tasks(tables: Tables, cpu_s_per_byte: float, cpu_share: float | None = None) -> Floats:
    """Seconds, by row of `tasks`, by which a task was prolonged because its worker packed or unpacked data.

    A sender packs when the fetching task is assigned; the receiver unpacks at the end of the transfer. `cpu_share`: the
    share of its time for which each task was on a core; None: as in distributed's fine metrics.
    """
    tasks = tables["tasks"]
    start, stop = (np.asarray(tasks[name], np.float64) for name in ("start", "stop"))
    threads = dict(zip(tables["workers"]["worker"], tables["workers"]["nthreads"], strict=True))
    workers, found = np.asarray(tasks["worker"], dtype=object).astype(str), np.zeros(len(start))
    for worker, own in _steps(tables, cpu_s_per_byte).items():
        here, packed_s = workers == worker, _until(own)
        found[here] = (packed_s(stop[here]) - packed_s(start[here])) / max(threads.get(worker, 1), 1)
    told = {prefix: on / (on + off) for prefix, (on, off) in thread_seconds(tables).items() if on + off > 0}
    shares = [told.get(prefix, 1.0) if cpu_share is None else cpu_share for prefix in tasks["prefix"]]
    return np.minimum(found * shares, np.maximum(stop - start, 0.0))


def _steps(tables: Tables, cpu_s_per_byte: float) -> dict[str, list[tuple[float, float]]]:
    """Earliest begin and duration of each packing and unpacking, by worker."""
    tasks, found = tables["tasks"], defaultdict[str, list[tuple[float, float]]](list)
    pairs = np.column_stack(fetches(tables)).tolist()
    sources = Counter(node for node, _ in {(node, tasks["worker"][need]) for node, need in pairs})
    for node, need in pairs:
        packed_s, asked = cpu_s_per_byte * tasks["nbytes"][need], tasks["assigned"][node]
        arrived = min(asked + tasks["transfer"][node] / sources[node], tasks["start"][node])
        found[tasks["worker"][need]].append((asked, packed_s))
        found[tasks["worker"][node]].append((max(arrived - packed_s, asked), packed_s))
    return found


def _until(steps: Sequence[tuple[float, float]]) -> Callable[[Floats], Floats]:
    """A function of time: seconds of packing until then, if one of `steps` (earliest begin, seconds) runs at a time."""
    times, sums, free = list[float](), list[float](), -np.inf
    done_s = 0.0
    for begin, seconds in sorted(steps):
        times += [max(begin, free), max(begin, free) + seconds]
        sums += [done_s, done_s + seconds]
        free, done_s = times[-1], sums[-1]
    return lambda at: np.interp(at, times, sums)
