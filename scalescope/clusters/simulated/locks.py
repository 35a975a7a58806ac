"""Locks that the workload's threads share with the event loop of the simulation.

An actor whose time is ahead catches up before it calls the loop (`KernelLoop.call_soon_threadsafe`). If the actor holds
a lock that the loop takes, both would wait for each other forever. Such an actor goes on instead, and the loop calls
its callback when the time has come.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import distributed.client

from scalescope.clusters.simulated.clock import CLOCK


class LoopLock:
    """A reentrant lock; an actor that holds it does not wait for the clock to reach its time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        taken = self._lock.acquire(*args, **kwargs)
        actor = CLOCK.actor()
        if taken and actor is not None:
            actor.locks += 1
        return taken

    def release(self) -> None:
        self._lock.release()
        actor = CLOCK.actor()
        if actor is not None:
            actor.locks -= 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


@contextmanager
def loop_locks() -> Iterator[None]:
    """Make clients and `as_completed` use `LoopLock`, because their callbacks on the loop take the same locks."""
    module = distributed.client
    original = module.threading
    module.threading = SimpleNamespace(**{**vars(original), "Lock": LoopLock, "RLock": LoopLock})
    try:
        yield
    finally:
        module.threading = original
