"""Memory that a worker needs at sizes that were not run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from scalescope.diagnosis.evidence.held_results import SPILL, TARGET, most_on_one_worker
from scalescope.diagnosis.evidence.task_table import worker_of_rows
from scalescope.diagnosis.observation import Observation

ROUND_TO = 10 * 2.0**20  # bytes; limits are whole multiples of this
SMALL = 2.0**16  # bytes added for small results, which would not fit if large results filled the limit exactly
MARGIN = 1.1  # factor on memory other than results: sampling misses its short peaks
ROOM = 1.25  # limit as a multiple of the needed memory, if a worker may have that much: a low limit costs more


@dataclass(frozen=True)
class MeasuredMemory:
    """Memory of worker processes, in bytes."""

    process: float = 0.0  # bytes of a process without results and tasks
    per_thread: float = 0.0  # most bytes, other than results, that a running task took
    held: float = 1.0  # measured bytes of results divided by those computed from the graph; 1 or more

    @property
    def known(self) -> bool:
        return self.process > 0

    def limit(self, results: float, threads: int, there: float = math.inf) -> float:
        """The memory limit, in bytes, with which a worker runs without writing results to disk; 0 if unknown.

        `results`: most bytes of results on one worker, computed from the graph. `there`: most bytes that a worker may
        have; the spare room `ROOM` does not exceed it.
        """
        results, besides = self.held * results, MARGIN * (self.process + threads * self.per_thread)
        if not results + besides:
            return 0.0
        needed = max(results / TARGET, (results + besides) / SPILL) + SMALL
        return max(math.ceil(needed / ROUND_TO), min(ROOM * needed, there) // ROUND_TO) * ROUND_TO

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> MeasuredMemory:
        found = [each for each in map(_of_one, observations) if each is not None]
        if not found:
            return cls()
        return cls(*(max(column) for column in zip(*map(astuple, found), strict=True)))


def _of_one(observation: Observation) -> MeasuredMemory | None:
    worker = worker_of_rows(observation, "memory")
    rss, managed = (observation.numbers("memory", name) for name in ("rss", "managed"))
    known = worker >= 0
    layout = str((observation.trial.facts.get("cluster") or {}).get("kind", ""))
    if observation.trial.virtual or layout == "light" or not known.any() or not rss[known].any():
        return None  # no memory was measured, or workers shared processes
    worker, rss, managed = worker[known], rss[known], managed[known]
    least = np.array([rss[worker == each].min() for each in np.unique(worker)])
    most = np.array([(rss - managed)[worker == each].max() for each in np.unique(worker)])
    told = most_on_one_worker(observation)
    threads = max(observation.trial.point.threads_per_worker, 1)
    per_thread = float(np.maximum(most - least, 0.0).max()) / threads
    return MeasuredMemory(float(least.max()), per_thread, max(float(managed.max()) / told, 1.0) if told else 1.0)
