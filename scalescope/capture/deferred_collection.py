"""Keeps Python 3.11 from collecting garbage while frames are looked at. Imports only the standard library."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_deferred() -> Iterator[None]:
    """Defer garbage collections in Python 3.11 while the frames of other threads are fetched or walked.

    A collection in `sys._current_frames` may stop the process for ever: a callback that releases the interpreter lock
    lets another thread end, which waits for the lock of the list of threads. A collection during `f_back` lets the
    other thread leave the frame, and the process crashes (CPython issues 106883 and 97002).
    """
    deferred = sys.version_info < (3, 12) and gc.isenabled()
    if deferred:
        gc.disable()
    try:
        yield
    finally:
        if deferred:
            gc.enable()
