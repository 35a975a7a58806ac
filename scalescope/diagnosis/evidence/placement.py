"""Tasks that wait on some workers while others are idle: restricted, near their data, or sent before workers came."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.analysis.scattered import scattered_data
from scalescope.diagnosis.evidence.task_table import attempt_of_row, task_column, task_needs, task_prefixes
from scalescope.diagnosis.evidence.timeline import free_from, free_threads, occupied_from, timeline
from scalescope.diagnosis.observation import Observation, once
from scalescope.model import words

LOOKED_AT = 10  # most prefixes examined, the longest waiting first
CERTAIN_FEW = 0.25  # most workers with waiting tasks, as a share, for unrecorded inputs to be taken as the reason
MOST = 0.9  # share of a group's waiting that counts as most of it
VARIOUS, SCATTERED = -1, -2  # values of `TasksNearData.source` besides numbers of attempts


def displaced_s(observation: Observation) -> float:
    """Thread-seconds for which tasks waited while threads were idle, because of where tasks may or had to run."""
    restricted = sum(each.lost_s for each in restricted_prefixes(observation))
    return restricted + late_workers_of(observation).idle_s + tasks_near_data(observation).lost_s


def kept_waiting(observation: Observation, tasks: Ints, workers: Ints, idle: Floats, *, alone: bool) -> Floats:
    """Idle threads that could have run these tasks; with `alone`, idle threads on `workers` count as well."""
    attempts, line = observation.measured, timeline(observation)
    waiting = line.level(attempts.runnable[tasks], occupied_from(observation)[tasks])
    if not alone:
        free = free_threads(observation, np.isin(attempts.members.worker, workers))
        waiting, idle = np.maximum(waiting - free, 0.0), np.maximum(idle - free, 0.0)
    return np.minimum(idle, waiting)


@dataclass(frozen=True)
class RestrictedPrefix:
    """A task prefix that may not run everywhere."""

    prefix: str
    tasks: Ints  # restricted attempts of the prefix
    workers: Ints  # workers that ran these attempts (indices into `Attempts.addresses`)
    allowed: int  # median number of workers that may run one of these tasks
    by: str  # kind of restriction: `workers`, `hosts` or `resources`
    names: str  # workers, hosts or resources asked for, as recorded
    lost_s: float  # idle thread-seconds of other workers while these tasks waited


@once
def restricted_prefixes(observation: Observation) -> tuple[RestrictedPrefix, ...]:
    """Restricted prefixes that kept tasks waiting, worst first; each idle thread counts for one of them only."""
    attempts = observation.measured
    allowed = task_column(observation, "allowed")
    said = restrictions_said(observation)
    names, place = task_prefixes(observation)
    by_resource = np.isin(place, [i for i, name in enumerate(names) if said.get(name, ("", ""))[0] == "resources"])
    bound = ((allowed > 0) & (allowed < len(attempts.addresses))) | by_resource
    if not observation.noteworthy("not_assigned") or not bound.any():
        return ()
    waited = np.where(bound, occupied_from(observation) - attempts.runnable, 0.0)
    by_prefix = np.bincount(place, weights=waited, minlength=len(names))
    line = timeline(observation)
    idle, found = line.idle, []
    for prefix in np.argsort(-by_prefix, kind="stable")[:LOOKED_AT]:
        tasks = np.flatnonzero(bound & (place == prefix))
        if not len(tasks):
            continue
        workers = np.unique(attempts.worker[tasks])
        by, asked = said.get(names[prefix], ("workers", ""))
        kept = kept_waiting(observation, tasks, workers, idle, alone=by == "resources")
        idle = idle - kept
        median = int(np.median(allowed[tasks]))
        found.append(RestrictedPrefix(names[prefix], tasks, workers, median, by, asked, line.integral(kept)))
    return tuple(sorted(found, key=lambda each: -each.lost_s))


def restrictions_said(observation: Observation) -> dict[str, tuple[str, str]]:
    """Kind and names of each prefix's restriction, as the scheduler received them."""
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


@dataclass(frozen=True)
class LateWorkers:
    """Workers that joined after the first task was known."""

    members: Ints  # rows of `Attempts.members`
    missing_s: float  # thread-seconds of these workers before they joined, while tasks waited
    # Idle thread-seconds of these workers, while tasks assigned before they joined waited elsewhere
    idle_s: float


@once
def late_workers_of(observation: Observation) -> LateWorkers:
    attempts = observation.measured
    late = _newcomers(attempts.members.joined, attempts.members.left, attempts.makespan)
    if not late.any() or not observation.noteworthy("late_start", "not_assigned"):
        return LateWorkers(np.flatnonzero(late), 0.0, 0.0)
    line, members = timeline(observation), attempts.members
    threads = members.nthreads[late]
    coming = line.level(np.zeros(int(threads.sum())), np.repeat(members.joined[late], threads))
    absent = np.minimum(coming, np.maximum(observation.threads - line.capacity, 0.0))
    missing = np.minimum(absent, np.maximum(line.waiting - line.idle, 0.0))

    own = np.isin(attempts.worker, members.worker[late])
    begin = occupied_from(observation)
    assigned = task_column(observation, "assigned") - attempts.epoch
    before = ~own & (assigned < members.joined[late].max()) & ~confined(observation)
    waiting = line.level(attempts.runnable[before], begin[before])
    idle = np.minimum(np.minimum(free_threads(observation, late), waiting), line.idle)
    return LateWorkers(np.flatnonzero(late), line.integral(missing), line.integral(idle))


