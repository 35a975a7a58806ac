"""Causes that lie in where tasks may run, or were put: tasks wait on some workers while others are idle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.diagnosis import levels
from scalescope.diagnosis.observation import Observation, TrialCause, once
from scalescope.diagnosis.registry import NOTEWORTHY
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.standstill import ASKS_FOR, NO_WORKER
from scalescope.model.words import percent, plural

LOOKED_AT = 10
"""Prefixes that are looked at, those first whose tasks waited longest."""
FEW_WORKERS = 0.5
"""Share of the workers on which tasks may wait for their data before that is called few."""
CERTAIN_FEW = 0.25
"""The same where no inputs were recorded."""
MOST = 0.9
"""Share of a group's waiting that is meant by `most`."""

RESOURCES_LINK = "https://distributed.dask.org/en/stable/resources.html"


def displaced_s(observation: Observation) -> float:
    """Thread-seconds for which tasks waited and threads were idle because of where the tasks could or had to run."""
    restricted = sum(each.lost_s for each in _restricted(observation))
    return restricted + _late(observation).idle_s + _local(observation).lost_s


def _kept_waiting(observation: Observation, tasks: Ints, workers: Ints, idle: Floats, *, alone: bool) -> Floats:
    """Idle threads, over the timeline, that could have run these tasks, had they been allowed to.

    Args:
        observation: The trial.
        tasks: Attempts.
        workers: Those that may run them (indices into `Attempts.addresses`).
        idle: Threads to count, over the timeline.
        alone: Whether threads that are idle on `workers` themselves count against it: then it is not the place that
            the tasks wait for.
    """
    attempts, line = observation.measured, levels.timeline(observation)
    waiting = line.level(attempts.runnable[tasks], levels.occupied_from(observation)[tasks])
    if not alone:
        free = levels.free_threads(observation, np.isin(attempts.members.worker, workers))
        waiting, idle = np.maximum(waiting - free, 0.0), np.maximum(idle - free, 0.0)
    return np.minimum(idle, waiting)


# ------------------------------------------------------------------ worker restriction


@dataclass(frozen=True)
class RestrictedPrefix:
    """A task prefix that may not run everywhere.

    Attributes:
        prefix: Its name.
        tasks: Its restricted attempts.
        workers: Workers that ran them (indices into `Attempts.addresses`).
        allowed: Workers that may run one of them, by the median.
        by: What restricts it: `workers`, `hosts` or `resources`.
        names: What was asked for, as it was recorded.
        lost_s: Thread-seconds that others were idle while they waited.
    """

    prefix: str
    tasks: Ints
    workers: Ints
    allowed: int
    by: str
    names: str
    lost_s: float


@once
def _restricted(observation: Observation) -> tuple[RestrictedPrefix, ...]:
    """Restricted prefixes that kept tasks waiting, worst first; each idle thread counts for one of them only."""
    attempts = observation.measured
    allowed = levels.column(observation, "allowed")
    said = _said(observation)
    names, place = levels.prefixes(observation)
    by_resource = np.isin(place, [i for i, name in enumerate(names) if said.get(name, ("", ""))[0] == "resources"])
    bound = ((allowed > 0) & (allowed < len(attempts.addresses))) | by_resource
    if not observation.noteworthy("not_assigned") or not bound.any():
        return ()
    waited = np.where(bound, levels.occupied_from(observation) - attempts.runnable, 0.0)
    by_prefix = np.bincount(place, weights=waited, minlength=len(names))
    line = levels.timeline(observation)
    idle, found = line.idle, []
    for prefix in np.argsort(-by_prefix, kind="stable")[:LOOKED_AT]:
        tasks = np.flatnonzero(bound & (place == prefix))
        if not len(tasks):
            continue
        workers = np.unique(attempts.worker[tasks])
        by, asked = said.get(names[prefix], ("workers", ""))
        kept = _kept_waiting(observation, tasks, workers, idle, alone=by == "resources")
        idle = idle - kept
        median = int(np.median(allowed[tasks]))
        found.append(RestrictedPrefix(names[prefix], tasks, workers, median, by, asked, line.integral(kept)))
    return tuple(sorted(found, key=lambda each: -each.lost_s))


