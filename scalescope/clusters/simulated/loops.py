"""Event loops on the virtual clock: the kernel's loop, and the loops that actors start."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from scalescope.clusters.simulated.clock import CLOCK, Actor, Clock, Waiter

OUTSIDE_WAIT_S = 0.02  # real seconds that a loop waits for sockets outside the simulation before virtual time passes


class KernelSelector(selectors.DefaultSelector):
    """Selects ready files, then gives turns to actors, then moves the time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.loop: KernelLoop | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return ready files; if there are none, let virtual time pass until a timer is due."""
        clock, loop = self.clock, self.loop
        events = self._others()
        if events or loop is None or (timeout is not None and timeout <= 0):
            return events
        waited = False
        while True:
            ran = clock.run_actors()
            events = self._others()
            if events or loop.has_ready():
                return events
            if ran:
                continue
            timer, wake = loop.next_timer(), clock.next_wake()
            if not clock.engaged or (timer is None and wake is None):
                return super().select(None)
            if clock.must_be_patient() or (clock.blocked_outside and not waited):
                waited = True  # only once: an actor that blocked outside may need a moment to return
                events = super().select(OUTSIDE_WAIT_S)
                if events:
                    return events
                continue
            if wake is not None and (timer is None or wake <= timer):
                clock.jump(wake)
                if timer is not None and timer <= clock.now:
                    return []
            else:
                assert timer is not None
                clock.jump(timer)
                return []

    def _others(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Ready files; none if the loop watches only its own pipe, because wake-ups show as ready callbacks."""
        return super().select(0) if len(self.get_map()) > 1 else []


class KernelLoop(asyncio.SelectorEventLoop):
    """The event loop that owns the virtual clock."""

    _scheduled: list[asyncio.TimerHandle]
    _ready: Any

    def __init__(self, clock: Clock, offload: Callable[[], Executor]) -> None:
        selector = KernelSelector(clock)
        super().__init__(selector)
        self.clock = clock
        self._offload = offload
        selector.loop = self

    def time(self) -> float:
        return self.clock.now

    def has_ready(self) -> bool:
        return bool(self._ready)

    def next_timer(self) -> float | None:
        return self._scheduled[0].when() if self._scheduled else None

    def forget_timers(self) -> None:
        for timer in self._scheduled:
            timer.cancel()

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """Let an actor whose time is ahead catch up first; if it holds a lock of the loop, delay the callback."""
        self.clock.settle()
        actor = self.clock.actor()
        if actor is not None and self.clock.is_ahead(actor):
            when = partial(self.call_at, actor.time(), callback, *args, context=context)
            return super().call_soon_threadsafe(when)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Use an executor on the virtual clock in place of one with real threads."""
        if not getattr(executor, "on_virtual_clock", False):
            executor = self._offload()
        return super().run_in_executor(executor, func, *args)

    def wake(self) -> None:
        """Interrupt the selector, from any thread."""
        if not self.is_closed():
            super()._write_to_self()  # type: ignore[misc]

    def _write_to_self(self) -> None:
        """Interrupt the selector, unless it is waiting for the calling thread."""
        if not self.clock.has_turn():
            self.wake()


class ActorSelector(selectors.DefaultSelector):
    """Blocks its actor on the virtual clock instead of in the operating system."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.waiter: Waiter | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return ready files, after at most `timeout` virtual seconds."""
        events = super().select(0)
        actor = self.clock.actor()
        if events or (timeout is not None and timeout <= 0):
            return events
        if actor is None:
            return super().select(timeout)
        if len(self.get_map()) > 1:  # it waits for sockets, too, not only for its own pipe
            events = super().select(OUTSIDE_WAIT_S if timeout is None else min(timeout, OUTSIDE_WAIT_S))
            if events:
                return events
        self.waiter = Waiter(self.clock, actor)
        try:
            self.clock.wait(self.waiter, timeout)
        finally:
            self.waiter = None
        return super().select(0)


class ActorLoop(asyncio.SelectorEventLoop):
    """An event loop that an actor runs: `asyncio.run` in a task, or a client's loop thread."""

    def __init__(self, clock: Clock) -> None:
        self._virtual = ActorSelector(clock)
        super().__init__(self._virtual)

    def _write_to_self(self) -> None:
        super()._write_to_self()  # type: ignore[misc]
        waiter = self._virtual.waiter
        if waiter is not None and not waiter.released:
            waiter.release()


class Policy(asyncio.DefaultEventLoopPolicy):
    """Gives actors event loops on the virtual clock, and everybody else the usual ones."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        if isinstance(CLOCK.member(), Actor):
            return ActorLoop(CLOCK)
        return super().new_event_loop()
