"""A virtual clock, and the rule that one thread runs at a time.

This is a discrete-event simulation of real threads. One event loop, the kernel, owns the time. Every other thread that
belongs to the simulation is an *actor*: the thread that runs the workload, each thread that runs a task, and whatever
threads those start. Exactly one of them, or the kernel, runs at any moment; the others wait for their turn. An actor
gives its turn back when it sleeps, waits for a condition, or ends. When no callback of the loop is ready and no actor
can run, the clock jumps to the next timer or the next sleeper, whichever comes first.

Time passes only by sleeping, by timers and by what is charged (`Clock.charge`, `Actor.charging`); the order of events
does not depend on how fast or how busy the host is.

Each actor has a time of its own, never behind the event that woke it: CPU seconds that are charged to it advance it
while the rest of the simulation stands still, and its next sleep starts from there.

An actor that waits outside the simulation (another process, a socket, sleep in C) is noticed by its system call. The
clock stands still for up to `ELSEWHERE_S`, and the real seconds are charged to that actor. Waits below `_STALL_CHECK_S`
are not noticed.

An actor that blocks for longer, or on something else that the clock cannot see (a contended `Lock`), is noticed by its
lack of CPU progress, set aside and counted (`Clock.outside`). The clock waits `PATIENCE_S` real seconds for it, then
goes on without it.
"""

from __future__ import annotations

import _thread
import heapq
import itertools
import os
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

real_monotonic: Final = time.monotonic
real_sleep: Final = time.sleep
thread_time: Final = time.thread_time

EPOCH = 1_000_000_000.0  # `time.time()` at virtual second 0 (2001-09-09), so that times are the same in every run
PATIENCE_S = 2.0  # real seconds that the clock stands still for an actor that blocks outside the simulation
ELSEWHERE_S = 10.0  # real seconds that the clock stands still while an actor waits for a process, socket or timer
LITTLE = 0.001  # share of its sleep that a timeless actor spends in virtual time
SETTLE_S = 0.001  # virtual seconds that an actor may run ahead of the clock before its next action

_STALL_CHECK_S = 0.05
_STALL_CHECKS = 6

_RUNNING, _RUNNABLE, _WAITING, _DONE = range(4)

# Linux system calls in which a thread waits for another process, a socket or a timer; `read` may wait for these too.
_READ = {"x86_64": 0, "aarch64": 63}.get(platform.machine(), -1)
_WAITS = {
    # poll, select, nanosleep, connect, accept, recvfrom, recvmsg, wait4, clock_nanosleep, epoll_wait, waitid, pselect6,
    # ppoll, epoll_pwait, accept4
    "x86_64": (7, 23, 35, 42, 43, 45, 47, 61, 230, 232, 247, 270, 271, 281, 288),
    # epoll_pwait, pselect6, ppoll, waitid, nanosleep, clock_nanosleep, accept, connect, recvfrom, recvmsg, accept4,
    # wait4
    "aarch64": (22, 72, 73, 95, 101, 115, 202, 203, 207, 212, 242, 260),
}.get(platform.machine(), ())


class Actor:
    """A thread of the simulation."""

    __slots__ = (
        "_local",
        "_mark",
        "_turn",
        "charging",
        "detached_at",
        "elsewhere",
        "finished",
        "go",
        "locks",
        "name",
        "native_id",
        "passed",
        "state",
        "thread_id",
        "ticket",
        "timeless",
    )

    def __init__(self, name: str, local: float, *, charging: bool) -> None:
        self.name = name
        self.charging = charging  # True if its CPU time is charged to its virtual time
        self.locks = 0  # number of held locks that the kernel may also take (see `locks`)
        self.passed: Callable[[], object] | None = None  # called in the actor's thread before and after each wait
        self.state = _RUNNABLE
        self.go = _thread.allocate_lock()
        self.go.acquire()
        self.ticket = 0  # number of waits so far, so that an alarm of an earlier wait is ignored
        self.detached_at: float | None = None
        self.finished: threading.Event | None = None  # made by `adopt`; set when the thread ends, for `join`
        self.native_id = 0
        self.thread_id = 0
        self.elsewhere = False  # True if the actor was seen waiting outside the simulation in this turn
        # True if computing takes no virtual time and sleeping only the share `LITTLE`. It is not 0, because an actor
        # that sleeps in a loop until some time would never get there.
        self.timeless = False
        self._local = local
        self._mark = 0.0
        self._turn = (0.0, 0.0)

    def time(self) -> float:
        if self.elsewhere:  # add the real seconds of this turn that were not computing
            self.elsewhere, (began, computed) = False, self._turn
            self._turn = real_monotonic(), thread_time()
            self._local += max(self._turn[0] - began - (self._turn[1] - computed), 0.0)
        if self.charging:
            return self._local + (thread_time() - self._mark)
        return self._local

    def pause(self) -> None:
        self._local = self.time()

    def resume(self) -> None:
        """Start counting the seconds of a turn; call in the actor's thread."""
        computed = thread_time()
        self._turn = real_monotonic(), computed
        if self.charging:
            self._mark = computed

    def rewind(self) -> None:
        self._local = 0.0

    def forget(self, now: float) -> None:
        """Drop the virtual seconds charged to the actor since it was woken."""
        self.pause()
        self._local = min(self._local, now)
        self.resume()

    def catch_up(self, event: float) -> None:
        """Move the actor's time forward to the time of the event that woke it."""
        self._local = max(self._local, event)


