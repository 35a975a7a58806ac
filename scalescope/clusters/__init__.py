"""Where it runs: clusters of every kind behind one interface, a folder for each kind.

A folder has the modules `spec` (see `scalescope.model.cluster`), `cluster` and, if a kind leaves something outside this
process, `reaper` (see `scalescope.clusters.reaping`). What several kinds share stands beside the folders; `jobqueue` is
the folder of all batch systems.

This module imports no cluster, and only the standard library, so that the simulated cluster's clock can be installed
before anything else is loaded.
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
    "virtual": "scalescope.clusters.virtual.cluster:VirtualCluster",
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
    """The cluster that `spec` describes, not yet open.

    Raises:
        ScalescopeError: A package that it needs is not installed, or its kind is unknown.
    """
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


def module(spec: type[ClusterSpec], name: str) -> str:
    """The full name of a module in the folder of a kind."""
    return f"{spec.__module__.rpartition('.')[0]}.{name}"
