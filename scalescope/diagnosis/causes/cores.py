"""Threads and cores do not match, or others use the host."""

from __future__ import annotations

import math

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY, Term
from scalescope.diagnosis.causes.gil_bound import locked_workers
from scalescope.diagnosis.evidence.gpu import on_gpu
from scalescope.diagnosis.evidence.held_results import SPILL, limit_of_workers
from scalescope.diagnosis.evidence.host_cpu import FULL, MIN_SAMPLES, host, hosts_of_workers, in_one_process, samples
from scalescope.diagnosis.evidence.inside_tasks import OUTSIDE, PROGRAM, inside, waits
from scalescope.diagnosis.evidence.task_table import worker_of_rows
from scalescope.diagnosis.evidence.timeline import timeline
from scalescope.diagnosis.observation import Observation, Remedy, TrialCause
from scalescope.model.finding import BEYOND_CORES, Evidence, Finding, Severity
from scalescope.model.sweep import THREADS
from scalescope.model.trial import RAN
from scalescope.model.words import percent, plural, some

OURS = 0.70  # least share of a full host's cores used by our processes, for them to count as competing with each other
SIZES_LINK = "https://docs.dask.org/en/stable/best-practices.html#processes-threads-and-vm-sizes"

CROWD = 1.25  # least threads that want a core, per core, for them to count as waiting for each other
OF_DASK = 20  # most threads of a worker's process that belong to Dask itself, not to tasks or a library's pool
ONE_EACH = (
    "set OMP_NUM_THREADS=1, MKL_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 where workers start (a nanny sets them to "
    "the values in `distributed.nanny.pre-spawn-environ`), and limit other pools in the task itself (`threadpoolctl`, "
    "`torch.set_num_threads(1)`, `n_jobs=1`)"
)

OVERSUBSCRIBED_THREADS = TrialCause(
    code="oversubscribed-threads",
    title="More threads than cores",
    needs="The host had no idle core and the trial used 70 % of it (facts host.load), or workers elsewhere used 90 % "
    "of the cores that they may use. Each running task used 1.5 cores, or 1.25 tasks ran per core (table memory). Or "
    "libraries have more threads of their own than there are cores (table workers), and these used half of the "
    "processes' CPU time, on a host without an idle core (other processes may help to fill it).",
    ruled_out_by="Idle cores: pools inside tasks then use only what nobody else wants. Tasks that sleep. Other "
    "processes that fill the host (host-overloaded), unless thread pools of libraries in tasks fill the host, too.",
    remedy="One thread per pool (OMP_NUM_THREADS=1 and the like), or no more task threads than cores. With too few "
    "cores, other findings are less certain, except in a sweep of a `local` cluster, which measures this very host",
    link="https://docs.dask.org/en/stable/array-best-practices.html#avoid-oversubscribing-threads",
    parts=("busy",),
    predicts=False,
    premise="More threads than cores computed, as the processes of the workers show.",
)
ASKED = "local"  # kind of cluster whose sweeps measure this host itself


