"""Notes when a worker runs methods of actors, which use a separate thread, not those of tasks.

There can be thousands of calls a second, so at most one event every `WINDOW_S` goes to the scheduler. An event sums up
all calls since the last event: `end` of the latest call (seconds since the epoch on the scheduler's clock), `seconds`
of all calls together, and calls and seconds by method. Coroutine methods hold no thread and are not noted. This source
text is sent to workers: it imports only the standard library and `distributed`.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

TOPIC = "scalescope-actor-calls"
WINDOW_S = 0.05
METHODS, NAME_CHARACTERS = 20, 100  # most methods in an event (further ones are `others`) and characters of a name


class ActorCalls(WorkerPlugin):  # type: ignore[misc]
    """Notes every call of an actor's method on a worker."""

    name = "scalescope-actor-calls"

    def setup(self, worker: Any) -> None:
        self.worker = worker
        self.methods: dict[str, list[float]] = {}
        self.end = self.told = 0.0
        self.waiting = False
        self.lock = threading.Lock()
        self.pool = worker.executors.get("actor")
        if self.pool is None:
            return
        submit = self.pool.submit

        def noted(run: Any, *args: Any, **options: Any) -> Any:
            def call() -> Any:
                began = time.time()
                try:
                    return run(*args, **options)
                finally:
                    self.note(_method(args), began, time.time())

            return submit(call)

        self.pool.submit = noted

    def teardown(self, worker: Any) -> None:
        if self.pool is not None:
            self.pool.__dict__.pop("submit", None)

    def note(self, method: str, began: float, ended: float) -> None:
        with self.lock:  # `note` runs in the thread of the call
            known = method in self.methods or len(self.methods) < METHODS
            entry = self.methods.setdefault(method if known else "others", [0, 0.0])
            entry[0] += 1
            entry[1] += ended - began
            self.end = ended
        if ended - self.told >= WINDOW_S:
            self.tell()
        elif not self.waiting:
            self.waiting = True
            self.worker.loop.add_callback(self.worker.loop.call_later, WINDOW_S, self.tell_the_rest)

    def tell_the_rest(self) -> None:
        self.waiting = False
        self.tell()

    def tell(self) -> None:
        with self.lock:
            methods, self.methods = self.methods, {}
        if not methods:
            return
        self.told = time.time()
        seconds = sum(entry[1] for entry in methods.values())
        end = self.end + getattr(self.worker, "scheduler_delay", 0.0)
        message = {"worker": self.worker.address, "end": end, "seconds": seconds, "methods": methods}
        self.worker.log_event(TOPIC, message)


def _method(args: Any) -> str:
    for each in args:
        owner = getattr(each, "__self__", None)
        if owner is not None:
            return f"{type(owner).__name__}.{getattr(each, '__name__', '?')}"[:NAME_CHARACTERS]
    return "?"
