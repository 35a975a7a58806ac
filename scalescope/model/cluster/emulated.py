"""Clusters on this machine: simulated, virtual and local."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.cluster.base import ClusterSpec


@dataclass(frozen=True)
class LocalSpec(ClusterSpec):
    """Processes with nannies on this machine.

    Attributes:
        memory_limit_mb: Limit per worker in MiB; 0 means none.
        start_timeout_s: Seconds within which all workers must have arrived.
    """

    kind: ClassVar[str] = "local"
    max_workers: ClassVar[int] = 256
    memory_limit_mb: int = 0
    start_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        fields.integer("cluster.memory_limit_mb", self.memory_limit_mb, minimum=0)
        fields.number("cluster.start_timeout_s", self.start_timeout_s, minimum=1)


@dataclass(frozen=True)
class VirtualSpec(ClusterSpec):
    """Hundreds of real workers sharing few processes, in real time.

    Attributes:
        hosts: Processes that the workers share; 0 lets Scalescope choose.
        start_timeout_s: Seconds within which all workers must have arrived.
        check_limit: Measure at start-up what this host can emulate, and hold trials to it.
    """

    kind: ClassVar[str] = "virtual"
    max_workers: ClassVar[int] = 2_000
    hosts: int = 0
    start_timeout_s: float = 120.0
    check_limit: bool = True

    def __post_init__(self) -> None:
        fields.integer("cluster.hosts", self.hosts, minimum=0, maximum=64)
        fields.number("cluster.start_timeout_s", self.start_timeout_s, minimum=1)
        fields.boolean("cluster.check_limit", self.check_limit)


@dataclass(frozen=True)
class SimulatedSpec(ClusterSpec):
    """The real scheduler and workers on a virtual clock.

    Attributes:
        task_cost: What a task is charged besides the time it sleeps. `auto`: nothing for workloads that model
            their compute by sleeping, measured CPU time for all others. `none`, `cpu`: always so. `recorded`: the
            durations in `durations`.
        durations: Seconds per task prefix, for `task_cost="recorded"`.
        scheduler_us: Scheduler CPU per task transition in microseconds; null takes this host's calibration
            (`scalescope calibrate`) or else the built-in reference.
        worker_us: Worker CPU per task in microseconds; null as above.
    """

    kind: ClassVar[str] = "simulated"
    max_workers: ClassVar[int] = 5_000
    real_time: ClassVar[bool] = False
    task_cost: str = "auto"
    durations: Mapping[str, float] | None = None
    scheduler_us: float | None = None
    worker_us: float | None = None

    def __post_init__(self) -> None:
        fields.choice("cluster.task_cost", self.task_cost, ["auto", "none", "cpu", "recorded"])
        for name in ("scheduler_us", "worker_us"):
            value = getattr(self, name)
            if value is not None:
                fields.number(f"cluster.{name}", value, minimum=0, maximum=1e6)
        if self.task_cost == "recorded":
            for prefix, seconds in fields.mapping("cluster.durations", self.durations).items():
                fields.number(f"cluster.durations.{prefix}", seconds, minimum=0)
        elif self.durations is not None:
            raise InvalidField("cluster.durations", dict(self.durations), 'only together with task_cost = "recorded"')
