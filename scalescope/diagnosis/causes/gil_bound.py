"""Threads of a process take turns at the interpreter lock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Floats, Ints
from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.evidence.host_cpu import FULL, MIN_SAMPLES, host, in_one_process, samples
from scalescope.diagnosis.evidence.inside_tasks import computes, inside
from scalescope.diagnosis.evidence.prefect_tasks import prefect_seconds
from scalescope.diagnosis.evidence.task_table import threads_of_workers
from scalescope.diagnosis.evidence.timeline import handed_over, timeline
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause, once
from scalescope.model.finding import Evidence, Finding
from scalescope.model.sweep import THREADS, WORKERS
from scalescope.model.words import percent, plural

OVERLAP = 1.5  # least mean number of running tasks in a sample; with fewer, no task waits for a lock
ONE_CORE = (0.75, 1.25)  # cores that a process under one lock uses: its event loop adds some, other processes take some
NEVER_MORE = 1.4  # cores; nine in ten samples of a process under one lock stay below
# Seconds after which a computing thread yields the lock (`sys.getswitchinterval`): handing a task to another thread
# takes as long.
SWITCH_S = 0.005
# Least share of tasks handed over `SWITCH_S` late that shows a lock; by chance, one of two threads gets its task at
# once.
HANDED_LATE = 1 / 3
MIN_HANDED = 3  # least tasks of a worker; fewer prove nothing about when its threads yield the lock
# Least idle cores that show that a process could have used more; on a small host, `FULL` times its cores.
ROOM = 0.3
OFF = 0.2  # least share of the busy time in which threads neither had nor wanted a core, outside of calls that wait
BY_CLOCKS = "table inside"  # source of evidence from the clocks of threads


@dataclass(frozen=True)
class LockedWorkers:
    """Workers whose threads took turns at one core."""

    workers: Ints  # indices into `Attempts.addresses`
    cpu: float  # cores in use while tasks overlapped, on average
    running: float  # tasks that overlapped, on average
    lost_s: float  # thread-seconds of tasks that ran without a core
    source: str = "table memory, column cpu"  # table or fact from which the cores were read


@once
def locked_workers(observation: Observation) -> LockedWorkers | None:
    found = samples(observation)
    if found is None or np.bincount(found.worker).max() < MIN_SAMPLES:
        return _locked_by_host(observation) or _locked_by_clocks(observation)
    chosen = (found.threads >= 2) & (found.running >= OVERLAP)
    count = int(found.worker.max()) + 1
    weight = np.where(chosen, found.seconds, 0.0)
    time, number = _by(found.worker, weight, count), _by(found.worker, chosen.astype(np.float64), count)
    with np.errstate(invalid="ignore", divide="ignore"):
        cpu = _by(found.worker, weight * found.cpu, count) / time
        overlap = _by(found.worker, weight * found.running, count) / time
        above = _by(found.worker, (chosen & (found.cpu > NEVER_MORE)).astype(np.float64), count) / number
    locked = (number >= MIN_SAMPLES) & (cpu >= ONE_CORE[0]) & (cpu <= ONE_CORE[1]) & (above <= 0.1)
    locked &= (overlap - cpu >= 0.5) & (cpu <= 0.7 * overlap)
    locked &= [_handed_late(observation, worker) for worker in range(count)]
    if not locked.any() or not _has_room(observation):
        return _locked_by_clocks(observation)
    of_locked = weight * locked[found.worker]
    total = float(of_locked.sum())
    return LockedWorkers(
        workers=np.flatnonzero(locked),
        cpu=float((of_locked * found.cpu).sum()) / total,
        running=float((of_locked * found.running).sum()) / total,
        lost_s=float((of_locked * np.maximum(found.running - found.cpu, 0.0)).sum()),
    )


def _locked_by_host(observation: Observation) -> LockedWorkers | None:
    """Locked workers by the host's load, for a trial with one worker process and too few samples."""
    here, attempts = host(observation), observation.measured
    one = in_one_process(observation)
    if here is None or (len(attempts.addresses) > 1 and not one) or observation.threads < 2:
        return None
    used_s = (here.ours - here.own * (not one)) * here.cpus * here.seconds
    cpu, at_once = used_s / attempts.makespan, observation.seconds("busy") / attempts.makespan
    held = observation.seconds("busy", "not_assigned") / attempts.makespan
    if not ONE_CORE[0] <= cpu <= min(ONE_CORE[1], 0.7 * held, at_once) or held < OVERLAP:
        return None
    lost_s = (held - cpu) * attempts.makespan
    return LockedWorkers(np.array([0]), cpu, at_once, lost_s, "facts host.load") if _handed_late(observation) else None


def _locked_by_clocks(observation: Observation) -> LockedWorkers | None:
    """Locked workers by the clocks of threads, also on a full host: a thread that waits for the lock wants no core."""
    here, one, threads = host(observation), in_one_process(observation), threads_of_workers(observation)
    known = bool(observation.numbers("workers", "core_wait_s").any()) or (here is not None and not here.crowded)
    if not known or (threads.min() < 2 and not one) or not _handed_late(observation):
        return None
    line = timeline(observation)
    ran_s = line.integral((line.occupied >= 1).astype(np.float64)) * (1 if one else len(threads))  # process-seconds
    computing = [each for prefix, each in inside(observation).items() if computes(observation, prefix)]
    cpu_s, for_core_s, off_s = (
        sum(each.seconds[part] for each in computing) for part in ("computing", "for_core", "waiting")
    )
    if observation.seconds("busy") < OVERLAP * ran_s or off_s < OFF * observation.seconds("busy"):
        return None
    if cpu_s + for_core_s < ONE_CORE[0] * ran_s or cpu_s > ONE_CORE[1] * ran_s:
        return None
    running = observation.seconds("busy") / ran_s
    return LockedWorkers(np.arange(len(threads)), cpu_s / ran_s, running, off_s, BY_CLOCKS)


