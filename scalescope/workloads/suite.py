"""What is watched every night: workloads with the sizes at which they are run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scalescope import workloads
from scalescope.model import cluster
from scalescope.model.fields import Scalar

SHARED = ("simulated", "virtual")
"""Kinds of clusters whose workers share processes: they show nothing of tasks that compute."""


@dataclass(frozen=True)
class SuiteEntry:
    """A workload as the suite runs it.

    Attributes:
        workload: Its name, or a reference that loads it.
        params: Parameters at the size of a night; the others have their defaults.
        small: The same at a size for two cores: seconds.
        cluster: Fields that the specification of a cluster must have for it, besides its kind.
    """

    workload: str
    params: Mapping[str, Scalar]
    small: Mapping[str, Scalar]
    cluster: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of clusters on which its measurements mean something."""
        modelled = workloads.load(self.workload).modelled
        return tuple(kind for kind in cluster.kinds() if modelled or kind not in SHARED)


SUITE: tuple[SuiteEntry, ...] = (
    SuiteEntry("array-matmul", {"items": 8, "chunk": 1024}, {"items": 4}),
    SuiteEntry("bag-map", {"items": 400, "seconds": 0.1}, {"items": 40, "seconds": 0.05}),
    SuiteEntry("beam-files", {"items": 200, "size": 512}, {"items": 20, "size": 64, "npartitions": 10}),
    SuiteEntry("beam-pardo", {"items": 400, "seconds": 0.1}, {"items": 20, "seconds": 0.05, "npartitions": 10}),
    SuiteEntry("dataframe-shuffle", {"items": 64, "rows": 200_000}, {"items": 8}),
    SuiteEntry("futures-map", {"items": 10_000, "seconds": 0.01}, {"items": 500, "seconds": 0.01}),
    SuiteEntry("tree-reduce", {"items": 1_000, "seconds": 0.05}, {"items": 50, "seconds": 0.05}),
)
