"""The specification of a simulated cluster."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.cluster import ClusterSpec
from scalescope.model.parameters import Parameter

_TASK_COST = Parameter(
    "Cost of a task in addition to its sleep. auto: none for workloads that model their compute by sleeping, measured "
    "CPU time for all others. none: no further cost. cpu: measured CPU time. recorded: `durations`."
)
_SCHEDULER_US = Parameter(
    "Scheduler CPU per task transition, in microseconds. If empty, this host's calibration (`scalescope calibrate`), "
    "else the built-in reference.",
    title="Scheduler cost per transition, µs",
    minimum=0,
    maximum=1_000_000,
)
_BANDWIDTH = Parameter(
    "Bandwidth of each host's link, each way: `25Gbit` and `200Mbit` are bits a second, `1.2GB` and `500MiB` bytes a "
    "second. `inf`: data takes no time, and neither latency nor packing is charged.",
    title="Bandwidth of links",
)
_LATENCY = Parameter(
    "Latency between two hosts, in milliseconds; charged for data, not for messages of the scheduler.",
    title="Latency of links, ms",
    minimum=0,
    maximum=60_000,
)
_PACKING = Parameter(
    "CPU time to pack data, and again to unpack it, in milliseconds per megabyte; arrays need 0.2 to 0.4, "
    "lists of dictionaries 6 to 27.",
    title="CPU for packing, ms/MB",
    minimum=0,
    maximum=10_000,
)
_MESSAGE = Parameter(
    "Milliseconds that each transfer occupies a worker's event loop, one at a time; `scalescope predict` fits this.",
    title="Event loop per transfer, ms",
    minimum=0,
    maximum=60_000,
)
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?) ?((?:[kKMGT]i?)?)(bit|B)(?:/s)?")


@dataclass(frozen=True)
class SimulatedSpec(ClusterSpec):
    """Dask's real scheduler and workers on a virtual clock, independent of how busy the host is."""

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
        Parameter(
            "Seconds of a task by prefix, or by PREFIX@WORKERS for one number of workers; only for task cost "
            '"recorded".',
            title="Durations of tasks, s",
        ),
    ] = None
    scheduler_us: Annotated[float | None, _SCHEDULER_US] = None
    worker_us: Annotated[
        float | None,
        Parameter(
            "Worker CPU per task, in microseconds. If empty, this host's calibration, else the built-in reference.",
            title="Worker cost per task, µs",
            minimum=0,
            maximum=1_000_000,
        ),
    ] = None
    bandwidth: Annotated[str, _BANDWIDTH] = "10Gbit"
    client_bandwidth: Annotated[
        str,
        Parameter(
            "Bandwidth of scheduler and clients, each way, including their time for packing. If empty, the bandwidth "
            "of workers.",
            title="Bandwidth of scheduler and clients",
        ),
    ] = ""
    latency_ms: Annotated[float, _LATENCY] = 0.5
    cpu_ms_per_mb: Annotated[float, _PACKING] = 1.0
    message_ms: Annotated[float, _MESSAGE] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        bytes_per_second("cluster.bandwidth", self.bandwidth)
        if self.client_bandwidth:
            bytes_per_second("cluster.client_bandwidth", self.client_bandwidth)
        if self.task_cost == "recorded":
            for prefix, seconds in fields.mapping("cluster.durations", self.durations).items():
                fields.number(f"cluster.durations.{prefix}", seconds, minimum=0)
        elif self.durations is not None:
            raise InvalidField("cluster.durations", dict(self.durations), 'only together with task_cost = "recorded"')


def durations_on(durations: Mapping[str, float], workers: int) -> dict[str, float]:
    """The durations by prefix for this number of workers."""
    own = f"@{workers}"
    chosen = {name.removesuffix(own): seconds for name, seconds in durations.items() if name.endswith(own)}
    return {**durations, **chosen}


def bytes_per_second(field: str, text: object) -> float:
    """Read a bandwidth such as `25Gbit`, `500MiB` or `inf`; raise `InvalidField` on anything else."""
    if text == "inf":
        return math.inf
    found = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
    if found is None or not float(found[1]):
        raise InvalidField(field, text, "a bandwidth such as 25Gbit (bits a second), 1.2GB (bytes a second), or inf")
    number, prefix, unit = found.groups()
    factor: int = (1024 if prefix.endswith("i") else 1000) ** " kmgt".index(prefix[:1].lower() or " ")
    return float(number) * factor / (8 if unit == "bit" else 1)
