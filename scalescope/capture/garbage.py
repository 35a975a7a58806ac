"""Times of a process's full garbage collections, during which none of its threads runs Python.

This source text is sent to workers: it imports only the standard library and `distributed`.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

FULL = 2  # oldest generation of objects; collections of younger generations are too short to matter
MOST = 20_000  # most collections that a worker holds; then the oldest is dropped


class GarbageCollections(WorkerPlugin):  # type: ignore[misc]
    """Notes start and end of full collections; `taken` returns them."""

    name = "scalescope-garbage"

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
        """Start and end of collections that ended after `since`; forgets all collections."""
        taken = [each for each in self.found if each[1] >= since]
        self.found.clear()
        return taken
