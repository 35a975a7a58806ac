"""A worker, or a few workers, are slower at all tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats
from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.causes.worker_restriction import WORKER_RESTRICTION
from scalescope.diagnosis.evidence.delayed_batches import CANDIDATES, IdleThreads
from scalescope.diagnosis.evidence.gpu import on_gpu
from scalescope.diagnosis.evidence.host_cpu import FULL, MIN_SAMPLES, host, in_one_process, samples
from scalescope.diagnosis.evidence.inside_tasks import OUTSIDE, takes_turns, waits
from scalescope.diagnosis.evidence.placement import confined
from scalescope.diagnosis.evidence.rescheduled import placed_anywhere_saves_s
from scalescope.diagnosis.evidence.task_batches import slow_workers, task_batches
from scalescope.diagnosis.evidence.task_table import most_common_prefix, task_prefixes, worker_of_rows
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import number, percent, plural

COMPUTES = 0.5  # least cores used per running task, for CPU seconds to show how fast a processor is

SLOW_WORKER = TrialCause(
    code="slow-worker",
    title="A worker is slow at everything",
    needs="The median task of a worker took at least 1.5 times as long as others of the same groups, more than chance "
    "explains, and three quarters of its tasks took 1.2 times as long. These were in two batches, or at least three "
    "came after the first on that worker. At most a third of the workers are as slow. If the host has other workers, a "
    "lack of cores must explain it (table workers), or tasks of two functions must be slow; else CPU seconds may show "
    "it (table memory).",
    ruled_out_by="Single long tasks on a worker that is fast otherwise (straggler). The first task of a function on a "
    "worker, which imports modules and opens connections. Tasks that take turns at something (lock-bound). A host "
    "without an idle core (host-overloaded). Durations so spread that a slow median is chance (skewed-tasks). All "
    "workers alike. Tasks that may run on that worker only, and may just be larger (worker-restriction).",
    remedy="Run the same task on this worker and on another; if its processor is slow, retire it, and look at its host",
    link="https://distributed.dask.org/en/stable/diagnosing-performance.html",
    parts=("busy", "no_runnable_task", "tail", "not_assigned"),
    by_times=True,
    changes=(Term.WORK, Term.SPAN),
    rules_out=("sequential-graph",),
    premise="The same tasks took longer on this worker than on the others.",
    told_by="the same trial on that worker alone, and on another one",
)


@SLOW_WORKER.finds
def slow_worker(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds of tasks beyond the usual, and those idle until slow workers finish a batch."""
    slow = slow_workers(observation)
    if not slow:
        return None
    attempts, found = observation.measured, task_batches(observation)
    worker, times = max(slow, key=lambda item: item[1])
    own = attempts.useful & (attempts.worker == worker)
    bound = bool(confined(observation)[own].all())
    machine = _Machine() if bound else _machine(observation, slow)
    if machine is None:
        return None
    ratio = np.ones(len(attempts.addresses))
    for worker, times in slow:
        ratio[worker] = times
    durations = attempts.stop - attempts.start
    times_of = ratio[attempts.worker]
    excess_s = float((durations * (1 - 1 / times_of))[attempts.useful].sum())
    idle, waited_s = IdleThreads(observation), 0.0
    for batch in _last_on(observation, ratio > 1):
        tasks = found.tasks(batch)
        others = tasks[times_of[tasks] == 1]
        slowed = tasks[times_of[tasks] > 1]
        usual = float((attempts.start[slowed] + durations[slowed] / times_of[slowed]).max())
        waited_s += idle.claim(tasks, max(float(attempts.stop[others].max()), usual))[0]
    lost_s = excess_s + waited_s
    if (share := observation.share_of(lost_s)) < NOTEWORTHY:
        return None
    count = int(own.sum())
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
        Evidence("thread-seconds of others waiting for slow workers", round(waited_s, 3), "tasks and worker time"),
        *machine.evidence,
    )
    if bound:
        return WORKER_RESTRICTION.finding(
            observation,
            lost_s,
            f"{which} {number(times, 2)} times slower than the others {costs}: no other worker may run these tasks, so "
            "either they are larger, or the worker is slow.",
            Remedy(
                "remove `workers=[...]` from the call that makes these tasks, or add `allow_other_workers=True`; if "
                "the worker is slow even then, look at its host",
                saved_s=placed_anywhere_saves_s(observation),
            ),
            *evidence,
            confidence=0.7,
        )
    if machine.evidence:
        remedy = Remedy(
            f"retire {words.some(names)} (`client.retire_workers`) and look at the host: other processes, fewer or "
            "slower cores, throttling",
            shorter_s=excess_s,
        )
    else:
        function = most_common_prefix(observation, own)
        remedy = Remedy(
            f"run one `{function}` task on this worker and one on another (`client.submit(..., workers=[...])`): if it "
            "is slow here again, look at the host (disk, network, cores); if not, at what the tasks waited for",
            saved_s=0.0,
        )
    return SLOW_WORKER.finding(
        observation,
        lost_s,
        f"{which} {number(times, 2)} times slower than the others at the same tasks {costs}{machine.why}.",
        remedy,
        *evidence,
        confidence=0.9 if machine.evidence else 0.7,
    )


