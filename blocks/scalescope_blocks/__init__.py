"""Prefect blocks: validated configuration that can be saved, and builds the plain specifications of the library.

Registered as a Prefect collection (`prefect block register -m scalescope_blocks`); a flow takes a saved block by its
name, such as `cluster="simulated-cluster/prod"` or `store="result-store/team"`.
"""

from __future__ import annotations

from scalescope_blocks.clusters import (
    CustomCluster,
    LocalCluster,
    RunningScheduler,
    SimulatedCluster,
    SlurmCluster,
    SshCluster,
    VirtualCluster,
)
from scalescope_blocks.resolve import cluster, store
from scalescope_blocks.store import ResultStore

__all__ = [
    "CustomCluster",
    "LocalCluster",
    "ResultStore",
    "RunningScheduler",
    "SimulatedCluster",
    "SlurmCluster",
    "SshCluster",
    "VirtualCluster",
    "cluster",
    "store",
]
