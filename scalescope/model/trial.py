"""A trial: one measured run of a point, its state, and what its records show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scalescope.errors import printable
from scalescope.model.finding import Finding
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import Point
from scalescope.model.trial_state import RAN as RAN
from scalescope.model.trial_state import TrialState as TrialState

BLAMED = "blamed"  # fact: the main reasons why threads waited, thread-seconds by text
PASSED_ON = "passed_on"  # fact: the part of `BLAMED` that was waits for late tasks; thread-seconds by the same texts
STOOD_STILL = "stood_still"  # fact: the process whose standstill made the trial invalid
CUT_OFF = "cut_off"  # fact: the driver lost its connection to the scheduler, which made the trial invalid
SILENT = "silent"  # fact of a cluster: seconds without an answer from the control plane through which results come


@dataclass(frozen=True)
class Trial:
    """One measured run of a point."""

    key: str  # identity of the trial within its sweep (`PlannedTrial.key`)
    point: Point
    repeat: int  # number of the repeat, from 0
    warmup: bool  # a warm-up is never a data point
    state: TrialState
    reason: str = ""  # reason why the trial is not valid; empty if it is
    metrics: Metrics | None = None  # None: no tasks were recorded
    started_at: str = ""  # wall clock in UTC, ISO 8601
    real_s: float = 0.0  # real seconds that the trial took
    facts: Mapping[str, Any] = field(default_factory=dict)  # about cluster, clock, costs, host, packages
    warnings: tuple[str, ...] = ()  # about the quality of the capture, in sentences
    findings: tuple[Finding, ...] = ()  # findings from its records alone, worst first
    records: str = ""  # address of its raw records, a folder of Parquet files; empty: nothing was recorded

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", printable(self.reason))  # the reason quotes errors

    @property
    def counts(self) -> bool:
        return self.state is TrialState.VALID and not self.warmup

    @property
    def virtual(self) -> bool:
        """Whether its clock was a simulated cluster's."""
        return (self.facts.get("cluster") or {}).get("clock") == "virtual"


def ran_what(trials: Iterable[Trial]) -> str:
    """The fact `RAN` of trials; empty for a sweep."""
    return next((str(trial.facts[RAN]) for trial in trials if trial.facts.get(RAN)), "")
