"""Finds workers on which more tasks compute than they have threads, which happens if tasks give up their thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import numpy as np

from scalescope.analysis.events import Tables, Waits
from scalescope.analysis.ledger import integral

Work = Callable[[float], float]  # function of time: core-seconds that a task on this worker would have had by then
ALONE, CROWDED = 0.95, 0.75  # share of time with a core: from the first on, a task is lone; up to the second, crowded
LONGER = 1.2  # crowded tasks must take longer by this factor; otherwise there were cores for all
LEAST_TASKS = 3  # lone tasks, and crowded tasks, that a prefix must have to be compared


def work_by_worker(tables: Tables, rows: Sequence[int], waits: Mapping[int, Waits]) -> dict[str, Work]:
    """The `Work` of each worker on which more tasks computed than it has threads; empty if tasks did not take longer.

    Assumed: a worker has one core per thread, and all computing tasks get equal shares of the cores.
    """
    if all(held for own in waits.values() for *_, held in own):
        return {}
    tasks, workers = tables["tasks"], tables["workers"]
    threads = dict(zip(workers["worker"], map(int, workers["nthreads"]), strict=True))
    computing = dict[str, list[tuple[float, int]]]()  # (time, +1 or -1 task), by worker
    for row in rows:
        edges = [float(tasks["start"][row])]
        for begin, end, _ in sorted(waits.get(row, ())):
            edges += [begin, end]
        edges.append(float(tasks["stop"][row]))
        computing.setdefault(tasks["worker"][row], []).extend(zip(edges, [1, -1] * (len(edges) // 2), strict=True))
    found = ((worker, _work(sorted(edges), threads.get(worker, 1))) for worker, edges in computing.items())
    work = {worker: each for worker, each in found if each is not None}
    return work if _took_longer(tables, [row for row in rows if row not in waits], work) else {}


def _work(edges: Sequence[tuple[float, int]], threads: int) -> Work | None:
    times, changes = np.array(edges, np.float64).T
    computing = np.cumsum(changes)[:-1]
    if computing.max(initial=0) <= threads:
        return None
    done = integral(np.diff(times) * np.minimum(threads / np.maximum(computing, 1), 1.0))
    return lambda time: float(np.interp(time, times, done))


def _took_longer(tables: Tables, rows: Iterable[int], work: Mapping[str, Work]) -> bool:
    """Whether crowded tasks took longer than lone ones, on average over prefixes; True if none can be compared."""
    tasks, by_prefix = tables["tasks"], dict[str, tuple[list[float], list[float]]]()
    for row in rows:
        start, stop, worker = float(tasks["start"][row]), float(tasks["stop"][row]), tasks["worker"][row]
        share = (work[worker](stop) - work[worker](start)) / (stop - start) if worker in work and stop > start else 1.0
        alone, crowded = by_prefix.setdefault(tasks["prefix"][row], ([], []))
        (alone if share >= ALONE else crowded if share <= CROWDED else []).append(stop - start)
    told = [
        (min(len(alone), len(crowded)), math.log(median(crowded) / median(alone)))
        for alone, crowded in by_prefix.values()
        if min(len(alone), len(crowded)) >= LEAST_TASKS and median(alone) > 0
    ]
    return not told or sum(n * log for n, log in told) >= math.log(LONGER) * sum(n for n, _ in told)
