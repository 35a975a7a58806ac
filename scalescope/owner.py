"""Which process something belongs to, and whether that process still lives."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import psutil

CLOCK_SLACK_S = 5.0
"""psutil derives a start time from the host's clock, which may be set between two readings."""


@dataclass(frozen=True)
class Owner:
    """A process that nothing else is mistaken for.

    Attributes:
        host: Host name; with the process name space where there is one, since containers may share a host name.
        pid: Process identifier on that host.
        process_started: When it started, in seconds since the epoch; tells it from a later process of that number.
    """

    host: str
    pid: int
    process_started: float

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(_host(), os.getpid(), psutil.Process().create_time())

    @property
    def is_here(self) -> bool:
        """Whether it ran on this host, so that `is_alive` can tell."""
        return self.host == _host()

    def is_alive(self) -> bool:
        """Whether the process, one of this host, still runs. A zombie does not."""
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return abs(process.create_time() - self.process_started) <= CLOCK_SLACK_S
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True


def _host() -> str:
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()
