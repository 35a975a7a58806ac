"""Replaces the periodic bookkeeping of hundreds of workers by bookkeeping on demand.

Heartbeats, searches for missing data, keep-alives and work stealing would dominate a long simulation. Here one
coroutine delivers all heartbeats without messages, and the rest happens only when it can change something. The
scheduler gets the same information. Batches of messages leave at their usual times, by timers instead of coroutines.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import distributed
import distributed.client
import distributed.scheduler
import distributed.worker
from distributed.batched import BatchedSend
from distributed.comm import CommClosedError
from distributed.metrics import time
from tornado.ioloop import PeriodicCallback

from scalescope.clusters.simulated.transfers import LinkedWorker

IDLE_CHECK_S = 5.0
POLL_S = 60.0


class _Silent:
    callback_time = 0.0

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def is_running(self) -> bool:
        return False


class _Missing(set[Any]):
    """Keys that a worker misses; adding the first key starts the worker's search."""

    def __init__(self, search: PeriodicCallback) -> None:
        super().__init__()
        self._search = search

    def add(self, key: Any) -> None:
        super().add(key)
        if not self._search.is_running():
            self._search.start()


class SimulatedWorker(LinkedWorker):
    """A worker without periodic callbacks; `send_heartbeats` does the work of its heartbeats."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.beating = True
        self._search = self.periodic_callbacks["find-missing"]
        self.state.missing_dep_flight = _Missing(self._search)
        for name in ("heartbeat", "keep-alive", "find-missing", "shift_counters"):
            if name in self.periodic_callbacks:
                self.periodic_callbacks[name] = _Silent()

    async def close(self, *args: Any, **kwargs: Any) -> Any:
        self._search.stop()
        return await super().close(*args, **kwargs)


async def send_heartbeats(scheduler: distributed.Scheduler, workers: Sequence[SimulatedWorker]) -> None:
    while True:
        now = time()
        for worker in workers:
            if worker.beating:
                _beat(scheduler, worker, now)
        await asyncio.sleep(distributed.scheduler.heartbeat_interval(len(workers)))


def _beat(scheduler: distributed.Scheduler, worker: SimulatedWorker, now: float) -> None:
    """Do the part of `Scheduler.heartbeat_worker` that concerns scheduling."""
    state = scheduler.workers.get(worker.contact_address)
    if state is None:
        return
    state.last_seen = now
    if worker.links is not None:
        scheduler.bandwidth += (worker.bandwidth - scheduler.bandwidth) / len(scheduler.workers)
    state.executing = {}
    for key in worker.active_keys:
        task, running = scheduler.tasks.get(key), worker.state.tasks.get(key)
        if task is not None and running is not None and running.start_time is not None:
            duration = now - running.start_time
            state.executing[task] = duration
            task.prefix.add_exec_time(duration)


def calm_scheduler(scheduler: distributed.Scheduler) -> None:
    """Make the scheduler check every few seconds, not every quarter second, whether it is idle or has no workers."""
    for name in ("idle-timeout", "no-workers-timeout"):
        callback = scheduler.periodic_callbacks.get(name)
        if callback is not None:
            callback.callback_time = IDLE_CHECK_S * 1000


class TimedBatches(BatchedSend):  # type: ignore[misc]
    """Sends the first message at once; then collects messages and sends them as a batch after each interval."""

    buffer: list[Any]
    waiting = True  # True until the connection is open, and between batches
    _next = 0.0  # earliest time of the next batch, by the loop's clock in seconds

    def start(self, comm: Any) -> None:
        self.comm = comm
        self._send_soon()

    def send(self, *messages: Any) -> None:
        if self.comm is not None and self.comm.closed():
            raise CommClosedError(f"{self.comm!r} is closed")
        self.buffer += messages
        if not self.waiting:
            self._send_soon()

    async def close(self, timeout: Any = None) -> None:
        if self.comm is not None and not self.comm.closed():
            await self._write()
            await self.comm.close()

    def _send_soon(self) -> None:
        self.waiting = True
        loop = asyncio.get_running_loop()
        loop.call_at(max(self._next, loop.time()), self._send_batch)

    def _send_batch(self) -> None:
        self.waiting = False
        if self.buffer and not self.comm.closed():
            _at_once(self._write())
            self._next = asyncio.get_running_loop().time() + self.interval

    async def _write(self) -> None:
        batch, self.buffer = self.buffer, []
        await self.comm.write(batch, serializers=self.serializers, on_error="raise")


def _at_once(writing: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits, such as writing to a connection within the process."""
    try:
        writing.send(None)
    except StopIteration:
        return
    raise AssertionError("the coroutine waits")


@contextmanager
def timed_batches() -> Iterator[None]:
    """Make new connections send their batches by timers."""
    modules = (distributed.client, distributed.scheduler, distributed.worker)
    for module in modules:
        module.BatchedSend = TimedBatches
    try:
        yield
    finally:
        for module in modules:
            module.BatchedSend = BatchedSend


# Step between the values of `phase` for successive draws; the golden ratio spreads any number of draws evenly.
GOLDEN = (math.sqrt(5) - 1) / 2


def phase(draw: int) -> float:
    """Delay of the first work-stealing round, as a share of the interval; draw 0 gives the mean, 1/2."""
    return (1 / 2 + draw * GOLDEN) % 1


class RestingBalancer:
    """Work stealing that pauses until a worker has more tasks than threads; `wake` it when a task changes state."""

    def __init__(self, scheduler: distributed.Scheduler) -> None:
        self._scheduler = scheduler
        self._phase = phase(0)
        self._first: float | None = None  # loop time of the first round after `rest`
        self._callback = scheduler.periodic_callbacks.get("stealing")
        if self._callback is not None:
            self._balance = self._callback.callback
            self._callback.callback = self._balance_if_any

    async def rest(self, phase: float) -> None:
        """Stop until woken; the first round then comes after the share `phase` of the interval."""
        self._phase, self._first = phase, None
        if self._callback is not None:
            self._callback.stop()

    def wake(self) -> None:
        """Resume when a scheduler without pauses would begin its next round: whole intervals after the first round."""
        callback = self._callback
        if callback is not None and not callback.is_running():
            interval, now = callback.callback_time, callback.io_loop.time()
            if self._first is None:
                self._first = now + interval / 1e3 * self._phase
            callback.callback_time = (self._first - now) * 1e3 % interval or interval
            callback.start()
            callback.callback_time = interval

    def _balance_if_any(self) -> None:
        assert self._callback is not None
        if any(len(state.processing) > state.nthreads for state in self._scheduler.workers.values()):
            self._balance()
        else:
            self._callback.stop()


@contextmanager
def patient_iteration() -> Iterator[None]:
    """Make iteration over `as_completed` poll every virtual minute, and at its deadline.

    The usual poll every 0.1 s guards against a race that cannot happen while only one thread runs at a time.
    """
    original = distributed.as_completed.__init__

    def patient(self: distributed.as_completed, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        wait = self.thread_condition.wait

        def patient_wait(timeout: float | None = None) -> bool:
            remaining = self._deadline.remaining if hasattr(self, "_deadline") else None
            return bool(wait(POLL_S if remaining is None else min(POLL_S, remaining)))

        self.thread_condition.wait = patient_wait

    distributed.as_completed.__init__ = patient
    try:
        yield
    finally:
        distributed.as_completed.__init__ = original
