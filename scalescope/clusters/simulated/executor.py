"""A thread pool on the virtual clock, for a worker's tasks."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from distributed.threadpoolexecutor import thread_state

from scalescope.clusters.simulated.clock import Clock

_serial = itertools.count()


class VirtualThreadPoolExecutor(Executor):
    """Runs functions as actors, at most `max_workers` at a time.

    It has the internals of `distributed.threadpoolexecutor.ThreadPoolExecutor` that `secede` and `rejoin` need, and a
    class name by which distributed recognises a thread pool.
    """

    on_virtual_clock = True

    def __init__(
        self,
        clock: Clock,
        max_workers: int,
        *,
        delay: Callable[[], float] = float,  # virtual seconds from submission to start; called at each submission
        charging: Callable[[], bool] = bool,  # returns True if CPU time is charged; called at each start
    ) -> None:
        self._clock = clock
        self._max_workers = max_workers
        self._delay = delay
        self._charging = charging
        self._name = f"virtual-{next(_serial)}"
        self._pending: deque[Callable[[], None]] = deque()
        self._threads: set[threading.Thread | object] = set()
        self._rejoin_list: list[tuple[threading.Thread, threading.Event]] = []
        self._rejoin_lock = threading.Lock()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule a call; its future is set at the virtual time when the call ends."""
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  # handed on, as every executor does
                self._clock.settle()
                future.set_exception(error)
            else:
                self._clock.settle()
                future.set_result(result)

        self._pending.append(run)
        self._adjust_thread_count()
        return future

    def _adjust_thread_count(self) -> None:
        if self._pending and len(self._threads) < self._max_workers:
            place = object()  # placeholder for the thread until it starts
            self._threads.add(place)
            self._clock.spawn(self._name, lambda: self._work(place), delay=self._delay(), charging=self._charging())

    def _work(self, place: object) -> None:
        current = threading.current_thread()
        self._threads.discard(place)
        self._threads.add(current)
        thread_state.proceed = True
        thread_state.executor = self
        try:
            while thread_state.proceed:
                if self._rejoin_list:
                    rejoining, event = self._rejoin_list.pop()
                    self._threads.add(rejoining)
                    event.set()
                    return
                if not self._pending:
                    return
                self._pending.popleft()()
        finally:
            self._threads.discard(current)
            del thread_state.proceed, thread_state.executor
            self._adjust_thread_count()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, **_: Any) -> None:
        """Drop calls that have not begun; do not wait, because virtual time may stand still."""
        self._pending.clear()
