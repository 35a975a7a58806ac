"""Who builds, uses or removes a cached environment: a file lock for each, which ends with its last process."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

USE, BUILD = ".lock", ".build"
"""Kinds of locks, and how their files' names end."""


class CacheLock:
    """A lock of one environment. There are two, so that nobody who wants to build waits for those who use it.

    Its file lies beside the environment's folder and is never removed, else two could lock two files of one name.

    Args:
        folder: Of the environment.
        kind: `USE`: shared by those who use or build it, exclusive for who removes it. `BUILD`: exclusive for who
            builds it, while it is built.

    Attributes:
        fd: File descriptor. A child process that inherits it keeps the lock as well.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.fd = os.open(folder.with_suffix(kind), os.O_RDWR | os.O_CREAT, 0o644)

    def share(self, waiting: Callable[[], None]) -> None:
        """Wait until nobody has it alone; `waiting` is called if that is not at once."""
        self._take(fcntl.LOCK_SH, waiting)

    def own(self, waiting: Callable[[], None]) -> None:
        """Wait until nobody else has it."""
        self._take(fcntl.LOCK_EX, waiting)

    def try_own(self) -> bool:
        """Whether nobody else had it, and it is ours now."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Give it up."""
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
    """Keep a shared lock until this process ends: what it was given is not taken from it."""
    with _changes:
        if folder in _held:
            lock.close()
        else:
            _held[folder] = lock