class Waiter:
    """The object that an actor waits on, in place of a lock in `threading.Condition`."""

    __slots__ = ("actor", "clock", "released")

    def __init__(self, clock: Clock, actor: Actor) -> None:
        self.clock = clock
        self.actor = actor
        self.released = False

    def release(self) -> None:
        """Let the actor go on; `Condition.notify` calls it, from any thread."""
        if self.released:
            raise RuntimeError("release unlocked lock")
        self.clock.wake(self)


class _Kernel:
    __slots__ = ("clock",)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def time(self) -> float:
        return self.clock.now


class Clock:
    """Virtual time, and the turns of the threads that live in it."""

    def __init__(self) -> None:
        self.now = 0.0  # virtual seconds since the start
        self.outside = 0  # number of times an actor blocked on something that the clock cannot see
        self._mutex = _thread.allocate_lock()
        self._returned = _thread.allocate_lock()
        self._returned.acquire()
        self._runnable: deque[Actor] = deque()
        self._sleepers: list[tuple[float, int, Actor, int]] = []
        self._serial = itertools.count()
        self._detached: set[Actor] = set()
        self._engaged = 0
        self._wake_kernel: Callable[[], object] | None = None
        self._idle_threads: list[_PoolThread] = []
        self._here = threading.local()

    # ---------------------------------------------------------------- the calling thread

    def member(self) -> Actor | _Kernel | None:
        """The actor or kernel of this thread; None for a thread of the outside world."""
        return getattr(self._here, "member", None)

    def actor(self) -> Actor | None:
        member = self.member()
        return member if isinstance(member, Actor) else None

    def has_turn(self) -> bool:
        """Whether the calling thread has the turn in the simulation."""
        member = self.member()
        return member is not None and not (isinstance(member, Actor) and member.detached_at is not None)

    @property
    def engaged(self) -> bool:
        """Whether a thread of the outside world has joined the simulation, so that time may pass."""
        return self._engaged > 0

    # ---------------------------------------------------------------- for actors

    @contextmanager
    def engage(self) -> Iterator[Actor]:
        """Make the calling thread an actor for a while; the clock stands still unless a thread is engaged."""
        actor = Actor("workload", self.now, charging=False)
        with self._mutex:
            self._engaged += 1
            self._runnable.append(actor)
        self._attach(actor)
        self._wake()
        actor.go.acquire()
        actor.resume()
        try:
            yield actor
        finally:
            self._engaged -= 1
            self._leave(actor)

    @contextmanager
    def disengage(self) -> Iterator[None]:
        """Stop the time while the calling actor waits for the outside world."""
        actor = self.actor()
        if actor is None:
            yield
            return
        actor.pause()
        with self._mutex:
            self._engaged -= 1
            actor.state = _WAITING
            actor.ticket += 1
        self._here.member = None
        self._give_back(actor)
        try:
            yield
        finally:
            with self._mutex:
                self._engaged += 1
                actor.state = _RUNNABLE
                self._runnable.append(actor)
            self._here.member = actor
            self._wake()
            actor.go.acquire()
            actor.catch_up(self.now)
            actor.resume()

    def sleep(self, seconds: float) -> None:
        """Let virtual seconds pass for the calling actor or, on the kernel, for everybody."""
        member = self.member()
        if isinstance(member, Actor):
            self._return_from_outside(member)
            if member.timeless:
                member.forget(self.now)
                seconds *= LITTLE
            self._block(member, wake=member.time() + seconds)
        else:
            self.charge(seconds)

    def settle(self) -> None:
        """Wait until the clock reaches the calling actor's time, unless the actor holds a lock of the loop."""
        actor = self.actor()
        if actor is not None and not actor.locks and self.is_ahead(actor):
            self._block(actor, wake=actor.time())

    def is_ahead(self, actor: Actor) -> bool:
        return actor.time() - self.now > SETTLE_S

    def wait(self, waiter: Waiter, timeout: float | None) -> bool:
        """Wait until `waiter` is released; return whether that comes within `timeout` virtual seconds."""
        actor = waiter.actor
        self._return_from_outside(actor)
        wake = None if timeout is None else actor.time() + max(timeout, 0.0)
        self._block(actor, wake=wake, waiter=waiter)
        return waiter.released

    def wake(self, waiter: Waiter) -> None:
        """Make the actor of `waiter` runnable; any thread may call this."""
        member = self.member()
        with self._mutex:
            waiter.released = True
            actor = waiter.actor
            if actor.state == _WAITING:
                actor.state = _RUNNABLE
                actor.ticket += 1
                actor.catch_up(self.now if member is None else member.time())
                self._runnable.append(actor)
        if not self.has_turn():
            self._wake()

    def charge(self, seconds: float) -> None:
        """Let virtual seconds pass for everybody, for work that blocks the kernel's loop; call on the kernel."""
        self.now += seconds

    def restart(self) -> None:
        """Set the time back to 0; only callable while there is a single actor."""
        actor = self.actor()
        assert actor is not None
        with self._mutex:
            self._sleepers.clear()
            self.now = 0.0
            self.outside = 0
        actor.rewind()

    # ---------------------------------------------------------------- threads

    def adopt(self, name: str, run: Callable[[], object]) -> tuple[Actor, Callable[[], None]]:
        """Make an actor for a thread about to start; return the actor, and the function that the thread must run."""
        member = self.member()
        parent = member if isinstance(member, Actor) else None
        local = self.now if member is None else member.time()
        actor = Actor(name, local, charging=parent.charging if parent else False)
        actor.finished = threading.Event()
        with self._mutex:
            self._runnable.append(actor)

        def body() -> None:
            self._attach(actor)
            actor.go.acquire()
            actor.resume()
            try:
                run()
            finally:
                self._leave(actor)

        return actor, body

    def spawn(self, name: str, run: Callable[[], object], *, delay: float = 0.0, charging: bool = False) -> None:
        """Run `run` as an actor on a pooled thread, `delay` virtual seconds from now."""
        member = self.member()
        start = (self.now if member is None else member.time()) + delay
        actor = Actor(name, start, charging=charging)
        with self._mutex:
            thread = self._idle_threads.pop() if self._idle_threads else None
        if thread is None:
            thread = _PoolThread(self)
        thread.give(actor, run)
        with self._mutex:
            if delay > 0:
                actor.state = _WAITING
                heapq.heappush(self._sleepers, (start, next(self._serial), actor, actor.ticket))
            else:
                self._runnable.append(actor)
        if member is None:
            self._wake()

    def release_thread(self, thread: _PoolThread) -> None:
        """Return a thread to the pool; called by that thread while it still has the turn."""
        with self._mutex:
            self._idle_threads.append(thread)

    def stop_threads(self) -> None:
        with self._mutex:
            threads, self._idle_threads = self._idle_threads, []
        for thread in threads:
            thread.stop()

    # ---------------------------------------------------------------- for the kernel

    @contextmanager
    def kernel(self, wake: Callable[[], object]) -> Iterator[None]:
        """Make the calling thread the kernel; `wake` must interrupt its selector from any thread."""
        if self._wake_kernel is not None:
            raise RuntimeError("a virtual clock has one kernel")
        self._here.member = _Kernel(self)
        self._wake_kernel = wake
        try:
            yield
        finally:
            self._wake_kernel = None
            self._here.member = None

    def run_actors(self) -> bool:
        """Give a turn to every actor that can run now; return whether there was any."""
        count = len(self._runnable)
        for _ in range(count):
            with self._mutex:
                actor = self._runnable.popleft()
                actor.state = _RUNNING
            self._give_turn(actor)
        return count > 0

    def next_wake(self) -> float | None:
        while self._sleepers:
            wake, _, actor, ticket = self._sleepers[0]
            if actor.state == _WAITING and actor.ticket == ticket:
                return wake
            heapq.heappop(self._sleepers)
        return None

    def jump(self, target: float) -> None:
        """Move the time to `target`, and wake the sleepers that are due."""
        if target > self.now:
            self.now = target
        with self._mutex:
            while self._sleepers and self._sleepers[0][0] <= self.now:
                wake, _, actor, ticket = heapq.heappop(self._sleepers)
                if actor.state == _WAITING and actor.ticket == ticket:
                    actor.state = _RUNNABLE
                    actor.ticket += 1
                    actor.catch_up(wake)
                    self._runnable.append(actor)

    @property
    def blocked_outside(self) -> bool:
        return bool(self._detached)

    def must_be_patient(self) -> bool:
        """Whether an actor has just begun to block outside the simulation."""
        if not self._detached:
            return False
        newest = max(actor.detached_at or 0.0 for actor in self._detached)
        return real_monotonic() - newest < PATIENCE_S

    # ---------------------------------------------------------------- turns

    def _attach(self, actor: Actor) -> None:
        self._here.member = actor
        actor.native_id = threading.get_native_id()
        actor.thread_id = threading.get_ident()

    def _leave(self, actor: Actor) -> None:
        actor.pause()
        if actor.finished is not None:
            actor.finished.set()
        with self._mutex:
            actor.state = _DONE
        self._here.member = None
        self._give_back(actor)

    def _block(self, actor: Actor, wake: float | None, waiter: Waiter | None = None) -> None:
        if actor.passed is not None:
            actor.pause()  # the time of the actor must include this turn
            actor.resume()
            actor.passed()
        actor.pause()
        with self._mutex:
            if waiter is not None and waiter.released:
                actor.resume()
                return
            actor.state = _WAITING
            actor.ticket += 1
            if wake is not None:
                heapq.heappush(self._sleepers, (wake, next(self._serial), actor, actor.ticket))
        self._give_back(actor)
        actor.go.acquire()
        actor.resume()
        if actor.passed is not None:
            actor.passed()

    def _return_from_outside(self, actor: Actor) -> None:
        if actor.detached_at is not None:
            actor.pause()
            actor.catch_up(self.now)
            actor.resume()

    def _give_back(self, actor: Actor) -> None:
        with self._mutex:
            detached = actor.detached_at is not None
            if detached:
                actor.detached_at = None
                self._detached.discard(actor)
            else:
                self._returned.release()
        if detached:
            self._wake()

    def _give_turn(self, actor: Actor) -> None:
        actor.go.release()
        if self._returned.acquire(True, _STALL_CHECK_S):
            return
        stalled, before, given = 0, _progress(actor), real_monotonic()
        while True:
            if _waits_elsewhere(actor):
                actor.elsewhere = True
                if real_monotonic() - given < ELSEWHERE_S:
                    stalled = 0
            if self._returned.acquire(True, _STALL_CHECK_S):
                return
            after = _progress(actor)
            stalled = stalled + 1 if after is not None and after == before else 0
            before = after
            if stalled >= _STALL_CHECKS:
                self._detach(actor)
                return

    def _detach(self, actor: Actor) -> None:
        with self._mutex:
            if self._returned.acquire(False):  # the actor has come back
                return
            actor.detached_at = real_monotonic()
            self._detached.add(actor)
            self.outside += 1

    def _wake(self) -> None:
        wake = self._wake_kernel
        if wake is not None:
            wake()


