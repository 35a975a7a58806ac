"""What is said of workers that have not arrived yet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PendingWorkers:
    """What is being waited for; no error."""

    words: str  # a sentence
    in_queue: bool = False  # whether jobs wait in the queue; else they run, and their workers have not registered
    reason: str = ""  # in the words of the system
    estimated_start: float | None = None  # of the first waiting job, as the system estimates it; s since the epoch
    last_start: float | None = None  # of the last job of which the system says it
    jobs: int = 0  # how many wait for that reason
    since_s: float = 0.0  # seconds for which the oldest of them has waited