def _newcomers(joined: Floats, left: Floats, makespan: float) -> Bools:
    late = joined > 0
    gone = sorted(left[left < makespan].tolist())
    for member in np.argsort(joined, kind="stable"):
        if late[member] and gone and gone[0] <= joined[member]:
            gone.pop(0)
            late[member] = False
    return late


def confined(observation: Observation) -> Bools:
    allowed = task_column(observation, "allowed")
    return (allowed > 0) & (allowed < len(observation.measured.addresses))


@dataclass(frozen=True)
class TasksNearData:
    """Unrestricted tasks that waited on few workers."""

    tasks: Ints  # the waiting attempts (indices into `Attempts`)
    workers: Ints  # workers on which most of the waiting was (indices into `Attempts.addresses`)
    recorded: bool  # True if the inputs of the tasks are known to lie on these workers
    source: int  # attempt whose result most of the tasks need, `SCATTERED` (data that no task made), or `VARIOUS`
    lost_s: float  # idle thread-seconds meanwhile of other workers that had joined before the tasks were ready


NOWHERE = TasksNearData(np.empty(0, np.int64), np.empty(0, np.int64), False, VARIOUS, 0.0)


@once
def tasks_near_data(observation: Observation) -> TasksNearData:
    attempts = observation.measured
    if not observation.noteworthy("not_assigned") or len(attempts.addresses) < 2:
        return NOWHERE
    recorded, local, source = _held_inputs(observation)
    begin = occupied_from(observation)
    waits = ~confined(observation) & (begin > attempts.prepared_from)
    tasks = np.flatnonzero(waits & local if recorded else waits)
    waited = np.bincount(
        attempts.worker[tasks], weights=(begin - attempts.prepared_from)[tasks], minlength=len(attempts.addresses)
    )
    order = np.argsort(-waited, kind="stable")
    if waited.sum() <= 0:
        return NOWHERE
    count = int(np.searchsorted(np.cumsum(waited[order]), MOST * waited.sum())) + 1
    workers = order[:count]
    if not recorded and count > max(1, CERTAIN_FEW * len(attempts.addresses)):
        return NOWHERE
    tasks, line = tasks[np.isin(attempts.worker[tasks], workers)], timeline(observation)
    idle, there = line.idle, attempts.members.joined <= 0
    later = attempts.prepared_from[tasks] >= attempts.members.joined.max()
    waits_s = (begin - attempts.prepared_from)[tasks]
    if waits_s[later].sum() >= MOST * waits_s.sum():  # all workers had joined before most of the waiting
        tasks, there = tasks[later], np.ones(len(there), dtype=bool)
    free = idle if there.all() else np.minimum(idle, free_threads(observation, there))
    since = np.clip(free_from(observation), attempts.prepared_from, begin)  # a free thread gets its task at once
    handed = since < begin
    without_task = np.maximum(free - line.level(since[handed], begin[handed]), 0.0)
    lost = np.minimum(without_task, line.level(attempts.prepared_from[tasks], since[tasks]))
    return TasksNearData(tasks, workers, recorded, _most_needed(source, tasks), line.integral(lost))


def _held_inputs(observation: Observation) -> tuple[bool, Bools, Ints]:
    """Whether inputs were recorded; which attempts ran where an input lay; and each one's largest such input."""
    attempts = observation.measured
    local, source = np.zeros(len(attempts.start), dtype=bool), np.full(len(attempts.start), VARIOUS)
    data = scattered_data(observation.tables)
    task, piece = attempt_of_row(observation)[data.row], data.piece
    alone = (task >= 0) & (np.asarray(data.workers, np.int64)[piece] <= 1)  # data that one worker alone had at first
    task, piece = task[alone], piece[alone]
    there = np.asarray(attempts.addresses)[attempts.worker[task]] == np.asarray(data.first, str)[piece]
    local[task[there]], source[task[there]] = True, SCATTERED
    known = any(data.first) or bool(len(observation.column("dependencies", "task")))
    task, needs = task_needs(observation)
    there = attempts.worker[task] == attempts.worker[needs]
    task, needs = task[there], needs[there]
    order = np.argsort(task_column(observation, "nbytes")[needs], kind="stable")  # the largest input comes last
    source[task[order]] = needs[order]
    local[task] = True
    return known, local, source


def _most_needed(source: Ints, tasks: Ints) -> int:
    [(found, count)] = Counter(source[tasks].tolist()).most_common(1) or [(VARIOUS, 0)]
    return int(found) if count > len(tasks) / 2 else VARIOUS
