"""The process that imports distributed once and forks the processes of a virtual cluster.

Only the standard library is imported here, so that a driver can start it before its own imports: on two cores both then
import at the same time.
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
from scalescope.clusters.virtual.process import main
main({descriptor}, {path})
"""


class ForkServer:
    """Forks processes on request.

    It ends when no more requests can come, because all are made or this process died, and when its children have ended.

    Args:
        stdout: Descriptor that all these processes write to; None for this process's standard output.
    """

    def __init__(self, stdout: int | None = None) -> None:
        self._requests, theirs = socket.socketpair()
        with theirs:
            # A new interpreter instead of a fork of this one, which may have threads that hold locks.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _CODE.format(descriptor=theirs.fileno(), path=sys.path)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
            )

    def fork(self, number: int) -> list[socket.socket]:
        """Fork all processes that are wanted, once; returns a socket to each, at its end if the fork failed."""
        sockets = []
        with self._requests:
            for _ in range(number):
                mine, theirs = socket.socketpair()
                sockets.append(mine)
                with theirs, suppress(OSError):  # when the server has ended, the socket says so
                    socket.send_fds(self._requests, [b"."], [theirs.fileno()])
        return sockets

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it and all that it forked have ended; whether they have in time, in seconds."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True


_prepared: ForkServer | None = None


def prepare() -> None:
    """Start the fork server of the cluster that this driver will open; its standard output is not the protocol's."""
    global _prepared
    _prepared = ForkServer(stdout=STDERR)


def take() -> ForkServer:
    """The server that was prepared, once; else a new one."""
    global _prepared
    server, _prepared = _prepared or ForkServer(), None
    return server
