"""The specification of a light cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from scalescope.model.cluster import HereSpec
from scalescope.model.parameters import Parameter


@dataclass(frozen=True)
class LightSpec(HereSpec):
    """Hundreds of real workers in few processes, in real time, for tasks that wait."""

    kind: ClassVar[str] = "light"
    title: ClassVar[str] = "Light Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.light.cluster:LightCluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({"hosts": 2})
    max_workers: ClassVar[int] = 2_000
    shares_processes: ClassVar[bool] = True

    hosts: Annotated[
        int,
        Parameter("Processes that the workers share. 0: Scalescope chooses.", title="Processes", minimum=0, maximum=64),
    ] = 0
    check_limit: Annotated[
        bool,
        Parameter(
            "Measure at start-up what this host can emulate; trials beyond that limit do not count.",
            title="Check what this host can emulate",
        ),
    ] = True