@OVERSUBSCRIBED_THREADS.finds
def oversubscribed_threads(observation: Observation) -> Finding | None:
    """`lost_s`: core-seconds of pools, beyond one core per task or outside tasks; else task-seconds without a core."""
    found, here = samples(observation), host(observation) or hosts_of_workers(observation)
    if found is None or here is None or here.idle > FULL:
        return None
    computing = found.running >= 0.5
    cores = float((found.cpu * found.seconds)[computing].sum())
    tasks = float((found.running * found.seconds)[computing].sum())
    if cores <= 0 or tasks <= 0:
        return None
    at_once = tasks / observation.measured.makespan
    own, pool = _threads_of_pools(observation)
    outside_s = _outside_of_tasks_s(observation, cores) if pool > 1 and at_once * pool >= CROWD * here.cpus else 0.0
    pools = cores >= 1.5 * tasks or outside_s >= SLACK * cores  # True if tasks have more threads, as in library pools
    # other processes fill the host, or neither pools nor running tasks exceed the cores
    if (here.ours < OURS and not outside_s) or (not pools and at_once < CROWD * here.cpus):
        return None
    beyond = np.maximum((found.cpu - found.running) if pools else (found.running - found.cpu), 0.0)
    lost_s = max(float((beyond * found.seconds)[computing].sum()), outside_s if pools else 0.0)
    lost_s = min(lost_s, observation.seconds("busy"))
    if observation.share_of(lost_s) < NOTEWORTHY:
        return None
    limit = not pools and not _asks_about_the_host(observation)
    evidence = (
        Evidence("tasks running at once", round(at_once, 2), "table tasks"),
        Evidence("cores in use per running task", round(cores / tasks, 2), "table memory, column cpu"),
        Evidence("cores of the hosts", here.cpus, "facts host.load, or table workers"),
        Evidence("share of the hosts idle", round(here.idle, 3), "facts host.load, or table memory"),
        *((Evidence("most threads of a worker's process", own, "table workers"),) if own else ()),
        *((Evidence("threads of a library's pool", pool, "table workers"),) if pool > 1 else ()),
        *((Evidence(BEYOND_CORES, observation.threads - here.cpus, "facts host.load"),) if limit else ()),
    )
    ran = f"{at_once:.1f} tasks ran at once on {plural(here.cpus, 'core')}"
    idle = f"only {percent(here.idle)} of the cores' time was idle"
    if pools:
        threads = f"{pool:,} threads of their own each" if pool > 1 else "threads of their own"
        summary = f"{ran}, and libraries inside them start {threads}, which compete: {idle}."
        remedy = ONE_EACH
    else:
        so = "a host with more cores would give other times" if limit else "more threads only slow each other down"
        summary = f"{ran}, and {idle}: each task got {percent(cores / tasks)} of a core, so {so}."
        remedy = (
            f"ask for at most {here.cpus} threads on this host (workers × threads_per_worker), or use a cluster with "
            "more cores" + (f"; {ONE_EACH}" if pool > _most_threads(observation) else "")
        )
    return OVERSUBSCRIBED_THREADS.finding(
        observation,
        lost_s,
        summary,
        remedy,
        *evidence,
        confidence=0.7 if pools else 0.9,
        link="" if pools else SIZES_LINK,
        place=observation.made_at,
    )


def _asks_about_the_host(observation: Observation) -> bool:
    """Whether the sweep asks about this host itself, so that the number of its cores is the answer."""
    facts = observation.trial.facts
    return not facts.get(RAN) and (facts.get("cluster") or {}).get("kind") == ASKED


TOLD = ("computing", "for_core", "waiting")  # parts of busy time that workers measure


def _most_threads(observation: Observation) -> int:
    return int(observation.measured.members.nthreads.max())


def _threads_of_pools(observation: Observation) -> tuple[int, int]:
    """Most threads of any worker process, and most threads of a library's pool in one process; 0 if unknown."""
    names = ("process_threads", "pool_threads")
    own, pool = (int(observation.numbers("workers", name).max(initial=0)) for name in names)
    return own, max(pool, own - _most_threads(observation) - OF_DASK)


def _outside_of_tasks_s(observation: Observation, cores_s: float) -> float:
    """CPU seconds used by threads that run no task; 0 if they are few, or workers reported none."""
    seconds = [each.seconds for each in inside(observation).values()]
    computing_s = sum(each["computing"] for each in seconds)
    told = sum(each[part] for each in seconds for part in TOLD) >= SLACK * observation.seconds("busy") > 0
    outside_s = cores_s - computing_s if told and not in_one_process(observation) else 0.0
    return outside_s if outside_s >= SLACK * cores_s else 0.0


BUSY = 0.8  # least share of worker time busy, for threads to have no time to spare
SLACK = 0.5  # least share of the host idle, for more threads to have room; also other limits of one half
MANY_WAIT = 6  # mean tasks waiting per thread, from which several times as many threads would be busy
MOST_TIMES = 8  # most threads that are recommended, as a multiple of the present ones

