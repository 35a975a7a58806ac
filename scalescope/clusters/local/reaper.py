"""Ends the processes of a dead driver on this host, whatever its kind of cluster, and removes what it wrote.

Processes are ours only if they carry the label of the lease in their environment and are this user's.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import psutil

from scalescope.clusters import reaping
from scalescope.errors import ClusterError
from scalescope.leases import MARK, PREFIX, Lease
from scalescope.slurm.commands import Run

TERM_S = 25.0
"""Seconds that a driver has after SIGTERM to close its cluster; jobs are cancelled in it."""

_KILL_S = 3.0


def reap(lease: Lease, words: str, dry_run: bool, run: Run | None) -> reaping.Reaped:
    """End the processes of a lease; see `reaping.Reaper`.

    Raises:
        ClusterError: Some could not be ended.
        StoreError: The lease could not be removed.
    """
    if not lease.owner.is_here:
        host = lease.owner.host.split()[0]
        return reaping.elsewhere(lease, f"{words}; its processes are on {host}", f"run `scalescope reap` on {host}")
    processes = marked(lease.label)
    numbers = [str(process.pid) for process in processes]
    if not dry_run:
        _end(processes)
        if left := marked(lease.label):
            raise ClusterError(
                f"processes {', '.join(str(process.pid) for process in left)} could not be ended",
                cause="they may hang in the kernel, on a file system that does not answer",
                next_step="`scalescope reap` again in a few minutes",
            )
        _remove_folder(Path(str(lease.details.get("log", ""))).parent)
    return reaping.removed(lease, dry_run, numbers, words)


def _remove_folder(folder: Path) -> None:
    """Remove what a driver wrote, where that is a temporary folder of its own: its log and raw records."""
    try:
        found = os.lstat(folder)
        if folder.name.startswith(PREFIX) and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ClusterError("a temporary folder could not be removed", where=str(folder), cause=str(error)) from error


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
