"""The process that imports distributed once and forks the processes of a light cluster.

This module imports only the standard library, so that a driver can start that process before its own imports, and both
can import at the same time.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress

STDERR = 2

_CODE = """\
import gc
gc.disable()
from scalescope.clusters.light.process import main
main({descriptor}, {path})
"""


class ForkServer:
    """Forks processes on request; ends when no more requests can come and its children have ended."""

    def __init__(self, stdout: int | None = None) -> None:  # `stdout`: file descriptor for all these processes
        self._requests, theirs = socket.socketpair()
        with theirs:
            # A new interpreter: in a fork of this process, locks held by other threads would stay locked forever.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _CODE.format(descriptor=theirs.fileno(), path=sys.path)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
            )

    def fork(self, number: int) -> list[socket.socket]:
        """Fork `number` processes (only once). Returns a socket to each; its other end is closed if the fork failed."""
        sockets = []
        with self._requests:
            for _ in range(number):
                mine, theirs = socket.socketpair()
                sockets.append(mine)
                with theirs, suppress(OSError):  # if the server has ended, the caller sees a closed socket
                    socket.send_fds(self._requests, [b"."], [theirs.fileno()])
        return sockets

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server and its children have ended; return whether that is within `timeout` seconds."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True


_prepared: ForkServer | None = None


def prepare() -> None:
    """Start the fork server for the cluster that this driver will open."""
    global _prepared
    _prepared = ForkServer(stdout=STDERR)  # the driver's standard output belongs to the protocol


def take() -> ForkServer:
    """The prepared server if it has not been taken, else a new one."""
    global _prepared
    server, _prepared = _prepared or ForkServer(), None
    return server