UNDERSUBSCRIBED_THREADS = TrialCause(
    code="undersubscribed-threads",
    title="Room for more threads",
    needs="At least 80 % of the worker time was busy and tasks waited, while half of the host's cores were idle, or "
    "while the threads of tasks spent half of the time waiting for something outside Dask (table inside).",
    ruled_out_by="Threads that were idle, or took turns at a lock (gil-bound, lock-bound). Programs that tasks start "
    "on hosts whose load is not known. Tasks that use a GPU (see gpu-starved instead). Too little memory for the tasks "
    "of one more thread.",
    remedy="More threads per worker if tasks wait for something other than a core; otherwise more workers",
    link=SIZES_LINK,
    changes=(Term.THREADS,),
    premise="Cores are idle, or tasks wait for something other than a core, and memory is left.",
    told_by="the same trial with twice as many threads",
)


@UNDERSUBSCRIBED_THREADS.finds
def undersubscribed_threads(observation: Observation) -> Finding | None:
    """Advice rather than a fault: `lost_s` is 0, and severity is `low` only where more threads would clearly pay."""
    here, each, metrics = host(observation), _cores_of_a_task(observation), observation.metrics
    if each is None or metrics is None or observation.share("busy") < BUSY or on_gpu(observation):
        return None
    line = timeline(observation)
    waiting = line.integral((line.waiting >= 1).astype(np.float64)) / observation.measured.makespan
    spare = here.idle * here.cpus if here else 0.0
    waited_s = sum(each.seconds for each in (waits(observation).get(kind) for kind in _outside(observation)) if each)
    idle = here is not None and here.idle >= SLACK and spare >= 1
    room = idle or waited_s >= SLACK * observation.seconds("busy")
    if not room or waiting < SLACK or locked_workers(observation) is not None:  # then more threads would not help
        return None
    rest = each < SLACK
    queue = line.integral(line.waiting) / (observation.measured.makespan * observation.threads)
    pays = rest and queue >= MANY_WAIT and not observation.trial.facts.get("modelled")
    if not (idle or pays):
        return None
    why = "tasks wait for something other than a core" if rest else "each task uses the one core of its thread"
    spent = max(waits(observation).values(), key=lambda each: each.seconds, default=None)
    if rest and spent:
        why = f"tasks wait, for example `{spent.prefix}` in `{spent.function}`{spent.at}"
    free = here.cpus * (1 - here.foreign) if here else np.inf  # free cores of the host that the trial could use
    times = min(1 / max(each, 1 / MOST_TIMES), free / max(each * observation.threads, 1e-9))
    times = max(min(times, metrics.widest_stage / observation.threads), 1.0)
    now_each = observation.trial.point.threads_per_worker
    threads = int(min(np.ceil(now_each * times), np.floor(now_each * _times_in_memory(observation))))
    if rest and threads <= now_each:
        return None
    times = min(times, threads / now_each) if rest else times
    now, then = (
        np.ceil(metrics.widest_stage / threads) for threads in (observation.threads, observation.threads * times)
    )
    return UNDERSUBSCRIBED_THREADS.finding(
        observation,
        0.0,
        f"{percent(observation.share('busy'))} of the worker time is busy, and {queue:.1f} tasks wait per thread"
        + (f", while {spare:.1f} of {here.cpus} cores are idle" if here else "")
        + f": {why} ({each:.2f} cores per running task).",
        Remedy(
            f"raise `threads_per_worker` (`--nthreads`) to {threads}, if what the tasks wait for can serve so many"
            if rest
            else "use more workers or threads on this host",
            # a database may serve one writer at a time: then additional threads only wait, too
            saved_s=0.0 if spent and spent.in_database else observation.measured.here_s * (1 - float(then / now)),
            change={THREADS: threads} if rest else {},
        ),
        Evidence("share of worker time busy", round(observation.share("busy"), 3), "worker time"),
        Evidence("share of the time in which tasks waited", round(waiting, 3), "table tasks"),
        Evidence("cores in use for each running task", round(each, 3), "tables fine_metrics and memory, column cpu"),
        *([Evidence("cores idle", round(spare, 2), "facts host.load")] if here else []),
        confidence=0.6,
        severity=Severity.LOW if pays else Severity.INFO,
        place=observation.made_at,
    )


def _times_in_memory(observation: Observation) -> float:
    """Threads for which a worker has memory, as a multiple of its present ones; infinite if that is not known."""
    limit, named = limit_of_workers(observation), worker_of_rows(observation, "memory") >= 0
    rss, managed = (observation.numbers("memory", name)[named] for name in ("rss", "managed"))
    if not limit or not len(rss):
        return math.inf
    least, most = float(rss.min()), float((rss - managed).max())
    return max(SPILL * limit - least, 0.0) / (most - least) if most > least else math.inf


