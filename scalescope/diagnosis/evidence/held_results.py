"""Results that workers held, in memory and on disk, when all of them together held most; and how much fits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Floats
from scalescope.diagnosis.evidence.task_table import task_column, task_prefixes, task_rows, worker_of_rows
from scalescope.diagnosis.observation import Observation, once

# Shares of its memory limit from which a worker writes results to disk: what all its results take, and what its process
# takes (`distributed.worker.memory.target` and `spill`; a cluster may have others).
TARGET, SPILL = 0.60, 0.70
ROUND_TO = 100 * 2**20  # bytes to which an advised limit is rounded up


@dataclass(frozen=True)
class HeldResults:
    """What workers held at that moment."""

    nbytes: float  # all of them
    largest: float  # the worker that held most at any moment
    prefix: str  # whose results were most of it
    part: float  # their share
    kept: float  # share of results that no task needed from then on
    workers: int
    limit: float  # bytes of each worker; 0: unknown or none
    process: float  # bytes that the process of a worker takes besides

    @property
    def fits(self) -> float:
        """What one worker holds before it writes results to disk."""
        return max(min(TARGET * self.limit, SPILL * self.limit - self.process), 0.0)

    @property
    def limit_for_all(self) -> float:
        """The limit of a worker with which all would have fitted."""
        most = max(self.largest, self.nbytes / self.workers)
        needed = max(most / TARGET, (most + self.process) / SPILL)
        return math.ceil(needed / ROUND_TO) * ROUND_TO

    @property
    def workers_for_all(self) -> int:
        """How many of these workers would have held all; 0 where one holds nothing."""
        return math.ceil(self.nbytes / self.fits) if self.fits else 0


def limit_of_workers(observation: Observation) -> float:
    """Bytes; 0 where it is unknown, or there is none."""
    limits = observation.numbers("workers", "memory_limit")
    stated = (observation.trial.facts.get("cluster") or {}).get("memory_limit_mb") or 0
    return float(np.median(limits)) if limits.any() else stated * 2.0**20


@once
def held_results(observation: Observation) -> HeldResults | None:
    """None where nothing of it was recorded."""
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
    idle = managed == 0
    process = float(np.median(rss[known][idle])) if idle.any() else 0.0
    prefix, part, kept = _whose(observation, when, nbytes)
    limit = limit_of_workers(observation)
    workers = max(len(np.unique(attempts.members.worker)), 1)
    return HeldResults(nbytes, float(managed.max()), prefix, part, kept, workers, limit, process)


def _whose(observation: Observation, when: float, nbytes: float) -> tuple[str, float, float]:
    """The prefix with most of the bytes held then, its share, and the share that no task needed from then on."""
    attempts, sizes = observation.measured, task_column(observation, "nbytes")
    there = (attempts.stop <= when) & attempts.useful
    needed = there & (_last_use(observation) > when)
    rest = there & ~needed
    kept = min(max(nbytes - float(sizes[needed].sum()), 0.0), float(sizes[rest].sum()))
    share = np.where(needed, 1.0, kept / max(float(sizes[rest].sum()), 1.0))
    names, code = task_prefixes(observation)
    held = np.bincount(code, weights=np.where(there, sizes * share, 0.0), minlength=len(names))
    most = int(held.argmax())
    return names[most], float(held[most] / max(held.sum(), 1.0)), float(kept / max(held.sum(), 1.0))


def _last_use(observation: Observation) -> Floats:
    """When the last task that needs each attempt's result ended; -1 where none does."""
    attempts = observation.measured
    task, needs = (np.asarray(observation.column("dependencies", name), np.int64) for name in ("task", "needs"))
    rows = len(observation.column("tasks", "key"))
    stop, last = np.full(rows, -1.0), np.full(rows, -1.0)
    stop[attempts.row] = attempts.stop
    np.maximum.at(last, needs, stop[task])
    found: Floats = last[task_rows(observation)]
    return found
