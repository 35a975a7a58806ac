"""What is declared of a cause: its texts, its place among others, and the function that finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from scalescope.model.finding import Finding, Severity

NOTEWORTHY = 0.10  # share of worker time lost; a cause that costs less is not named
SEVERE = 0.30  # share of worker time lost from which a cause with a remedy is of high severity
WITHOUT_TASKS = ("no_runnable_task", "tail")  # parts of worker time in which the graph offered no task
GAIN = 0.05  # share of the call's time; a smaller gain is not mentioned
DOUBTED = 0.8  # factor on the confidence in causes at points that limits of trust concern
LAST = 100  # precedence of causes that are ordered by worker time lost alone
Looked = TypeVar("Looked")
Function = TypeVar("Function", bound=Callable[..., Finding | None])


@dataclass(eq=False, kw_only=True)
class Cause(Generic[Looked]):
    """What is declared of one cause, and the function that finds it."""

    code: str  # its name in findings, such as `straggler`
    title: str  # three to six words
    needs: str  # the evidence without which it is not named
    ruled_out_by: str  # what looks the same and is not it, and how it is told apart
    remedy: str  # what to change, in general; a finding names the exact option or line. Empty where there is nothing
    link: str = ""  # where to read more, if there is such a place
    # Parts of worker time (`WORKER_TIME`) in which the time that it explains lies. Threads without a task that a
    # finding of a trial explains are not blamed on the structure of the graph again.
    parts: tuple[str, ...] = ()
    rules_out: tuple[str, ...] = ()  # codes not named beside it, in the same trial or at the same point
    precedence: int = LAST  # place among findings of one severity; `LAST` orders by worker time lost
    workers_unused: bool = False  # whether it shows in workers that run no task, which a script can count
    excusable: bool = False  # whether the idle threads that it explains are nobody's fault
    find: Callable[[Looked], Finding | None] = field(init=False, repr=False)  # looks at one trial or sweep

    def finds(self, function: Function) -> Function:
        self.find = function
        return function


def severity_of(share: float) -> Severity:
    """How much a loss of this share of worker time matters, where a remedy is known."""
    return Severity.HIGH if share >= SEVERE else Severity.MEDIUM if share >= NOTEWORTHY else Severity.LOW
