"""Levels over time, and batches of tasks that were in flight together: what several causes compute on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.diagnosis import words
from scalescope.diagnosis.observation import Observation, once

MAX_CELLS = 20_000
"""Most cells of a timeline. Up to so many boundaries levels are exact; beyond, they are means over a cell."""


@dataclass(frozen=True)
class Timeline:
    """What the threads did, over the makespan, in cells between rising edges.

    Attributes:
        edges: Seconds since the first task was known; one more than there are cells.
        capacity: Threads there, at most those asked for.
        occupied: Attempts that compute, or for which their worker fetches, deserialises or reads.
        waiting: Attempts that are runnable and neither of these.
    """

    edges: Floats
    capacity: Floats
    occupied: Floats
    waiting: Floats

    @property
    def seconds(self) -> Floats:
        """Length of each cell."""
        return np.diff(self.edges)

    @property
    def idle(self) -> Floats:
        """Threads with nothing to do."""
        return np.maximum(self.capacity - self.occupied, 0.0)

    @property
    def unwanted(self) -> Floats:
        """Idle threads for which no task waits."""
        return np.maximum(self.idle - self.waiting, 0.0)

    def level(self, begin: Floats, end: Floats) -> Floats:
        """How many of the intervals [begin, end) hold, as a mean over each cell."""
        inside = covered(begin, self.edges) - covered(np.maximum(end, begin), self.edges)
        level: Floats = np.maximum(np.diff(inside), 0.0) / self.seconds
        return level

    def within(self, begin: float, end: float) -> Floats:
        """The share of each cell that lies in [begin, end)."""
        inside = np.clip(np.minimum(self.edges[1:], end) - np.maximum(self.edges[:-1], begin), 0.0, None)
        share: Floats = inside / self.seconds
        return share

    def integral(self, level: Floats) -> float:
        """Thread-seconds of a level."""
        return float((level * self.seconds).sum())

    def between(self, level: Floats, begin: Floats, end: Floats) -> Floats:
        """Thread-seconds of a level within each interval [begin, end)."""
        total = np.concatenate([[0.0], np.cumsum(level * self.seconds)])
        integral: Floats = np.interp(end, self.edges, total) - np.interp(begin, self.edges, total)
        return integral


def covered(moments: Floats, until: Floats) -> Floats:
    """Sum over moments of the seconds from each to each later time."""
    rising = np.sort(moments)
    sums = np.concatenate([[0.0], np.cumsum(rising)])
    count = np.searchsorted(rising, until)
    total: Floats = count * until - sums[count]
    return total


@once
def occupied_from(observation: Observation) -> Floats:
    """When the worker of each attempt began to do something for it: fetch, deserialise, read or compute."""
    attempts = observation.measured
    before = attempts.transfer + attempts.deserialize + attempts.disk_read
    return np.maximum(attempts.start - before, attempts.prepared_from)


@once
def timeline(observation: Observation) -> Timeline:
    """The timeline of a trial that has attempts."""
    attempts = observation.measured
    begin, members = occupied_from(observation), attempts.members
    moments = (begin, attempts.stop, attempts.runnable, members.joined, members.left)
    edges = np.unique(np.concatenate([*map(_sampled, moments), [0.0, attempts.makespan]]))
    empty = Timeline(edges, *[np.zeros(len(edges) - 1)] * 3)
    threads = np.repeat(members.joined, members.nthreads), np.repeat(members.left, members.nthreads)
    return Timeline(
        edges,
        np.minimum(empty.level(*threads), observation.threads),
        empty.level(begin, attempts.stop),
        empty.level(attempts.runnable, begin),
    )


def _sampled(moments: Floats) -> Floats:
    limit = MAX_CELLS // 4
    if len(moments) <= limit:
        return moments
    rising = np.sort(moments)
    return rising[np.linspace(0, len(rising) - 1, limit).astype(np.int64)]


def free_threads(observation: Observation, members: Bools) -> Floats:
    """Idle threads of some of the rows of `Attempts.members`, over the timeline."""
    attempts, line = observation.measured, timeline(observation)
    rows, count = attempts.members, attempts.members.nthreads[members]
    capacity = line.level(np.repeat(rows.joined[members], count), np.repeat(rows.left[members], count))
    own = np.isin(attempts.worker, rows.worker[members])
    return np.maximum(capacity - line.level(occupied_from(observation)[own], attempts.stop[own]), 0.0)


@once
def rows(observation: Observation) -> Ints:
    """The row in the table `tasks` of each attempt."""
    return np.flatnonzero(observation.numbers("tasks", "start") > 0)


def column(observation: Observation, name: str) -> Floats:
    """A column of the table `tasks` for each attempt; zeros where it was not recorded."""
    values = observation.numbers("tasks", name)
    chosen = rows(observation)
    return values[chosen] if len(values) else np.zeros(len(chosen))


def key(observation: Observation, attempt: int) -> str:
    """The key of an attempt, shortened."""
    return words.cut(str(observation.column("tasks", "key")[int(rows(observation)[attempt])]))


def codes(names: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    """The different names, and for each name its place among them."""
    different = tuple(dict.fromkeys(names))
    index = {name: i for i, name in enumerate(different)}
    return different, np.fromiter(map(index.__getitem__, names), np.int64, len(names))


@once
def prefixes(observation: Observation) -> tuple[tuple[str, ...], Ints]:
    """The task prefixes, and the place of each attempt's among them."""
    return codes(observation.measured.prefix)


def most_common_prefix(observation: Observation, attempts: Ints | Bools | slice = slice(None)) -> str:
    """The prefix of most of these attempts."""
    names, place = prefixes(observation)
    return names[int(np.bincount(place[attempts]).argmax())]


def worker_of_rows(observation: Observation, table: str, column: str = "worker") -> Ints:
    """The worker of each row of a table: an index into `Attempts.addresses`, -1 for the scheduler, -2 for any other."""
    index = {address: i for i, address in enumerate(observation.measured.addresses)} | {"scheduler": -1}
    names = observation.column(table, column)
    return np.fromiter((index.get(name, -2) for name in names), np.int64, len(names))


def threads_of_workers(observation: Observation) -> Ints:
    """Threads of each worker in `Attempts.addresses`."""
    attempts = observation.measured
    threads = np.ones(len(attempts.addresses), np.int64)
    threads[attempts.members.worker] = attempts.members.nthreads
    return threads


# ------------------------------------------------------------------ batches


@dataclass(frozen=True)
class Batches:
    """Tasks of one task group that were in flight together; a group called again after it had ended is another batch.

    Attributes:
        task: Finished attempts (indices into `Attempts`), by batch and then by duration, shortest first.
        batch: The batch of each of these.
        first: Where each batch begins in `task`; one element more than there are batches.
        median: Lower median of the durations of each batch, in seconds.
    """

    task: Ints
    batch: Ints
    first: Ints
    median: Floats

    @property
    def size(self) -> Ints:
        """Tasks of each batch."""
        return np.diff(self.first)

    def tasks(self, batch: int) -> Ints:
        """The attempts of a batch, shortest first."""
        return self.task[self.first[batch] : self.first[batch + 1]]


@once
def batches(observation: Observation) -> Batches:
    """All batches of a trial.

    A batch ends where every earlier task of its group had ended when the next became runnable: results of an earlier
    round say nothing on the tasks of a later one.
    """
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
    return Batches(task, batch, first, durations[order][middle])


def _small(numbers: Ints) -> Ints:
    """In the smallest type, where numpy sorts stably by radix."""
    small: Ints = numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
    return small
