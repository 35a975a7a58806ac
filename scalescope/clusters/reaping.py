"""Removes what dead runs left: drivers of this machine by their folders, all else by the labels in the leases.

The backend of a lease is a kind of cluster; the module `reaper` in the folder of that kind knows what can be left there
and removes it. Numbers alone, of jobs or processes, are never believed.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import ModuleType

from scalescope import clusters, driver_folders, leases
from scalescope.errors import ClusterError, ScalescopeError, StoreError
from scalescope.leases import Lease
from scalescope.model.cluster import kinds
from scalescope.slurm import commands as slurm_commands
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.commands import Run

LOCAL = "local"  # backend of drivers on this machine

_AT_ONCE = 8  # leases; each mostly waits


class Fate(StrEnum):
    """What was done about something that a run started."""

    OWNED = "owned"  # its owner lives: nothing was touched
    REMOVED = "removed"  # its owner is dead: all that it left was removed, and the lease or folder too
    WOULD_REMOVE = "would remove"  # dry run: it would have been removed
    ELSEWHERE = "elsewhere"  # not touched: this host cannot tell whether its owner lives, or cannot reach what it left
    FAILED = "failed"  # its owner is dead, but something could not be removed: lease or folder stay for the next time


@dataclass(frozen=True)
class Reaped:
    """What became of a lease, or of the folder of a driver."""

    label: str  # of the lease, or the name of the folder
    backend: str  # empty if the lease could not be read
    fate: Fate
    removed: tuple[str, ...] = ()  # numbers of the jobs or processes that were removed, or would have been
    words: str = ""  # the reason, for people
    next_step: str = ""  # what to do about it, if anything


Reaper = Callable[[Lease, str, bool, Run | None], Reaped]
"""Removes what a lease whose owner is dead left: called with the lease, why its owner is known to be dead, whether this
is a dry run, and what runs Slurm's commands."""

ReaperOfOthers = Callable[[Collection[Lease], bool], list[Reaped]]
"""Removes what dead owners on other hosts left, if the backend itself can tell: called with all leases of the ledger,
and whether this is a dry run. It leaves owners on this host alone."""


def reap(*, dry_run: bool = False, run: Run | None = None) -> list[Reaped]:
    """Remove what dead owners left; say of each lease, and of each folder of a dead driver, what became of it.

    `run` runs Slurm's commands; by default with the SLURM_CONF of each lease.
    """
    results = list(_reap_drivers(dry_run))  # first: jobs are theirs, and have no owner once these have ended
    found, broken = leases.read_all()
    results += [_unreadable(error) for error in broken]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results += pool.map(lambda lease: _reap(lease, dry_run, run), found)
    others = [each for kind in kinds() for each in _reap_others(kind, found, dry_run)]
    told = {each.label for each in others}
    return [each for each in results if each.fate is not Fate.ELSEWHERE or each.label not in told] + others


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


def _reap(lease: Lease, dry_run: bool, run: Run | None) -> Reaped:
    try:
        owned, words = explain(lease, run=run)
        if owned:
            return Reaped(lease.label, lease.backend, Fate.OWNED, words=words)
        reaper: Reaper | None = getattr(_module(lease.backend), "reap", None)
        if reaper is None:
            return elsewhere(
                lease,
                f"{words}; this version of Scalescope cannot remove what was asked of {lease.backend}",
                f"what is named {lease.label} there is ours: remove it by hand, or leave it to its time limit",
            )
        if owned is None:
            step = f"run `scalescope reap` on {lease.owner.host.split()[0]}"
            return elsewhere(lease, words, step if lease.limit_at is None else f"{step}, or wait for its time limit")
        return reaper(lease, words, dry_run, run)
    except ScalescopeError as error:
        return failed(lease.label, lease.backend, error)


def _reap_others(kind: str, found: Collection[Lease], dry_run: bool) -> list[Reaped]:
    reaper: ReaperOfOthers | None = getattr(_module(kind), "reap_others", None)
    return reaper(found, dry_run) if reaper else []


def _module(backend: str) -> ModuleType | None:
    if backend not in kinds():
        return None
    name = clusters.module(kinds()[backend], "reaper")
    return None if importlib.util.find_spec(name) is None else import_module(name)


def explain(lease: Lease, *, run: Run | None = None) -> tuple[bool | None, str]:
    """Whether a lease is owned (None: it cannot be told), and why.

    The owner may run in a Slurm job on another host; then Slurm tells whether that job is still there.
    """
    owned = leases.is_owned(lease)
    owner = f"process {lease.owner.pid} on {lease.owner.host.split()[0]}"
    if lease.owner.is_here:
        return owned, f"{owner} {'lives' if owned else 'is dead'}"
    if owned is False:
        return False, f"its time limit is over; its owner was {owner}"
    if lease.owner_job and same_cluster(lease, run):
        try:
            alive = not slurm_jobs.is_over(lease.owner_job, run=commands(lease, run))
        except ClusterError as error:
            return None, f"its owner is Slurm job {lease.owner_job}, and Slurm does not answer: {error.cause}"
        return alive, f"its owner, Slurm job {lease.owner_job}, {'runs' if alive else 'has ended'}"
    until = (
        "" if lease.limit_at is None else f" before {time.strftime('%Y-%m-%d %H:%M', time.localtime(lease.limit_at))}"
    )
    return None, f"its owner is {owner}: whether it lives cannot be told from here{until}"


def same_cluster(lease: Lease, run: Run | None) -> bool:
    """Whether the Slurm that answers is the one of the lease; true if the lease does not say."""
    name = lease.details.get("cluster", "")
    return not name or slurm_jobs.cluster_name(run=commands(lease, run)) == name


def commands(lease: Lease, run: Run | None) -> Run:
    """What runs the commands of the lease's Slurm, unless it is given."""
    if run is not None:
        return run
    conf = str(lease.details.get("slurm_conf", ""))
    return slurm_commands.commands({"SLURM_CONF": conf} if conf and os.path.exists(conf) else None)


# ------------------------------------------------------------------ what became of it


def removed(lease: Lease, dry_run: bool, numbers: Sequence[str], words: str) -> Reaped:
    """Forget a lease when all that its dead owner left is removed, unless this is a dry run."""
    if not dry_run:
        leases.release(lease)
    fate = Fate.WOULD_REMOVE if dry_run else Fate.REMOVED
    return Reaped(lease.label, lease.backend, fate, tuple(numbers), words if numbers else f"{words}; nothing left")


def elsewhere(lease: Lease, words: str, next_step: str) -> Reaped:
    return Reaped(lease.label, lease.backend, Fate.ELSEWHERE, words=words, next_step=next_step)


def failed(label: str, backend: str, error: ScalescopeError) -> Reaped:
    words = ": ".join(text for text in (error.what, error.cause) if text)
    return Reaped(label, backend, Fate.FAILED, words=words, next_step=error.next_step)


def _unreadable(error: StoreError) -> Reaped:
    label = os.path.basename(error.where).partition(".")[0]
    return failed(label, "", error)
