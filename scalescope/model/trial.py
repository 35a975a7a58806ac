"""One measured run and what was learnt from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from scalescope.model.finding import Finding
from scalescope.model.sweep import Point


class TrialState(StrEnum):
    """What a trial is worth.

    `valid`: a data point. `failed`: the workload raised, or its answer was wrong. `invalid`: the machine misbehaved
    (workers missing or lost, capture incomplete, host overloaded, timed out); kept and shown, never a data point.
    """

    VALID = "valid"
    FAILED = "failed"
    INVALID = "invalid"


WORKER_TIME = (
    "busy",
    "transfer",
    "serialisation",
    "spill",
    "paused",
    "no_runnable_task",
    "not_assigned",
    "late_start",
    "lost",
    "tail",
)
"""The parts of worker time, in the order in which they are shown. Together they are P × makespan, without remainder."""


@dataclass(frozen=True)
class Metrics:
    """What one trial measured.

    Attributes:
        makespan_s: From the first task known to the scheduler to the end of the last, in seconds.
        elapsed_s: The workload's call as its caller saw it, in seconds on the cluster's clock.
        work_s: T1, the sum of task durations, in seconds.
        span_s: T∞, the longest dependency path by task durations, in seconds.
        ideal_s: max(T1 / P, T∞), the bound of Brent (1974), in seconds.
        efficiency: ideal_s / makespan_s.
        parallelism: T1 / T∞, what the graph itself offers.
        tasks: Tasks that ran.
        widest_stage: Tasks of the most numerous task group: for a bag, an array or a Beam stage, its partitions; for
            `client.map`, its calls.
        workers_used: Workers on which at least one task of the workload ran.
        peak_parallelism: Most tasks running at one instant.
        mean_parallelism: work_s / makespan_s.
        peak_runnable: Most tasks running or ready to run at one instant.
        worker_time_s: P × makespan_s divided into `WORKER_TIME`, in thread-seconds.
    """

    makespan_s: float
    elapsed_s: float
    work_s: float
    span_s: float
    ideal_s: float
    efficiency: float
    parallelism: float
    tasks: int
    widest_stage: int
    workers_used: int
    peak_parallelism: int
    mean_parallelism: float
    peak_runnable: int
    worker_time_s: Mapping[str, float] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """As JSON carries it."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Metrics:
        """The inverse of `to_mapping`."""
        return cls(**data)


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

    @property
    def counts(self) -> bool:
        """Whether this is a data point."""
        return self.state is TrialState.VALID and not self.warmup
