"""Causes that lie in the processes and the hosts on which tasks run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.diagnosis import levels
from scalescope.diagnosis.causes.data import handed_over, serialisation_bound
from scalescope.diagnosis.observation import Observation, TrialCause, once
from scalescope.diagnosis.registry import NOTEWORTHY
from scalescope.model import words
from scalescope.model.finding import Evidence, Finding, Severity
from scalescope.model.sweep import THREADS, WORKERS
from scalescope.model.words import percent, plural

OVERLAP = 1.5
"""Tasks running at once, on average over a sample, from which on they overlap enough to compete for a lock."""
ONE_CORE = (0.75, 1.25)
"""Cores that a process uses which computes under one lock: its event loop adds a little, other processes take some."""
NEVER_MORE = 1.4
"""Cores that nine in ten samples of such a process stay below."""
MIN_SAMPLES = 3
"""Samples of a worker needed before anything is said of it."""
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

FULL = 0.10
"""Share of a host idle up to which its cores are all busy."""
OTHERS = 0.15
"""Share of a host taken by other processes and the hypervisor from which on a full host is not ours."""
STOLEN = 0.10
"""Share taken by the hypervisor that matters by itself: it is only taken from who wants to run."""
OURS = 0.70
"""Share of a full host that our processes must have for its threads to compete with each other."""
POOLED = 1.5
"""Cores for each running task from which on tasks must have threads of their own."""
CROWDED = 1.25
"""Running tasks for each core from which on they wait for one another."""

STALL_S = 0.1
"""Seconds for which an event loop must be stalled to count; tens of milliseconds are normal under load."""
STALL_ON_FULL_HOST_S = 0.5
"""The same on a host that others fill, where every process waits for its turn."""
LAG_INTERVAL_S = 1.0
"""Within this long before a row of table `lag` its stall was (`scalescope.capture.recorder`)."""

BUSY = 0.8
"""Share of worker time busy from which on threads have no time to spare."""
SLACK = 0.5
"""Share of a host idle from which on there is room for more threads."""
MANY_WAIT = 6
"""Tasks waiting for each thread, on average, from which on several times as many threads would have enough to do."""

SIZES_LINK = "https://docs.dask.org/en/stable/best-practices.html#processes-threads-and-vm-sizes"


# ------------------------------------------------------------------ the host


@dataclass(frozen=True)
class HostLoad:
    """Where the CPU time of the driver's host went during the trial, as shares of its cores.

    Attributes:
        ours: To our processes.
        own: Of that, to the driver's own, in which client and scheduler may be.
        others: To all other processes and the kernel.
        stolen: To other machines of the hypervisor.
        idle: To none.
        cpus: How many cores.
        seconds: What the shares are of.
    """

    ours: float
    own: float
    others: float
    stolen: float
    idle: float
    cpus: int
    seconds: float

    @property
    def foreign(self) -> float:
        """What was not available to the trial."""
        return self.others + self.stolen

    @property
    def crowded(self) -> bool:
        """Whether others keep all its cores busy."""
        return self.idle <= FULL and self.foreign >= OTHERS


@once
def host(observation: Observation) -> HostLoad | None:
    """The driver's host, if all workers are on it and its clock is real; None where that is not so or not known."""
    facts = observation.trial.facts
    load = (facts.get("host") or {}).get("load")
    if not load or (facts.get("cluster") or {}).get("clock") == "virtual":
        return None
    here = {"127.0.0.1", "localhost", "::1", (facts.get("host") or {}).get("hostname")}
    if any(name not in here for name in observation.column("workers", "host")):
        return None
    ours, others, stolen, idle = (load[name] for name in ("ours", "others", "stolen", "idle"))
    return HostLoad(ours, load.get("own", 0.0), others, stolen, idle, int(load["cpus"]), load["seconds"])


# ------------------------------------------------------------------ what processes used