def _outside(observation: Observation) -> tuple[str, ...]:
    # waits that use no core; a program that a task started may compute, unless the host's load is low
    here, attempts = host(observation), observation.measured
    at_once = float((attempts.stop - attempts.start).sum()) / attempts.makespan
    return (OUTSIDE, PROGRAM) if here and here.ours * here.cpus < SLACK * at_once else (OUTSIDE,)


def _cores_of_a_task(observation: Observation) -> float | None:
    """Cores that a running task keeps busy, by its thread or by its worker's process: the larger; None if unknown."""
    seconds = [each.seconds for each in inside(observation).values()]
    computing, for_core, waiting = (sum(each[part] for each in seconds) for part in TOLD)
    told = computing + for_core + waiting
    found = [(computing + for_core) / told] if told >= SLACK * observation.seconds("busy") > 0 else []
    sampled = samples(observation)
    if sampled is not None and len(sampled.worker) >= MIN_SAMPLES:
        running = float((sampled.running * sampled.seconds).sum())
        found.append(float((sampled.cpu * sampled.seconds).sum()) / max(running, 1e-9))
    return max(found, default=None)


STOLEN = 0.10  # least share of the host's cores lost to the hypervisor, which takes only cores that a process wants

HOST_OVERLOADED = TrialCause(
    code="host-overloaded",
    title="Others used the host",
    needs="At most 10 % of the host was idle and other processes used at least 15 %, or the hypervisor took 10 % "
    "(facts host.load). Meanwhile tasks lacked a core (table workers, or else memory), or waited for a thread.",
    ruled_out_by="Idle cores. Tasks that need no core: they sleep, or wait for another service. The processes of the "
    "trial filled the host (oversubscribed-threads). A simulated cluster, whose clock is virtual.",
    remedy="Free the host of other processes, or measure on dedicated cores.",
    link="https://pyperf.readthedocs.io/en/latest/system.html",
    parts=("busy", "not_assigned"),
    predicts=False,
    premise="Others used the host, as its own counters show.",
)


@HOST_OVERLOADED.finds
def host_overloaded(observation: Observation) -> Finding | None:
    """`lost_s`: core-seconds that others had and tasks lacked. Always medium, since no workload is at fault."""
    here, found = host(observation), samples(observation)
    if here is None or not (here.crowded or here.stolen >= STOLEN):
        return None
    taken = (here.foreign if here.crowded else here.stolen) * here.cpus * observation.measured.makespan
    lacked_s = float(observation.numbers("workers", "core_wait_s").sum())
    if lacked_s > 0:
        wanted = lacked_s + observation.seconds("not_assigned")
    elif found is None:
        wanted = observation.seconds("busy", "not_assigned")
    else:
        wanted = float((np.maximum(found.running - found.cpu, 0.0) * found.seconds).sum())
        wanted += observation.seconds("not_assigned")
    lost_s = min(taken, wanted)
    if observation.share_of(lost_s) < NOTEWORTHY:
        return None
    stolen = here.stolen >= here.others
    who = f"Other processes ({some(here.names)})" if here.names else "Other processes"
    who = "Other machines on the same hardware" if stolen else who
    return HOST_OVERLOADED.finding(
        observation,
        lost_s,
        f"{who} took {percent(here.foreign)} of the {plural(here.cpus, 'core')} of this host, and only "
        f"{percent(here.idle)} was idle: do not trust the measured times.",
        "run on dedicated cores or another instance type, and measure again"
        if stolen
        else "stop these processes, or pin them to other cores, and measure again",
        Evidence("share of the host used by other processes", round(here.others, 3), "facts host.load"),
        Evidence("share taken by the hypervisor", round(here.stolen, 3), "facts host.load"),
        Evidence("share used by the trial", round(here.ours, 3), "facts host.load"),
        Evidence("share idle", round(here.idle, 3), "facts host.load"),
        confidence=0.9,
        severity=Severity.MEDIUM,
    )
