"""File locks of cached environments; a lock ends with the last process that holds it."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

USE, BUILD = ".lock", ".build"  # kinds of locks, and suffixes of their files


class CacheLock:
    """A file lock of one environment. There are two kinds, so that builders need not wait for users.

    Users and builders hold `USE` shared; a process that removes the environment holds it exclusively. A builder also
    holds `BUILD` exclusively. The lock's file lies next to the environment's folder and is never removed: otherwise two
    processes could lock two files of the same name. A child process that inherits `fd` also keeps the lock.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.fd = os.open(folder.with_suffix(kind), os.O_RDWR | os.O_CREAT, 0o644)

    def share(self, waiting: Callable[[], None]) -> None:
        """Take the lock shared; `waiting` is called if another process holds it exclusively."""
        self._take(fcntl.LOCK_SH, waiting)

    def own(self, waiting: Callable[[], None]) -> None:
        self._take(fcntl.LOCK_EX, waiting)

    def try_own(self) -> bool:
        """Take the lock exclusively if nobody else holds it; return whether it was taken."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self.fd)

    def _take(self, kind: int, waiting: Callable[[], None]) -> None:
        try:
            fcntl.flock(self.fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(self.fd, kind)


_held: dict[Path, CacheLock] = {}
_changes = threading.Lock()


def hold(folder: Path, lock: CacheLock) -> None:
    """Keep a shared lock until this process ends, so that the environment is not removed before."""
    with _changes:
        if folder in _held:
            lock.close()
        else:
            _held[folder] = lock