@dataclass(frozen=True)
class CpuSamples:
    """CPU use of worker processes; one element per sample after the first of each process.

    Attributes:
        worker: Index into `Attempts.addresses`.
        seconds: Since the sample before.
        cpu: Cores in use, as a mean over that time.
        running: Tasks computing, as a mean over that time.
        threads: Threads of the worker.
    """

    worker: Ints
    seconds: Floats
    cpu: Floats
    running: Floats
    threads: Ints


@once
def samples(observation: Observation) -> CpuSamples | None:
    """The samples within the makespan; None where CPU was not recorded, or workers share processes."""
    attempts, cpu = observation.measured, observation.numbers("memory", "cpu")
    if not len(cpu):
        return None
    worker = levels.worker_of_rows(observation, "memory")
    time = observation.numbers("memory", "time") - attempts.epoch
    if _share_processes(observation, worker, time):
        return None
    order = np.lexsort((time, worker))
    order = order[worker[order] >= 0]
    worker, time, cpu = worker[order], time[order], cpu[order]
    begin = np.concatenate([[0.0], time[:-1]])
    kept = np.concatenate([[False], np.diff(worker) == 0]) & (begin >= 0) & (time <= attempts.makespan) & (time > begin)
    worker, begin, end, cpu = worker[kept], begin[kept], time[kept], cpu[kept]
    if not cpu.any():
        return None
    threads = levels.threads_of_workers(observation)[worker]
    return CpuSamples(worker, end - begin, cpu, running(observation, worker, begin, end), threads)


def _share_processes(observation: Observation, worker: Ints, time: Floats) -> bool:
    """Whether a worker that was there long enough has no sample: of a shared process only the first worker has them."""
    attempts = observation.measured
    members = attempts.members
    seen = np.unique(worker)
    interval = float(np.median(np.diff(np.sort(time[worker == seen[-1]])))) if (worker == seen[-1]).sum() > 1 else 1.0
    stayed = (members.left >= attempts.makespan) & (members.left - members.joined > 3 * interval)
    return bool(np.setdiff1d(members.worker[stayed], seen).size)


def running(observation: Observation, worker: Ints, begin: Floats, end: Floats) -> Floats:
    """Tasks computing on each worker, as a mean over each interval."""
    attempts = observation.measured
    order = np.argsort(attempts.worker.astype(np.min_scalar_type(len(attempts.addresses))), kind="stable")
    first = np.searchsorted(attempts.worker[order], np.arange(len(attempts.addresses) + 1))
    result = np.zeros(len(worker))
    for i in np.unique(worker).tolist():
        mine, rows = worker == i, order[first[i] : first[i + 1]]
        for moments, sign in ((attempts.start[rows], 1.0), (attempts.stop[rows], -1.0)):
            result[mine] += sign * (levels.covered(moments, end[mine]) - levels.covered(moments, begin[mine]))
    length = end - begin
    mean: Floats = np.maximum(result, 0.0) / np.where(length > 0, length, 1.0)
    return mean


# ------------------------------------------------------------------ interpreter lock


@dataclass(frozen=True)
class _LockedWorkers:
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
def _locked(observation: Observation) -> _LockedWorkers | None:
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
    return _LockedWorkers(
        workers=np.flatnonzero(locked),
        cpu=float((of_locked * found.cpu).sum()) / total,
        running=float((of_locked * found.running).sum()) / total,
        lost_s=float((of_locked * np.maximum(found.running - found.cpu, 0.0)).sum()),
    )


def _locked_by_host(observation: Observation) -> _LockedWorkers | None:
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
    return _LockedWorkers(np.array([0]), cpu, at_once, lost_s, "facts host.load") if _handed_late(observation) else None


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
    locked, attempts = _locked(observation), observation.measured
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


# ------------------------------------------------------------------ event loops