def _said(observation: Observation) -> dict[str, tuple[str, str]]:
    """By prefix: what restricts it, and to what, as the scheduler was told."""
    found = {}
    for _, message in observation.events("restriction"):
        for by in ("resources", "workers", "hosts"):
            if message.get(by):
                found[str(message.get("prefix"))] = (by, _shown(message[by]))
                break
    return found


def _shown(asked: object) -> str:
    if isinstance(asked, dict):
        text = ", ".join(f"{name}={amount:g}" for name, amount in asked.items() if isinstance(amount, int | float))
    elif isinstance(asked, list):
        text = ", ".join(map(str, asked))
    else:
        text = str(asked)
    return words.cut(text)


WORKER_RESTRICTION = TrialCause(
    code="worker-restriction",
    title="Tasks confined to few workers",
    needs="Tasks that may run on fewer workers than there are (`workers=`, hosts), or that ask for resources, are "
    "runnable and wait while threads elsewhere are idle; or a worker takes far longer than others for tasks that none "
    "but it may take. Or a trial reaches its time limit with tasks that no worker may run.",
    ruled_out_by="Restricted tasks that are served in time; waiting while threads of the allowed workers themselves "
    "are idle (tiny-tasks); a restriction that names all workers.",
    remedy="Remove `workers=[...]` or `resources=`, or add `allow_other_workers=True`",
    link="https://distributed.dask.org/en/stable/locality.html",
    parts=("not_assigned", "no_runnable_task", "tail"),
    spoils=40,
    workers_unused=True,
    without_attempts=True,
)


@WORKER_RESTRICTION.finds
def worker_restriction(observation: Observation) -> Finding | None:
    """Tasks may run on few workers only, or on none, and wait for them."""
    if observation.standstill or observation.attempts is None:
        return _unmet(observation)
    return _confined(observation)


def _unmet(observation: Observation) -> Finding | None:
    """Nothing moved any more, and of some tasks the scheduler said that no worker may run them."""
    found = observation.standstill
    away = [each for each in found.groups if each.problem.startswith(NO_WORKER)] if found else []
    if found is None or not away:
        return None
    worst, tasks = away[0], sum(each.tasks for each in away)
    asked = worst.problem.partition(ASKS_FOR)[2] or "what no worker has"
    by, remedy = "workers", "name workers that are there, or add `allow_other_workers=True`, in the call"
    if asked.startswith("resources"):
        by, remedy = (
            "resources",
            "start workers that offer them (`dask worker --resources`), or ask for none in the call",
        )
    return WORKER_RESTRICTION.finding(
        observation,
        observation.threads * observation.trial.real_s,
        f"Nothing moved any more: no worker may run {plural(tasks, 'task')} (`{worst.prefix}`), which ask for {asked}.",
        f"{remedy} that makes `{worst.prefix}` tasks",
        Evidence("tasks that no worker may run", tasks, "facts standstill"),
        Evidence("tasks that had not ended", found.left, "facts standstill"),
        confidence=0.95,
        severity=Severity.HIGH,
        link=RESOURCES_LINK if by == "resources" else WORKER_RESTRICTION.link,
    )


