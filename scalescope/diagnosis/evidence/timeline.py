"""Idle threads and waiting tasks at each moment, and the time in which tasks were handed over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.analysis.ledger import Clock, unoccupied
from scalescope.analysis.replay import before_on_thread, thread_free
from scalescope.diagnosis.evidence.task_table import task_column
from scalescope.diagnosis.observation import Observation, once

MAX_CELLS = 20_000  # cells of a timeline; with more edges, levels are means over a cell instead of exact


@dataclass(frozen=True)
class Timeline:
    """States of the threads over the makespan, in cells between rising edges."""

    edges: Floats  # seconds since the first task was known; one more than there are cells
    capacity: Floats  # threads of the workers present, at most those asked for
    # Attempts that compute, or for which their worker fetches, deserialises or reads; and methods of actors that run
    occupied: Floats
    waiting: Floats  # attempts that are runnable and not `occupied`
    elsewhere: Floats  # the share of each cell in which the client waited for another cluster, and no task was known

    @property
    def seconds(self) -> Floats:
        return np.diff(self.edges)

    @property
    def idle(self) -> Floats:
        return np.maximum(self.capacity - self.occupied, 0.0)

    @property
    def unwanted(self) -> Floats:
        """Idle threads for which no task waits, unless the client waits for another cluster."""
        free: Floats = np.maximum(self.idle - self.waiting, 0.0) * (1.0 - self.elsewhere)
        return free

    def level(self, begin: Floats, end: Floats) -> Floats:
        """Number of intervals [begin, end) that contain a moment, as a mean over each cell."""
        return interval_seconds(begin, end, self.edges) / self.seconds

    def within(self, begin: float, end: float) -> Floats:
        """Share of each cell that lies in [begin, end)."""
        inside = np.clip(np.minimum(self.edges[1:], end) - np.maximum(self.edges[:-1], begin), 0.0, None)
        share: Floats = inside / self.seconds
        return share

    def integral(self, level: Floats) -> float:
        return float((level * self.seconds).sum())

    def between(self, level: Floats, begin: Floats, end: Floats) -> Floats:
        """Thread-seconds of a level within each interval [begin, end)."""
        total = np.concatenate([[0.0], np.cumsum(level * self.seconds)])
        integral: Floats = np.interp(end, self.edges, total) - np.interp(begin, self.edges, total)
        return integral


def interval_seconds(begin: Floats, end: Floats, edges: Floats) -> Floats:
    """Seconds of all the intervals [begin, end) together between each two edges."""
    seconds: Floats = np.maximum(np.diff(covered(begin, edges) - covered(np.maximum(end, begin), edges)), 0.0)
    return seconds


def covered(moments: Floats, until: Floats) -> Floats:
    """For each time in `until`, the sum of the seconds since each earlier one of `moments`."""
    rising = np.sort(moments)
    sums = np.concatenate([[0.0], np.cumsum(rising)])
    count = np.searchsorted(rising, until)
    total: Floats = count * until - sums[count]
    return total


@once
def occupied_from(observation: Observation) -> Floats:
    """Moment at which the worker of each attempt began to fetch, deserialise, read or compute for it."""
    attempts = observation.measured
    before = attempts.transfer + attempts.deserialize + attempts.disk_read
    return np.maximum(attempts.start - before, attempts.prepared_from)


@once
def timeline(observation: Observation) -> Timeline:
    attempts = observation.measured
    begin, members, calls, away = occupied_from(observation), attempts.members, attempts.calls, attempts.away
    moments = [begin, attempts.stop, attempts.runnable, members.joined, members.left, calls.begin, calls.end]
    moments += [away.begin, away.end, *attempts.elsewhere.T]
    edges = np.concatenate([*map(_sampled, moments), [0.0, attempts.makespan]])
    edges = np.unique(np.clip(edges, 0.0, attempts.makespan))
    empty = Timeline(edges, *[np.zeros(len(edges) - 1)] * 4)
    threads = np.repeat(members.joined, members.nthreads), np.repeat(members.left, members.nthreads)
    return Timeline(
        edges,
        np.minimum(empty.level(*threads), observation.threads),
        empty.level(np.append(begin, calls.begin), np.append(attempts.stop, calls.end))
        - empty.level(away.begin, away.end),
        empty.level(attempts.runnable, begin),
        empty.level(*attempts.elsewhere.T),
    )


@once
def time_here(observation: Observation) -> Clock:
    """Maps moments to a time that stands still while the client waits for another cluster and no task is known."""
    elsewhere = observation.measured.elsewhere
    return unoccupied(elsewhere, lambda time: time) if len(elsewhere) else lambda time: time


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
def by_thread(observation: Observation) -> tuple[Ints, Bools]:
    """Attempts in the order in which each thread ran them, and which of these are not the first of their thread."""
    attempts = observation.measured
    order = np.lexsort((attempts.start, attempts.thread, attempts.worker))
    again = np.zeros(len(order), dtype=np.bool_)
    again[1:] = (np.diff(attempts.worker[order]) == 0) & (np.diff(attempts.thread[order]) == 0)
    return order, again


@once
def before_on_worker(observation: Observation) -> Ints:
    """For each attempt, the attempt whose end on the same worker let it begin, or -1."""
    return before_on_thread(observation.measured)


@once
def free_from(observation: Observation) -> Floats:
    """Moment at which the thread of each attempt became free for it."""
    return thread_free(observation.measured, before_on_worker(observation))


@once
def handed_over(observation: Observation) -> Floats:
    """Seconds per attempt for which its thread was free, the task was on the worker, and only had to be handed over."""
    attempts = observation.measured
    assigned = np.maximum(task_column(observation, "assigned") - attempts.epoch, 0.0)
    since = np.maximum(assigned, free_from(observation))
    done: Floats = np.maximum(occupied_from(observation) - since, 0.0)
    return done