@dataclass(frozen=True)
class _LoopStalls:
    """Times in which event loops were stalled; one element per stall.

    Attributes:
        process: Index into `Attempts.addresses`; -1 for the scheduler.
        seconds: At most so long.
        begin: Not before this.
        end: Not after this.
    """

    process: Ints
    seconds: Floats
    begin: Floats
    end: Floats

    def only(self, kept: Bools) -> _LoopStalls:
        """Those of a mask."""
        return _LoopStalls(self.process[kept], self.seconds[kept], self.begin[kept], self.end[kept])


EVENT_LOOP_BLOCKED = TrialCause(
    code="event-loop-blocked",
    title="Event loops stalled",
    needs="Stalls of 0.1 s or more (table lag; workers' samples that came too late, table memory), while threads were "
    "idle and tasks waited: 10 % of the worker time.",
    ruled_out_by="Nothing waited or all threads were busy meanwhile; the scheduler was taking in a graph "
    "(large-graph); tasks were being unpacked (serialisation-bound); stalls below 0.5 s on a host that others fill.",
    remedy="Move what blocks off the loop of the scheduler or the worker; one thread per worker where tasks hold the "
    "lock.",
    link="https://github.com/dask/distributed/issues/6325",
    parts=("not_assigned",),
)


@EVENT_LOOP_BLOCKED.finds
def event_loop_blocked(observation: Observation) -> Finding | None:
    """An event loop was blocked for so long that threads had nothing to do while tasks waited.

    Worker time lost: for each stall, idle threads (of all workers, or of the stalled one) while tasks waited, within
    the time in which it was; at most the stall times these threads; all together at most the part `not_assigned`.
    """
    attempts = observation.measured
    if not observation.noteworthy("not_assigned"):
        return None
    costly = [stalls for stalls in (_noted(observation), _gaps(observation)) if len(stalls.process)]
    by_process: dict[int, tuple[float, float, int]] = {}
    for stalls in costly:  # both may have seen the same stall: the one that shows more of a process counts
        for process, felt in _felt(observation, stalls).items():
            by_process[process] = max(felt, by_process.get(process, felt))
    lost_s = min(sum(felt[0] for felt in by_process.values()), observation.seconds("not_assigned"))
    share = observation.share_of(lost_s)
    if share < NOTEWORTHY or serialisation_bound(observation) is not None:
        return None
    worst = max(by_process, key=lambda process: by_process[process])
    longest, count = by_process[worst][1], sum(felt[2] for felt in by_process.values())
    others, scheduler = len(by_process) - 1, worst < 0
    name = "scheduler" if scheduler else attempts.addresses[worst]
    who = "The scheduler's event loop" if scheduler else f"The event loop of worker {name}"
    who += f" (and {others:,} more)" if others else ""
    return EVENT_LOOP_BLOCKED.finding(
        observation,
        lost_s,
        f"{who} was stalled {count:,} times, up to {words.duration(longest)}, while tasks waited and threads were "
        f"idle: {percent(share)} of the worker time.",
        "find what runs on the scheduler's loop (plugins, `client.run_on_scheduler`, dashboard, messages of megabytes) "
        "with `client.profile(server=True, scheduler=True)`, and move it off the loop"
        if scheduler
        else "find what runs on the worker's loop or holds the interpreter lock (`client.run`, worker plugins, "
        "deserialisation, native code that keeps the lock) with `client.profile(server=True)`, and use "
        "`threads_per_worker=1` where the tasks hold it",
        Evidence("stalls while threads were idle", count, "table lag, gaps in table memory"),
        Evidence(f"longest stall of {name}, s", round(longest, 3), "table lag, gaps in table memory"),
        Evidence("processes that stalled", len(by_process), "table lag, gaps in table memory"),
        Evidence("thread-seconds idle meanwhile", round(lost_s, 3), "worker time `not_assigned`"),
        confidence=0.8,
    )


def _shortest(observation: Observation) -> float:
    here = host(observation)
    return STALL_ON_FULL_HOST_S if here is not None and here.crowded else STALL_S


