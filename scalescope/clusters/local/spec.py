"""The specification of a local cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from scalescope.model.cluster import MEMORY_LIMIT, HereSpec
from scalescope.model.fault import KINDS


@dataclass(frozen=True)
class LocalSpec(HereSpec):
    """Worker processes with nannies on this machine."""

    kind: ClassVar[str] = "local"
    title: ClassVar[str] = "Local Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.local.cluster:LocalCluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({"memory_limit_mb": 2048})
    max_workers: ClassVar[int] = 256

    memory_limit_mb: Annotated[int, MEMORY_LIMIT] = 0

    @property
    def faults(self) -> tuple[str, ...]:
        return KINDS
