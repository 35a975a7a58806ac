"""Tasks of one function in flight together, and workers that are slow at all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Floats, Ints, codes, ordered
from scalescope.diagnosis.observation import Observation, once


@dataclass(frozen=True)
class TaskBatches:
    """Tasks of one group in flight together; a group called again after it had ended is another batch."""

    task: Ints  # finished attempts (indices into `Attempts`), by batch and then by duration, shortest first
    batch: Ints  # the batch of each of these
    first: Ints  # place in `task` at which each batch begins; one element more than there are batches
    median: Floats  # lower median of the durations of each batch, in seconds

    @property
    def size(self) -> Ints:
        return np.diff(self.first)

    def tasks(self, batch: int) -> Ints:
        return self.task[self.first[batch] : self.first[batch + 1]]


@once
def task_batches(observation: Observation) -> TaskBatches:
    """Batches of a trial; one ends where all earlier tasks of its group had ended when the next became runnable."""
    attempts = observation.measured
    task = np.flatnonzero(attempts.useful)
    group = codes(attempts.group)[1][task]
    order = ordered(group, attempts.runnable[task])
    task, group = task[order], group[order]
    offset = group * (attempts.makespan + 1.0)  # makes one running maximum serve all groups
    ended = np.maximum.accumulate(attempts.stop[task] + offset)
    fresh = np.ones(len(task), dtype=bool)
    fresh[1:] = (np.diff(group) > 0) | ((attempts.runnable[task] + offset)[1:] >= ended[:-1])
    batch = np.cumsum(fresh) - 1

    durations = (attempts.stop - attempts.start)[task]
    order = ordered(batch, durations)
    task, batch = task[order], batch[order]
    first = np.concatenate([np.flatnonzero(np.diff(batch, prepend=-1)), [len(batch)]])
    middle = first[:-1] + (np.diff(first) - 1) // 2
    return TaskBatches(task, batch, first, durations[order][middle])


MIN_TASKS = 3  # tasks of a batch; in a smaller batch no task can be called long
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
    order = ordered(worker, score)
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