def _noted(observation: Observation) -> _LoopStalls:
    """Stalls by table `lag`; not those in which the scheduler took in a graph."""
    time = observation.numbers("lag", "time") - observation.measured.epoch
    seconds = observation.numbers("lag", "seconds")
    begin = time - np.maximum(seconds, LAG_INTERVAL_S)
    found = _LoopStalls(levels.worker_of_rows(observation, "lag", "process"), seconds, begin, time)
    process = found.process
    return found.only((process >= -1) & (seconds >= _shortest(observation)) & ~_in_a_graph(observation, begin, time))


def _gaps(observation: Observation) -> _LoopStalls:
    """Stalls of workers by the times of their samples, which a system monitor takes on the event loop, at intervals."""
    process = levels.worker_of_rows(observation, "memory")
    time = observation.numbers("memory", "time") - observation.measured.epoch
    order = np.lexsort((time, process))
    process, time = process[order], time[order]
    gap = np.diff(time)
    kept = np.diff(process) == 0
    usual = float(np.quantile(gap[kept], 0.25)) if kept.any() else np.inf  # the scheduler's, where workers stall often
    kept &= process[1:] >= 0
    kept &= gap - usual >= max(_shortest(observation), 0.5 * usual)
    return _LoopStalls(process[1:][kept], gap[kept], time[:-1][kept], time[1:][kept])


def _felt(observation: Observation, stalls: _LoopStalls) -> dict[int, tuple[float, float, int]]:
    """For each process whose stalls cost something: thread-seconds, the longest stall in seconds, and how many."""
    attempts, line = observation.measured, levels.timeline(observation)
    begin, end = np.clip(stalls.begin, 0.0, attempts.makespan), np.clip(stalls.end, 0.0, attempts.makespan)
    lost = line.between(np.minimum(line.idle, line.waiting), begin, end)
    lost = np.minimum(lost, stalls.seconds * observation.threads)
    on_worker = stalls.process >= 0
    if on_worker.any():
        worker, since, until = stalls.process[on_worker], begin[on_worker], end[on_worker]
        threads = levels.threads_of_workers(observation)
        free = np.maximum(threads[worker] - running(observation, worker, since, until), 0.0) * (until - since)
        wanted = line.between((line.waiting > 0.5).astype(np.float64), since, until)
        limit = np.minimum(stalls.seconds[on_worker], wanted) * threads[worker]
        lost[on_worker] = np.minimum(lost[on_worker], np.minimum(free, limit))
    felt = lost > 0
    return {
        process: (
            float(lost[felt & (stalls.process == process)].sum()),
            float(stalls.seconds[felt & (stalls.process == process)].max()),
            int((felt & (stalls.process == process)).sum()),
        )
        for process in np.unique(stalls.process[felt]).tolist()
    }


def _in_a_graph(observation: Observation, begin: Floats, end: Floats) -> Bools:
    """Whether the scheduler took in a graph for long within an interval: that is `large-graph`."""
    attempts = observation.measured
    seconds = observation.numbers("graphs", "seconds")
    since = observation.numbers("graphs", "time")[seconds >= STALL_S] - attempts.epoch
    until = since + seconds[seconds >= STALL_S]
    inside = np.zeros(len(begin), dtype=np.bool_)
    for first, last in zip(since, until, strict=True):
        inside |= (begin < last) & (end > first)
    return inside


OVERSUBSCRIBED_THREADS = TrialCause(
    code="oversubscribed-threads",
    title="More threads than cores",
    needs="A host without idle cores (facts host.load) of which the trial has 70 %, and 1.5 cores in use for each "
    "running task, or 1.25 running tasks for each core (table memory).",
    ruled_out_by="Idle cores: then pools inside tasks only use what nobody else wants; tasks that sleep; other "
    "processes that fill the host (host-overloaded).",
    remedy="One thread for each pool (OMP_NUM_THREADS=1 and the like), or no more task threads than cores.",
    link="https://docs.dask.org/en/stable/array-best-practices.html#avoid-oversubscribing-threads",
    parts=("busy",),
)


