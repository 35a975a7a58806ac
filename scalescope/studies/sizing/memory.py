"""Memory that a worker needs at sizes that were not run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from scalescope.diagnosis.evidence.held_results import SPILL, TARGET, most_on_one_worker
from scalescope.diagnosis.evidence.task_table import worker_of_rows
from scalescope.diagnosis.observation import Observation

ROUND_TO = 10 * 2.0**20  # bytes; limits are whole multiples
SMALL = 2.0**16  # bytes of small results, which would not fit where the large ones fill a limit
MARGIN = 1.1  # factor on memory besides results, which is sampled, so that short peaks are missed
ROOM = 1.25  # limit over what is needed, unless there is less: a limit that is too small costs more than room


@dataclass(frozen=True)
class MeasuredMemory:
    """Memory of worker processes, in bytes."""

    process: float = 0.0  # of a process without results and tasks
    per_thread: float = 0.0  # most that a running task took besides results
    held: float = 1.0  # results held, relative to those that the graph tells; 1 or more

    @property
    def known(self) -> bool:
        return self.process > 0

    def limit(self, results: float, threads: int, there: float = math.inf) -> float:
        """Bytes: the limit of a worker with which it holds its results and runs its tasks without writing to disk.

        `results`: most bytes of results on one worker, as the graph tells. `there`: bytes that a worker may have; the
        limit has room up to these. 0 if nothing is known.
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
        return None  # no memory was measured, or only that of processes which workers share
    worker, rss, managed = worker[known], rss[known], managed[known]
    least = np.array([rss[worker == each].min() for each in np.unique(worker)])
    most = np.array([(rss - managed)[worker == each].max() for each in np.unique(worker)])
    told = most_on_one_worker(observation)
    threads = max(observation.trial.point.threads_per_worker, 1)
    per_thread = float(np.maximum(most - least, 0.0).max()) / threads
    return MeasuredMemory(float(least.max()), per_thread, max(float(managed.max()) / told, 1.0) if told else 1.0)
