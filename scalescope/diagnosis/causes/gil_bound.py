"""Threads of a process take turns at the interpreter lock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Floats, Ints
from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.cpu_samples import MIN_SAMPLES, samples
from scalescope.diagnosis.evidence.hand_over import handed_over
from scalescope.diagnosis.evidence.host_load import host
from scalescope.diagnosis.observation import Observation, TrialCause, once
from scalescope.model.finding import Evidence, Finding
from scalescope.model.sweep import THREADS, WORKERS
from scalescope.model.words import plural

OVERLAP = 1.5
"""Tasks running at once, on average over a sample, from which on they overlap enough to compete for a lock."""


ONE_CORE = (0.75, 1.25)
"""Cores that a process uses which computes under one lock: its event loop adds a little, other processes take some."""


NEVER_MORE = 1.4
"""Cores that nine in ten samples of such a process stay below."""


SWITCH_S = 0.005
"""After so long a thread that computes gives the lock to one that waits (`sys.getswitchinterval`): a worker whose
threads keep the lock needs as long to hand one of them its next task, and hardly a millisecond where they do not."""


HANDED_LATE = 1 / 3
"""Share of tasks that are handed over so late: of two threads, the one that has just ended a task is first by chance in
every second case."""


MIN_HANDED = 3
"""Tasks that waited on a worker while its threads computed, needed before anything is said of handing them over."""


ROOM = 0.3
"""Idle cores of the host that prove that a process could have had more."""


@dataclass(frozen=True)
class LockedWorkers:
    """Workers whose threads took turns at one core.

    Attributes:
        workers: Indices into `Attempts.addresses`.
        cpu: Cores in use while tasks overlapped, on average.
        running: Tasks that overlapped, on average.
        lost_s: Thread-seconds of tasks that ran without a core.
        source: Where the cores were read.
    """

    workers: Ints
    cpu: float
    running: float
    lost_s: float
    source: str = "table memory, column cpu"


@once
def locked_workers(observation: Observation) -> LockedWorkers | None:
    found = samples(observation)
    if found is None or np.bincount(found.worker).max() < MIN_SAMPLES:
        return _locked_by_host(observation)
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
    if not locked.any():
        return None
    of_locked = weight * locked[found.worker]
    total = float(of_locked.sum())
    return LockedWorkers(
        workers=np.flatnonzero(locked),
        cpu=float((of_locked * found.cpu).sum()) / total,
        running=float((of_locked * found.running).sum()) / total,
        lost_s=float((of_locked * np.maximum(found.running - found.cpu, 0.0)).sum()),
    )


def _locked_by_host(observation: Observation) -> LockedWorkers | None:
    """The same of a single worker, in a trial too short for samples, by what our processes but the driver used.

    Its threads wait for the lock within tasks and, where it is not handed a task in time, between them.
    """
    here, attempts = host(observation), observation.measured
    if here is None or len(attempts.addresses) > 1 or attempts.members.nthreads.max() < 2:
        return None
    apart = not attempts.addresses[0].startswith("inproc:")  # the worker is a process of its own
    used_s = (here.ours - here.own * apart) * here.cpus * here.seconds
    cpu, at_once = used_s / attempts.makespan, observation.seconds("busy") / attempts.makespan
    held = observation.seconds("busy", "not_assigned") / attempts.makespan
    if not ONE_CORE[0] <= cpu <= min(ONE_CORE[1], 0.7 * held, at_once) or held < OVERLAP:
        return None
    lost_s = (held - cpu) * attempts.makespan
    return LockedWorkers(np.array([0]), cpu, at_once, lost_s, "facts host.load") if _handed_late(observation) else None


def _handed_late(observation: Observation, worker: int = 0) -> bool:
    """Whether a worker took as long as the interpreter's switch interval to start tasks that waited on it.

    Tasks that use a core in part, and together one, are no others by their CPU time. True where too few waited to tell.
    """
    late = handed_over(observation)[observation.measured.worker == worker]
    return len(late) < MIN_HANDED or bool(np.quantile(late, 1 - HANDED_LATE) >= SWITCH_S)


def _by(worker: Ints, weight: Floats, count: int) -> Floats:
    return np.bincount(worker, weights=weight, minlength=count).astype(np.float64)


GIL_BOUND = TrialCause(
    code="gil-bound",
    title="Threads wait for the interpreter",
    needs="CPU of worker processes (table memory; facts host.load for one worker in a trial too short for that): on "
    "workers of two or more threads at least 1.5 tasks ran at once on 0.75 to 1.25 cores, hardly ever more; and "
    "every third task was handed to them 5 ms late, for which the interpreter lets another keep the lock.",
    ruled_out_by="Tasks that release the lock use a core each; tasks that sleep use none, and those that wait in part "
    "get their next task within a millisecond; on a host without an idle core nobody could have had more; workers that "
    "share a process cannot be told apart.",
    remedy="Processes instead of threads (threads_per_worker=1), or code that releases the lock.",
    link="https://distributed.dask.org/en/stable/efficiency.html#adjust-between-threads-and-processes",
    parts=("busy",),
)


@GIL_BOUND.finds
def gil_bound(observation: Observation) -> Finding | None:
    """Threads of a process take turns at the interpreter lock: many tasks run, and one core is used.

    Worker time lost: over samples in which tasks overlapped, running tasks less cores in use. It lies within `busy`:
    a thread that waits for the lock counts as computing.
    """
    locked, attempts = locked_workers(observation), observation.measured
    if locked is None:
        return None
    here = host(observation)
    if here is not None and here.idle * here.cpus < ROOM:
        return None  # there was no second core to be had, lock or no lock
    if observation.share_of(locked.lost_s) < NOTEWORTHY:
        return None
    threads = int(attempts.members.nthreads.max())
    handed = np.quantile(handed_over(observation)[np.isin(attempts.worker, locked.workers)], 1 - HANDED_LATE)
    names = [attempts.addresses[i] for i in locked.workers.tolist()]
    room = "" if here is None else f", with {here.idle * here.cpus:.1f} of {here.cpus} cores of the host idle"
    prefix = max(observation.stages, key=lambda stage: stage.work_s).prefix
    return GIL_BOUND.finding(
        observation,
        locked.lost_s,
        f"{plural(len(names), 'worker')} of {len(attempts.addresses):,} ran {locked.running:.1f} tasks at once on "
        f"{locked.cpu:.2f} cores{room}: their threads take turns at the interpreter lock (GIL), mostly in `{prefix}`.",
        f"use processes instead of threads: {observation.trial.point.workers * threads} workers with "
        "`threads_per_worker=1` (`dask worker --nworkers N --nthreads 1`), or code that releases the lock (NumPy, "
        "Numba `nogil=True`)",
        Evidence("tasks running at once on these workers", round(locked.running, 2), "table tasks"),
        Evidence("cores in use meanwhile", round(locked.cpu, 3), locked.source),
        Evidence(
            "every third task reached such a worker's thread later than, s", round(float(handed), 4), "table tasks"
        ),
        Evidence("threads of each worker", threads, "table workers"),
        Evidence("such as worker", names[0], "table workers"),
        *(() if here is None else (Evidence("share of the host idle", round(here.idle, 3), "facts host.load"),)),
        confidence=0.85 if here is not None else 0.6,
        change={WORKERS: observation.trial.point.workers * threads, THREADS: 1},
    )
