"""Declaration of a cause: its texts, its place among others, and the function that finds it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from scalescope.model.fields import Scalar
from scalescope.model.finding import Finding, Gain, Severity
from scalescope.model.metrics import Metrics

NOTEWORTHY = 0.10  # share of worker time lost; a cause that costs less is not named
SEVERE = 0.30  # share of worker time lost; from this share on, a cause with a remedy is of high severity
WITHOUT_TASKS = ("no_runnable_task", "tail")  # parts of worker time in which the graph offered no task
GAIN = 0.05  # share of the call's time; a smaller gain is not mentioned
DOUBTED = 0.8  # factor on the confidence in causes at points whose times are not fully trusted
LAST = 100  # precedence of causes that are ordered by worker time lost alone
Looked = TypeVar("Looked")
Function = TypeVar("Function", bound=Callable[..., Finding | None])


class Term(StrEnum):
    """A term of the lower bound on the time of a call: max(T1 / P, T∞, the client's own seconds)."""

    WORK = "T1"
    SPAN = "T∞"
    THREADS = "P"
    CLIENT = "client"


@dataclass(frozen=True)
class Premise(Generic[Looked]):
    """Condition for a remedy to help; if it does not hold, the remedy is not named and no gain is promised."""

    text: str  # the condition, in words
    holds: Callable[[Looked], bool]  # judges the subject of the finding: a trial, or the worst point of a sweep


@dataclass(eq=False, kw_only=True)
class Cause(Generic[Looked]):
    """Declaration of one cause, and the function that finds it."""

    code: str  # name of the cause in findings, such as `straggler`
    title: str  # three to six words
    needs: str  # evidence that must be there before the cause is named
    ruled_out_by: str  # similar symptoms of other causes, and how to distinguish them
    remedy: str  # general advice, empty if there is none; a finding names the exact option or line
    # Condition under which the remedy helps. A text says why nothing is checked: the evidence for the cause implies it.
    premise: Premise[Any] | str = ""
    # Cheapest run that tells this cause from others
    told_by: str = "half of the work twice, with the fix and without it"
    link: str = ""  # address of a page with more; may be empty
    # Parts of worker time (`WORKER_TIME`) that the cause explains. Idle threads that a trial's finding explains are not
    # also blamed on the structure of the graph.
    parts: tuple[str, ...] = ()
    # Terms of the bound on the call's time that the remedy changes. The other terms limit the predicted time.
    changes: tuple[Term, ...] = ()
    by_times: bool = False  # True if a lack of cores on the host can make times look like this cause
    predicts: bool = True  # True if the records allow a prediction of the remedy's effect
    rules_out: tuple[str, ...] = ()  # codes of causes not named where this one is found (in a trial, or at a point)
    precedence: int = LAST  # place among findings of equal severity; with `LAST`, worker time lost decides
    workers_unused: bool = False  # True if workers without a task are a symptom that a reproducer can count
    excusable: bool = False  # True if idle threads with this cause need not be a fault
    find: Callable[[Looked], Finding | None] = field(init=False, repr=False)  # looks for the cause in a trial or sweep

    def finds(self, function: Function) -> Function:
        self.find = function
        return function

    def helps(self, looked: Any) -> bool:
        """Whether the premise of the remedy holds, as far as the records say."""
        return isinstance(self.premise, str) or self.premise.holds(looked)

    def gain(
        self,
        metrics: Metrics,
        threads: int,
        saved_s: float,  # seconds by which the call gets shorter
        *,
        shorter_s: float = 0.0,  # thread-seconds by which tasks get shorter, where the remedy changes T1
        client_s: float = 0.0,  # seconds that the client itself computes
        changes: Collection[Term] | None = None,  # terms of this finding, in place of those of its cause
        least_s: float = 0.0,  # least seconds of the call: CPU seconds of the tasks / cores of the host
        remains_s: float = 0.0,  # seconds that the remedy itself needs
        change: Mapping[str, Scalar] = MappingProxyType({}),
    ) -> Gain | None:
        """Predicted effect of the remedy; None below `GAIN`, or without `predicts`. Terms not in `changes` limit it."""
        changes = self.changes if changes is None else changes
        # tasks that gave up their thread overlap with others: the sum of their durations can exceed the busy time
        work_s = min(metrics.work_s, metrics.worker_time_s.get("busy", metrics.work_s))
        work_s -= shorter_s if Term.WORK in changes else 0.0
        possible_s = max(
            0.0 if Term.THREADS in changes else work_s / threads,
            0.0 if Term.SPAN in changes else metrics.span_s,
            0.0 if Term.CLIENT in changes else client_s,
            0.0 if Term.WORK in changes else least_s,
            remains_s,
        )
        now_s = metrics.elapsed_s
        predicted_s = max(now_s - saved_s, possible_s)
        worth = self.predicts and now_s - predicted_s >= GAIN * now_s
        return Gain(now_s, predicted_s, dict(change)) if worth else None


def severity_of(share: float) -> Severity:
    """Severity of a loss of this share of worker time, where a remedy is known."""
    return Severity.HIGH if share >= SEVERE else Severity.MEDIUM if share >= NOTEWORTHY else Severity.LOW