@OVERSUBSCRIBED_THREADS.finds
def oversubscribed_threads(observation: Observation) -> Finding | None:
    """More threads want to run than the host has cores: pools inside the tasks, or more task threads than cores.

    Worker time lost, with pools: cores used beyond one for each running task, which others of our tasks did not get on
    a full host; at most `busy`. Without: running tasks less cores in use.
    """
    found, here = samples(observation), host(observation)
    if found is None or here is None or here.idle > FULL or here.ours < OURS:
        return None
    computing = found.running >= 0.5
    cores = float((found.cpu * found.seconds)[computing].sum())
    tasks = float((found.running * found.seconds)[computing].sum())
    if cores <= 0 or tasks <= 0:
        return None
    pools = cores >= POOLED * tasks
    beyond = np.maximum((found.cpu - found.running) if pools else (found.running - found.cpu), 0.0)
    at_once = tasks / observation.measured.makespan
    if not pools and at_once < CROWDED * here.cpus:
        return None
    lost_s = min(float((beyond * found.seconds)[computing].sum()), observation.seconds("busy"))
    if observation.share_of(lost_s) < NOTEWORTHY:
        return None
    evidence = (
        Evidence("tasks running at once", round(at_once, 2), "table tasks"),
        Evidence("cores in use for each of them", round(cores / tasks, 2), "table memory, column cpu"),
        Evidence("cores of the host", here.cpus, "facts host.load"),
        Evidence("share of the host idle", round(here.idle, 3), "facts host.load"),
    )
    if pools:
        summary = (
            f"Each running task uses {cores / tasks:.1f} cores, and all {here.cpus} cores of the host are busy "
            f"({percent(here.idle)} idle): libraries inside the tasks start threads of their own, which compete."
        )
        remedy = (
            "set OMP_NUM_THREADS=1, MKL_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 where workers start (nannies do, by "
            "`distributed.nanny.pre-spawn-environ`), and limit other pools in the task itself (`threadpoolctl`, "
            "`torch.set_num_threads(1)`, `n_jobs=1`)"
        )
    else:
        summary = (
            f"{at_once:.1f} tasks ran at once on {plural(here.cpus, 'core')}, all busy ({percent(here.idle)} idle): "
            f"each got {percent(cores / tasks)} of one, so more workers or threads on this host only slow each other "
            "down."
        )
        remedy = (
            f"ask for at most {here.cpus} threads on this host (workers × threads_per_worker), or use a cluster with "
            "more cores"
        )
    return OVERSUBSCRIBED_THREADS.finding(
        observation,
        lost_s,
        summary,
        remedy,
        *evidence,
        confidence=0.7 if pools else 0.9,
        link="" if pools else SIZES_LINK,
    )


UNDERSUBSCRIBED_THREADS = TrialCause(
    code="undersubscribed-threads",
    title="Room for more threads",
    needs="At least 80 % of the worker time busy and tasks waiting, while half of the host's cores are idle.",
    ruled_out_by="Threads that are idle already, or take turns at a lock (gil-bound); workers on other hosts than the "
    "one whose load is known.",
    remedy="More threads for each worker where tasks wait for something else than a core, else more workers.",
    link=SIZES_LINK,
)


