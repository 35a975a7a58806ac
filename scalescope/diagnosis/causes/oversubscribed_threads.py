"""More threads want to run than there are cores."""

from __future__ import annotations

import numpy as np

from scalescope.diagnosis.cause import NOTEWORTHY
from scalescope.diagnosis.evidence.cpu_samples import samples
from scalescope.diagnosis.evidence.host_load import FULL, host
from scalescope.diagnosis.observation import Observation, TrialCause
from scalescope.model.finding import Evidence, Finding
from scalescope.model.words import percent, plural

OURS = 0.70  # share of a full host that our processes use, from which they compete with each other
POOLED = 1.5  # cores per running task, from which tasks must have threads of their own
CROWDED = 1.25  # running tasks per core, from which they wait for each other
SIZES_LINK = "https://docs.dask.org/en/stable/best-practices.html#processes-threads-and-vm-sizes"


OVERSUBSCRIBED_THREADS = TrialCause(
    code="oversubscribed-threads",
    title="More threads than cores",
    needs="The host had no idle core and the trial used 70 % of it (facts host.load). Each running task used 1.5 "
    "cores, or 1.25 tasks ran per core (table memory).",
    ruled_out_by="Idle cores: pools inside tasks then use only what nobody else wants. Tasks that sleep. Other "
    "processes that fill the host (host-overloaded).",
    remedy="One thread per pool (OMP_NUM_THREADS=1 and the like), or no more task threads than cores",
    link="https://docs.dask.org/en/stable/array-best-practices.html#avoid-oversubscribing-threads",
    parts=("busy",),
)


@OVERSUBSCRIBED_THREADS.finds
def oversubscribed_threads(observation: Observation) -> Finding | None:
    """`lost_s`: cores used beyond one per running task (pools), or running tasks without a core."""
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