def _confined(observation: Observation) -> Finding | None:
    """Tasks that may run on few workers only waited for them.

    `lost_s`: the smaller of restricted tasks waiting and threads idle elsewhere, over time. Threads idle on the allowed
    workers themselves count against it, except for resources, which leave threads idle by design.
    """
    found, attempts = _restricted(observation), observation.measured
    lost_s = sum(each.lost_s for each in found)
    if not found or (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    worst = found[0]
    total = len(attempts.addresses)
    where = words.some([attempts.addresses[worker] for worker in worst.workers])
    who = f"{plural(len(worst.tasks), 'task')} `{worst.prefix}`"
    if worst.by == "resources":
        summary = f"{who} ask for resources ({worst.names}) and waited for them on {where}"
        remedy = (
            "raise what workers offer (`dask worker --resources`) or lower `resources=` in the call that makes "
            f"`{worst.prefix}` tasks"
        )
    else:
        argument = "workers=[...]"
        summary = f"{who} may run on {worst.allowed:,} of {plural(total, 'worker')} only ({where}) and waited for it"
        remedy = (
            f"remove `{argument}` from the call that makes `{worst.prefix}` tasks ({worst.allowed:,} of "
            f"{plural(total, 'worker')} allowed), or add `allow_other_workers=True`"
        )
    return WORKER_RESTRICTION.finding(
        observation,
        lost_s,
        f"{summary}, while other threads were idle for {percent(share)} of the worker time.",
        remedy,
        Evidence("workers allowed, median", worst.allowed, "table tasks, column allowed"),
        Evidence("workers", total, "table workers"),
        Evidence("restricted tasks", len(worst.tasks), f"table tasks, prefix {worst.prefix}"),
        Evidence("restricted to", worst.names or "not recorded", "events, topic restriction"),
        Evidence("thread-seconds idle elsewhere while they waited", round(lost_s, 3), "tasks and worker time"),
        confidence=0.95,
        link=RESOURCES_LINK if worst.by == "resources" else WORKER_RESTRICTION.link,
    )


# ------------------------------------------------------------------ late workers


@dataclass(frozen=True)
class LateWorkers:
    """Workers that joined after the first task was known.

    Attributes:
        members: Rows of `Attempts.members`.
        missing_s: Thread-seconds before they joined for which tasks waited.
        idle_s: Thread-seconds that they were idle afterwards, while tasks assigned before they joined waited elsewhere.
    """

    members: Ints
    missing_s: float
    idle_s: float


@once
def _late(observation: Observation) -> LateWorkers:
    attempts = observation.measured
    late = _newcomers(attempts.members.joined, attempts.members.left, attempts.makespan)
    if not late.any() or not observation.noteworthy("late_start", "not_assigned"):
        return LateWorkers(np.flatnonzero(late), 0.0, 0.0)
    line, members = levels.timeline(observation), attempts.members
    threads = members.nthreads[late]
    coming = line.level(np.zeros(int(threads.sum())), np.repeat(members.joined[late], threads))
    absent = np.minimum(coming, np.maximum(observation.threads - line.capacity, 0.0))
    missing = np.minimum(absent, np.maximum(line.waiting - line.idle, 0.0))

    own = np.isin(attempts.worker, members.worker[late])
    begin = levels.occupied_from(observation)
    before = ~own & (_assigned(observation) < members.joined[late].max()) & ~confined(observation)
    waiting = line.level(attempts.runnable[before], begin[before])
    idle = np.minimum(np.minimum(levels.free_threads(observation, late), waiting), line.idle)
    return LateWorkers(np.flatnonzero(late), line.integral(missing), line.integral(idle))


def _newcomers(joined: Floats, left: Floats, makespan: float) -> Bools:
    """Members that joined late and not in the place of one that had left."""
    late = joined > 0
    gone = sorted(left[left < makespan].tolist())
    for member in np.argsort(joined, kind="stable"):
        if late[member] and gone and gone[0] <= joined[member]:
            gone.pop(0)
            late[member] = False
    return late


def _assigned(observation: Observation) -> Floats:
    return levels.column(observation, "assigned") - observation.measured.epoch


def confined(observation: Observation) -> Bools:
    """Attempts that might not run on every worker."""
    allowed = levels.column(observation, "allowed")
    return (allowed > 0) & (allowed < len(observation.measured.addresses))


LATE_WORKERS = TrialCause(
    code="late-workers",
    title="Workers joined after the work began",
    needs="Workers joined after the first task was known, and tasks waited before they came, or waited on other "
    "workers while the newcomers were idle.",
    ruled_out_by="Newcomers in the place of workers that had left (worker-died); too few tasks for them anyway; "
    "restricted tasks, which may not move (worker-restriction).",
    remedy="`client.wait_for_workers(n)` before the first task is sent",
    link="https://github.com/dask/distributed/issues/5599",
    parts=("late_start", "not_assigned"),
)


@LATE_WORKERS.finds
def late_workers(observation: Observation) -> Finding | None:
    """Workers joined after the work had begun.

    `lost_s`: of the threads that came late, those that waiting tasks would have used before they joined; and those idle
    afterwards while tasks that had been assigned before waited on other workers.
    """
    late, attempts = _late(observation), observation.measured
    lost_s = late.missing_s + late.idle_s
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    joined = attempts.members.joined[late.members]
    names = [attempts.addresses[worker] for worker in attempts.members.worker[late.members]]
    unused = len(set(attempts.members.worker[late.members].tolist()) - set(attempts.worker.tolist()))
    little = f" ({unused:,} of them never got a task)" if unused else ""
    return LATE_WORKERS.finding(
        observation,
        lost_s,
        f"{plural(len(names), 'worker')} joined up to {words.duration(float(joined.max()))} after the first task was "
        f"known{little}, while tasks waited on the others: {percent(share)} of the worker time was lost as a result.",
        f"call `client.wait_for_workers({observation.trial.point.workers})` before the first task is sent"
        + (", and leave `distributed.scheduler.work-stealing` on" if late.idle_s > late.missing_s else ""),
        Evidence("workers that joined late", len(names), f"table workers: {words.some(names)}"),
        Evidence("last of them joined after, s", round(float(joined.max()), 3), "table workers"),
        Evidence("thread-seconds before they joined, tasks waiting", round(late.missing_s, 3), "tables workers, tasks"),
        Evidence("thread-seconds idle afterwards, tasks waiting", round(late.idle_s, 3), "tables workers, tasks"),
        confidence=0.9,
    )


# ------------------------------------------------------------------ data locality


@dataclass(frozen=True)
class TasksNearData:
    """Unrestricted tasks that waited on few workers.

    Attributes:
        tasks: Those attempts.
        workers: Workers on which most of the waiting was (indices into `Attempts.addresses`).
        recorded: Whether their inputs are known to lie there.
        source: The attempt whose result most of them need, or -1.
        lost_s: Thread-seconds that other workers, there from the first, were idle meanwhile.
    """

    tasks: Ints
    workers: Ints
    recorded: bool
    source: int
    lost_s: float


_NOWHERE = TasksNearData(np.empty(0, np.int64), np.empty(0, np.int64), False, -1, 0.0)


@once
def _local(observation: Observation) -> TasksNearData:
    attempts = observation.measured
    if not observation.noteworthy("not_assigned") or len(attempts.addresses) < 2:
        return _NOWHERE
    recorded, local, source = _held_inputs(observation)
    begin = levels.occupied_from(observation)
    waits = ~confined(observation) & (begin > attempts.prepared_from)
    tasks = np.flatnonzero(waits & local if recorded else waits)
    waited = np.bincount(
        attempts.worker[tasks], weights=(begin - attempts.prepared_from)[tasks], minlength=len(attempts.addresses)
    )
    order = np.argsort(-waited, kind="stable")
    if waited.sum() <= 0:
        return _NOWHERE
    count = int(np.searchsorted(np.cumsum(waited[order]), MOST * waited.sum())) + 1
    workers = order[:count]
    if count > max(1, (FEW_WORKERS if recorded else CERTAIN_FEW) * len(attempts.addresses)):
        return _NOWHERE
    tasks = tasks[np.isin(attempts.worker[tasks], workers)]
    line, own = levels.timeline(observation), np.isin(attempts.members.worker, workers)
    idle = levels.free_threads(observation, (attempts.members.joined <= 0) & ~own)
    free = levels.free_threads(observation, own)
    waiting = np.maximum(line.level(attempts.prepared_from[tasks], begin[tasks]) - free, 0.0)
    lost = np.minimum(np.minimum(idle, line.idle), waiting)
    return TasksNearData(tasks, workers, recorded, _most_needed(source, tasks), line.integral(lost))


def _held_inputs(observation: Observation) -> tuple[bool, Bools, Ints]:
    """Whether inputs were recorded; the attempts that had one where they ran; and which (an attempt, or -1)."""
    attempts = observation.measured
    count = len(attempts.start)
    local, source = np.zeros(count, dtype=bool), np.full(count, -1)
    task, needs = (np.asarray(observation.column("dependencies", name), np.int64) for name in ("task", "needs"))
    if not len(task):
        return False, local, source
    of_row = np.full(len(observation.column("tasks", "key")), -1)
    of_row[levels.rows(observation)] = np.arange(count)
    task, needs = of_row[task], of_row[needs]
    known = (task >= 0) & (needs >= 0)
    task, needs = task[known], needs[known]
    there = attempts.worker[task] == attempts.worker[needs]
    task, needs = task[there], needs[there]
    order = np.argsort(levels.column(observation, "nbytes")[needs], kind="stable")  # the largest is written last
    source[task[order]] = needs[order]
    local[task] = True
    return True, local, source


def _most_needed(source: Ints, tasks: Ints) -> int:
    needed = Counter(source[tasks][source[tasks] >= 0].tolist())
    if not needed:
        return -1
    attempt, count = needed.most_common(1)[0]
    return int(attempt) if count > len(tasks) / 2 else -1


DATA_LOCALITY = TrialCause(
    code="data-locality",
    title="Work stays where its data is",
    needs="Tasks that may run anywhere, and whose inputs were made on the worker that ran them, were assigned and "
    "waited on at most half of the workers (a quarter where no inputs were recorded), all threads of which were busy, "
    "while workers that had been there from the first were idle.",
    ruled_out_by="Restricted tasks (worker-restriction); idle workers that joined late (late-workers); waiting on "
    "workers with idle threads (tiny-tasks); tasks that wait everywhere.",
    remedy="Divide or replicate the input; tell Dask how long tasks take, so that they are stolen",
    link="https://github.com/dask/distributed/issues/6573",
    parts=("not_assigned",),
    workers_unused=True,
)


@DATA_LOCALITY.finds
def data_locality(observation: Observation) -> Finding | None:
    """Tasks wait on the few workers that hold their inputs.

    `lost_s`: the smaller of such tasks waiting, beyond threads idle on their own workers, and threads idle on other
    workers that were there from the first, over time.
    """
    local, attempts = _local(observation), observation.measured
    if (share := observation.share_of(local.lost_s)) < NOTEWORTHY:
        return None
    prefix = levels.most_common_prefix(observation, local.tasks)
    where = words.some([attempts.addresses[worker] for worker in local.workers])
    holds, remedy = _inputs(observation, local, prefix)
    return DATA_LOCALITY.finding(
        observation,
        local.lost_s,
        f"{plural(len(local.tasks), 'task')} (`{prefix}`) that may run anywhere waited on {len(local.workers):,} of "
        f"{plural(len(attempts.addresses), 'worker')} ({where}), {holds}, while other threads were idle for "
        f"{percent(share)} of the worker time.",
        remedy,
        Evidence("tasks that waited there", len(local.tasks), f"table tasks, prefix {prefix}"),
        Evidence("workers on which they waited", len(local.workers), f"of {len(attempts.addresses):,}, table tasks"),
        Evidence("inputs", "recorded there" if local.recorded else "not recorded", "table dependencies"),
        Evidence("thread-seconds idle elsewhere meanwhile", round(local.lost_s, 3), "tasks and worker time"),
        confidence=0.9 if local.recorded else 0.6,
    )


def _inputs(observation: Observation, local: TasksNearData, prefix: str) -> tuple[str, str]:
    """What the workers hold, in words, and the remedy."""
    durations = f"tell Dask that the tasks are long (`distributed.scheduler.default-task-durations: {{{prefix}: 1m}}`)"
    if local.source >= 0:
        name = levels.key(observation, local.source)
        nbytes = words.size(levels.column(observation, "nbytes")[local.source])
        made_by = observation.measured.prefix[local.source]
        return (
            f"which hold their input `{name}` ({nbytes})",
            f"divide `{made_by}` into several tasks, or copy its result to all workers first (`client.replicate`), or "
            f"{durations}, so that work stealing moves them",
        )
    if local.recorded:
        return "which hold their inputs", f"spread the inputs first (`client.rebalance(futures)`), or {durations}"
    return (
        "which probably hold their inputs (not recorded: they were scattered, or computed before)",
        f"scatter inputs to all workers (`client.scatter(data, broadcast=True)`), or {durations}",
    )
