"""Chooses which workers the scheduler retires; the operator only says how many. Sent to the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler


def retire_next(hosts: Sequence[str], dask_scheduler: Scheduler) -> None:
    """Make the scheduler retire workers on these hosts next, starting with workers that it has not chosen yet."""
    chosen: set[str] = set()

    def workers_to_close(n: int = 0, **other: Any) -> list[str]:
        there = [address for address, worker in dask_scheduler.workers.items() if worker.host in hosts]
        found = sorted(there, key=chosen.__contains__)[:n]
        chosen.update(found)
        return found

    dask_scheduler.workers_to_close = workers_to_close
