"""Notes when a worker runs methods of actors, in a thread of its own beside those of tasks.

Calls come by thousands in a second, so they go to the scheduler as structured events (topic `scalescope-actor-calls`),
at most one every `WINDOW_S`. An event tells of the calls since the one before, as if they had followed each other
without a pause: `end` in seconds since the epoch on the scheduler's clock; `seconds`; and number and seconds of each of
the `methods`, such as `{"Counter.add": [12, 0.4]}`. Methods that are coroutines hold no thread and are not noted.

The source text of this module is sent to workers: the standard library and `distributed` alone.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

TOPIC = "scalescope-actor-calls"
WINDOW_S = 0.05
METHODS, NAME_CHARACTERS = 20, 100
"""Methods named in one event, and characters of a name."""


class ActorCalls(WorkerPlugin):  # type: ignore[misc]
    """Notes every call of an actor's method on a worker."""

    name = "scalescope-actor-calls"
    idempotent = True

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
        """Add a call, in the thread that ran it."""
        with self.lock:
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
        """Send what no later call has sent; on the event loop."""
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
    """Class and name of the first bound method among the arguments."""
    for each in args:
        owner = getattr(each, "__self__", None)
        if owner is not None:
            return f"{type(owner).__name__}.{getattr(each, '__name__', '?')}"[:NAME_CHARACTERS]
    return "?"
