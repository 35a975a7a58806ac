"""Clusters of every kind behind one interface, a folder for each kind; `jobqueue` holds all batch systems.

This module imports only the standard library, so that the simulated cluster's clock can be installed first.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from scalescope.errors import ClusterError

if TYPE_CHECKING:
    from scalescope.clusters.base import Cluster
    from scalescope.model.cluster import ClusterSpec

CLUSTERS = {
    "simulated": "scalescope.clusters.simulated.cluster:SimulatedCluster",
    "light": "scalescope.clusters.light.cluster:LightCluster",
    "local": "scalescope.clusters.local.cluster:LocalCluster",
    "custom": "scalescope.clusters.custom.cluster:CustomCluster",
    "kubernetes": "scalescope.clusters.kubernetes.cluster:KubernetesCluster",
    "scheduler": "scalescope.clusters.scheduler.cluster:SchedulerCluster",
    "ssh": "scalescope.clusters.ssh.cluster:SshCluster",
    "slurm": "scalescope.clusters.jobqueue.slurm_cluster:SlurmCluster",
    "htcondor": "scalescope.clusters.jobqueue.batch_cluster:BatchCluster",
    "lsf": "scalescope.clusters.jobqueue.batch_cluster:BatchCluster",
    "moab": "scalescope.clusters.jobqueue.batch_cluster:BatchCluster",
    "oar": "scalescope.clusters.jobqueue.batch_cluster:BatchCluster",
    "pbs": "scalescope.clusters.jobqueue.batch_cluster:BatchCluster",
    "sge": "scalescope.clusters.jobqueue.batch_cluster:BatchCluster",
}


def build(spec: ClusterSpec, seed: int = 0) -> Cluster[Any]:
    """The cluster that `spec` describes, not yet open; `ScalescopeError` if a package for it is missing."""
    if spec.kind not in CLUSTERS:
        raise ClusterError(f"there is no cluster of kind {spec.kind!r}", cause=f"known: {', '.join(CLUSTERS)}")
    spec.require()
    try:
        implementation: type[Cluster[Any]] = resolve_name(CLUSTERS[spec.kind])
    except ImportError as error:
        raise ClusterError(
            f"clusters of kind {spec.kind!r} cannot be used in this environment",
            where=CLUSTERS[spec.kind],
            cause=str(error),
            next_step="install what is missing into the environment that the driver runs in",
        ) from error
    return implementation(spec, seed=seed)
