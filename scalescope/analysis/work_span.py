"""Work, span, critical path, and parallelism over time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Attempts, Floats, Ints
from scalescope.analysis.graph import Graph

POINTS = 2000  # most points of a step function in a chart
GAIN = 0.05  # further threads are not worth it once the bound on the run time is within this share of T∞


@dataclass(frozen=True)
class WorkSpan:
    """Work and span of the recorded graph, which bound its run time on any number of threads."""

    work_s: float  # T1, the sum of durations
    span_s: float  # T∞, seconds of the longest dependency path; from the recorder if the graph is unknown

    @property
    def useful_workers(self) -> int:
        """The smallest P at which max(T1 / P, T∞) is within 5 % of T∞; ignores waves, unlike `replay`."""
        return max(math.floor((1 - GAIN) * self.work_s / self.span_s) + 1, 1) if self.span_s > 0 else 1


@dataclass(frozen=True)
class CriticalPath:
    """The longest path of the graph by durations, from first to last."""

    index: Ints  # elements of `Attempts`; shape (n,)
    keys: tuple[str, ...]
    prefixes: tuple[str, ...]
    seconds: Floats  # duration of each task; shape (n,)
    by_prefix: dict[str, float]  # seconds per task prefix, the largest first

    @property
    def span_s(self) -> float:
        return float(self.seconds.sum())

    def shares(self) -> dict[str, float]:
        return {prefix: s / self.span_s if self.span_s > 0 else 0.0 for prefix, s in self.by_prefix.items()}


@dataclass(frozen=True)
class Steps:
    """A step function: `level[i]` from `time[i]` up to `time[i + 1]`."""

    time: Floats  # seconds since `Attempts.epoch`, increasing, from 0 to the end; shape (n,)
    level: Ints  # level from each time on, shape (n,); the last is the level at the end

    @property
    def peak(self) -> int:
        return int(self.level.max(initial=0))


@dataclass(frozen=True)
class Profile:
    """Parallelism over time."""

    provisioned: Steps  # threads of the workers present
    runnable: Steps  # tasks whose inputs were in memory, waiting or running
    running: Steps  # tasks that computed


def work_span(attempts: Attempts, graph: Graph) -> WorkSpan:
    seconds, used = _useful(attempts, graph)
    if graph.known:
        return WorkSpan(float(seconds.sum()), float((used.earliest(seconds) + seconds).max()))
    span_s = float(seconds.max()) if len(attempts.away.attempt) else float(attempts.span[attempts.useful].max())
    return WorkSpan(float(seconds.sum()), max(span_s, float(seconds.max())))


def critical_path(attempts: Attempts, graph: Graph) -> CriticalPath | None:
    """The longest path by durations; None if the graph is unknown."""
    if not graph.known:
        return None
    seconds, used = _useful(attempts, graph)
    end = used.earliest(seconds) + seconds
    node = int(end.argmax())
    path = [node]
    while True:
        needs = used.needs[used.first[node] : used.first[node + 1]]
        if not len(needs):
            break
        node = int(needs[end[needs].argmax()])
        path.append(node)
    index = np.flatnonzero(attempts.useful)[path[::-1]]
    durations = seconds[path[::-1]]
    prefixes = tuple(attempts.prefix[i] for i in index)
    by_prefix: dict[str, float] = {}
    for prefix, s in zip(prefixes, durations.tolist(), strict=True):
        by_prefix[prefix] = by_prefix.get(prefix, 0.0) + s
    ordered = dict(sorted(by_prefix.items(), key=lambda item: -item[1]))
    return CriticalPath(index, tuple(attempts.key[i] for i in index), prefixes, durations, ordered)


def profile(attempts: Attempts, *, points: int = POINTS) -> Profile:
    """Provisioned threads, runnable and running tasks over time, each thinned to at most `points` points (at least 8).

    The first, lowest, highest and last level in equal slices of time are kept, so no peak is lost (M4, Jugel et al.
    2014).
    """
    members, end = attempts.members, attempts.makespan
    joined = np.clip(members.joined, 0.0, end)
    left = np.clip(members.left, joined, end)
    return Profile(
        provisioned=_thinned(_steps(joined, left, end, members.nthreads), points),
        runnable=_thinned(_steps(attempts.runnable, attempts.stop, end), points),
        running=_thinned(_steps(attempts.start, attempts.stop, end), points),
    )


def _thinned(steps: Steps, points: int) -> Steps:
    if len(steps.time) <= points:
        return steps
    slices = (points - 1) // 4
    which = np.minimum((steps.time * (slices / steps.time[-1])).astype(np.int64), slices - 1)
    first = np.flatnonzero(np.diff(which, prepend=-1))
    last = np.append(first[1:], len(which)) - 1
    kept = [first, last]
    for extreme in (np.minimum, np.maximum):
        there = np.flatnonzero(steps.level == np.repeat(extreme.reduceat(steps.level, first), last - first + 1))
        kept.append(there[np.diff(which[there], prepend=-1) != 0])
    drawn = np.unique(np.concatenate(kept))
    return Steps(steps.time[drawn], steps.level[drawn])


def _steps(begin: Floats, end: Floats, until: float, weights: Ints | None = None) -> Steps:
    # The number (or weight) of half-open intervals [begin, end) at each instant.
    ones = np.ones(len(begin), np.int64) if weights is None else weights
    times = np.concatenate([[0.0, until], begin, end])
    changes = np.concatenate([[0, 0], ones, -ones])
    order = np.argsort(times)
    time, level = times[order], np.cumsum(changes[order])
    settled = np.append(np.diff(time) > 0, True)  # the last change at each instant
    time, level = time[settled], level[settled]
    changed = np.diff(level, prepend=-1) != 0
    changed[-1] = True
    return Steps(time[changed], level[changed])


def _useful(attempts: Attempts, graph: Graph) -> tuple[Floats, Graph]:
    useful = attempts.useful
    return attempts.seconds[useful], graph if bool(useful.all()) else graph.restricted(useful)
