"""Workers that are slow in all they do."""

from __future__ import annotations

import math

import numpy as np

from scalescope.diagnosis.evidence.task_batches import task_batches
from scalescope.diagnosis.observation import Observation, once

MIN_TASKS = 3  # tasks of a batch; in a smaller one none can be called long
SLOW = 1.5  # ratio of a slow worker to the median one
SURE = 6.0  # standard errors by which a slow worker must differ from the median one
NOISE = 0.05  # least spread of durations assumed (standard deviation of their logarithms)


@once
def slow_workers(observation: Observation) -> tuple[tuple[int, float], ...]:
    """Workers that are slow in all they do (indices into `Attempts.addresses`), and how many times slower.

    A worker's score is the median, over its tasks, of log(duration / median of the batch). It is slow if that is `SLOW`
    above the (lower) median worker's, by more than `SURE` standard errors of a median (1.25 σ / √n, σ from the median
    absolute deviation), in three quarters of its tasks; and if at most a third of the workers are.
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
