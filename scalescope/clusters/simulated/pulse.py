"""Periodic bookkeeping of hundreds of workers in one callback a virtual second.

Left to themselves, a worker's heartbeats, searches for missing data and keep-alives would be most of what a long
simulation computes. Here one coroutine does what they do for all workers, directly instead of through messages, and
only where there is something to do. What the scheduler learns, and when, stays the same; its measured bandwidths, which
an in-process cluster cannot show, do not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import distributed
import distributed.scheduler
from distributed.metrics import time

from scalescope.clusters import lean

INTERVAL_S = 1.0
IDLE_CHECK_S = 5.0
POLL_S = 60.0


class _Silent:
    """Stands where a worker keeps a periodic callback that is taken over here."""

    callback_time = 0.0

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def is_running(self) -> bool:
        return False


class PulsedWorker(lean.LeanWorker):
    """A worker whose periodic bookkeeping is done by `pulse`.

    Attributes:
        beating: Whether its heartbeats reach the scheduler.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.beating = True
        for name in ("heartbeat", "keep-alive", "find-missing", "shift_counters"):
            if name in self.periodic_callbacks:
                self.periodic_callbacks[name] = _Silent()


async def pulse(scheduler: distributed.Scheduler, workers: Sequence[PulsedWorker]) -> None:
    """Do the workers' bookkeeping until cancelled."""
    missing = [(worker.state.missing_dep_flight, worker) for worker in workers]
    next_beat = time()
    while True:
        now = time()
        for keys, worker in missing:
            if keys:
                worker.find_missing()
        if now >= next_beat:
            next_beat = now + distributed.scheduler.heartbeat_interval(len(workers))
            for worker in workers:
                if worker.beating:
                    _beat(scheduler, worker, now)
        await asyncio.sleep(INTERVAL_S)


def _beat(scheduler: distributed.Scheduler, worker: PulsedWorker, now: float) -> None:
    """What `Scheduler.heartbeat_worker` does with a heartbeat that concerns scheduling."""
    state = scheduler.workers.get(worker.contact_address)
    if state is None:
        return
    state.last_seen = now
    state.executing = {}
    for key in worker.active_keys:
        task, running = scheduler.tasks.get(key), worker.state.tasks.get(key)
        if task is not None and running is not None and running.start_time is not None:
            duration = now - running.start_time
            state.executing[task] = duration
            task.prefix.add_exec_time(duration)


def calm_scheduler(scheduler: distributed.Scheduler) -> None:
    """Spare the scheduler periodic work that changes nothing.

    It looks every few seconds, not every quarter of one, whether it is idle or without workers; and it balances work
    only while some worker has more tasks than threads. Otherwise it could only try to steal tasks that run already,
    which workers refuse.
    """
    stealing = scheduler.extensions.get("stealing")
    if stealing is not None:
        balance = stealing.balance
        nothing_since = -1  # transitions when it was last seen that nothing can be stolen

        def balance_if_any() -> None:
            nonlocal nothing_since
            if scheduler.transition_counter == nothing_since:
                return
            if any(len(state.processing) > state.nthreads for state in scheduler.workers.values()):
                balance()
            else:
                nothing_since = scheduler.transition_counter

        stealing.balance = balance_if_any
        for callback in scheduler.periodic_callbacks.values():
            if callback.callback == balance:
                callback.callback = balance_if_any
    for name in ("idle-timeout", "no-workers-timeout"):
        callback = scheduler.periodic_callbacks.get(name)
        if callback is not None:
            callback.callback_time = IDLE_CHECK_S * 1000


@contextmanager
def patient_iteration() -> Iterator[None]:
    """Let iterating over `as_completed` poll every virtual minute, and at its deadline.

    It is woken when a future finishes; its poll every tenth of a second guards against a race that cannot happen where
    one thread runs at a time.
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