class _PoolThread:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._job: tuple[Actor, Callable[[], object]] | None = None
        self._go = _thread.allocate_lock()
        self._go.acquire()
        self._thread = threading.Thread(target=self._loop, name="scalescope-actor", daemon=True)
        real_start(self._thread)

    def give(self, actor: Actor, run: Callable[[], object]) -> None:
        """Call `run` when the actor gets its first turn; the thread sleeps until then."""
        self._job = (actor, run)
        actor.go, actor.native_id, actor.thread_id = self._go, self._thread.native_id or 0, self._thread.ident or 0

    def stop(self) -> None:
        self._job = None
        self._go.release()

    def _loop(self) -> None:
        clock = self._clock
        while True:
            self._go.acquire()
            job, self._job = self._job, None
            if job is None:
                return
            actor, run = job
            clock._here.member = actor
            actor.resume()
            try:
                run()
            finally:
                clock.release_thread(self)
                clock._leave(actor)
            del job, actor, run


def real_start(thread: threading.Thread) -> None:
    """Start a thread of the outside world, although `patches` replaced `threading.Thread.start`."""
    _original_start(thread)


_original_start = threading.Thread.start


def _progress(actor: Actor) -> tuple[str, float] | None:
    """State and CPU seconds of an actor's thread if it sleeps in the operating system; None if it only lacks a core."""
    try:
        with open(f"/proc/self/task/{actor.native_id}/stat") as stat:
            state = stat.read().rpartition(")")[2].split()[0]
        if state not in "SD":
            return None
    except FileNotFoundError:
        state = "?"
    try:
        return state, time.clock_gettime(time.pthread_getcpuclockid(actor.thread_id))
    except (OSError, AttributeError):
        return None


def _waits_elsewhere(actor: Actor) -> bool:
    """Whether an actor's thread waits for another process, a socket or a timer; False if the system does not tell."""
    try:
        with open(f"/proc/self/task/{actor.native_id}/syscall") as file:
            number, *arguments = file.read().split()
        if int(number) != _READ:
            return int(number) in _WAITS
        return os.readlink(f"/proc/self/fd/{int(arguments[0], 16)}").startswith(("pipe:", "socket:"))
    except (OSError, ValueError, IndexError):  # the thread runs, or has ended
        return False


CLOCK = Clock()  # the clock of this process
