"""Causes that lie in the tasks themselves: how long they take, and where they are slow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.diagnosis import levels
from scalescope.diagnosis.causes.placement import WORKER_RESTRICTION, confined, displaced_s
from scalescope.diagnosis.causes.submission import sending
from scalescope.diagnosis.observation import Observation, TrialCause, once
from scalescope.diagnosis.registry import NOTEWORTHY
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import number, percent, plural

MIN_TASKS = 3
"""Tasks that a batch must have before one of them can be called long."""
LONG = 3.0
"""How many times the median of its batch a straggler takes; one and a half times is common in a healthy stage."""
FAR = 10.0
"""How many times the 90th percentile of its batch a straggler takes where durations are spread anyway."""
FEW_LONG = 0.05
"""Share of a batch that may be long before its durations count as spread; two may always be."""
SPREAD = 2.0
"""Ratio of the 90th to the 10th percentile from which on durations are spread widely."""
LARGE_RESULT = 10_000
"""Bytes from which on the size of a result says something on the work behind it."""
CANDIDATES = 50
"""Batches that are looked at closely, those first that can have lost most."""

SLOW = 1.5
"""How many times slower a slow worker is than the median one."""
SURE = 6.0
"""How many standard errors a slow worker must be away from the median one."""
NOISE = 0.05
"""Least spread of durations to reckon with, as the standard deviation of their logarithms."""

HANDLING_S = 0.001
"""What the scheduler, and what a worker, needs for a task besides computing it (measured: 0.65 to 1 ms of CPU time)."""
TRANSITIONS = 6
"""Transitions that the scheduler makes for a task that finishes."""
BULK = 50
"""Tasks below which handling them is nothing that can be felt."""


# ------------------------------------------------------------------ idle threads at the end of a batch


@dataclass(frozen=True)
class DelayedBatch:
    """A batch whose end some of its tasks delayed.

    Attributes:
        batch: Its number.
        tasks: The attempts that others waited for, longest last.
        end_s: When the batch would have ended without the delay, in seconds since the first task was known.
        lost_s: Thread-seconds from then on of threads used before and idle (`_claimable`).
        wide: Most tasks of the batch running at once.
    """

    batch: int
    tasks: Ints
    end_s: float
    lost_s: float
    wide: float


@once
def _claimable(observation: Observation) -> Floats:
    """Idle threads over the timeline that long tasks may explain.

    Those for which no task waits, and those for which tasks wait that were given to a worker before it was known how
    long the ones before them take; less what is explained by where tasks may run, or were put.
    """
    line, attempts = levels.timeline(observation), observation.measured
    free, begin = ~confined(observation), levels.occupied_from(observation)
    queued = np.minimum(line.idle - line.unwanted, line.level(attempts.prepared_from[free], begin[free]))
    queued_s = line.integral(queued)
    if not queued_s:
        return line.unwanted
    left: Floats = line.unwanted + queued * (max(queued_s - displaced_s(observation), 0.0) / queued_s)
    return left


class _IdleThreads:
    """Hands out the idle thread-seconds of a trial that long tasks may explain, each only once."""

    def __init__(self, observation: Observation) -> None:
        self._attempts = observation.measured
        self._line = levels.timeline(observation)
        self._left = _claimable(observation).copy()

    def claim(self, tasks: Ints, since: float) -> tuple[float, float]:
        """Thread-seconds after `since`, until these tasks end, of threads used before and idle now.

        Used, at one time, while these tasks ran and before `since`: by them, or by others beside them. Threads that
        were idle then already are so for another reason.

        Returns:
            The thread-seconds, and the most of these tasks that ran at once.
        """
        start, stop = self._attempts.start[tasks], self._attempts.stop[tasks]
        wide = float(self._line.level(start, stop).max(initial=0.0))
        until = self._line.within(float(start.min()), since) > 0
        used = max(wide, float(self._line.occupied[until].max(initial=0.0)))
        window = self._line.within(since, float(stop.max()))
        claimed = window * np.clip(used - self._line.occupied, 0.0, self._left)
        self._left -= claimed
        return self._line.integral(claimed), wide


@once
def _delays(observation: Observation) -> tuple[tuple[DelayedBatch, ...], tuple[DelayedBatch, ...]]:
    """The batches that stragglers held up, and those whose durations are spread."""
    stragglers: list[DelayedBatch] = []
    skewed: list[DelayedBatch] = []
    if not observation.noteworthy("no_runnable_task", "tail"):
        return (), ()
    attempts, found = observation.measured, levels.batches(observation)
    durations = attempts.stop - attempts.start
    slow = np.isin(attempts.worker, [worker for worker, _ in slow_workers(observation)])
    excused = slow | sending(observation)
    idle = _IdleThreads(observation)
    for batch in _candidates(observation):
        tasks = found.tasks(batch)
        tasks = tasks[~excused[tasks]]
        if len(tasks) < MIN_TASKS:
            continue
        median = float(found.median[batch])
        count, alone = _long(durations[tasks], median)
        rest, long = tasks[: len(tasks) - count], tasks[len(tasks) - count :]
        if alone and not _larger(observation, long, rest):
            others = _all_begun(observation, tasks, median) + float(durations[rest[-1]])  # not behind a long one
            others = min(others, float(attempts.stop[rest].max()))
            end = max(others, float((attempts.start[long] + median).max()))
            stragglers.append(DelayedBatch(batch, long, end, *idle.claim(tasks, end)))
        elif len(long) or _spread(durations[tasks]):
            mean_s = float(durations[tasks].mean())
            end = _all_begun(observation, tasks, mean_s)
            lost, wide = idle.claim(tasks, end)
            lost -= _last_wave_s(len(tasks), wide, mean_s)
            skewed.append(DelayedBatch(batch, tasks, end, max(lost, 0.0), wide))
    return tuple(stragglers), tuple(skewed)


def _candidates(observation: Observation) -> list[int]:
    """Batches, those first that can have lost most: the overrun of their longest task on all their threads."""
    attempts, found = observation.measured, levels.batches(observation)
    longest = (attempts.stop - attempts.start)[found.task[found.first[1:] - 1]]
    could = (longest - found.median) * np.minimum(found.size, observation.threads)
    could[found.size < MIN_TASKS] = 0.0
    best = np.argsort(-could, kind="stable")[:CANDIDATES]
    return [int(batch) for batch in best if could[batch] > 0]


def _long(rising: Floats, median: float) -> tuple[int, bool]:
    """How many tasks are long, of durations that rise; and whether they are few and the others alike.

    Where the others are not alike, those may still be long that are so far beyond them that no spread explains them.
    """
    few = max(2, FEW_LONG * len(rising))
    long = int((rising > LONG * median).sum())
    if 0 < long <= few and not _spread(rising[: len(rising) - long]):
        return long, True
    beyond = int((rising > FAR * rising[math.ceil(0.9 * (len(rising) - 1))]).sum())
    return (beyond, True) if 0 < beyond <= few else (long, False)


def _spread(rising: Floats) -> bool:
    """Whether durations, shortest first, are spread widely."""
    last = len(rising) - 1
    if last < 1:
        return False
    return bool(rising[math.ceil(0.9 * last)] >= SPREAD * max(rising[math.floor(0.1 * last)], 1e-6))


def _larger(observation: Observation, long: Ints, rest: Ints) -> bool:
    """Whether the results of long tasks are larger in something like the measure in which the tasks are longer."""
    if not len(long) or not len(rest):
        return False
    nbytes = levels.column(observation, "nbytes")
    usual = float(np.median(nbytes[rest]))
    return usual >= LARGE_RESULT and float(np.median(nbytes[long])) >= 2 * usual


def _all_begun(observation: Observation, tasks: Ints, mean_s: float) -> float:
    """When the last of these tasks had begun or, if that is sooner, would have, had all taken the mean.

    One that was given to a worker behind a long one begins late although other threads are idle.
    """
    attempts = observation.measured
    wide = float(levels.timeline(observation).level(attempts.start[tasks], attempts.stop[tasks]).max(initial=1.0))
    waves = math.ceil(len(tasks) / max(wide, 1.0))
    equal = float(attempts.runnable[tasks].max()) + (waves - 1) * mean_s
    return min(float(attempts.start[tasks].max()), equal)


def _last_wave_s(tasks: int, threads: float, mean_s: float) -> float:
    """Thread-seconds that equal tasks would leave idle in their last wave."""
    if threads < 1:
        return 0.0
    return (threads * math.ceil(tasks / threads) - tasks) * mean_s


STRAGGLER = TrialCause(
    code="straggler",
    title="A few tasks hold up the others",
    needs="Of at least 3 tasks of a group in flight together, at most 5 % (or two) take more than 3 times the median, "
    "and threads that had been busy beside them are idle until they end, with no task waiting, or only some that wait "
    "behind others.",
    ruled_out_by="Tasks that do not divide by the threads (no task is long: uneven waves); durations spread over many "
    "tasks, or results that are larger too (skewed-tasks); a worker that is slow in all it does (slow-worker); tasks "
    "that wait for tasks of their own (nested-client); other work that fills the threads meanwhile.",
    remedy="Split the long task, or start it first with `priority=`",
    link="https://distributed.dask.org/en/stable/priority.html",
    parts=("no_runnable_task", "tail", "not_assigned"),
    rules_out=("sequential-graph",),
)


@STRAGGLER.finds
def straggler(observation: Observation) -> Finding | None:
    """A few tasks of a stage hold up the others.

    `lost_s`: had the stragglers taken the median of their stage, it would have ended with the last of the others, which
    would have begun as early as equal tasks. From then to its real end, threads that were busy beside it before and are
    idle while no task waits, or only some that wait behind others.
    """
    held = _delays(observation)[0]
    lost_s = sum(each.lost_s for each in held)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    attempts = observation.measured
    worst = max(held, key=lambda each: each.lost_s)
    tasks, longest = len(levels.batches(observation).tasks(worst.batch)), int(worst.tasks[-1])
    prefix, worker = attempts.prefix[longest], attempts.addresses[int(attempts.worker[longest])]
    took = float(attempts.stop[longest] - attempts.start[longest])
    median = float(levels.batches(observation).median[worst.batch])
    others = f" ({len(worst.tasks) - 1:,} more like it)" if len(worst.tasks) > 1 else ""
    began = float(attempts.start[levels.batches(observation).tasks(worst.batch)].min())
    early = began + took <= worst.end_s and attempts.start[longest] > began
    act = (
        "start it first (`priority=1` in `client.submit`, or put it at the head of the list)"
        if early
        else "split the work of that task"
    )
    return STRAGGLER.finding(
        observation,
        lost_s,
        f"{plural(len(worst.tasks), 'task')} of {tasks:,} `{prefix}` held up the others: "
        f"`{levels.key(observation, longest)}` took {words.duration(took)}{others}, the median is "
        f"{words.duration(median)}, and {percent(share)} of the worker time was spent waiting for it.",
        f"{act}; if it is fast when run alone, look at its worker {worker} instead",
        Evidence("longest task of the stage, s", round(took, 4), f"table tasks, {levels.key(observation, longest)}"),
        Evidence("median of its stage, s", round(median, 4), f"table tasks, prefix {prefix}"),
        Evidence("tasks of more than 3 times the median", len(worst.tasks), f"of {tasks:,} in flight together"),
        Evidence("most tasks of the stage at once", round(worst.wide), "table tasks"),
        Evidence("thread-seconds idle after all others had ended", round(lost_s, 3), "tasks and worker time"),
        confidence=0.9,
    )


SKEWED_TASKS = TrialCause(
    code="skewed-tasks",
    title="Tasks of one stage differ widely",
    needs="The 90th percentile of the durations of at least 3 tasks in flight together is twice the 10th or more, or "
    "more than 5 % take over 3 times the median, or the few that do have results that are larger too; and threads wait "
    "at the end of the stage for more than equal tasks would make them.",
    ruled_out_by="A handful of long tasks among equal ones (straggler); equal tasks that do not divide by the threads "
    "(uneven waves); so many tasks per thread that the threads end together all the same.",
    remedy="Cut the input into parts of equal work and more of them, the longest first",
    link="https://docs.dask.org/en/stable/dataframe-best-practices.html",
    parts=("no_runnable_task", "tail", "not_assigned"),
    rules_out=("sequential-graph",),
)


@SKEWED_TASKS.finds
def skewed_tasks(observation: Observation) -> Finding | None:
    """Durations of a stage are spread widely, and threads wait at its end.

    `lost_s`: from the start of the last task of such a stage (or from when it would have started, were all tasks
    equal) to its end, threads that were busy before and are idle while no task waits, or only some that wait behind
    others; less what equally many tasks of the mean duration would leave idle in their last wave.
    """
    held = _delays(observation)[1]
    lost_s = sum(each.lost_s for each in held)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    attempts = observation.measured
    worst = max(held, key=lambda each: each.lost_s)
    durations = (attempts.stop - attempts.start)[worst.tasks]
    low, middle, high = (float(np.quantile(durations, at)) for at in (0.1, 0.5, 0.9))
    prefix = attempts.prefix[int(worst.tasks[-1])]
    nbytes = levels.column(observation, "nbytes")[worst.tasks]
    by_size = _correlated(nbytes, durations) and float(np.median(nbytes)) >= LARGE_RESULT
    sizes = f", and with their results ({words.size(nbytes.min())} to {words.size(nbytes.max())})" if by_size else ""
    longest = f"{words.duration(float(durations[-1]))} for `{levels.key(observation, int(worst.tasks[-1]))}`"
    return SKEWED_TASKS.finding(
        observation,
        lost_s,
        f"{len(durations):,} `{prefix}` tasks take {words.duration(low)} (a tenth is shorter) to "
        f"{words.duration(high)} (a tenth is longer), at most {longest}{sizes}: {percent(share)} of the worker time "
        "was spent waiting for the last of them.",
        ("repartition by size" if by_size else "divide the work into equal parts")
        + f", and into more of them: at least {4 * math.ceil(worst.wide):,} `{prefix}` tasks for "
        f"{plural(math.ceil(worst.wide), 'thread')}, the longest first (`priority=`)",
        Evidence("10 % of the tasks are shorter than, s", round(low, 4), f"table tasks, prefix {prefix}"),
        Evidence("median, s", round(middle, 4), f"table tasks, prefix {prefix}"),
        Evidence("10 % of the tasks are longer than, s", round(high, 4), f"table tasks, prefix {prefix}"),
        Evidence("tasks", len(durations), "in flight together"),
        Evidence("thread-seconds idle at the end of such stages", round(lost_s, 3), "tasks and worker time"),
        confidence=0.9,
    )


def _correlated(first: Floats, second: Floats) -> bool:
    if first.std() == 0 or second.std() == 0:
        return False
    return bool(np.corrcoef(first, second)[0, 1] > 0.7)


# ------------------------------------------------------------------ slow worker


@once
def slow_workers(observation: Observation) -> tuple[tuple[int, float], ...]:
    """Workers (indices into `Attempts.addresses`) that are slow in all they do, and how many times slower.

    The score of a worker is the median, over its tasks, of the logarithm of duration by median of the batch. A worker
    is slow when its score is `SLOW` above that of the (lower) median worker, by more than `SURE` standard errors of a
    median of so many tasks (1.25 σ / √n, σ from the median absolute deviation), in at least three quarters of its
    tasks; and when at most a third of the workers are.
    """
    attempts, found = observation.measured, levels.batches(observation)
    big = found.size[found.batch] >= MIN_TASKS
    task, usual = found.task[big], found.median[found.batch[big]]
    durations = (attempts.stop - attempts.start)[task]
    known = (durations > 0) & (usual > 0)
    task, score = task[known], np.log(durations[known] / usual[known])
    worker = attempts.worker[task]
    present = np.unique(worker)
    if len(present) < 2:
        return ()
    order = np.lexsort((score, worker))
    score, worker = score[order], worker[order]
    first = np.concatenate([np.searchsorted(worker, present), [len(worker)]])
    count = np.diff(first)
    middle = score[first[:-1] + (count - 1) // 2]
    typical = np.sort(middle)[(len(middle) - 1) // 2]
    spread = 1.4826 * float(np.median(np.abs(score - np.median(score))))
    error = 1.25 * max(spread, NOISE) / np.sqrt(count)
    quarter = score[first[:-1] + (count - 1) // 4]  # three quarters of its tasks are slower than this
    above = middle - typical
    slow = (above >= math.log(SLOW)) & (above >= SURE * error) & (count >= 2) & (quarter - typical >= math.log(1.2))
    if not slow.any() or slow.sum() > max(1, len(present) / 3):
        return ()
    return tuple((int(present[i]), float(np.exp(above[i]))) for i in np.flatnonzero(slow))


SLOW_WORKER = TrialCause(
    code="slow-worker",
    title="A worker is slow at everything",
    needs="A worker's tasks (at least two) take 1.5 times as long as other tasks of the same groups or more, three "
    "quarters of them clearly so, beyond what the spread of durations explains; at most a third of the workers are so.",
    ruled_out_by="Single long tasks on a worker that is fast otherwise (straggler); durations so spread that a slow "
    "median is chance (skewed-tasks); all workers alike; tasks that may not run elsewhere, for then they may be larger "
    "ones (worker-restriction).",
    remedy="Retire the worker and look at its host",
    link="https://distributed.dask.org/en/stable/diagnosing-performance.html",
    parts=("busy", "no_runnable_task", "tail", "not_assigned"),
    rules_out=("sequential-graph",),
)


@SLOW_WORKER.finds
def slow_worker(observation: Observation) -> Finding | None:
    """One worker, or a few, are slower whatever they run.

    `lost_s`: the part of the slow workers' computing beyond what the median worker would have taken, plus, in every
    batch that they finish last, threads idle without a waiting task since the other workers' last task of it ended.
    """
    slow = slow_workers(observation)
    if not slow:
        return None
    attempts, found = observation.measured, levels.batches(observation)
    ratio = np.ones(len(attempts.addresses))
    for worker, times in slow:
        ratio[worker] = times
    durations = attempts.stop - attempts.start
    times_of = ratio[attempts.worker]
    excess_s = float((durations * (1 - 1 / times_of))[attempts.useful].sum())
    idle, waited_s = _IdleThreads(observation), 0.0
    for batch in _last_on(observation, ratio > 1):
        tasks = found.tasks(batch)
        others = tasks[times_of[tasks] == 1]
        slowed = tasks[times_of[tasks] > 1]
        usual = float((attempts.start[slowed] + durations[slowed] / times_of[slowed]).max())
        waited_s += idle.claim(tasks, max(float(attempts.stop[others].max()), usual))[0]
    lost_s = excess_s + waited_s
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    worker, times = max(slow, key=lambda item: item[1])
    own = attempts.useful & (attempts.worker == worker)
    count, bound = int(own.sum()), bool(confined(observation)[own].all())
    names = [attempts.addresses[each] for each, _ in sorted(slow, key=lambda item: -item[1])]
    which = (
        f"Worker `{names[0]}`{observation.place(names[0])} is"
        if len(names) == 1
        else f"Workers {words.some(names)} are"
    )
    costs = f"(median over {plural(count, 'task')}), which costs {percent(share)} of the worker time"
    evidence = (
        Evidence("slow workers", len(slow), f"of {len(attempts.addresses):,}, table tasks by worker"),
        Evidence("times slower, median of its tasks", round(times, 3), f"table tasks, worker {names[0]}"),
        Evidence("thread-seconds of computing beyond the usual", round(excess_s, 3), "table tasks"),
        Evidence("thread-seconds of others waiting for them", round(waited_s, 3), "tasks and worker time"),
    )
    if bound:
        return WORKER_RESTRICTION.finding(
            observation,
            lost_s,
            f"{which} {number(times, 2)} times slower than the others {costs}: either its tasks are larger, or the "
            "worker is slow, and no other may take them.",
            "remove `workers=[...]` from the call that makes them, or add `allow_other_workers=True`; if the worker is "
            "slow then, too, look at its host",
            *evidence,
            confidence=0.7,
        )
    return SLOW_WORKER.finding(
        observation,
        lost_s,
        f"{which} {number(times, 2)} times slower than the others at the same tasks {costs}.",
        f"take {words.some(names)} out (`client.retire_workers`) and look at the host: other processes, fewer or "
        "slower cores, throttling, a slow disk",
        *evidence,
        confidence=0.9 if count >= 3 else 0.7,
    )


def _last_on(observation: Observation, slow: Bools) -> list[int]:
    """Batches that others took part in and a slow worker finished, the latest first, `CANDIDATES` at most."""
    attempts, found = observation.measured, levels.batches(observation)
    on_slow = slow[attempts.worker[found.task]]
    stop = attempts.stop[found.task]
    count = len(found.median)
    last = [np.zeros(count), np.zeros(count)]
    for ends, chosen in zip(last, (on_slow, ~on_slow), strict=True):
        np.maximum.at(ends, found.batch[chosen], stop[chosen])
    late = np.where(last[1] > 0, last[0] - last[1], 0.0)
    return [int(batch) for batch in np.argsort(-late, kind="stable")[:CANDIDATES] if late[batch] > 0]


TINY_TASKS = TrialCause(
    code="tiny-tasks",
    title="Tasks too small",
    needs="The mean task is shorter than one millisecond of scheduling times the threads (so that the scheduler cannot "
    "feed them), or than two milliseconds (so that the worker does more for it than in it), and threads are idle while "
    "tasks wait.",
    ruled_out_by="Short tasks on so few threads that the scheduler keeps up (5 ms on 2 threads); waiting that is due "
    "to restrictions, locality or late workers; idle threads with no task waiting.",
    remedy="Let each task do more: lists of items, larger partitions or chunks",
    link="https://docs.dask.org/en/stable/best-practices.html#avoid-very-large-graphs",
    parts=("not_assigned",),
)


@TINY_TASKS.finds
def tiny_tasks(observation: Observation) -> Finding | None:
    """Tasks are shorter than what it takes to handle them.

    The scheduler hands out one task after another, each costing it about a millisecond (more, where the simulated
    cluster was told so). With P threads and tasks of mean duration d it cannot keep them busy when d < P × that cost; a
    worker cannot when d is below twice its own cost of a task.

    `lost_s`: idle while tasks wait (`not_assigned`), less what restrictions, locality and late workers explain of it.
    """
    attempts = observation.measured
    if not observation.noteworthy("not_assigned"):
        return None
    durations = (attempts.stop - attempts.start)[attempts.useful]
    scheduler_s, worker_s = _handling(observation)
    mean_s, threads = float(durations.mean()), observation.threads
    by_scheduler = mean_s < threads * scheduler_s
    if len(durations) < BULK or not (by_scheduler or mean_s < 2 * worker_s):
        return None
    lost_s = observation.seconds("not_assigned") - displaced_s(observation)
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    rate = len(durations) / attempts.makespan
    prefix = levels.most_common_prefix(observation, attempts.useful)
    enough = max(2 * threads * scheduler_s if by_scheduler else 0.0, 10 * worker_s)
    useful = max(1, round(float(durations.sum()) / attempts.makespan))
    limit = (
        f"{rate:,.0f} tasks were handled per second, which keeps {plural(useful, 'thread')} of {threads:,} busy"
        if by_scheduler
        else f"a worker needs about {words.duration(worker_s)} more for each"
    )
    return TINY_TASKS.finding(
        observation,
        lost_s,
        f"{len(durations):,} tasks, most of them `{prefix}`, take {words.duration(mean_s)} on average: {limit}, and "
        f"{percent(share)} of the worker time is spent between tasks; more workers do not help.",
        f"let each `{prefix}` task do about {math.ceil(enough / max(mean_s, 1e-6)):,} times as much (a list of items "
        f"per call, larger partitions or chunks), so that it takes {words.duration(enough)} or more",
        Evidence("mean duration of a task, s", round(mean_s, 6), "table tasks"),
        Evidence("tasks", len(durations), "table tasks"),
        Evidence("tasks per second", round(rate, 1), "tasks by makespan"),
        Evidence("assumed cost of a task to the scheduler, s", scheduler_s, "built in, or the cluster's facts"),
        Evidence("share runnable, not assigned", round(observation.share("not_assigned"), 4), "worker time"),
        confidence=0.8,
    )


def _handling(observation: Observation) -> tuple[float, float]:
    """Seconds that the scheduler, and a worker, needs for a task, as far as is known."""
    cluster = observation.trial.facts.get("cluster", {})
    scheduler = TRANSITIONS * float(cluster.get("scheduler_us_per_transition") or 0.0) * 1e-6
    worker = float(cluster.get("worker_us_per_task") or 0.0) * 1e-6
    return max(HANDLING_S, scheduler), max(HANDLING_S, worker)
