"""Removes the remains of dead runs: drivers of this machine by their folders, all else by the labels in the leases.

The number of a job or a process alone never proves that it belongs to a lease.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pkgutil import resolve_name

from scalescope import driver_folders, leases
from scalescope.errors import ClusterError, ScalescopeError, StoreError
from scalescope.leases import Lease
from scalescope.model.cluster import kinds
from scalescope.owner import Owner
from scalescope.slurm import commands as slurm_commands
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.commands import Run

LOCAL = "local"  # name of the backend of drivers on this machine

_AT_ONCE = 8  # leases handled at a time; most of the time is spent waiting


class Fate(StrEnum):
    """Outcome for the resources of one lease or driver."""

    OWNED = "owned"  # the owner lives, so nothing was touched
    REMOVED = "removed"  # the owner is dead, and everything was removed, including the lease or folder
    WOULD_REMOVE = "would remove"  # dry run: everything would have been removed
    ELSEWHERE = "elsewhere"  # not touched; `scalescope reap` must run on another host
    FAILED = "failed"  # the owner is dead, but something could not be removed; lease or folder stay


@dataclass(frozen=True)
class Reaped:
    """Result for a lease, or for the folder of a driver."""

    label: str  # label of the lease, or name of the folder
    backend: str  # empty if the lease could not be read
    fate: Fate
    removed: tuple[str, ...] = ()  # ids of removed jobs or processes; in a dry run, of those to remove
    words: str = ""  # the reason, for people
    next_step: str = ""  # what the user can do, if anything


# Removes the remains of a dead owner. Arguments: the lease, why the owner counts as dead, and whether it is a dry run.
Reaper = Callable[[Lease, str, bool], Reaped]

# Removes the remains of dead owners on other hosts, if the backend can tell which are dead. Arguments: all leases of
# the ledger, and whether it is a dry run.
ReaperOfOthers = Callable[[Collection[Lease], bool], list[Reaped]]


def reap(*, dry_run: bool = False) -> list[Reaped]:
    """Remove the remains of dead owners; return a result for each lease and each folder of a dead driver."""
    results = list(_reap_drivers(dry_run))  # first: while a driver lives, its jobs have an owner
    found, broken = leases.read_all()
    results += [_unreadable(error) for error in broken]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results += pool.map(lambda lease: _reap(lease, dry_run), found)
    others: list[Reaped] = []
    for name in filter(None, (spec.reaper_of_others for spec in kinds().values())):
        reap_others: ReaperOfOthers = resolve_name(name)
        others += reap_others(found, dry_run)
    told = {each.label for each in others}
    return [each for each in results if each.fate is not Fate.ELSEWHERE or each.label not in told] + others


def reap_here(backends: Collection[str], owner: Owner | None = None) -> list[Reaped]:
    """Remove what dead owners on this host left on these backends, or only what `owner` left; return the results."""
    dead = [lease for lease in leases.read_all()[0] if lease.owner.is_here and leases.is_owned(lease) is False]
    chosen = [lease for lease in dead if lease.backend in backends and owner in (None, lease.owner)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda lease: _reap(lease, False), chosen))


def _reap_drivers(dry_run: bool) -> Iterator[Reaped]:
    for folder in driver_folders.abandoned():
        numbers = tuple(str(process.pid) for process in driver_folders.processes(folder))
        words = "the process that started this driver is dead"
        if dry_run:
            yield Reaped(folder.name, LOCAL, Fate.WOULD_REMOVE, numbers, words)
            continue
        try:
            driver_folders.remove(folder)
        except ClusterError as error:
            yield failed(folder.name, LOCAL, error)
        else:
            yield Reaped(folder.name, LOCAL, Fate.REMOVED, numbers, words)


def _reap(lease: Lease, dry_run: bool) -> Reaped:
    try:
        owned, words = explain(lease)
        if owned:
            return Reaped(lease.label, lease.backend, Fate.OWNED, words=words)
        spec = kinds().get(lease.backend)
        if spec is None or not spec.reaper:
            words = f"{words}; this version of Scalescope cannot remove resources of {lease.backend}"
            return elsewhere(lease, words, _or_wait(lease, f"remove everything named {lease.label} there by hand"))
        if owned is None:
            return elsewhere(lease, words, _or_wait(lease, f"run `scalescope reap` on {lease.owner.host.split()[0]}"))
        reaper: Reaper = resolve_name(spec.reaper)
        return reaper(lease, words, dry_run)
    except ScalescopeError as error:
        return failed(lease.label, lease.backend, error)


def explain(lease: Lease) -> tuple[bool | None, str]:
    """Whether the owner of a lease lives (None: unknown), and how that is known.

    If the owner ran in a Slurm job on another host, Slurm tells whether that job is still there.
    """
    owned = leases.is_owned(lease)
    owner = f"process {lease.owner.pid} on {lease.owner.host.split()[0]}"
    if lease.owner.is_here:
        unused = "lives, but could not remove the resources" if lease.owner.is_alive() else "is dead"
        return owned, f"{owner} {'lives' if owned else unused}"
    if owned is False:
        return False, f"its lease has ended; its owner was {owner}"
    if lease.owner_job and same_cluster(lease):
        try:
            alive = not slurm_jobs.is_over(lease.owner_job, run=commands(lease))
        except ClusterError as error:
            return None, f"its owner is Slurm job {lease.owner_job}, but Slurm does not answer: {error.cause}"
        return alive, f"its owner, Slurm job {lease.owner_job}, {'runs' if alive else 'has ended'}"
    until = (
        ""
        if lease.limit_at is None
        else time.strftime("; its lease ends at %Y-%m-%d %H:%M", time.localtime(lease.limit_at))
    )
    return None, f"its owner is {owner}; this host cannot tell whether it lives{until}"


def same_cluster(lease: Lease) -> bool:
    """Whether this host's Slurm cluster is the lease's; true if the lease names none."""
    name = lease.details.get("cluster", "")
    return not name or slurm_jobs.cluster_name(run=commands(lease)) == name


def commands(lease: Lease) -> Run:
    """Runs commands of the Slurm that has the jobs of a lease."""
    conf = str(lease.details.get("slurm_conf", ""))
    return slurm_commands.commands({"SLURM_CONF": conf} if conf and os.path.exists(conf) else None)


# ------------------------------------------------------------------ results


def removed(lease: Lease, dry_run: bool, numbers: Sequence[str], words: str) -> Reaped:
    """Report a removal, and forget the lease unless this is a dry run."""
    if not dry_run:
        leases.release(lease)
    fate = Fate.WOULD_REMOVE if dry_run else Fate.REMOVED
    return Reaped(lease.label, lease.backend, fate, tuple(numbers), words if numbers else f"{words}; nothing left")


def elsewhere(lease: Lease, words: str, next_step: str) -> Reaped:
    return Reaped(lease.label, lease.backend, Fate.ELSEWHERE, words=words, next_step=next_step)


def _or_wait(lease: Lease, step: str) -> str:
    return step if lease.limit_at is None else f"{step}, or wait until the lease ends"


def failed(label: str, backend: str, error: ScalescopeError) -> Reaped:
    words = ": ".join(text for text in (error.what, error.cause) if text)
    return Reaped(label, backend, Fate.FAILED, words=words, next_step=error.next_step)


def _unreadable(error: StoreError) -> Reaped:
    return failed(os.path.basename(error.where).partition(".")[0], "", error)
