"""Preloaded into worker processes: they refuse other users, and end with the process that started them.

distributed watches a pipe to the nanny's process in a thread. A task that holds the interpreter lock for good starves
that thread; the kernel does not need the lock.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from scalescope.clusters import guard

_PR_SET_PDEATHSIG = 1

guard.install()  # here, for `dask_setup` is called when the worker listens already


def dask_setup(worker: object) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux only; see prctl(2))."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
