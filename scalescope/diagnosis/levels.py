"""Levels over time, and batches of tasks that were in flight together: what several causes compute on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints, codes
from scalescope.diagnosis.observation import Observation, once
from scalescope.model import words

MAX_CELLS = 20_000
"""Most cells of a timeline. Up to so many boundaries levels are exact; beyond, they are means over a cell."""


@dataclass(frozen=True)
class Timeline:
    """What the threads did, over the makespan, in cells between rising edges.

    Attributes:
        edges: Seconds since the first task was known; one more than there are cells.
        capacity: Threads there, at most those asked for.
        occupied: Attempts that compute, or for which their worker fetches, deserialises or reads; and methods of
            actors that run.
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
        return held(begin, end, self.edges) / self.seconds

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


def held(begin: Floats, end: Floats, edges: Floats) -> Floats:
    """Seconds of all the intervals [begin, end) together between each two edges."""
    inside = covered(begin, edges) - covered(np.maximum(end, begin), edges)
    seconds: Floats = np.maximum(np.diff(inside), 0.0)
    return seconds


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
    begin, members, calls = occupied_from(observation), attempts.members, attempts.calls
    moments = (begin, attempts.stop, attempts.runnable, members.joined, members.left, calls.begin, calls.end)
    edges = np.concatenate([*map(_sampled, moments), [0.0, attempts.makespan]])
    edges = np.unique(np.clip(edges, 0.0, attempts.makespan))
    empty = Timeline(edges, *[np.zeros(len(edges) - 1)] * 3)
    threads = np.repeat(members.joined, members.nthreads), np.repeat(members.left, members.nthreads)
    return Timeline(
        edges,
        np.minimum(empty.level(*threads), observation.threads),
        empty.level(np.append(begin, calls.begin), np.append(attempts.stop, calls.end)),
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


# ------------------------------------------------------------------ the client

BEFORE, BETWEEN, AFTER = range(3)
"""Phases in which no task is known: before the first graph, between graphs, after the last task."""
SENDING = ("compute", "map", "persist", "submit")
"""Calls that pack a graph and send it."""


@dataclass(frozen=True)
class ClientTime:
    """What the client did while no task was known; a row for each of the table `client`, or one if there is none.

    Attributes:
        doing: Columns `where` and `what`.
        waits: Whether it waited for the cluster.
        sends: Whether it sent something, or waited for the cluster, perhaps since that was under way.
        seconds: Thread-seconds of the part `client`, of shape (rows, phases).
    """

    doing: Sequence[tuple[str, str]]
    waits: Bools
    sends: Bools
    seconds: Floats


@once
def unoccupied(observation: Observation) -> ClientTime:
    """Whatever the client did in a trial that has attempts, while no task was known."""
    attempts = observation.measured
    where, what = (observation.column("client", name) or [""] for name in ("where", "what"))
    begin = observation.numbers("client", "time") - attempts.epoch
    edges = np.append(begin if len(begin) else attempts.begin, attempts.end)
    bounds = np.array([attempts.begin, *attempts.pending.ravel(), attempts.end])
    free = np.diff(bounds)
    free[1::2] = 0.0
    phase = np.full(len(free), BETWEEN)
    phase[[0, -1]] = BEFORE, AFTER
    until = [np.append(0.0, np.cumsum(np.where(phase == each, free, 0.0))) for each in (BEFORE, BETWEEN, AFTER)]
    passed = np.column_stack([np.diff(np.interp(edges, bounds, each)) for each in until])
    waits = observation.numbers("client", "waits") > 0 if len(begin) else np.array([False])
    return ClientTime(
        list(zip(where, what, strict=True)),
        waits,
        waits | [call.rpartition(".")[2] in SENDING for call in what],
        passed * observation.seconds("client") / max(float(free.sum()), 1e-9),
    )


# ------------------------------------------------------------------ actors


@dataclass(frozen=True)
class ActorCalls:
    """Methods of actors that ran while the client waited for them, and no task was known.

    Attributes:
        calls: How many there were in the trial.
        workers: On how many workers.
        method: That which took longest.
        at_once: How many ran at a time, as a mean over the time in which any did.
        lost_s: Thread-seconds of the part `client` while they ran and the client waited.
    """

    calls: int
    workers: int
    method: str
    at_once: float
    lost_s: float


@once
def calling(observation: Observation) -> ActorCalls | None:
    """What the client waited for from actors; None where there were no calls."""
    calls = observation.measured.calls
    if not len(calls.worker):
        return None
    names, method = codes(calls.method)
    edges = np.unique(np.concatenate([calls.begin, calls.end]))
    running = held(calls.begin, calls.end, edges) > 0
    united = float(np.diff(edges)[running].sum())
    found = unoccupied(observation)
    idle_s = united * max(observation.threads - 1, 0)
    return ActorCalls(
        int(calls.count.sum()),
        len(np.unique(calls.worker)),
        names[int(np.bincount(method, calls.end - calls.begin).argmax())],
        float((calls.end - calls.begin).sum()) / max(united, 1e-9),
        min(float(found.seconds[found.waits].sum()), idle_s),
    )


# ------------------------------------------------------------------ batches


@dataclass(frozen=True)
class TaskBatches:
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
def batches(observation: Observation) -> TaskBatches:
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
    return TaskBatches(task, batch, first, durations[order][middle])


def _small(numbers: Ints) -> Ints:
    """In the smallest type, where numpy sorts stably by radix."""
    small: Ints = numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
    return small
