"""Cancels the Slurm jobs that a dead driver left: those of which user and name are exactly right, and the comment too.

Where the site rewrites comments, the numbers in the lease tell, or the folder of the job's log.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from scalescope import owner
from scalescope.clusters import reaping
from scalescope.clusters.reaping import Fate
from scalescope.errors import ClusterError
from scalescope.leases import Lease
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.jobs import Run, SlurmJob

SETTLE_S = 1.5
"""Seconds after which jobs are looked for a second time: the process that was killed may have just submitted one."""

GONE_S = 40.0
"""Seconds that cancelled jobs have to leave the queue: Slurm kills those that ignore SIGTERM after KillWait, 30 s by
default."""

_LOOK_S = 0.5


def reap(lease: Lease, words: str, dry_run: bool, run: Run | None) -> reaping.Reaped:
    """Cancel the jobs of a lease and remove what their cluster shared with them; see `reaping.Reaper`.

    Raises:
        ClusterError: Slurm does not answer, or jobs do not go away.
        StoreError: The lease could not be removed.
    """
    if not reaping.same_cluster(lease, run):
        name = lease.details["cluster"]
        words = f"{words}; its jobs are on Slurm cluster {name}, which is not the one that answers here"
        return reaping.elsewhere(lease, words, f"run `scalescope reap` on {name}")
    command = reaping.commands(lease, run)
    if dry_run:
        ours, strange = _jobs(lease, command)
        numbers = [job.id for job in ours]
    else:
        numbers, strange = _cancel_all(lease, command)
        _remove_folder(lease)
    if not strange:
        return reaping.removed(lease, dry_run, numbers, words)
    ids = ", ".join(job.id for job in strange)
    return reaping.Reaped(
        lease.label,
        lease.backend,
        Fate.FAILED,
        tuple(numbers),
        f"{words}; not touched: job {ids} of the same name, whose comment, number and log are not ours",
        f"if the jobs are yours: scancel {ids}; then `scalescope reap` again",
    )


def _cancel_all(lease: Lease, run: Run) -> tuple[list[str], list[SlurmJob]]:
    """Cancel the jobs of a label until the queue has none; return their numbers, and jobs that only look like ours."""
    cancelled: dict[str, None] = {}
    began = time.monotonic()
    while True:
        ours, strange = _jobs(lease, run)
        if not ours and time.monotonic() - began >= SETTLE_S:
            return list(cancelled), strange
        fresh = [job.id for job in ours if job.id not in cancelled]
        slurm_jobs.cancel(fresh, lease.label, run=run)
        cancelled.update(dict.fromkeys(fresh))
        if time.monotonic() - began > GONE_S:
            raise ClusterError(
                f"cancelled jobs are still in the queue {GONE_S:g} s later: {', '.join(job.id for job in ours)}",
                where=f"Slurm jobs named {lease.label}",
                cause="their nodes may not answer, or their processes cannot be killed",
                next_step="`scalescope reap` again in a few minutes; `squeue --name` and `sinfo -R` show the state",
            )
        time.sleep(_LOOK_S)


def _remove_folder(lease: Lease) -> None:
    """Remove what the cluster shared with its jobs, above all its private keys; the jobs' logs stay."""
    path = Path(str(lease.details.get("folder", "")))
    if path.name == lease.label and path.is_dir():
        from scalescope.clusters.jobqueue.shared_folder import (
            ClusterFolder,  # here: it loads Dask, which takes a second
        )

        ClusterFolder(lease.label, str(path.parent)).remove(keep_logs=True)


def _jobs(lease: Lease, run: Run) -> tuple[list[SlurmJob], list[SlurmJob]]:
    """Jobs of a lease that have not ended, and others of its name that are not known as ours."""
    user, folder = str(lease.details.get("user") or owner.user()), str(lease.details.get("folder") or os.devnull)
    here = [job for job in slurm_jobs.find([lease.label], run=run, user=user) if not job.has_ended]
    ours = slurm_jobs.ours(here, lease.label, lease.details.get("jobs", ()), folder, run=run)
    return ours, [job for job in here if job not in ours]