def _has_room(observation: Observation) -> bool:
    """Whether the host had a second core to offer; without one, threads take turns even without a lock."""
    here = host(observation)
    return here is None or here.idle * here.cpus >= min(ROOM, FULL * here.cpus)


def _handed_late(observation: Observation, worker: int = 0) -> bool:
    """Whether tasks waited on the worker as long as the switch interval; true where it ran too few to tell."""
    late = handed_over(observation)[(observation.measured.worker == worker) | in_one_process(observation)]
    return len(late) < MIN_HANDED or bool(np.quantile(late, 1 - HANDED_LATE) >= SWITCH_S)


def _by(worker: Ints, weight: Floats, count: int) -> Floats:
    return np.bincount(worker, weights=weight, minlength=count).astype(np.float64)


GIL_BOUND = TrialCause(
    code="gil-bound",
    title="Threads wait for the interpreter lock",
    needs="On workers with two or more threads, at least 1.5 tasks ran at once but used 0.75 to 1.25 cores (table "
    "memory; for one worker in a short trial, facts host.load). Or for a fifth of the busy time, their threads neither "
    "ran nor wanted a core, although no call was waiting (table inside). In both cases, every third task reached its "
    "thread at least 5 ms late: Python lets another thread keep the lock for that long.",
    ruled_out_by="Tasks that release the lock use a core each. Tasks that sleep use none, and those that partly wait "
    "get their next task within a millisecond. A host without an idle core could not give a task more. Several "
    "workers in one process are recognised only if the scheduler and the client run in it, too. More than half of the "
    "busy time was in Prefect (prefect-overhead).",
    remedy="Use processes instead of threads (threads_per_worker=1), or code that releases the lock",
    link="https://distributed.dask.org/en/stable/efficiency.html#adjust-between-threads-and-processes",
    parts=("busy",),
    changes=(Term.WORK, Term.SPAN),
    premise="Tasks of one process computed one at a time, although other cores were idle.",
    told_by="the same trial with `threads_per_worker=1` and as many workers as there are threads now",
)


@GIL_BOUND.finds
def gil_bound(observation: Observation) -> Finding | None:
    """`lost_s`: thread-seconds of tasks that overlapped, less the core-seconds that they used; a part of `busy`."""
    locked, attempts = locked_workers(observation), observation.measured
    if locked is None:
        return None
    here = host(observation)
    by_clocks = locked.source == BY_CLOCKS
    if not _has_room(observation) and not by_clocks:
        return None
    if observation.share_of(locked.lost_s) < NOTEWORTHY:
        return None
    if (
        sum(each.around + each.first for each in prefect_seconds(observation).values())
        > observation.seconds("busy") / 2
    ):
        return None  # the cause is prefect-overhead
    threads = int(attempts.members.nthreads.max())
    # Without the lock, as many tasks would compute at once as the host has cores for them.
    cores = observation.threads if here is None else max((here.idle + here.ours) * here.cpus, 1.0)
    computed = 1 - min(locked.lost_s / observation.seconds("busy"), 1.0)
    one = in_one_process(observation)
    late = handed_over(observation)[np.isin(attempts.worker, locked.workers) | one]
    names = [attempts.addresses[i] for i in locked.workers.tolist()]
    room = "" if here is None else f", with {here.idle * here.cpus:.1f} of {here.cpus} cores of the host idle"
    prefix = max(observation.stages, key=lambda stage: stage.work_s).prefix
    if one:
        who, how = "The one process of client, scheduler and workers", "`Client(processes=True, threads_per_worker=1)`"
    else:
        who = f"{plural(len(names), 'worker')} of {len(attempts.addresses):,}"
        how = f"{observation.trial.point.workers * threads} workers with `threads_per_worker=1` "
        how += "(`dask worker --nworkers N --nthreads 1`)"
    on = f"on {locked.cpu:.2f} cores{room}"
    if by_clocks:
        off = locked.lost_s / observation.seconds("busy")
        on = f"and for {percent(off)} of their time these tasks neither had a core nor wanted one"
    return GIL_BOUND.finding(
        observation,
        locked.lost_s,
        f"{who} ran {locked.running:.1f} tasks at once {on}: the threads take turns at the interpreter lock (GIL), "
        f"mostly in `{prefix}`.",
        Remedy(
            f"use processes instead of threads: {how}, or code that releases the lock (NumPy, Numba `nogil=True`)",
            saved_s=0.0 if by_clocks else attempts.here_s * (1 - computed * max(observation.threads / cores, 1.0)),
            # no axis turns workers of one process into processes: for one thread each, there is no change to propose
            change={} if one and threads == 1 else {WORKERS: observation.trial.point.workers * threads, THREADS: 1},
        ),
        Evidence("tasks running at once where threads take turns", round(locked.running, 2), "table tasks"),
        Evidence("cores in use while tasks overlapped", round(locked.cpu, 3), locked.source),
        Evidence(
            "least seconds that the slowest third of tasks needed to reach their threads",
            round(float(np.quantile(late, 1 - HANDED_LATE)), 4),
            "table tasks",
        ),
        Evidence("threads of each worker", threads, "table workers"),
        Evidence("a worker whose threads take turns", names[0], "table workers"),
        *(() if here is None else (Evidence("share of the host idle", round(here.idle, 3), "facts host.load"),)),
        confidence=0.85 if here is not None and not by_clocks else 0.6,
        place=observation.made_at,
    )
