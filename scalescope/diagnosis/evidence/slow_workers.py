"""Workers that are slow in all they do."""

from __future__ import annotations

import math

import numpy as np

from scalescope.diagnosis.evidence.task_batches import task_batches
from scalescope.diagnosis.observation import Observation, once

MIN_TASKS = 3
"""Tasks that a batch must have before one of them can be called long."""
SLOW = 1.5
"""How many times slower a slow worker is than the median one."""


SURE = 6.0
"""How many standard errors a slow worker must be away from the median one."""


NOISE = 0.05
"""Least spread of durations to reckon with, as the standard deviation of their logarithms."""


@once
def slow_workers(observation: Observation) -> tuple[tuple[int, float], ...]:
    """Workers (indices into `Attempts.addresses`) that are slow in all they do, and how many times slower.

    The score of a worker is the median, over its tasks, of the logarithm of duration by median of the batch. A worker
    is slow when its score is `SLOW` above that of the (lower) median worker, by more than `SURE` standard errors of a
    median of so many tasks (1.25 σ / √n, σ from the median absolute deviation), in at least three quarters of its
    tasks; and when at most a third of the workers are.
    """
    attempts, found = observation.measured, task_batches(observation)
    big = found.size[found.batch] >= MIN_TASKS
    task, usual = found.task[big], found.median[found.batch[big]]
    durations = (attempts.stop - attempts.start)[task]
    known = (durations > 0) & (usual > 0)
    task, score = task[known], np.log(durations[known] / usual[known])
    worker = attempts.worker[task]
    present = np.unique(worker)
    if len(present) < 2:
        return ()
    order = np.lexsort((score, worker))
    score, worker = score[order], worker[order]
    first = np.concatenate([np.searchsorted(worker, present), [len(worker)]])
    count = np.diff(first)
    middle = score[first[:-1] + (count - 1) // 2]
    typical = np.sort(middle)[(len(middle) - 1) // 2]
    spread = 1.4826 * float(np.median(np.abs(score - np.median(score))))
    error = 1.25 * max(spread, NOISE) / np.sqrt(count)
    quarter = score[first[:-1] + (count - 1) // 4]  # three quarters of its tasks are slower than this
    above = middle - typical
    slow = (above >= math.log(SLOW)) & (above >= SURE * error) & (count >= 2) & (quarter - typical >= math.log(1.2))
    if not slow.any() or slow.sum() > max(1, len(present) / 3):
        return ()
    return tuple((int(present[i]), float(np.exp(above[i]))) for i in np.flatnonzero(slow))
