"""The specification of a local cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from scalescope.model.cluster import MEMORY_LIMIT, START_TIMEOUT, ClusterSpec
from scalescope.model.fault import KINDS


@dataclass(frozen=True)
class LocalSpec(ClusterSpec):
    """Worker processes with nannies on this machine."""

    kind: ClassVar[str] = "local"
    title: ClassVar[str] = "Local Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.local.cluster:LocalCluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({"memory_limit_mb": 2048})
    max_workers: ClassVar[int] = 256
    here: ClassVar[bool] = True

    memory_limit_mb: Annotated[int, MEMORY_LIMIT] = 0
    start_timeout_s: Annotated[float, START_TIMEOUT] = 120.0

    @property
    def faults(self) -> tuple[str, ...]:
        return KINDS
