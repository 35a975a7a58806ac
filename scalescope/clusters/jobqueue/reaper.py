"""Removes the jobs of a dead driver, and the folder shared with them; only Slurm and Grid Engine tell what is left."""

from __future__ import annotations

import os
from pathlib import Path

from scalescope.clusters import reaping
from scalescope.clusters.jobqueue.grid_engine import VARIABLES, GridEngine
from scalescope.clusters.reaping import Fate
from scalescope.errors import ClusterError
from scalescope.leases import Lease
from scalescope.slurm.commands import Run
from scalescope.slurm.jobs import ClusterJobs

SETTLE_S = 1.5  # least seconds to look for jobs: a killed driver may have submitted one just before its end

GONE_S = 40.0  # seconds for jobs to leave the queue; Slurm's KillWait is 30 by default

_Left = tuple[
    list[str], list[str], list[str]
]  # numbers of cancelled jobs, of jobs still there, and of others' jobs with the same name


def reap(lease: Lease, words: str, dry_run: bool) -> reaping.Reaped:
    """Cancel the jobs of a lease and remove what their cluster shared with them; see `reaping.Reaper`."""
    if lease.backend == "sge":
        engine = GridEngine({name: lease.details[name] for name in VARIABLES if name in lease.details})
        numbers, left, others = _reap_grid_engine(lease, engine, dry_run)
        cancel, states = "qdel", "`qstat` and `qhost`"
    elif lease.backend != "slurm":
        command = " ".join([lease.details["cancel"], *lease.details.get("jobs", ())])
        step = f"`{command}` cancels the jobs; check first that the numbers do not belong to other jobs by now"
        return reaping.elsewhere(lease, f"{words}; Scalescope cannot ask {lease.backend} which jobs are left", step)
    elif not reaping.same_cluster(lease):
        name = lease.details["cluster"]
        words = f"{words}; its jobs are on Slurm cluster {name}, which is not the one that answers here"
        return reaping.elsewhere(lease, words, f"run `scalescope reap` on {name}")
    else:
        numbers, left, others = _reap_slurm(lease, reaping.commands(lease), dry_run)
        cancel, states = "scancel", "`squeue --name` and `sinfo -R`"
    if left:
        raise ClusterError(
            f"cancelled jobs are still in the queue {GONE_S:g} s later: {', '.join(left)}",
            where=f"jobs named {lease.label}",
            cause="their nodes may not answer, or their processes cannot be killed",
            next_step=f"run `scalescope reap` again in a few minutes; {states} show the jobs and their nodes",
        )
    if not dry_run:
        _remove_folder(lease)
    if not others:
        return reaping.removed(lease, dry_run, numbers, words)
    ids = ", ".join(others)
    return reaping.Reaped(
        lease.label,
        lease.backend,
        Fate.FAILED,
        tuple(numbers),
        f"{words}; not cancelled: job {ids}, because only the name suggests that this cluster started it",
        f"if the jobs are yours, run `{cancel} {' '.join(others)}`, then `scalescope reap` again",
    )


def _reap_slurm(lease: Lease, run: Run, dry_run: bool) -> _Left:
    user = str(lease.details.get("user", ""))
    jobs = ClusterJobs(lease.label, lease.details.get("jobs", ()), _folder(lease), user)
    if dry_run:
        ours, others = jobs.left(run=run)
        return [job.id for job in ours], [], [job.id for job in others]
    numbers, ours, others = jobs.remove(run=run, timeout_s=GONE_S, settle_s=SETTLE_S)
    return numbers, [job.id for job in ours], [job.id for job in others]


def _reap_grid_engine(lease: Lease, engine: GridEngine, dry_run: bool) -> _Left:
    numbers = lease.details.get("jobs", ())
    if dry_run:
        ours, others = engine.left(lease.label, numbers, _folder(lease))
        return ours, [], others
    return engine.remove(lease.label, numbers, _folder(lease), timeout_s=GONE_S, settle_s=SETTLE_S)


def _folder(lease: Lease) -> str:
    return str(lease.details.get("folder") or os.devnull)


def _remove_folder(lease: Lease) -> None:
    path = Path(str(lease.details.get("folder", "")))
    if path.name == lease.label and path.is_dir():
        from scalescope.clusters.jobqueue.shared_folder import ClusterFolder  # here: it loads Dask, which takes 1 s

        ClusterFolder(lease.label, str(path.parent)).remove(keep_logs=True)
