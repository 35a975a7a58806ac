"""Where a workload runs: plain specifications that the driver turns into clusters."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.cluster.base import ClusterSpec
from scalescope.model.cluster.emulated import LocalSpec, SimulatedSpec, VirtualSpec
from scalescope.model.cluster.given import CustomSpec, SchedulerSpec, SshSpec
from scalescope.model.cluster.jobqueue import (
    HTCondorSpec,
    JobQueueSpec,
    LsfSpec,
    MoabSpec,
    OarSpec,
    PbsSpec,
    SgeSpec,
    SlurmSpec,
)

__all__ = [
    "KINDS",
    "ClusterSpec",
    "CustomSpec",
    "HTCondorSpec",
    "JobQueueSpec",
    "LocalSpec",
    "LsfSpec",
    "MoabSpec",
    "OarSpec",
    "PbsSpec",
    "SchedulerSpec",
    "SgeSpec",
    "SimulatedSpec",
    "SlurmSpec",
    "SshSpec",
    "VirtualSpec",
    "cluster_spec",
]

KINDS: dict[str, type[ClusterSpec]] = {
    spec.kind: spec
    for spec in (
        SimulatedSpec,
        VirtualSpec,
        LocalSpec,
        SlurmSpec,
        PbsSpec,
        LsfSpec,
        SgeSpec,
        HTCondorSpec,
        OarSpec,
        MoabSpec,
        SshSpec,
        SchedulerSpec,
        CustomSpec,
    )
}


def cluster_spec(data: object) -> ClusterSpec:
    """Build a specification from a kind (`"virtual"`) or a mapping with `kind` and fields.

    Raises:
        InvalidField: The kind or a field is unknown, or a value is not allowed.
    """
    if isinstance(data, ClusterSpec):
        return data
    given = {"kind": data} if isinstance(data, str) else fields.mapping("cluster", data)
    if "kind" not in given:
        raise InvalidField("cluster.kind", None, fields.suggest("", KINDS))
    kind = given.pop("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidField("cluster.kind", kind, fields.suggest(str(kind), KINDS))
    spec = KINDS[kind]
    fields.reject_unknown("cluster", given, [item.name for item in dataclass_fields(spec)])
    return spec(**given)
