"""Removes what dead processes left outside: by the labels in their leases, on every backend, and nothing else.

Jobs are ours only if user, name and comment are all exactly right; processes are, if they carry the label in their
environment and are this user's. Numbers alone, of jobs or processes, are never believed.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from scalescope import leases
from scalescope.errors import ClusterError, ScalescopeError, StoreError
from scalescope.leases import MARK, Lease
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.jobs import Job, Run

SETTLE_S = 1.5
"""Seconds after which jobs are looked for a second time: the process that was killed may have just submitted one."""

GONE_S = 40.0
"""Seconds that cancelled jobs have to leave the queue: Slurm kills those that ignore SIGTERM after KillWait, 30 s by
default."""

TERM_S = 25.0
"""Seconds that a driver has after SIGTERM to close its cluster; jobs are cancelled in it."""

_LOOK_S, _KILL_S = 0.5, 3.0
_AT_ONCE = 8  # leases; each mostly waits


class Fate(StrEnum):
    """What was done about a lease."""

    OWNED = "owned"
    """Its owner lives: nothing was touched."""
    REMOVED = "removed"
    """Its owner is dead: everything that it left, if anything, was removed, and the lease too."""
    WOULD_REMOVE = "would remove"
    """As before, if this had not been a dry run."""
    ELSEWHERE = "elsewhere"
    """This host cannot tell whether its owner lives, or cannot reach what it left: nothing was touched."""
    FAILED = "failed"
    """Its owner is dead, and not everything could be removed: the lease is kept for the next time."""


@dataclass(frozen=True)
class Reaped:
    """What became of a lease.

    Attributes:
        label: Of the lease.
        backend: Of the lease; empty where it could not be read.
        fate: What was done.
        removed: Numbers of the jobs or processes that were removed, or would have been.
        words: The reason, for people.
        next_step: What to do about it, where there is something to do.
    """

    label: str
    backend: str
    fate: Fate
    removed: tuple[str, ...] = ()
    words: str = ""
    next_step: str = ""


def reap(*, dry_run: bool = False, run: Run | None = None) -> list[Reaped]:
    """Remove what dead owners left, and their leases; say of every lease what became of it.

    Args:
        dry_run: Only say what would be done.
        run: Runs Slurm's commands; by default with the SLURM_CONF of each lease.

    Raises:
        StoreError: The folder of the leases cannot be read.
    """
    found, broken = leases.read_all()
    results = [_unreadable(error) for error in broken]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # Drivers first: jobs are theirs, so that they have no owner only then.
        for local in (True, False):
            due = [lease for lease in found if (lease.backend == "local") is local]
            results += pool.map(lambda lease: _reap(lease, dry_run, run), due)
    return results


def _reap(lease: Lease, dry_run: bool, run: Run | None) -> Reaped:
    reaper = REAPERS.get(lease.backend, _not_here)
    try:
        return reaper(lease, dry_run, run)
    except ScalescopeError as error:
        return _failed(lease, error)


def explain(lease: Lease, *, run: Run | None = None) -> tuple[bool | None, str]:
    """Whether a lease is owned (None: it cannot be told), and why one thinks so.

    The owner of a lease may run in a Slurm job on another host; then Slurm tells whether that job is still there.
    """
    owned = leases.is_owned(lease)
    owner = f"process {lease.owner.pid} on {lease.owner.host.split()[0]}"
    if lease.owner.is_here:
        return owned, f"{owner} {'lives' if owned else 'is dead'}"
    if owned is False:
        return False, f"its time limit is over; its owner was {owner}"
    if lease.owner_job and _same_cluster(lease, run):
        try:
            alive = not slurm_jobs.is_over(lease.owner_job, run=_run(lease, run))
        except ClusterError as error:
            return None, f"its owner is Slurm job {lease.owner_job}, and Slurm does not answer: {error.cause}"
        return alive, f"its owner, Slurm job {lease.owner_job}, {'runs' if alive else 'has ended'}"
    until = (
        "" if lease.limit_at is None else f" before {time.strftime('%Y-%m-%d %H:%M', time.localtime(lease.limit_at))}"
    )
    return None, f"its owner is {owner}: whether it lives cannot be told from here{until}"


# ------------------------------------------------------------------ Slurm


def _reap_slurm(lease: Lease, dry_run: bool, run: Run | None) -> Reaped:
    owned, words = explain(lease, run=run)
    if owned:
        return Reaped(lease.label, lease.backend, Fate.OWNED, words=words)
    if owned is None:
        step = f"run `scalescope reap` on {lease.owner.host.split()[0]}, or wait for the time limit of the lease"
        return Reaped(lease.label, lease.backend, Fate.ELSEWHERE, words=words, next_step=step)
    if not _same_cluster(lease, run):
        name = lease.details["cluster"]
        words = f"{words}; its jobs are on Slurm cluster {name}, which is not the one that answers here"
        return Reaped(
            lease.label, lease.backend, Fate.ELSEWHERE, words=words, next_step=f"run `scalescope reap` on {name}"
        )
    command = _run(lease, run)
    if dry_run:
        ours, strange = _jobs(lease, command)
        return _removed(lease, Fate.WOULD_REMOVE, [job.id for job in ours], words, strange)
    removed, strange = _cancel_all(lease, command)
    _remove_folder(lease)
    leases.release(lease)
    return _removed(lease, Fate.REMOVED, removed, words, strange)


def _cancel_all(lease: Lease, run: Run) -> tuple[list[str], list[Job]]:
    """Cancel the jobs of a label until the queue has none; return their numbers, and jobs that only look like ours.

    Raises:
        ClusterError: Slurm does not answer, or jobs do not go away.
    """
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
        from scalescope.clusters.jobqueue.folder import ClusterFolder  # here: it loads Dask, which takes a second

        ClusterFolder(lease.label, str(path.parent)).remove(keep_logs=True)


def _jobs(lease: Lease, run: Run) -> tuple[list[Job], list[Job]]:
    """Jobs of a lease that have not ended, and others of its name whose comment is not ours."""
    user = str(lease.details.get("user") or getpass.getuser())
    here = [job for job in slurm_jobs.find([lease.label], run=run, user=user) if not job.has_ended]
    return [job for job in here if job.comment == lease.label], [job for job in here if job.comment != lease.label]


def _same_cluster(lease: Lease, run: Run | None) -> bool:
    """Whether the Slurm that answers is the one that the lease was made on; true where the lease does not say."""
    name = lease.details.get("cluster", "")
    return not name or slurm_jobs.cluster_name(run=_run(lease, run)) == name


def _run(lease: Lease, run: Run | None) -> Run:
    if run is not None:
        return run
    conf = str(lease.details.get("slurm_conf", ""))
    return slurm_jobs.commands({"SLURM_CONF": conf} if conf and os.path.exists(conf) else None)


def _removed(lease: Lease, fate: Fate, numbers: Sequence[str], words: str, strange: Sequence[Job]) -> Reaped:
    step = ""
    if strange:
        ids = ", ".join(job.id for job in strange)
        words = f"{words}; not touched: job {ids} of the same name, whose comment is not its label"
        step = f"if the site changes comments and the jobs are yours: scancel {ids}"
    return Reaped(
        lease.label, lease.backend, fate, tuple(numbers), words if numbers else f"{words}; nothing left", step
    )


# ------------------------------------------------------------------ processes of this host


def _reap_local(lease: Lease, dry_run: bool, run: Run | None) -> Reaped:
    if not lease.owner.is_here:
        step = f"run `scalescope reap` on {lease.owner.host.split()[0]}"
        return Reaped(lease.label, lease.backend, Fate.ELSEWHERE, words="its processes are there", next_step=step)
    owned, words = explain(lease, run=run)
    if owned:
        return Reaped(lease.label, lease.backend, Fate.OWNED, words=words)
    processes = marked(lease.label)
    numbers = [str(process.pid) for process in processes]
    if dry_run:
        return _removed(lease, Fate.WOULD_REMOVE, numbers, words, ())
    _end(processes)
    if left := marked(lease.label):
        raise ClusterError(
            f"processes {', '.join(str(process.pid) for process in left)} could not be ended",
            cause="they may hang in the kernel, on a file system that does not answer",
            next_step="`scalescope reap` again in a few minutes",
        )
    leases.release(lease)
    return _removed(lease, Fate.REMOVED, numbers, words, ())


def marked(label: str) -> list[psutil.Process]:
    """Processes of this user whose environment carries a label, this one excepted."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.uids().real == os.getuid() and process.pid != os.getpid()
            if ours and process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == label:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    return found


