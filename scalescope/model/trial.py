"""A trial: one measured run of a point, its state, and what its records show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from scalescope.errors import printable
from scalescope.model.finding import Finding
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import Point

BLAMED = "blamed"
"""The fact for what the threads waited most: thread-seconds by text."""

STOOD_STILL = "stood_still"
"""The fact that says which process of a trial stood still, where that is why it is invalid."""


class TrialState(StrEnum):
    """What a trial is worth.

    `valid`: a data point. `failed`: the workload raised, or its answer was wrong. `invalid`: the machine misbehaved
    (workers missing or lost, capture incomplete, host overloaded, timed out); kept and shown, never a data point.
    """

    VALID = "valid"
    FAILED = "failed"
    INVALID = "invalid"


@dataclass(frozen=True)
class Trial:
    """One measured run of a point.

    Attributes:
        key: Identity within its sweep (`PlannedTrial.key`).
        point: What was run.
        repeat: From 0.
        warmup: Never a data point, whatever its state.
        state: What it is worth.
        reason: Why it is not valid; empty when it is.
        metrics: None unless tasks were recorded.
        started_at: Wall clock in UTC, ISO 8601.
        real_s: Real seconds that the trial took.
        facts: What the driver knows of it: cluster, clock, costs charged, emulation limit, host, packages.
        warnings: About the quality of the capture, in sentences.
        findings: What its records alone show to be wrong; worst first.
        records: Address of its raw records (a folder of Parquet files); empty when nothing was recorded.
    """

    key: str
    point: Point
    repeat: int
    warmup: bool
    state: TrialState
    reason: str = ""
    metrics: Metrics | None = None
    started_at: str = ""
    real_s: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    records: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", printable(self.reason))  # it holds the text of errors

    @property
    def counts(self) -> bool:
        """Whether this is a data point."""
        return self.state is TrialState.VALID and not self.warmup