@UNDERSUBSCRIBED_THREADS.finds
def undersubscribed_threads(observation: Observation) -> Finding | None:
    """All threads are busy, tasks wait, and most cores of the host are idle: there is room for more threads.

    It is advice and no fault (nothing of the worker time is lost; tasks may wait for a GPU, or stand for one): `info`,
    with no worker time lost; `low` where so many tasks wait for something else than a core that it would pay off,
    unless they are declared to stand for compute.
    """
    found, here = samples(observation), host(observation)
    if found is None or here is None or observation.share("busy") < BUSY:
        return None
    spare = here.idle * here.cpus
    line = levels.timeline(observation)
    waiting = line.integral((line.waiting >= 1).astype(np.float64)) / observation.measured.makespan
    if here.idle < SLACK or spare < 1 or waiting < SLACK or len(found.worker) < MIN_SAMPLES:
        return None
    if _locked(observation) is not None:  # more threads would take turns as well
        return None
    each = float((found.cpu * found.seconds).sum() / max((found.running * found.seconds).sum(), 1e-9))
    rest = each < SLACK
    queue = line.integral(line.waiting) / (observation.measured.makespan * observation.threads)
    pays = rest and queue >= MANY_WAIT and not observation.trial.facts.get("modelled")
    why = "tasks wait for something else than a core" if rest else "each task uses the one core of its thread"
    return UNDERSUBSCRIBED_THREADS.finding(
        observation,
        0.0,
        f"{percent(observation.share('busy'))} of the worker time is busy and {queue:.1f} tasks wait for each thread, "
        f"while {spare:.1f} of "
        f"{here.cpus} cores are idle: {why} ({each:.2f} cores for each).",
        "raise `threads_per_worker` (`--nthreads`), if what the tasks wait for can serve more at once"
        if rest
        else "use more workers or threads on this host",
        Evidence("share of worker time busy", round(observation.share("busy"), 3), "worker time"),
        Evidence("share of the time in which tasks waited", round(waiting, 3), "table tasks"),
        Evidence("cores in use for each running task", round(each, 3), "table memory, column cpu"),
        Evidence("cores idle", round(spare, 2), "facts host.load"),
        confidence=0.6,
        severity=Severity.LOW if pays else Severity.INFO,
    )


HOST_OVERLOADED = TrialCause(
    code="host-overloaded",
    title="Others used the host",
    needs="At most 10 % of the host idle and 15 % or more used by others, or 10 % taken by the hypervisor (facts "
    "host.load), while tasks ran or waited without a core.",
    ruled_out_by="Idle cores; our own processes fill the host (oversubscribed-threads); a virtual clock.",
    remedy="Free the host of other processes, or measure on dedicated cores.",
    link="https://pyperf.readthedocs.io/en/latest/system.html",
    parts=("busy", "not_assigned"),
    spoils=50,
)


@HOST_OVERLOADED.finds
def host_overloaded(observation: Observation) -> Finding | None:
    """Other processes, or other machines on the same hardware, used the cores that the trial needed.

    Worker time lost: the cores that others had, over the makespan, at most the running tasks less cores in use (where
    CPU was recorded) or the parts `busy` and `not_assigned`. Never more than medium: it is no fault of the workload.
    """
    here, found = host(observation), samples(observation)
    if here is None or not (here.crowded or here.stolen >= STOLEN):
        return None
    taken = (here.foreign if here.crowded else here.stolen) * here.cpus * observation.measured.makespan
    if found is None:
        wanted = observation.seconds("busy", "not_assigned")
    else:
        wanted = float((np.maximum(found.running - found.cpu, 0.0) * found.seconds).sum())
        wanted += observation.seconds("not_assigned")
    lost_s = min(taken, wanted)
    if observation.share_of(lost_s) < NOTEWORTHY:
        return None
    stolen = here.stolen >= here.others
    return HOST_OVERLOADED.finding(
        observation,
        lost_s,
        f"{'Other machines on the same hardware' if stolen else 'Other processes'} took {percent(here.foreign)} of the "
        f"{plural(here.cpus, 'core')} of this host and left {percent(here.idle)} idle: do not trust the measured "
        "times.",
        "run on dedicated cores or another instance type, and measure again"
        if stolen
        else "stop the other processes (`top` shows them) or pin them to other cores, and measure again",
        Evidence("share of the host used by other processes", round(here.others, 3), "facts host.load"),
        Evidence("share taken by the hypervisor", round(here.stolen, 3), "facts host.load"),
        Evidence("share used by the trial", round(here.ours, 3), "facts host.load"),
        Evidence("share idle", round(here.idle, 3), "facts host.load"),
        confidence=0.9,
        severity=Severity.MEDIUM,
    )
