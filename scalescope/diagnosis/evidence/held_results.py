"""Results that workers held, in memory and on disk, when their sum was largest; and how much fits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats
from scalescope.diagnosis.evidence.task_table import task_column, task_needs, task_prefixes, worker_of_rows
from scalescope.diagnosis.observation import Observation, once

# Shares of a worker's memory limit at which it writes results to disk: size of all its results, and of its process
# (`distributed.worker.memory.target` and `spill`; a cluster may have others).
TARGET, SPILL = 0.60, 0.70
HEARD_S = 1.5  # seconds by which the scheduler may hear late that a result was made or released
ROUND_TO = 100 * 2**20  # bytes to which an advised limit is rounded up


@dataclass(frozen=True)
class HeldResults:
    """Results that all workers held when their sum was largest."""

    nbytes: float  # bytes of all results
    largest: float  # most bytes that one worker held at any moment
    prefix: str  # prefix with most of the bytes of all results
    part: float  # share of `prefix` in these bytes, from 0 to 1
    kept: float  # share of the bytes of all results that no task needed from then on
    kept_prefix: str  # prefix with most of the bytes that no task needed
    workers: int
    limit: float  # memory limit of each worker in bytes; 0 if unknown or none
    process: float  # bytes that the process of a worker takes besides results

    @property
    def fits(self) -> float:
        """Bytes that one worker holds before it writes results to disk."""
        return max(min(TARGET * self.limit, SPILL * self.limit - self.process), 0.0)

    @property
    def limit_for_all(self) -> float:
        """Memory limit of a worker, in bytes, with which all results would have fitted."""
        most = max(self.largest, self.nbytes / self.workers)
        needed = max(most / TARGET, (most + self.process) / SPILL)
        return rounded_limit(needed)

    @property
    def workers_for_all(self) -> int:
        """Number of workers with the same limit that would have held all results; 0 if one can hold none."""
        return math.ceil(self.nbytes / self.fits) if self.fits else 0


def limit_of_workers(observation: Observation) -> float:
    """Memory limit of a worker in bytes; 0 if it is unknown, or there is none."""
    limits = observation.numbers("workers", "memory_limit")
    stated = (observation.trial.facts.get("cluster") or {}).get("memory_limit_mb") or 0
    return float(np.median(limits)) if limits.any() else stated * 2.0**20


@once
def held_results(observation: Observation) -> HeldResults | None:
    """The peak of all results; None if no managed memory was recorded."""
    attempts = observation.measured
    worker = worker_of_rows(observation, "memory")
    time, managed, rss = (observation.numbers("memory", name) for name in ("time", "managed", "rss"))
    known = worker >= 0
    worker, time, managed = worker[known], time[known] - attempts.epoch, managed[known]
    if not managed.any():
        return None
    order = np.lexsort((time, worker))
    change = np.diff(managed[order], prepend=0.0)
    first = np.diff(worker[order], prepend=-1) != 0
    change[first] = managed[order][first]
    by_time = np.argsort(time[order], kind="stable")
    total = np.cumsum(change[by_time])
    peak = int(total.argmax())
    when, nbytes = float(time[order][by_time][peak]), float(total[peak])
    process = float(np.median([rss[known][worker == each].min() for each in np.unique(worker)]))
    whose = _whose(observation, when, nbytes)
    limit = limit_of_workers(observation)
    workers = max(len(np.unique(attempts.members.worker)), 1)
    return HeldResults(nbytes, float(managed.max()), *whose, workers, limit, process)


def limit_needed(observation: Observation, held: HeldResults) -> float:
    """Memory limit of a worker, in bytes, that holds all results, and the rest of the memory of its process."""
    resident, on_disk = peaks(observation, "rss"), peaks(observation, "spilled")
    most = max((resident[each] + on_disk.get(each, 0.0) for each in resident), default=0.0)
    # a process that never reached the share at which it writes to disk needs no more than it has
    return max(held.limit_for_all, rounded_limit(most / SPILL) if most > SPILL * held.limit else 0.0)


def rounded_limit(nbytes: float) -> float:
    """Bytes of a limit that is advised, rounded up to whole hundreds of MiB."""
    return math.ceil(nbytes / ROUND_TO) * ROUND_TO


def give_each(nbytes: float) -> str:
    """The remedy of a larger memory limit, as a clause."""
    return f"give each worker `memory_limit='{nbytes / 2**20:.0f}MiB'`"


def peaks(observation: Observation, column: str) -> dict[str, float]:
    """The most that each worker had in a column of the table `memory`, by address."""
    most: dict[str, float] = {}
    for worker, value in zip(observation.column("memory", "worker"), observation.column("memory", column), strict=True):
        if worker != "scheduler":
            most[worker] = max(value, most.get(worker, 0.0))
    return most


def most_on_one_worker(observation: Observation, without: Bools | None = None) -> float:
    """Bytes of results that the fullest worker holds at once, by the graph.

    A result stays on all workers that made or fetched it until the last task that needs it has ended, or to the end if
    no task needs it. It may be fetched long before the task that needs it gets a thread. `without`: attempts that run
    elsewhere, so that their inputs and results count on no worker.
    """
    attempts, sizes, last = observation.measured, task_column(observation, "nbytes"), _last_use(observation)
    let_go = np.where(np.isfinite(last), last, attempts.end)
    used, made = task_needs(observation)
    worker = np.append(attempts.worker, attempts.worker[used])
    result = np.append(np.arange(len(sizes)), made)
    sources = np.bincount(used[attempts.worker[used] != attempts.worker[made]], minlength=len(sizes))
    fetched = np.minimum(attempts.start, attempts.prepared_from + attempts.transfer / np.maximum(sources, 1))
    begin = np.append(attempts.stop, fetched[used])
    order = np.lexsort((begin, result, worker))  # the first use on a worker fetched the result
    fresh = np.diff(worker[order], prepend=-1) != 0
    fresh |= np.diff(result[order], prepend=-1) != 0
    here = fresh & attempts.useful[result[order]]
    if without is not None:
        here &= ~np.append(without, without[used])[order]
    kept = order[here]
    worker, result, begin = np.tile(worker[kept], 2), result[kept], begin[kept]
    time = np.append(begin, np.maximum(let_go[result], begin))
    change = np.append(sizes[result], -sizes[result])
    order = np.lexsort((time, worker))
    # the changes of each worker add up to zero, so that one running sum serves all workers
    return float(np.cumsum(change[order]).max(initial=0.0))


def _whose(observation: Observation, when: float, nbytes: float) -> tuple[str, float, float, str]:
    """Prefix with most bytes held at `when`, and its share; share that no task needed any more, and its main prefix."""
    attempts, sizes = observation.measured, task_column(observation, "nbytes")
    there = (attempts.stop <= when) & attempts.useful
    needed = there & (_last_use(observation) > when - HEARD_S)
    rest = there & ~needed
    kept = min(max(nbytes - float(sizes[needed].sum()), 0.0), float(sizes[rest].sum()))
    share = np.where(needed, 1.0, kept / max(float(sizes[rest].sum()), 1.0))
    names, code = task_prefixes(observation)
    held = np.bincount(code, weights=np.where(there, sizes * share, 0.0), minlength=len(names))
    unused = np.bincount(code, weights=np.where(rest, sizes, 0.0), minlength=len(names))
    most, total = int(held.argmax()), max(float(held.sum()), 1.0)
    return names[most], float(held[most]) / total, kept / total, names[int(unused.argmax())]


def _last_use(observation: Observation) -> Floats:
    """End of the last task that needs each attempt's result; minus infinity if none does."""
    attempts = observation.measured
    task, needs = task_needs(observation)
    last = np.full(len(attempts.stop), -np.inf)
    np.maximum.at(last, needs, attempts.stop[task])
    return last