@dataclass(frozen=True)
class _Machine:
    """Signs that the machine of a worker is slow."""

    why: str = ""  # clause at the end of the summary
    evidence: tuple[Evidence, ...] = ()  # evidence about its processor; empty if only durations show it


def _machine(observation: Observation, slow: Sequence[tuple[int, float]]) -> _Machine | None:
    """Evidence that a machine is slow; None if other workers of its host are fast without a known reason."""
    attempts, here = observation.measured, host(observation)
    worker, times = max(slow, key=lambda item: item[1])
    if any(takes_turns(observation, prefix) for prefix in _prefixes_on(observation, worker)):
        return None
    shares_host, lacked = _shares_host(observation, [each for each, _ in slow]), _without_core(observation)
    excess = 1 - 1 / times  # share of the slow worker's time that exceeds the usual one
    if shares_host and here is not None and here.idle <= FULL and not 0 < lacked[worker] < excess / 4:
        return None  # chance decides which of the host's processes gets a core
    usual = np.setdiff1d(np.unique(attempts.worker[attempts.useful]), [each for each, _ in slow])
    if lacked[worker] - np.median(lacked[usual]) >= excess / 2:
        what = f"; its threads had no core for {percent(lacked[worker])} of the time"
        source = "table workers, column core_wait_s"
        return _Machine(what, (Evidence("share of busy time without a core", round(lacked[worker], 3), source),))
    used = _cores_of_a_task(observation)
    others = float(np.nanmedian(used[usual])) if np.isfinite(used[usual]).any() else 0.0
    if others >= COMPUTES and not shares_host and used[worker] / others * times >= times**0.5:
        more = float(used[worker] / others * times)
        what = f"; a task takes {number(more, 2)} times as many CPU seconds there"
        return _Machine(
            what, (Evidence("times the CPU seconds of a task", round(more, 3), "table memory, column cpu"),)
        )
    if shares_host and len(_prefixes_on(observation, worker)) < 2:
        return None
    spent = waits(observation).get(OUTSIDE)
    return _Machine(f"; `{spent.prefix}` waits in `{spent.function}`{spent.at}" if spent else "")


def _prefixes_on(observation: Observation, worker: int) -> list[str]:
    """Prefixes with at least two tasks on the worker."""
    attempts, (names, place) = observation.measured, task_prefixes(observation)
    count = np.bincount(place[attempts.useful & (attempts.worker == worker)], minlength=len(names))
    return [names[each] for each in np.flatnonzero(count >= 2).tolist()]


def _shares_host(observation: Observation, slow: Sequence[int]) -> bool:
    """Whether other workers share a slow worker's host; False for emulated workers and those with a GPU."""
    emulated = observation.trial.virtual or "emulation" in (observation.trial.facts.get("cluster") or {})
    if emulated or on_gpu(observation):
        return False
    hosts, place = np.array(observation.column("workers", "host")), worker_of_rows(observation, "workers")
    ours = np.isin(place, slow)
    return bool(np.isin(hosts[ours], hosts[~ours]).any())


def _without_core(observation: Observation) -> Floats:
    """Share of the busy time of each worker in which its threads of tasks wanted a core and had none."""
    attempts, waited = observation.measured, observation.numbers("workers", "core_wait_s")
    count = len(attempts.addresses)
    busy = np.bincount(attempts.worker, attempts.seconds, count)
    lacked = np.zeros(count)
    if len(waited):
        np.add.at(lacked, worker_of_rows(observation, "workers"), waited)
    share: Floats = np.divide(lacked, busy, out=np.zeros(count), where=busy > 0)
    return share


def _cores_of_a_task(observation: Observation) -> Floats:
    """Cores that a running task of each worker kept busy; NaN where its process reported too little."""
    found, count = samples(observation), len(observation.measured.addresses)
    if found is None or in_one_process(observation):
        return np.full(count, np.nan)
    computing = found.running >= COMPUTES
    used, ran = (
        np.bincount(found.worker, np.where(computing, each * found.seconds, 0.0), count)
        for each in (found.cpu, found.running)
    )
    enough = np.bincount(found.worker, computing, count) >= MIN_SAMPLES
    mean: Floats = np.divide(used, ran, out=np.full(count, np.nan), where=enough)
    return mean


def _last_on(observation: Observation, slow: Bools) -> list[int]:
    attempts, found = observation.measured, task_batches(observation)
    on_slow = slow[attempts.worker[found.task]]
    stop = attempts.stop[found.task]
    count = len(found.median)
    last = [np.zeros(count), np.zeros(count)]
    for ends, chosen in zip(last, (on_slow, ~on_slow), strict=True):
        np.maximum.at(ends, found.batch[chosen], stop[chosen])
    late = np.where(last[1] > 0, last[0] - last[1], 0.0)
    return [int(batch) for batch in np.argsort(-late, kind="stable")[:CANDIDATES] if late[batch] > 0]
