"""Batches of tasks that ended late, because a few tasks were long or durations were widely spread."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Floats, Ints
from scalescope.diagnosis.evidence.placement import confined, displaced_s
from scalescope.diagnosis.evidence.submissions import nested
from scalescope.diagnosis.evidence.task_batches import MIN_TASKS, slow_workers, task_batches
from scalescope.diagnosis.evidence.task_table import task_column
from scalescope.diagnosis.evidence.timeline import occupied_from, timeline
from scalescope.diagnosis.observation import Observation, once

LONG = 3.0  # least ratio of a straggler's duration to the median of its batch; 1.5 is common in a healthy stage
FAR = 10.0  # least ratio of a straggler's duration to the 90th percentile, if the durations of its batch are spread
FEW_LONG = 0.05  # share of a batch that may be long before durations count as spread; two long tasks are always allowed
SPREAD = 2.0  # least ratio of the 90th to the 10th percentile of durations that count as spread
LARGE_RESULT = 10_000  # least bytes of the median result, for larger results to show that their tasks have more work
CANDIDATES = 50  # most batches examined, those that can cost most first


@dataclass(frozen=True)
class DelayedBatch:
    """A batch whose end some of its tasks delayed."""

    batch: int  # number of the batch
    tasks: Ints  # the attempts that others waited for, longest last
    end_s: float  # end of the batch without the delay, in seconds since the first task was known
    lost_s: float  # thread-seconds of threads that were used before `end_s` and idle after it
    wide: int  # most tasks of the batch running at once
    last_wave_s: float = 0.0  # thread-seconds that the same number of equal tasks would leave idle, too


@once
def _claimable(observation: Observation) -> Floats:
    """Idle threads that long tasks may explain: no task waits for them, or only tasks queued behind others."""
    line, attempts = timeline(observation), observation.measured
    free, begin = ~confined(observation), occupied_from(observation)
    queued = np.minimum(line.idle - line.unwanted, line.level(attempts.prepared_from[free], begin[free]))
    queued_s = line.integral(queued)
    if not queued_s:
        return line.unwanted
    left: Floats = line.unwanted + queued * (max(queued_s - displaced_s(observation), 0.0) / queued_s)
    return left


class IdleThreads:
    """Hands out the idle thread-seconds of a trial that long tasks may explain, each only once."""

    def __init__(self, observation: Observation) -> None:
        self._attempts = observation.measured
        self._line = timeline(observation)
        self._left = _claimable(observation).copy()

    def claim(self, tasks: Ints, since: float) -> tuple[float, int]:
        """Idle thread-seconds, from `since` to the tasks' end, of threads used before; and most tasks at once."""
        start, stop = self._attempts.start[tasks], self._attempts.stop[tasks]
        wide = _at_once(start, stop)
        until = self._line.within(float(start.min()), since) > 0
        used = max(wide, float(self._line.occupied[until].max(initial=0.0)))
        window = self._line.within(since, float(stop.max()))
        claimed = window * np.clip(used - self._line.occupied, 0.0, self._left)
        self._left -= claimed
        return self._line.integral(claimed), wide


@once
def delayed_batches(observation: Observation) -> tuple[tuple[DelayedBatch, ...], tuple[DelayedBatch, ...]]:
    """The batches that stragglers held up, and those whose durations are spread."""
    stragglers: list[DelayedBatch] = []
    skewed: list[DelayedBatch] = []
    if not observation.noteworthy("no_runnable_task", "tail"):
        return (), ()
    attempts, found = observation.measured, task_batches(observation)
    durations = attempts.stop - attempts.start
    excused = np.isin(attempts.worker, [worker for worker, _ in slow_workers(observation)])
    excused |= nested(observation).graphs > 0  # tasks that send tasks may wait for those, and are not just long
    idle = IdleThreads(observation)
    for batch in _candidates(observation):
        tasks = found.tasks(batch)
        tasks = tasks[~excused[tasks]]
        if len(tasks) < MIN_TASKS:
            continue
        median = float(found.median[batch])
        count, alone = _long(durations[tasks], median)
        rest, long = tasks[: len(tasks) - count], tasks[len(tasks) - count :]
        if alone and not _larger(observation, long, rest):
            others = _all_begun(observation, tasks, median) + float(durations[rest[-1]])  # no task is queued after that
            others = min(others, float(attempts.stop[rest].max()))
            end = max(others, float((attempts.start[long] + median).max()))
            stragglers.append(DelayedBatch(batch, long, end, *idle.claim(tasks, end)))
        elif len(long) or _spread(durations[tasks]):
            mean_s = float(durations[tasks].mean())
            end = _all_begun(observation, tasks, mean_s)
            lost, wide = idle.claim(tasks, end)
            last_s = min(last_wave_s(len(tasks), wide, mean_s), lost)
            skewed.append(DelayedBatch(batch, tasks, end, lost - last_s, wide, last_s))
    return tuple(stragglers), tuple(skewed)


def _candidates(observation: Observation) -> list[int]:
    attempts, found = observation.measured, task_batches(observation)
    longest = (attempts.stop - attempts.start)[found.task[found.first[1:] - 1]]
    could = (longest - found.median) * np.minimum(found.size, observation.threads)
    could[found.size < MIN_TASKS] = 0.0
    return [int(batch) for batch in np.argsort(-could, kind="stable")[:CANDIDATES] if could[batch] > 0]


def _long(rising: Floats, median: float) -> tuple[int, bool]:
    """Number of long tasks in sorted durations, and whether they are few and far from the others."""
    few = max(2, FEW_LONG * len(rising))
    long = int((rising > LONG * median).sum())
    if 0 < long <= few and not _spread(rising[: len(rising) - long]):
        return long, True
    beyond = int((rising > FAR * rising[math.ceil(0.9 * (len(rising) - 1))]).sum())
    return (beyond, True) if 0 < beyond <= few else (long, False)


def _spread(rising: Floats) -> bool:
    last = len(rising) - 1
    if last < 1:
        return False
    return bool(rising[math.ceil(0.9 * last)] >= SPREAD * max(rising[math.floor(0.1 * last)], 1e-6))


def _larger(observation: Observation, long: Ints, rest: Ints) -> bool:
    if not len(long) or not len(rest):
        return False
    nbytes = task_column(observation, "nbytes")
    usual = float(np.median(nbytes[rest]))
    return usual >= LARGE_RESULT and float(np.median(nbytes[long])) >= 2 * usual


def _all_begun(observation: Observation, tasks: Ints, mean_s: float) -> float:
    """Begin of the last of these tasks; or, if earlier, its begin if all had taken `mean_s`."""
    attempts = observation.measured
    waves = math.ceil(len(tasks) / max(_at_once(attempts.start[tasks], attempts.stop[tasks]), 1))
    return min(float(attempts.start[tasks].max()), float(attempts.runnable[tasks].max()) + (waves - 1) * mean_s)


def _at_once(start: Floats, stop: Floats) -> int:
    """The most tasks running at once."""
    begun = np.sort(start)
    return int((np.arange(1, len(begun) + 1) - np.searchsorted(np.sort(stop), begun, side="right")).max(initial=0))


def last_wave_s(tasks: int, threads: int, mean_s: float) -> float:
    """Thread-seconds that this many equal tasks leave idle in their last wave."""
    if threads < 1:
        return 0.0
    return (threads * math.ceil(tasks / threads) - tasks) * mean_s
