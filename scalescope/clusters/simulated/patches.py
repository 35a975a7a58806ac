"""Puts the virtual clock under the standard library of this process.

Only threads of the simulation see virtual time. Call `install` before other imports, so that `from time import sleep`
finds the replacement. `datetime.now()`, `threading.Lock.acquire(timeout=...)` and sleeping in C stay in real time.
"""

from __future__ import annotations

import asyncio
import queue
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from scalescope.clusters.simulated import clock as clock_module
from scalescope.clusters.simulated.clock import CLOCK, EPOCH, Waiter, real_sleep
from scalescope.clusters.simulated.loops import Policy

_originals: dict[str, Callable[..., Any]] = {
    name: getattr(time, name)
    for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns", "sleep")
}
_condition_wait = threading.Condition.wait
_thread_start = threading.Thread.start
_thread_join = threading.Thread.join
_identifiers: dict[str, random.Random] = {}
_seed = ""
_installed = False


def install() -> None:
    """Replace clocks, sleeping, waiting and thread start in this process; later calls do nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    for name, original in _originals.items():
        _replace_everywhere(original, _published(_replacement(name, original), "time", name))
    threading.Condition.wait = _wait  # type: ignore[method-assign]
    threading.Thread.start = _start  # type: ignore[method-assign]
    threading.Thread.join = _join  # type: ignore[method-assign]
    simple_queue: Any = queue._PySimpleQueue  # type: ignore[attr-defined]
    _replace_everywhere(queue.SimpleQueue, simple_queue)
    asyncio.set_event_loop_policy(Policy())
    _replace_everywhere(uuid.uuid4, _uuid4)
    _replace_everywhere(uuid.uuid1, _uuid1)


def installed() -> bool:
    return _installed


def seed(value: int, phase: str) -> None:
    """Seed this process's global random numbers with `value`, and its UUIDs with `value` and the trial's phase."""
    global _seed
    _seed = f"{value} {phase}"
    _identifiers.clear()
    random.seed(value)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(value % 2**32)


def _replacement(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    if name == "sleep":
        return _sleep
    offset = EPOCH if name.startswith("time") else 0.0
    nanoseconds = name.endswith("_ns")

    def read() -> Any:
        member = CLOCK.member()
        if member is None:
            return original()
        seconds = offset + member.time()
        return round(seconds * 1e9) if nanoseconds else seconds

    return read


def _published(function: Callable[..., Any], module: str, name: str) -> Callable[..., Any]:
    """Make a replacement pickle by reference, as the original does."""
    function.__module__, function.__name__, function.__qualname__ = module, name, name
    return function


def _replace_everywhere(original: object, replacement: object) -> None:
    """Rebind every module-level name that refers to `original`, except in our own clock."""
    keep = {clock_module.__name__, __name__}
    for module in list(sys.modules.values()):
        namespace = getattr(module, "__dict__", None)
        if namespace is None or getattr(module, "__name__", None) in keep:
            continue
        for name, value in list(namespace.items()):
            if value is original:
                namespace[name] = replacement


def _sleep(seconds: float, /) -> None:
    if CLOCK.member() is None:
        real_sleep(seconds)
        return
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    CLOCK.sleep(float(seconds))


def _wait(self: Any, timeout: float | None = None) -> bool:
    actor = CLOCK.actor()
    if actor is None:
        return _condition_wait(self, timeout)
    if not self._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = Waiter(CLOCK, actor)
    self._waiters.append(waiter)
    saved = self._release_save()
    released = False
    try:
        released = CLOCK.wait(waiter, timeout)
        return released
    finally:
        self._acquire_restore(saved)
        if not released and waiter in self._waiters:
            self._waiters.remove(waiter)


def _start(self: threading.Thread) -> None:
    """Start a thread; if an actor starts it, the thread becomes an actor, too."""
    if CLOCK.actor() is None:
        _thread_start(self)
        return
    actor, body = CLOCK.adopt(self.name, self.run)
    self.run = body  # type: ignore[method-assign]
    self._virtual_actor = actor  # type: ignore[attr-defined]
    parent, CLOCK._here.member = CLOCK._here.member, None  # `start` must wait in real time
    try:
        _thread_start(self)
    finally:
        CLOCK._here.member = parent


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    target = getattr(self, "_virtual_actor", None)
    if CLOCK.actor() is None or target is None:
        _thread_join(self, timeout)
    elif target.finished.wait(timeout):
        _thread_join(self)


def _identifier(version: int) -> uuid.UUID:
    """The next UUID. Each calling module has its own sequence, because cloudpickle takes a UUID for every new class."""
    module = sys._getframe(2).f_globals.get("__name__", "")
    stream = _identifiers.get(module)
    if stream is None:
        stream = _identifiers[module] = random.Random(f"{_seed} {module}")
    return uuid.UUID(int=stream.getrandbits(128), version=version)


def _uuid4() -> uuid.UUID:
    return _identifier(4)


def _uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    return _identifier(1)
