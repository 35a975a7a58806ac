"""Tasks of one group that were in flight together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Floats, Ints, codes
from scalescope.diagnosis.observation import Observation, once


@dataclass(frozen=True)
class TaskBatches:
    """Tasks of one group in flight together; a group called again after it had ended is another batch."""

    task: Ints  # finished attempts (indices into `Attempts`), by batch and then by duration, shortest first
    batch: Ints  # the batch of each of these
    first: Ints  # where each batch begins in `task`; one element more than there are batches
    median: Floats  # lower median of the durations of each batch, in seconds

    @property
    def size(self) -> Ints:
        """Tasks of each batch."""
        return np.diff(self.first)

    def tasks(self, batch: int) -> Ints:
        """The attempts of a batch, shortest first."""
        return self.task[self.first[batch] : self.first[batch + 1]]


@once
def task_batches(observation: Observation) -> TaskBatches:
    """Batches of a trial; one ends where all earlier tasks of its group had ended when the next became runnable."""
    attempts = observation.measured
    task = np.flatnonzero(attempts.useful)
    group = codes(attempts.group)[1][task]
    order = np.argsort(attempts.runnable[task], kind="stable")
    order = order[np.argsort(_small(group[order]), kind="stable")]
    task, group = task[order], group[order]
    offset = group * (attempts.makespan + 1.0)  # so that one running maximum serves all groups
    ended = np.maximum.accumulate(attempts.stop[task] + offset)
    fresh = np.ones(len(task), dtype=bool)
    fresh[1:] = (np.diff(group) > 0) | ((attempts.runnable[task] + offset)[1:] >= ended[:-1])
    batch = np.cumsum(fresh) - 1

    durations = (attempts.stop - attempts.start)[task]
    order = np.argsort(durations)
    order = order[np.argsort(_small(batch[order]), kind="stable")]
    task, batch = task[order], batch[order]
    first = np.concatenate([np.flatnonzero(np.diff(batch, prepend=-1)), [len(batch)]])
    middle = first[:-1] + (np.diff(first) - 1) // 2
    return TaskBatches(task, batch, first, durations[order][middle])


def _small(numbers: Ints) -> Ints:
    """In the smallest type, which numpy sorts stably by radix."""
    small: Ints = numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
    return small
