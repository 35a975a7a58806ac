"""Schedules the recorded tasks anew, to estimate the makespan on other threads or with another order.

List scheduling (Graham 1966): a free thread takes the ready task that started first in the record. Other recorded
effects stay: a task occupies a thread for `overhead_s` more than its duration, and becomes runnable `delay` after its
needs have ended. If all tasks had ended before the client sent more, the next tasks form a new phase: it begins when
the previous phase has ended and the client's pause is over.

Not modelled: a scheduler or network that saturates with more threads, memory, placement, and failed attempts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np

from scalescope.analysis.attempts import Attempts, Bools, Floats, Ints, ordered
from scalescope.analysis.graph import Graph
from scalescope.errors import InvalidField


@dataclass(frozen=True)
class Replay:
    """Recorded tasks, ready to be scheduled again; arrays have one element per task."""

    seconds: Floats  # duration of each task
    graph: Graph  # needs of each task
    overhead_s: float  # seconds for which a task occupies its thread in addition to its duration
    rank: Ints  # position of each task in the order of recorded starts; ready tasks are taken in this order
    delay: Floats  # seconds from the end of the task's last need in its phase, or from the phase's begin, to runnable
    phase: Ints  # number of the task's phase, from 0
    pauses: Floats  # seconds from the end of the previous phase to the begin of each phase
    sent: Ints  # number of the graph with which each task was sent

    @classmethod
    def of(cls, attempts: Attempts, graph: Graph) -> Replay | None:
        """The attempts whose result was used; None if the graph is unknown."""
        if not graph.known:
            return None
        useful = np.flatnonzero(attempts.useful)
        graph = graph.restricted(attempts.useful)
        runnable, start, stop = attempts.runnable[useful], attempts.start[useful], attempts.stop[useful]
        phase, begin, pauses = phases(runnable, stop, np.diff(graph.first) == 0)
        inside = phase[graph.needs] == phase[graph.node]
        needs_ended = np.zeros(len(useful))
        np.maximum.at(needs_ended, graph.node[inside], stop[graph.needs[inside]])
        since = np.where(np.bincount(graph.node[inside], minlength=len(useful)) > 0, needs_ended, begin[phase])
        rank = np.empty(len(useful), np.int64)
        rank[np.lexsort((runnable, start))] = np.arange(len(useful))
        return cls(
            seconds=stop - start,
            graph=graph,
            overhead_s=overhead(attempts),
            rank=rank,
            delay=np.maximum(runnable - since, 0.0),
            phase=phase,
            pauses=pauses,
            sent=attempts.graph[useful],
        )

    def makespan(self, threads: int) -> float:
        if threads < 1:
            raise InvalidField("threads", threads, "1 or more")
        order = np.argsort(self.rank)
        seconds, delay = self.seconds[order] + self.overhead_s, self.delay[order]
        inside = self.phase[self.graph.needs] == self.phase[self.graph.node]
        if len(self.pauses) == 1 and not inside.any() and not np.any(np.diff(delay) < 0):
            return float(self.pauses[0]) + _independent(seconds, delay, threads)
        node, need = self.rank[self.graph.node[inside]], self.rank[self.graph.needs[inside]]
        return _Schedule.of(seconds, delay, node, need, self.phase[order], self.pauses).makespan(threads)

    def sent_at_once(self) -> Replay:
        """The same tasks in one phase: as if the client had sent all graphs at once, and no graph began late."""
        inside = self.sent[self.graph.needs] == self.sent[self.graph.node]
        first = np.bincount(self.graph.node[inside], minlength=len(self.sent)) == 0
        phase, delay = np.zeros_like(self.phase), np.where(first, 0.0, self.delay)
        return replace(self, phase=phase, pauses=self.pauses[:1], delay=delay)


def overhead(attempts: Attempts, chosen: Bools | slice = slice(None)) -> float:
    """Seconds from when a thread is free and its next task runnable until that task starts: the median.

    Only attempts that are `chosen` and whose result was used count.
    """
    gaps = attempts.start - np.maximum(thread_free(attempts), attempts.runnable)
    counts = np.zeros(len(gaps), bool)
    counts[chosen] = attempts.useful[chosen]
    return float(np.maximum(np.median(gaps[counts]), 0.0))


def thread_free(attempts: Attempts, before: Ints | None = None) -> Floats:
    """Time from which each attempt's thread was free for the attempt; `before`: result of `before_on_thread`."""
    before = before_on_thread(attempts) if before is None else before
    joined = np.full(len(attempts.addresses), attempts.makespan)
    np.minimum.at(joined, attempts.members.worker, attempts.members.joined)
    return np.where(before >= 0, attempts.stop[np.maximum(before, 0)], joined[attempts.worker])


