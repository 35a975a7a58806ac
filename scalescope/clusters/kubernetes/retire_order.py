"""Has the scheduler retire the workers that are meant, when the operator asks it for so many of no group in particular.

The function is sent to the scheduler, whose image need not have this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler


def retire_next(hosts: Sequence[str], dask_scheduler: Scheduler) -> None:
    """Have the workers on these hosts be those that are chosen next where somebody says only how many are to go.

    Several may ask at once, each for some of them, and ask again: who was not chosen yet comes first.
    """
    chosen: set[str] = set()

    def workers_to_close(n: int = 0, **other: Any) -> list[str]:
        there = [address for address, worker in dask_scheduler.workers.items() if worker.host in hosts]
        found = sorted(there, key=chosen.__contains__)[:n]
        chosen.update(found)
        return found

    dask_scheduler.workers_to_close = workers_to_close