def _end(processes: Sequence[psutil.Process]) -> None:
    """SIGTERM, so that a driver closes its cluster; then SIGKILL. psutil spares a later process of the same number."""
    for act, patience_s in ((psutil.Process.terminate, TERM_S), (psutil.Process.kill, _KILL_S)):
        for process in processes:
            try:
                act(process)
            except psutil.NoSuchProcess:
                continue
        _, processes = psutil.wait_procs(processes, timeout=patience_s)


# ------------------------------------------------------------------ what cannot be done


def _not_here(lease: Lease, dry_run: bool, run: Run | None) -> Reaped:
    owned, words = explain(lease, run=run)
    if owned:
        return Reaped(lease.label, lease.backend, Fate.OWNED, words=words)
    return Reaped(
        lease.label,
        lease.backend,
        Fate.ELSEWHERE,
        words=f"{words}; this version of Scalescope cannot remove what was asked of {lease.backend}",
        next_step=f"what is named {lease.label} there is ours: remove it by hand, or leave it to its time limit",
    )


def _failed(lease: Lease, error: ScalescopeError) -> Reaped:
    words = ": ".join(text for text in (error.what, error.cause) if text)
    return Reaped(lease.label, lease.backend, Fate.FAILED, words=words, next_step=error.next_step)


def _unreadable(error: StoreError) -> Reaped:
    label = os.path.basename(error.where).partition(".")[0]
    return Reaped(label, "", Fate.FAILED, words=f"{error.what}: {error.cause}", next_step=error.next_step)


Reaper = Callable[[Lease, bool, Run | None], Reaped]
REAPERS: dict[str, Reaper] = {"slurm": _reap_slurm, "local": _reap_local}