def before_on_thread(attempts: Attempts) -> Ints:
    """For each attempt, the earlier attempt whose end freed its thread; -1 if a thread had been free from the start.

    Attempts take free threads in order of start. Recorded threads are not used: a simulated worker shows too many.
    """
    members, worker, start = attempts.members, attempts.worker, attempts.start
    threads = np.zeros(len(attempts.addresses), np.int64)
    np.maximum.at(threads, members.worker, members.nthreads)
    by_start = ordered(worker, start)
    if np.any((np.diff(start[by_start]) == 0) & (np.diff(worker[by_start]) == 0)):
        by_start = np.lexsort((attempts.stop, start, worker))
    by_stop = by_start  # with one thread per worker, tasks end in the order in which they start
    if threads.max() > 1:
        by_stop = ordered(worker, attempts.stop)
    worker = worker[by_start]
    # On t threads, a task found a free thread as soon as all but t - 1 of its worker's earlier tasks had ended.
    ended = np.arange(len(worker)) - threads[worker]
    found = np.full(len(worker), -1)
    first = np.searchsorted(worker, np.arange(len(threads)))
    found[by_start] = np.where(ended >= first[worker], by_stop[np.maximum(ended, 0)], -1)
    return found


def phases(runnable: Floats, stop: Floats, needless: Bools) -> tuple[Ints, Floats, Floats]:
    """The phase of each task, from 0; the begin of each phase; and the seconds since the previous phase ended.

    A phase begins with a task without needs that became runnable only after all earlier tasks had ended.
    """
    order = np.lexsort((stop, runnable))
    ended = np.concatenate([[0.0], np.maximum.accumulate(stop[order])[:-1]])
    first = needless[order] & (runnable[order] > ended)
    first[0] = True
    phase = np.empty(len(order), np.int64)
    phase[order] = np.cumsum(first) - 1
    begin = runnable[order][first]
    return phase, begin, begin - ended[first]


def _independent(seconds: Floats, delay: Floats, threads: int) -> float:
    free = [0.0] * min(threads, len(seconds))
    for duration, runnable in zip(seconds.tolist(), delay.tolist(), strict=True):
        heapreplace(free, max(free[0], runnable) + duration)
    return max(free)


@dataclass(frozen=True)
class _Schedule:
    """Tasks in order of rank, as lists, because single elements of arrays are slow to read."""

    seconds: list[float]  # seconds for which each task occupies its thread
    delay: list[float]  # seconds from the end of the task's last need, or from the phase's begin, to runnable
    missing: list[int]  # number of each task's needs that have not ended; counted down
    dependents: list[int]  # dependents of all tasks, grouped by task
    first: list[int]  # index in `dependents` at which each task's dependents begin, and the length of `dependents`
    phase: list[int]  # number of the phase of each task
    starters: list[list[int]]  # tasks of each phase that need nothing in it
    unfinished: list[int]  # number of unfinished tasks of each phase; counted down
    pauses: list[float]  # seconds before each phase

    @classmethod
    def of(cls, seconds: Floats, delay: Floats, node: Ints, need: Ints, phase: Ints, pauses: Floats) -> _Schedule:
        """Edges are given by their ends: task `node[i]` needs task `need[i]`."""
        missing, uses = (np.bincount(which, minlength=len(seconds)) for which in (node, need))
        roots = np.flatnonzero(missing == 0)
        by_phase = np.bincount(phase[roots], minlength=len(pauses)).cumsum()[:-1]
        starters = np.split(roots[np.argsort(phase[roots], kind="stable")], by_phase)
        return cls(
            seconds=seconds.tolist(),
            delay=delay.tolist(),
            missing=missing.tolist(),
            dependents=node[np.argsort(need, kind="stable")].tolist(),
            first=np.concatenate([[0], np.cumsum(uses)]).tolist(),
            phase=phase.tolist(),
            starters=[part.tolist() for part in starters],
            unfinished=np.bincount(phase, minlength=len(pauses)).tolist(),
            pauses=pauses.tolist(),
        )

    def makespan(self, threads: int) -> float:
        """Seconds until the last task has ended; may be called only once, as it changes the lists."""
        seconds, delay, missing, phase, unfinished = self.seconds, self.delay, self.missing, self.phase, self.unfinished
        now, free = 0.0, threads
        ready: list[int] = []  # a heap of tasks
        running: list[tuple[float, int]] = []  # a heap by end; `delayed` is a heap by time of becoming runnable
        delayed = self._started(0, now)
        heapify(delayed)
        while True:
            while free and ready:
                task = heappop(ready)
                heappush(running, (now + seconds[task], task))
                free -= 1
            if not running and not delayed:
                return now
            now = running[0][0] if not delayed or (running and running[0] < delayed[0]) else delayed[0][0]
            # Handle everything that happens at this time before a thread takes a task.
            while running and running[0][0] == now:
                task = heappop(running)[1]
                free += 1
                for dependent in self.dependents[self.first[task] : self.first[task + 1]]:
                    missing[dependent] -= 1
                    if not missing[dependent] and delay[dependent]:
                        heappush(delayed, (now + delay[dependent], dependent))
                    elif not missing[dependent]:
                        heappush(ready, dependent)
                unfinished[phase[task]] -= 1
                if not unfinished[phase[task]]:
                    delayed += self._started(phase[task] + 1, now)
                    heapify(delayed)
            while delayed and delayed[0][0] <= now:
                heappush(ready, heappop(delayed)[1])

    def _started(self, phase: int, after: float) -> list[tuple[float, int]]:
        """Times at which a phase's first tasks become runnable, and these tasks; `after`: end of the phase before."""
        if phase == len(self.starters):
            return []
        return [(after + self.pauses[phase] + self.delay[task], task) for task in self.starters[phase]]
