"""Limit of what a host can emulate in real time."""

from __future__ import annotations

from dataclasses import dataclass

from scalescope.model.mapping import Mapped
from scalescope.model.words import number

TOLERANCE = 0.10  # most time that emulating all workers at once may add to a task, as a share of its duration
BEYOND = "beyond what this host can emulate"  # start of the reason why a trial beyond the limit does not count


@dataclass(frozen=True)
class EmulationLimit(Mapped):
    """Bookkeeping that a host does per emulated task.

    When W workers start or end tasks of T seconds together, the host needs W × `seconds_per_task`. This is at most
    `tolerance` × T as long as W ≤ tolerance × T / seconds_per_task.
    """

    seconds_per_task: float  # real seconds of scheduler and workers together for an empty task
    tolerance: float = TOLERANCE  # largest relative error that is accepted

    def shortest_task_s(self, workers: int) -> float:
        """Seconds of the shortest tasks with which this host can emulate this many workers."""
        return workers * self.seconds_per_task / self.tolerance

    def sentence(self, workers: int) -> str:
        return f"trustworthy up to {workers} workers for tasks of at least {number(self.shortest_task_s(workers), 2)} s"

    def beyond(self, tasks: int, makespan_s: float) -> str:
        """Reason why a trial cannot be trusted; empty if it can."""
        share = tasks * self.seconds_per_task / makespan_s
        if share <= self.tolerance:
            return ""
        return (
            f"{BEYOND}: the bookkeeping of {tasks} tasks takes {number(tasks * self.seconds_per_task, 2)} s, "
            f"{share:.0%} of a makespan of {number(makespan_s, 2)} s (at most {self.tolerance:.0%} is trusted); make "
            "tasks longer or fewer, or use the simulated cluster"
        )
