"""What is said of workers that have not arrived yet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PendingWorkers:
    """What is being waited for; no error.

    Attributes:
        words: A sentence.
        in_queue: Whether jobs wait in the queue; else they run, and their workers have not registered.
        reason: In the words of the system; empty where it gives none.
        estimated_start: When the first waiting job will start, as the system reckons; seconds since the epoch.
        last_start: The same of the last one of which it says it.
        jobs: How many wait for that reason.
        since_s: Seconds for which the oldest of them has waited.
    """

    words: str
    in_queue: bool = False
    reason: str = ""
    estimated_start: float | None = None
    last_start: float | None = None
    jobs: int = 0
    since_s: float = 0.0
