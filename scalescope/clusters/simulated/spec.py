"""The specification of a simulated cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.cluster import ClusterSpec
from scalescope.model.parameters import Parameter

_TASK_COST = Parameter(
    "What a task costs besides the time it sleeps. auto: nothing for workloads that model their compute by sleeping, "
    "measured CPU time for all others. none: nothing. cpu: measured CPU time. recorded: the given durations."
)
_SCHEDULER_US = Parameter(
    "Scheduler CPU per task transition, in microseconds. If empty, this host's calibration (`scalescope calibrate`), "
    "else the built-in reference.",
    title="Scheduler cost per transition, µs",
    minimum=0,
    maximum=1_000_000,
)


@dataclass(frozen=True)
class SimulatedSpec(ClusterSpec):
    """Dask's real scheduler and workers on a virtual clock: exact, however busy the host is."""

    kind: ClassVar[str] = "simulated"
    title: ClassVar[str] = "Simulated Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.simulated.cluster:SimulatedCluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({"task_cost": "cpu"})
    max_workers: ClassVar[int] = 5_000
    real_time: ClassVar[bool] = False
    here: ClassVar[bool] = True
    shares_processes: ClassVar[bool] = True

    task_cost: Annotated[Literal["auto", "none", "cpu", "recorded"], _TASK_COST] = "auto"
    durations: Annotated[
        Mapping[str, float] | None,
        Parameter('Seconds per task prefix; only for task cost "recorded".', title="Durations of tasks, s"),
    ] = None
    scheduler_us: Annotated[float | None, _SCHEDULER_US] = None
    worker_us: Annotated[
        float | None,
        Parameter(
            "Worker CPU per task, in microseconds. If empty, as for the scheduler.",
            title="Worker cost per task, µs",
            minimum=0,
            maximum=1_000_000,
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task_cost == "recorded":
            for prefix, seconds in fields.mapping("cluster.durations", self.durations).items():
                fields.number(f"cluster.durations.{prefix}", seconds, minimum=0)
        elif self.durations is not None:
            raise InvalidField("cluster.durations", dict(self.durations), 'only together with task_cost = "recorded"')
