"""What if: the recorded tasks, scheduled again on paper, on other numbers of threads and at other task sizes.

List scheduling (Graham 1966): a free thread takes the ready task that was recorded to start first. What else the record
shows is kept: a task occupies a thread for `overhead_s` more; it is runnable its `delay` after what it needs has ended;
and where nothing ran or waited until the client sent more, the next tasks are a new phase, which begins when all of the
last have ended, after the client's pause.

Not modelled: a scheduler or network that saturates at more threads, memory, placement, and attempts that failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush, heapreplace

import numpy as np

from scalescope.analysis.attempts import Attempts, Bools, Floats, Ints, codes
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
    group: Sequence[str]

    @classmethod
    def of(cls, attempts: Attempts, graph: Graph) -> Replay | None:
        """The attempts whose result was used; None if the graph is not known."""
        if not graph.known:
            return None
        useful = np.flatnonzero(attempts.useful)
        graph = graph.restricted(attempts.useful)
        runnable, start, stop = attempts.runnable[useful], attempts.start[useful], attempts.stop[useful]
        phase, begin, pauses = _phases(runnable, stop, np.diff(graph.first) == 0)
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
            group=[attempts.group[i] for i in useful.tolist()],
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

    def with_durations(self, factor: float) -> Replay:
        if not factor >= 0:
            raise InvalidField("factor", factor, "0 or more")
        return replace(self, seconds=self.seconds * factor)

    def with_partitions(self, factor: float) -> Replay:
        """The same work in `factor` times as many partitions per stage, at least one.

        This holds for element-wise stages: their tasks need nothing, or one task of such a stage and data shared by a
        whole stage. Tasks that combine several (a reduction, a shuffle) stay, and need all parts of what they needed.
        """
        if not factor > 0:
            raise InvalidField("factor", factor, "above 0")
        return _Cells.of(self, factor).repartitioned(self)


def overhead(attempts: Attempts) -> float:
    """Seconds that a task costs its thread besides its duration: the median over tasks whose result was used.

    They run from when the thread was free and the task runnable to the begin of its computation. The recorded thread is
    not used: a simulated worker shows more threads than it has.
    """
    members, worker = attempts.members, attempts.worker
    joined = np.full(len(attempts.addresses), attempts.makespan)
    np.minimum.at(joined, members.worker, members.joined)
    threads = np.zeros(len(attempts.addresses), np.int64)
    np.maximum.at(threads, members.worker, members.nthreads)

    order = np.lexsort((attempts.start, worker))
    worker, stops = worker[order], attempts.stop[np.lexsort((attempts.stop, worker))]
    first = np.searchsorted(worker, np.arange(len(threads)))
    # The n-th task of a worker found a free thread when all but so many of those before it had ended.
    ended = np.arange(len(worker)) - threads[worker]
    free = np.where(ended >= first[worker], stops[np.maximum(ended, 0)], joined[worker])
    gaps = attempts.start[order] - np.maximum(free, attempts.runnable[order])
    return float(np.maximum(np.median(gaps[attempts.useful[order]]), 0.0))


def errors(replayed: Mapping[int, float], measured: Mapping[int, float]) -> dict[int, float]:
    """How far replayed makespans are from measured ones, by threads; above 0 if the replay is too slow."""
    both = sorted(threads for threads in replayed.keys() & measured.keys() if measured[threads] > 0)
    return {threads: replayed[threads] / measured[threads] - 1 for threads in both}


def _phases(runnable: Floats, stop: Floats, needless: Bools) -> tuple[Ints, Floats, Floats]:
    # a phase begins with a task that needs nothing and was runnable only after all before it had ended
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


@dataclass(frozen=True)
class _Cells:
    """Interchangeable tasks of one phase, group and depth form a cell and share its parts evenly; others are alone."""

    cell: Ints  # the cell of each task; no cell needs one with a larger number
    place: Ints  # where each task stands in its cell, from 0
    tasks: Ints  # in each cell
    parts: Ints  # in each cell

    @classmethod
    def of(cls, replay: Replay, factor: float) -> _Cells:
        count, graph = len(replay.seconds), replay.graph
        group = codes(replay.group)[1]
        depth, origin = _elementwise(graph, group)
        alone = depth < 0
        # Shared data first, then stages by depth, then what brings tasks together, in its own order.
        tier = np.where(alone, np.where(np.diff(graph.first) == 0, -1, count), depth)
        keys = tier, np.where(alone, np.arange(count), replay.phase), np.where(alone, 0, group)
        order = np.lexsort((replay.rank, replay.rank[origin], *keys[::-1]))
        begins = np.any([np.diff(key[order], prepend=-2) != 0 for key in keys], axis=0)
        first = np.flatnonzero(begins)
        cell, place = np.empty(count, np.int64), np.empty(count, np.int64)
        cell[order] = np.cumsum(begins) - 1
        place[order] = np.arange(count) - first[cell[order]]
        tasks = np.diff(np.append(first, count))
        parts = np.where(~alone[order][first], np.maximum(np.floor(tasks * factor + 0.5), 1), tasks).astype(np.int64)
        return cls(cell, place, tasks, parts)

    def repartitioned(self, replay: Replay) -> Replay:
        offset = np.concatenate([[0], np.cumsum(self.parts)])
        tasks, parts, total = self.tasks[self.cell], self.parts[self.cell], int(offset[-1])
        low = self.place * parts // tasks + offset[self.cell]
        high = -(-(self.place + 1) * parts // tasks) + offset[self.cell]
        order = np.lexsort((self.place, self.cell))
        owner, part = _pairs(order, low[order], high[order])
        leader = np.empty(total, np.int64)
        leader[part[::-1]] = owner[::-1]  # the first in the list
        delay = np.zeros(total)
        np.maximum.at(delay, part, replay.delay[owner])
        rank = np.empty(total, np.int64)
        rank[np.argsort(replay.rank[leader], kind="stable")] = np.arange(total)
        return replace(
            replay,
            seconds=self._seconds(replay.seconds[order]),
            graph=self._graph(replay.graph, low, high, total),
            rank=rank,
            delay=delay,
            phase=replay.phase[leader],
            group=[replay.group[i] for i in leader.tolist()],
        )

    def _seconds(self, seconds: Floats) -> Floats:
        # `seconds` in the order of cells and places
        cell = np.repeat(np.arange(len(self.parts)), self.parts)
        local = np.arange(len(cell)) - (np.cumsum(self.parts) - self.parts)[cell]
        before, share = (np.cumsum(self.tasks) - self.tasks)[cell], self.tasks[cell] / self.parts[cell]
        until = np.concatenate([[0.0], np.cumsum(seconds)])
        begin, end = (np.interp(before + at * share, np.arange(len(until)), until) for at in (local, local + 1))
        durations: Floats = np.maximum(end - begin, 0.0)
        return durations

    def _graph(self, graph: Graph, low: Ints, high: Ints, total: int) -> Graph:
        # a part needs all parts of what its tasks needed, or only its counterpart if two stages are cut alike
        node, need = graph.node, graph.needs
        alike = np.all([values[node] == values[need] for values in (self.place, high - low)], axis=0)
        alike &= (self.tasks[self.cell[node]] == self.tasks[self.cell[need]]) & (
            self.parts[self.cell[node]] == self.parts[self.cell[need]]
        )
        width = np.where(alike, 1, (high - low)[need])
        edge, k = _pairs(np.arange(len(node)), np.zeros(len(node), np.int64), (high - low)[node] * width)
        one, other = k // width[edge], np.where(alike[edge], k, k % width[edge])
        both = np.unique((low[node[edge]] + one) * total + low[need[edge]] + other)
        return Graph.of(total, both // total, both % total)


def _elementwise(graph: Graph, group: Ints) -> tuple[Ints, Ints]:
    # Returns how many element-wise stages lie before each task (-1: its own is not), and where its chain began.
    # A task is element-wise if it needs at most one task of each stage, and these are element-wise or shared data:
    # tasks without needs whose result several such tasks of one stage need.
    node, need, groups = graph.node, graph.needs, int(group.max()) + 1
    _, of_stage, counts = np.unique(node * groups + group[need], return_inverse=True, return_counts=True)
    single = counts[of_stage] == 1
    several = np.zeros(len(graph), np.bool_)
    several[node[~single]] = True
    by_stage, counts = np.unique(need[single] * groups + group[node[single]], return_counts=True)
    shared = np.zeros(len(graph), np.bool_)
    shared[by_stage[counts > 1] // groups] = True

    depth, origin = [-1] * len(graph), list(range(len(graph)))
    first, needs, given = graph.first.tolist(), need.tolist(), (shared & (np.diff(graph.first) == 0)).tolist()
    for task in np.flatnonzero(~several & ~shared).tolist():
        chain = [other for other in needs[first[task] : first[task + 1]] if not given[other]]
        depths = [depth[other] for other in chain]
        if min(depths, default=0) >= 0:
            depth[task] = max(depths, default=-1) + 1
            origin[task] = origin[chain[0]] if chain else task
    return np.array(depth), np.array(origin)


def _pairs(owner: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    # each owner with each number from its `low` up to its `high`
    widths = high - low
    number = np.arange(int(widths.sum())) - np.repeat(np.cumsum(widths) - widths - low, widths)
    return np.repeat(owner, widths), number
