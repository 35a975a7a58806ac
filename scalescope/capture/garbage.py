"""Times of a process's full garbage collections, in which no thread of it runs Python.

The source text is sent to workers: the standard library and `distributed` alone.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

FULL = 2  # the generation that is all objects; younger ones take no time worth telling
MOST = 20_000  # collections that a worker holds; beyond, the oldest is dropped


class GarbageCollections(WorkerPlugin):  # type: ignore[misc]
    """Notes when the interpreter collects; `taken` hands it out."""

    name = "scalescope-garbage"
    idempotent = True

    def setup(self, worker: Any) -> None:
        self.found: deque[tuple[float, float]] = deque(maxlen=MOST)
        self.begun = 0.0
        gc.callbacks.append(self.note)

    def teardown(self, worker: Any) -> None:
        if self.note in gc.callbacks:
            gc.callbacks.remove(self.note)

    def note(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < FULL:
            return
        if phase == "start":
            self.begun = time.time()
        else:
            self.found.append((self.begun, time.time()))

    def taken(self, since: float) -> list[tuple[float, float]]:
        """Begin and end of the collections since a time, which are forgotten here."""
        taken = [each for each in self.found if each[1] >= since]
        self.found.clear()
        return taken
