"""File locks of cached environments; a lock ends with the last process that holds it."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

USE, BUILD = ".lock", ".build"  # kinds of locks, and suffixes of their files


class CacheLock:
    """A file lock of one environment. Two kinds, so that whoever wants to build need not wait for users.

    `USE` is shared by users and builders, exclusive for who removes it. `BUILD` is exclusive for the builder. The file
    lies beside the environment's folder and is never removed, else two could lock two files of one name. A child
    process that inherits `fd` keeps the lock as well.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.fd = os.open(folder.with_suffix(kind), os.O_RDWR | os.O_CREAT, 0o644)

    def share(self, waiting: Callable[[], None]) -> None:
        """Wait until nobody holds it exclusively; `waiting` is called if that takes time."""
        self._take(fcntl.LOCK_SH, waiting)

    def own(self, waiting: Callable[[], None]) -> None:
        self._take(fcntl.LOCK_EX, waiting)

    def try_own(self) -> bool:
        """Take it exclusively if nobody else holds it; whether it was taken."""
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
    """Keep a shared lock until this process ends, so that the environment is not removed meanwhile."""
    with _changes:
        if folder in _held:
            lock.close()
        else:
            _held[folder] = lock
