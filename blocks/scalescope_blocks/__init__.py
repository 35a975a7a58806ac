"""Prefect blocks: saved configuration of clusters and stores.

Registered as a Prefect collection (`prefect block register -m scalescope_blocks`). A flow takes a saved block by its
name, such as `cluster="simulated-cluster/prod"` or `store="result-store/team"`.
"""

from scalescope_blocks.clusters import (
    CustomCluster,
    KubernetesCluster,
    LightCluster,
    LocalCluster,
    RunningScheduler,
    SimulatedCluster,
    SlurmCluster,
    SshCluster,
)
from scalescope_blocks.resolve import saved
from scalescope_blocks.store import ResultStore

__all__ = [
    "CustomCluster",
    "KubernetesCluster",
    "LightCluster",
    "LocalCluster",
    "ResultStore",
    "RunningScheduler",
    "SimulatedCluster",
    "SlurmCluster",
    "SshCluster",
    "saved",
]
