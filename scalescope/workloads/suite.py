"""The suite of workloads that are measured every night, with their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scalescope import workloads
from scalescope.model import cluster
from scalescope.model.fields import Scalar


@dataclass(frozen=True)
class SuiteEntry:
    """A workload as the suite runs it."""

    workload: str  # name of a built-in workload, or reference of a function
    params: Mapping[str, Scalar]  # parameters at full size; other parameters have their defaults
    small: Mapping[str, Scalar]  # parameters at the small size, which takes seconds on two cores
    cluster: Mapping[str, Scalar] = field(default_factory=dict)  # fields that the cluster must have, without `kind`

    @property
    def kinds(self) -> tuple[str, ...]:
        workload = workloads.load(self.workload)
        kinds = cluster.kinds().items()
        return workload.kinds or tuple(kind for kind, spec in kinds if workload.modelled or not spec.shares_processes)


_LIMITED = {"memory_limit_mb": 1024}

# Workloads that use no package: if their times change between nights, the machine has changed.
CONTROLS = ("control-cpu", "control-memory")

# Entries in alphabetical order
SUITE: tuple[SuiteEntry, ...] = (
    SuiteEntry("array-matmul", {"items": 8, "chunk": 1024}, {"items": 4}),
    SuiteEntry("array-mirror", {"items": 16, "chunk": 1024}, {"items": 6}),
    SuiteEntry("array-overlap", {"items": 12, "chunk": 1024}, {"items": 4, "chunk": 256}),
    SuiteEntry("array-oversplit", {"items": 8, "chunk": 1024}, {"items": 3}),
    SuiteEntry("array-qr", {"items": 64, "chunk": 32_768}, {"items": 8}),
    SuiteEntry("array-rechunk", {"items": 24, "chunk": 512}, {"items": 8}),
    SuiteEntry("array-reduction", {"items": 24, "chunk": 1024}, {"items": 4}),
    SuiteEntry("array-stencil", {"items": 8, "chunk": 1024}, {"items": 3}),
    SuiteEntry("bag-map", {"items": 400, "seconds": 0.1}, {"items": 40, "seconds": 0.05}),
    SuiteEntry("beam-co-group-by-key", {"items": 20_000, "npartitions": 32}, {"items": 500}),
    SuiteEntry("beam-combine", {"items": 100_000, "npartitions": 32}, {"items": 2_000}),
    SuiteEntry("beam-files", {"items": 200, "size": 512}, {"items": 20, "size": 64, "npartitions": 10}),
    SuiteEntry("beam-group-by-key", {"items": 50_000, "npartitions": 32}, {"items": 1_000}),
    SuiteEntry("beam-hot-key", {"items": 50_000, "npartitions": 32}, {"items": 1_000}),
    SuiteEntry("beam-pardo", {"items": 400, "seconds": 0.1}, {"items": 20, "seconds": 0.05, "npartitions": 10}),
    SuiteEntry("beam-side-input", {"items": 400, "npartitions": 32}, {"items": 50}),
    SuiteEntry("control-cpu", {"items": 64, "steps": 5_000_000}, {"items": 8, "steps": 2_000_000}),
    SuiteEntry("control-memory", {"items": 64, "copies": 20}, {"items": 8}),
    SuiteEntry("csv-to-parquet", {"items": 64, "rows": 200_000}, {"items": 8}),
    SuiteEntry("dataframe-broadcast-join", {"items": 64, "rows": 500_000}, {"items": 8}),
    SuiteEntry("dataframe-groupby", {"items": 64, "rows": 1_000_000}, {"items": 8}),
    SuiteEntry("dataframe-groupby-many", {"items": 48, "rows": 200_000}, {"items": 6, "groups": 20_000}),
    SuiteEntry("dataframe-join", {"items": 48, "rows": 200_000}, {"items": 6}),
    SuiteEntry("dataframe-set-index", {"items": 48, "rows": 200_000}, {"items": 6}),
    SuiteEntry("dataframe-shuffle", {"items": 64, "rows": 200_000}, {"items": 8}),
    SuiteEntry("delayed-many", {"items": 20_000}, {"items": 5_000}),
    SuiteEntry("futures-fan-in", {"items": 512}, {"items": 64}),
    SuiteEntry("futures-lognormal", {"items": 4_000}, {"items": 100}),
    SuiteEntry("futures-map", {"items": 10_000, "seconds": 0.01}, {"items": 500, "seconds": 0.01}),
    SuiteEntry("futures-nested", {"items": 200}, {"items": 10}),
    SuiteEntry("futures-scatter", {"items": 1_000, "mib": 128}, {"items": 100}),
    SuiteEntry("futures-sequence", {"items": 2_000}, {"items": 100}),
    SuiteEntry("futures-straggler", {"items": 2_000}, {"items": 50}),
    SuiteEntry("futures-window", {"items": 10_000}, {"items": 200}),
    SuiteEntry("gpu-array", {"items": 8, "chunk": 1024}, {"items": 3, "chunk": 128}),
    SuiteEntry("gpu-train", {"items": 200, "rows": 4096, "width": 1024}, {"items": 10, "rows": 64, "width": 32}),
    SuiteEntry("scale-up", {"items": 1_000}, {"items": 100}),
    SuiteEntry("scalescope_flows.task_runner:run", {"items": 500}, {"items": 20}),
    SuiteEntry("sklearn-search", {"items": 100, "samples": 20_000}, {"items": 8}),
    SuiteEntry("spill", {"items": 400}, {"items": 100}, _LIMITED),
    SuiteEntry("tpch-q1", {"items": 48, "orders": 100_000}, {"items": 4, "orders": 5_000}),
    SuiteEntry("tpch-q3", {"items": 48, "orders": 100_000}, {"items": 4, "orders": 5_000}),
    SuiteEntry("tree-reduce", {"items": 1_000, "seconds": 0.05}, {"items": 50, "seconds": 0.05}),
    SuiteEntry("worker-loss", {"items": 1_000}, {"items": 50}),
    SuiteEntry("worker-retire", {"items": 1_000}, {"items": 50}),
    SuiteEntry("xarray-anomaly", {"items": 10}, {"items": 2, "side": 16}),
    SuiteEntry("xarray-climatology", {"items": 40}, {"items": 4, "side": 32}),
    SuiteEntry("xarray-resample", {"items": 40}, {"items": 4, "side": 32}),
    SuiteEntry("xgboost-train", {"items": 64, "rows": 200_000}, {"items": 4}),
    SuiteEntry("zarr-roundtrip", {"items": 24, "chunk": 1024}, {"items": 4}),
)
