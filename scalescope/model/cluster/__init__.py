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

_ADAPTIVE = frozenset({"adapt", "adaptive", "minimum", "maximum", "minimum_jobs", "maximum_jobs"})
"""What Dask's adaptive scaling is asked for with."""


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
    known = [item.name for item in dataclass_fields(spec)]
    if adaptive := [name for name in given if name in _ADAPTIVE and name not in known]:
        raise InvalidField(
            f"cluster.{adaptive[0]}",
            given[adaptive[0]],
            "not given: a point has exactly the workers that it says, for that is what is measured; and with several "
            "workers per job, adaptive scaling ends jobs whose workers hold results",
            next_step="give the sizes to measure as the axis `workers`",
        )
    fields.reject_unknown("cluster", given, known)
    return spec(**given)
