"""What is declared of a cause: its texts, its place among others, and the function that finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from scalescope.model.finding import Finding, Severity

NOTEWORTHY = 0.10
"""Share of worker time lost below which a cause is not named."""
SEVERE = 0.30
"""Share of worker time lost from which on a cause with a remedy is critical."""
WITHOUT_TASKS = ("no_runnable_task", "tail")
"""The parts of worker time in which the graph offered nothing to do."""
GAIN = 0.05
"""Share of the time of the call below which what a remedy would bring is not worth a word."""
LAST = 100
"""The precedence of causes that are ordered by worker time lost alone; what is not known comes after them."""

Looked = TypeVar("Looked")
Function = TypeVar("Function", bound=Callable[..., Finding | None])


@dataclass(eq=False, kw_only=True)
class Cause(Generic[Looked]):
    """What is declared of one cause, and the function that finds it.

    Attributes:
        code: Its name in findings, such as `straggler`.
        title: Three to six words.
        needs: The evidence without which it is not named.
        ruled_out_by: What looks the same and is not it, and how it is told apart.
        remedy: What to change, in general; a finding names the exact option or line. Empty where there is nothing.
        link: Where to read more, if there is such a place.
        parts: Parts of worker time (`WORKER_TIME`) in which the time lies that it explains. What a finding of a trial
            explains of the threads without a task is not explained again by the structure of the graph.
        rules_out: Codes that are not named where this one is: in the same trial, or at the same point of a sweep.
        precedence: Place among findings of one severity; those with `LAST` are ordered by worker time lost.
        spoils: The same where no trial is valid, ahead of `precedence`: why nothing was measured comes before that
            nothing was.
        workers_unused: Whether it shows in workers that run no task, which a script can count.
        excusable: Whether the idle threads that it explains are nobody's fault.
        find: Looks at one trial or sweep.
    """

    code: str
    title: str
    needs: str
    ruled_out_by: str
    remedy: str
    link: str = ""
    parts: tuple[str, ...] = ()
    rules_out: tuple[str, ...] = ()
    precedence: int = LAST
    spoils: int = LAST
    workers_unused: bool = False
    excusable: bool = False
    find: Callable[[Looked], Finding | None] = field(init=False, repr=False)

    def finds(self, function: Function) -> Function:
        """Decorate the function that finds this cause."""
        self.find = function
        return function


def severity_of(share: float) -> Severity:
    """How much a loss of this share of worker time matters, where a remedy is known."""
    return Severity.HIGH if share >= SEVERE else Severity.MEDIUM if share >= NOTEWORTHY else Severity.LOW
