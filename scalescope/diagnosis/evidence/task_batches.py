"""Tasks of one function in flight together, and workers that are slow at all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints, codes, ordered
from scalescope.diagnosis.evidence.task_table import of_prefix, task_prefixes
from scalescope.diagnosis.observation import Observation, once


@dataclass(frozen=True)
class TaskBatches:
    """Tasks of one group in flight together; a group called again after it had ended is another batch."""

    task: Ints  # finished attempts (indices into `Attempts`), by batch and then by duration, shortest first
    batch: Ints  # batch of each attempt in `task`
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
    offset = group * (attempts.makespan + 1.0)  # separates the groups, so that one running maximum serves all of them
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


MIN_TASKS = 3  # fewest tasks of a batch in which one can be called long
AGAIN = 3  # least slow tasks of a worker after its first ones, for it to count as slow if all are of one batch
SLOW = 1.5  # least ratio of a slow worker's durations to the median worker's
SURE = 6.0  # least standard errors between a slow worker and the median one
NOISE = 0.05  # least spread of durations assumed (standard deviation of their logarithms)


@once
def slow_workers(observation: Observation) -> tuple[tuple[int, float], ...]:
    """Workers that are slow in all they do (indices into `Attempts.addresses`), and how many times slower.

    A worker's score is the median, over its tasks, of log(duration / median of the batch). If it ran several tasks of a
    prefix, those that began before the first had ended are left out (imports, connections). The worker is slow if:
    - its score exceeds that of the (lower) median worker by log(`SLOW`), and by `SURE` standard errors of a median
      (1.25 σ / √n, σ from the median absolute deviation);
    - three quarters of its tasks are 1.2 times slower, in two batches or `AGAIN` times after the first tasks.
    None counts as slow if more than a third of the workers are.
    """
    attempts, found = observation.measured, task_batches(observation)
    big = found.size[found.batch] >= MIN_TASKS
    task, usual, batch = found.task[big], found.median[found.batch[big]], found.batch[big]
    durations = (attempts.stop - attempts.start)[task]
    warm, alone = _warm(observation)
    known = (durations > 0) & (usual > 0) & (warm | alone)[task]
    task, score, batch = task[known], np.log(durations[known] / usual[known]), batch[known]
    worker, later = attempts.worker[task], warm[task]
    present = np.unique(worker)
    if len(present) < 2:
        return ()
    order = ordered(worker, score)
    score, worker, batch, later = score[order], worker[order], batch[order], later[order]
    first = np.concatenate([np.searchsorted(worker, present), [len(worker)]])
    count = np.diff(first)
    middle = score[first[:-1] + (count - 1) // 2]
    typical = np.sort(middle)[(len(middle) - 1) // 2]
    spread = 1.4826 * float(np.median(np.abs(score - np.median(score))))
    error = 1.25 * max(spread, NOISE) / np.sqrt(count)
    quarter = score[first[:-1] + (count - 1) // 4]  # score that three quarters of the worker's tasks exceed
    above = middle - typical
    slow = (above >= math.log(SLOW)) & (above >= SURE * error) & (count >= 2) & (quarter - typical >= math.log(1.2))
    for i in np.flatnonzero(slow):
        own = slice(first[i], first[i + 1])
        late = score[own] - typical >= math.log(1.2)
        slow[i] = (late & later[own]).sum() >= AGAIN or len(np.unique(batch[own][late])) >= 2
    if not slow.any() or slow.sum() > max(1, len(present) / 3):
        return ()
    return tuple((int(present[i]), float(np.exp(above[i]))) for i in np.flatnonzero(slow))


def are_first(observation: Observation, tasks: Ints) -> bool:
    """Whether the long ones of these tasks are the first of their prefix on at least half of the workers."""
    attempts, (warm, alone) = observation.measured, _warm(observation)
    durations = (attempts.stop - attempts.start)[tasks]
    long = tasks[durations > SLOW * np.median(durations)]
    workers = np.unique(attempts.worker[tasks])
    first = not warm[long].any() and not alone[long].all()
    return first and len(np.unique(attempts.worker[long])) >= max(2, len(workers) / 2)


def first_tasks_s(observation: Observation, prefix: str) -> float:
    """Thread-seconds by which the first tasks of a prefix on each worker took longer than the later ones."""
    attempts, own, (warm, _) = observation.measured, of_prefix(observation, prefix), _warm(observation)
    durations = attempts.stop - attempts.start
    usual = float(np.median(durations[own & warm])) if (own & warm).any() else 0.0
    return float(np.maximum(durations[own & ~warm] - usual, 0.0).sum())


@once
def _warm(observation: Observation) -> tuple[Bools, Bools]:
    """Attempts that began after one of their prefix had ended on their worker; attempts whose prefix has none there."""
    attempts, (names, prefix) = observation.measured, task_prefixes(observation)
    place = attempts.worker * len(names) + prefix
    if len(attempts.addresses) * len(names) > 4 * len(place):  # there are too many prefixes: each key may have its own
        place = np.unique(place, return_inverse=True)[1]
    count = int(place.max(initial=0)) + 1
    ended = np.full(count, np.inf)
    np.minimum.at(ended, place, attempts.stop)
    warm: Bools = attempts.start >= ended[place]
    some = np.zeros(count, dtype=bool)
    some[place[warm]] = True
    return warm, ~some[place]
