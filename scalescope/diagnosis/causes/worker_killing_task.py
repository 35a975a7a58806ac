"""One task, or a few, end every worker that runs them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from dask.utils import parse_bytes

from scalescope.diagnosis.evidence.departures import Departure, deaths, given_up
from scalescope.diagnosis.evidence.held_results import SPILL, give_each, limit_of_workers, rounded_limit
from scalescope.diagnosis.evidence.process_end import (
    KILLED_LINK,
    MEMORY_LINK,
    MORE_MEMORY,
    how_ended,
    lost_with_workers,
    severity_of_loss,
    traces_of,
    untold,
)
from scalescope.diagnosis.evidence.task_table import task_name
from scalescope.diagnosis.observation import Observation, TrialCause, once
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.records import STATUS_FINISHED

REPORTED_S = 0.1  # seconds within which the scheduler hears of a result, or of a death
REPEATED = 2  # least deaths with the same task present, for the task to be suspected
# Error of a task whose inputs alone are larger than the memory of a worker (distributed since 2025)
REFUSED = re.compile(r"has ([\d.]+ \w+) worth of input dependencies, .* memory_limit set to ([\d.]+ \w+)")
REDUCE = (
    "reduce each input in a separate task before this task combines them, or write the results out instead of "
    "collecting them (`to_parquet`, `to_zarr` in place of `compute`)"
)
GATHERS = 0.3  # least share of a worker's memory taken by a task's inputs, for these to explain the worker's end
MOST_SUSPECTS = 3  # most tasks that may share the blame; larger groups are not suspected


@dataclass(frozen=True)
class _KillingTasks:
    # Groups of keys, likeliest first: all keys of a group were present at certain deaths, and one of them is to blame
    groups: tuple[tuple[str, ...], ...]
    deaths: tuple[Departure, ...]  # deaths that these groups explain


@once
def _blame(observation: Observation) -> _KillingTasks | None:
    """Tasks that never finished and were on several workers that died; the scheduler blames all (distributed#5234)."""
    dead = deaths(observation)
    if len(dead) < REPEATED:
        return None
    suspects = {key for key, count in Counter(key for death in dead for key in death.held).items() if count >= REPEATED}
    finished = np.asarray(observation.column("tasks", "status"), dtype=np.int64) == STATUS_FINISHED
    suspects -= set(compress(observation.column("tasks", "key"), finished.tolist())) if suspects else set()
    groups: list[tuple[str, ...]] = []
    rest = list(dead)
    while suspects and len(groups) < MOST_SUSPECTS:
        count = Counter(key for death in rest for key in death.held & suspects)
        most = max(count.values(), default=0)
        if most < REPEATED:
            break
        first = next(key for death in rest for key in sorted(death.held) if count[key] == most)
        where = [death for death in rest if first in death.held]
        together = {key for key in count if count[key] == most and all(key in death.held for death in where)}
        groups.append(_by_likelihood(observation, together, where))
        rest = [death for death in rest if first not in death.held]
    if not groups or len(rest) > 0.25 * len(dead):  # too many unexplained deaths: there are other reasons
        return None
    return _KillingTasks(tuple(groups), tuple(death for death in dead if death not in rest))


def _by_likelihood(observation: Observation, keys: Collection[str], dead: Sequence[Departure]) -> tuple[str, ...]:
    """Keys, likeliest first: workers run tasks in the order assigned, so the first unfinished one is suspected most."""
    if len(keys) == 1:
        return tuple(keys)
    columns = [observation.column("tasks", name) for name in ("key", "worker", "status", "assigned", "start", "stop")]
    workers = {death.worker: death for death in dead}
    given: dict[str, list[tuple[float, str]]] = {worker: [] for worker in workers}
    last: dict[str, float] = {}
    durations = []
    for key, worker, status, assigned, start, stop in zip(*columns, strict=True):
        if worker not in workers:
            continue
        if status != STATUS_FINISHED:
            given[worker].append((assigned, key))
        else:
            last[worker] = max(stop, last.get(worker, 0.0))
            durations.append(stop - start)
    usual = float(np.median(durations)) if durations else 0.0
    votes: Counter[str] = Counter()
    for worker, held in given.items():
        since = workers[worker].time - last.get(worker, np.inf)
        second = len(held) > 1 and 0.9 * usual <= since <= 1.5 * usual + REPORTED_S
        votes[sorted(held)[int(second)][1]] += 1
    return tuple(sorted(keys, key=lambda key: (-votes[key], key)))


WORKER_KILLING_TASK = TrialCause(
    code="worker-killing-task",
    title="A task kills its workers",
    needs="At least two workers died without being asked to leave. At least three quarters of these workers held the "
    "same one to three tasks, which never finished. Or the inputs of a task are larger than a worker's memory, so that "
    "the scheduler refused it.",
    ruled_out_by="The task finished on another worker. The workers left by request. Each dead worker held other tasks "
    "(worker-died).",
    remedy="Run that task alone, outside Dask, and fix what ends the process. The finding names the key, the exit code "
    "and, if the log has it, the line of the crash",
    link=KILLED_LINK,
    parts=("lost",),
    rules_out=("worker-died", "invalid-trials"),
    precedence=10,
    without_attempts=True,
    premise="The workers that died held this task, or no worker can hold its inputs.",
    told_by="that one task alone, outside Dask",
)


@WORKER_KILLING_TASK.finds
def worker_killing_task(observation: Observation) -> Finding | None:
    """`lost_s`: the worker-time part `lost`; all worker time if no task finished."""
    blame = _blame(observation)
    if blame is None:
        return _refused(observation)
    keys = [group[0] for group in blame.groups]
    sure = all(len(group) == 1 for group in blame.groups)
    refused = any(given_up(observation).intersection(group) for group in blame.groups)
    dead, total = blame.deaths, len(deaths(observation))
    how = how_ended(dead, observation.trial.reason)
    names = [task_name(observation, key) for key in keys]
    inputs, limit = _input_bytes(observation, keys[0]), limit_of_workers(observation)
    gathers = how.look == MORE_MEMORY and inputs >= GATHERS * limit > 0
    which = ", ".join(f"`{name}`" for name in names)
    whole = f"Task {which}" if len(keys) == 1 else f"Tasks {which}"
    if not sure:
        also = words.some([task_name(observation, key) for group in blame.groups for key in group[1:]], 2)
        whole = f"Most likely, task {which} (or {also}, on the same workers)"
    one, its = ("it", "its") if len(keys) == 1 else ("one of them", "their")
    end = f", and the scheduler gave up on {'it' if len(keys) == 1 else 'them'} (KilledWorker)" if refused else ""
    count = f"all {total:,} workers" if len(dead) == total else f"{len(dead):,} of the {total:,} workers"
    return WORKER_KILLING_TASK.finding(
        observation,
        lost_with_workers(observation),
        f"{whole} ended {its} workers: {count} that died held {one}{how.text}{end}."
        + untold(observation)
        + (f" Its inputs alone take {words.size(inputs)} of a worker's {words.size(limit)}." if gathers else ""),
        f"{REDUCE}; else {_holding(inputs)}"
        if gathers
        else f"run `{names[0]}` alone, outside Dask (`python -X faulthandler`), and {how.look}",
        *(Evidence("key of the task", key, "table tasks") for group in blame.groups for key in group[:3]),
        Evidence("workers that died while they held the task", len(dead), "tables workers and tasks"),
        Evidence("workers that died", total, "table workers"),
        *traces_of(dead),
        *((Evidence("the scheduler's verdict", "KilledWorker", "event task-erred"),) if refused else ()),
        confidence=(0.95 if refused else 0.8) if sure else 0.6,
        severity=Severity.HIGH if refused else severity_of_loss(observation, observation.share("lost")),
    )


def _input_bytes(observation: Observation, key: str) -> float:
    """Bytes of all results that the task of a key needs; 0 where that is not recorded."""
    task, needs = (np.asarray(observation.column("dependencies", name), np.int64) for name in ("task", "needs"))
    rows = [row for row, each in enumerate(observation.column("tasks", "key")) if each == key]
    needed = np.unique(needs[np.isin(task, rows[:1])])
    return float(observation.numbers("tasks", "nbytes")[needed].sum())


def _holding(nbytes: float) -> str:
    return f"{give_each(rounded_limit(2 * nbytes / SPILL))} (room for its inputs, and as much again to compute)"


def _refused(observation: Observation) -> Finding | None:
    for _, message in observation.events("task-erred"):
        if said := REFUSED.search(str(message.get("exception"))):
            key, (needs, limit) = str(message["key"]), said.groups()
            prefixes = dict(zip(observation.column("tasks", "key"), observation.column("tasks", "prefix"), strict=True))
            return WORKER_KILLING_TASK.finding(
                observation,
                lost_with_workers(observation),
                f"`{prefixes.get(key, key)}` failed: the scheduler gave it to no worker, since its inputs alone take "
                f"{needs} and a worker has {limit}.",
                f"{REDUCE}; else {_holding(parse_bytes(needs))}",
                Evidence("key of the task", key, "event task-erred"),
                confidence=0.95,
                severity=Severity.HIGH,
                link=MEMORY_LINK,
            )
    return None
