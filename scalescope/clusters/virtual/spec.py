"""The specification of a virtual cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from scalescope.model.cluster import START_TIMEOUT, ClusterSpec
from scalescope.model.parameters import Parameter


@dataclass(frozen=True)
class VirtualSpec(ClusterSpec):
    """Hundreds of real workers that share few processes, in real time."""

    kind: ClassVar[str] = "virtual"
    title: ClassVar[str] = "Virtual Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.virtual.cluster:VirtualCluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({"hosts": 2})
    max_workers: ClassVar[int] = 2_000
    here: ClassVar[bool] = True
    shares_processes: ClassVar[bool] = True

    hosts: Annotated[
        int,
        Parameter("Processes that the workers share. 0: Scalescope chooses.", title="Processes", minimum=0, maximum=64),
    ] = 0
    start_timeout_s: Annotated[float, START_TIMEOUT] = 120.0
    check_limit: Annotated[
        bool,
        Parameter(
            "Measure at start-up what this host can emulate, and hold trials to it.",
            title="Check what this host can emulate",
        ),
    ] = True
