"""The recorded tasks, scheduled again on paper: what a better order of them would save.

List scheduling (Graham 1966): a free thread takes the ready task that was recorded to start first. What else the record
shows is kept: a task occupies a thread for `overhead_s` more; it is runnable its `delay` after what it needs has ended;
and where nothing ran or waited until the client sent more, the next tasks are a new phase, which begins when all of the
last have ended, after the client's pause.

Not modelled: a scheduler or network that saturates at more threads, memory, placement, and attempts that failed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush, heapreplace

import numpy as np

from scalescope.analysis.attempts import Attempts, Bools, Floats, Ints, ordered
from scalescope.analysis.graph import Graph
from scalescope.errors import InvalidField


@dataclass(frozen=True)
class Replay:
    """Recorded tasks, ready to be scheduled again; arrays have one element per task."""

    seconds: Floats  # duration of each
    graph: Graph  # what each needs
    overhead_s: float  # a task occupies its thread so much longer
    rank: Ints  # place in the list from which a free thread takes the first ready task
    delay: Floats  # seconds until runnable, from the end of its last need in its phase or the begin of the phase
    phase: Ints  # number, from 0
    pauses: Floats  # seconds from the end of the phase before to the begin of each phase

    @classmethod
    def of(cls, attempts: Attempts, graph: Graph) -> Replay | None:
        """The attempts whose result was used; None if the graph is not known."""
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
        return _scheduled(seconds, delay, node, need, self.phase[order], self.pauses, threads)

    def sent_at_once(self) -> Replay:
        """The same tasks in one phase: those that need nothing are runnable at its begin."""
        first = np.diff(self.graph.first) == 0
        phase, delay = np.zeros_like(self.phase), np.where(first, 0.0, self.delay)
        return replace(self, phase=phase, pauses=self.pauses[:1], delay=delay)


def overhead(attempts: Attempts, chosen: Bools | slice = slice(None)) -> float:
    """Seconds that a task costs its thread besides its duration: the median over those chosen whose result was used.

    They run from when the thread was free and the task runnable to the begin of its computation.
    """
    gaps = attempts.start - np.maximum(thread_free(attempts), attempts.runnable)
    counts = np.zeros(len(gaps), bool)
    counts[chosen] = attempts.useful[chosen]
    return float(np.maximum(np.median(gaps[counts]), 0.0))


def thread_free(attempts: Attempts, before: Ints | None = None) -> Floats:
    """When the thread of each attempt was free for it; `before` as `before_on_thread` has it."""
    before = before_on_thread(attempts) if before is None else before
    joined = np.full(len(attempts.addresses), attempts.makespan)
    np.minimum.at(joined, attempts.members.worker, attempts.members.joined)
    return np.where(before >= 0, attempts.stop[np.maximum(before, 0)], joined[attempts.worker])


def before_on_thread(attempts: Attempts) -> Ints:
    """The attempt whose end let each begin on its worker, if threads serve in order; else -1.

    The recorded thread is not used: a simulated worker shows more threads than it has.
    """
    members, worker, start = attempts.members, attempts.worker, attempts.start
    threads = np.zeros(len(attempts.addresses), np.int64)
    np.maximum.at(threads, members.worker, members.nthreads)
    by_start = ordered(worker, start)
    if np.any((np.diff(start[by_start]) == 0) & (np.diff(worker[by_start]) == 0)):
        by_start = np.lexsort((attempts.stop, start, worker))
    by_stop = by_start  # on a single thread tasks end in the order in which they start
    if threads.max() > 1:
        by_stop = ordered(worker, attempts.stop)
    worker = worker[by_start]
    # The n-th task of a worker found a free thread when all but so many of those before it had ended.
    ended = np.arange(len(worker)) - threads[worker]
    found = np.full(len(worker), -1)
    first = np.searchsorted(worker, np.arange(len(threads)))
    found[by_start] = np.where(ended >= first[worker], by_stop[np.maximum(ended, 0)], -1)
    return found


def phases(runnable: Floats, stop: Floats, needless: Bools) -> tuple[Ints, Floats, Floats]:
    """The phase of each task, from 0; when each begins; and seconds since all before it had ended.

    A phase begins with a task that needs nothing and was runnable only after all before it had ended.
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


def _scheduled(
    seconds: Floats, delay: Floats, node: Ints, need: Ints, phase: Ints, pauses: Floats, threads: int
) -> float:
    count, length, wait = len(seconds), seconds.tolist(), delay.tolist()
    missing, phases = np.bincount(node, minlength=count), phase.tolist()
    dependents = node[np.argsort(need, kind="stable")].tolist()
    first = np.concatenate([[0], np.cumsum(np.bincount(need, minlength=count))]).tolist()
    roots = np.flatnonzero(missing == 0)
    by_phase = np.bincount(phase[roots], minlength=len(pauses)).cumsum()[:-1]
    starters = [part.tolist() for part in np.split(roots[np.argsort(phase[roots], kind="stable")], by_phase)]
    left, unfinished = missing.tolist(), np.bincount(phase, minlength=len(pauses)).tolist()
    now, free = 0.0, threads
    ready: list[int] = []
    events: list[tuple[float, int]] = []  # a task ends; or, below 0, its complement becomes runnable

    def release(task: int, at: float) -> None:
        if at > now:
            heappush(events, (at, ~task))
        else:
            heappush(ready, task)

    for task in starters[0]:
        release(task, pauses[0] + wait[task])
    while True:
        while free and ready:
            task = heappop(ready)
            heappush(events, (now + length[task], task))
            free -= 1
        if not events:
            return now
        now = events[0][0]
        while events and events[0][0] == now:  # all that happens now, before a thread chooses
            task = heappop(events)[1]
            if task < 0:
                heappush(ready, ~task)
                continue
            free += 1
            for dependent in dependents[first[task] : first[task + 1]]:
                left[dependent] -= 1
                if not left[dependent]:
                    release(dependent, now + wait[dependent])
            unfinished[phases[task]] -= 1
            if not unfinished[phases[task]] and phases[task] + 1 < len(starters):
                begin = now + float(pauses[phases[task] + 1])
                for starter in starters[phases[task] + 1]:
                    release(starter, begin + wait[starter])
