"""Compares the lengths of tasks with the time that a worker lives, such as the walltime of its job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Attempts
from scalescope.model.mapping import Mapped
from scalescope.model.words import percent

STARTING_S = 60.0  # seconds of a job before its worker runs tasks
LOST = 0.1  # share of a worker's life that may be lost on tasks that the worker cannot finish
PARTS = 10  # tasks in a worker's life; with so many, the unfinished last one costs less than `LOST`


@dataclass(frozen=True)
class TooLong(Mapped):
    """Tasks so long that workers end before these tasks do."""

    prefix: str
    task_s: float  # seconds of the longest task
    limit: str  # name of the limit, such as `walltime`
    limit_s: float
    lost: float  # share of a worker's life, from 0 to 1, that is lost on tasks that the worker cannot finish
    fitting_s: float  # shortest limit, in seconds, from `limit_s` on, with which less than `LOST` is lost
    parts: int  # alternative to a longer limit: number of shorter tasks into which to cut each task

    @property
    def text(self) -> str:
        most, ends = clock(self.task_s), f"ends after {clock(self.limit_s)} ({self.limit})"
        if self.lost >= 1:
            first = f"tasks of `{self.prefix}` take up to {most}, and a worker {ends}: none of them ever finishes"
        else:
            done = math.floor((self.limit_s - STARTING_S) / self.task_s)
            second = {1: "second", 2: "third"}.get(done, f"{done + 1}th")
            first = (
                f"tasks of `{self.prefix}` take up to {most}, and a worker {ends}: the {second} task of each thread "
            )
            first += f"is lost, {percent(self.lost)} of the worker time"
        return f"{first}. What fits: {self.limit} {clock(self.fitting_s)}, or {self.parts} times as many, shorter tasks"


def longest_tasks(attempts: Attempts) -> dict[str, float]:
    """Seconds of the longest task whose result was used, by prefix."""
    seconds = attempts.stop - attempts.start
    names = np.array(attempts.prefix)
    return {str(each): float(seconds[(names == each) & attempts.useful].max(initial=0.0)) for each in np.unique(names)}


def too_long(longest: Mapping[str, float], limit: str, limit_s: float, whole_s: float) -> TooLong | None:
    """The longest tasks, if they lose too much to a limit; else None. `whole_s`: seconds of the whole workload."""
    prefix = max(longest, key=lambda each: longest[each], default="")
    task_s, life_s = longest.get(prefix, 0.0), limit_s - STARTING_S
    if not task_s or whole_s <= life_s:
        return None
    lost = 1.0 if task_s > life_s else (life_s % task_s) / life_s
    if lost < LOST:
        return None
    fits = math.ceil(life_s / task_s) * task_s + STARTING_S
    fitting_s = min(fits, whole_s + STARTING_S) if whole_s > task_s else fits
    return TooLong(prefix, task_s, limit, limit_s, lost, max(fitting_s, limit_s), math.ceil(task_s * PARTS / life_s))


def clock(seconds: float) -> str:
    """A duration as schedulers read it, such as `05:00:00`; from an hour on, rounded up to whole minutes."""
    seconds = 60 * math.ceil(seconds / 60) if seconds >= 3600 else math.ceil(seconds)
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
