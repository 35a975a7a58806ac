"""Temporary folders of drivers on this machine, and the removal of those that dead runs left behind.

A driver ends when its parent does, unless the driver is stopped, stuck in C code or killed at the same time. The parent
holds a lock on a file in the folder; the kernel releases the lock however the parent ends. Processes of the driver have
the folder's path in their environment.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from scalescope.errors import ClusterError
from scalescope.leases import PREFIX

FOLDER = "SCALESCOPE_DRIVER_FOLDER"  # environment variable of a driver's processes with the path of its folder
LOCK = "parent.lock"
TERM_S, KILL_S = 25.0, 3.0  # seconds for a driver to close its cluster after SIGTERM; seconds to end after SIGKILL


def claim(folder: Path, holder: object) -> None:
    """Hold the lock on a driver's folder as long as this process and `holder` live."""
    beside = folder / f".{LOCK}"  # locked under this name first, so that no other process can lock it
    descriptor = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
    weakref.finalize(holder, os.close, descriptor)
    with suppress(OSError):  # on a file system without locks, `abandoned` never finds this folder
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    beside.replace(folder / LOCK)


def abandoned() -> Iterator[Path]:
    """Folders of this user's drivers whose parent is dead; each is locked until the next one is requested."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        try:
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # not a driver's folder, or removed meanwhile
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                yield folder
        except OSError:  # the parent still lives, or the file system has no locks
            continue
        finally:
            os.close(descriptor)


def processes(folder: Path) -> list[psutil.Process]:
    """The driver of this folder and all processes that it started, except the present process."""
    return [process for process, path in _with_folders() if path == str(folder)]


def _with_folders() -> Iterator[tuple[psutil.Process, str]]:
    """All processes of this user's drivers on this machine, except the present one, with the paths of their folders."""
    for process in psutil.process_iter():
        try:
            ours = process.uids().real == os.getuid() and process.pid != os.getpid()
            if ours and process.status() != psutil.STATUS_ZOMBIE and (path := process.environ().get(FOLDER)):
                yield process, path
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue


def remove(folder: Path) -> None:
    """End the processes of an abandoned folder and remove it, or raise `ClusterError`."""
    left = processes(folder)  # psutil never signals another process that reuses an id
    for act, patience_s in ((psutil.Process.terminate, TERM_S), (psutil.Process.kill, KILL_S)):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                act(process)
        _, left = psutil.wait_procs(left, timeout=patience_s)
    if left := processes(folder):
        raise ClusterError(
            f"processes {', '.join(str(process.pid) for process in left)} could not be ended",
            cause="the processes may wait in the kernel for a file system that does not answer",
            next_step="run `scalescope reap` again in a few minutes",
        )
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ClusterError("a temporary folder could not be removed", where=str(folder), cause=str(error)) from error


def sweep() -> None:
    """Remove the folders of dead runs whose processes have ended."""
    dead = set(abandoned())
    used = {path for _, path in _with_folders()} if dead else set()
    for folder in abandoned():
        if folder in dead and str(folder) not in used:
            shutil.rmtree(folder, ignore_errors=True)
