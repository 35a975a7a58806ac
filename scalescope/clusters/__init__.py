"""Where it runs: clusters of every kind behind one interface.

This module imports no cluster, and nothing but the standard library, so that the simulated cluster's clock can be
installed before anything else is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from scalescope.errors import ClusterError

if TYPE_CHECKING:
    from scalescope.clusters.base import Cluster
    from scalescope.model.cluster import ClusterSpec

_IMPLEMENTATIONS = {
    "simulated": ("scalescope.clusters.simulated.cluster", "SimulatedCluster"),
    "virtual": ("scalescope.clusters.virtual.cluster", "VirtualCluster"),
    "local": ("scalescope.clusters.local", "LocalCluster"),
    "slurm": ("scalescope.clusters.jobqueue.cluster", "SlurmCluster"),
    "pbs": ("scalescope.clusters.jobqueue.cluster", "PbsCluster"),
    "moab": ("scalescope.clusters.jobqueue.cluster", "MoabCluster"),
    "lsf": ("scalescope.clusters.jobqueue.cluster", "LsfCluster"),
    "sge": ("scalescope.clusters.jobqueue.cluster", "SgeCluster"),
    "oar": ("scalescope.clusters.jobqueue.cluster", "OarCluster"),
    "htcondor": ("scalescope.clusters.jobqueue.cluster", "HTCondorCluster"),
    "ssh": ("scalescope.clusters.ssh", "SshCluster"),
    "scheduler": ("scalescope.clusters.scheduler", "SchedulerCluster"),
    "custom": ("scalescope.clusters.custom", "CustomCluster"),
}


def build(spec: ClusterSpec, seed: int = 0) -> Cluster:
    """The cluster that `spec` describes, not yet open.

    Raises:
        ClusterError: No implementation is known for its kind, or its packages cannot be imported.
    """
    if spec.kind not in _IMPLEMENTATIONS:
        raise ClusterError(f"there is no cluster of kind {spec.kind!r}", cause=f"known: {', '.join(_IMPLEMENTATIONS)}")
    module, name = _IMPLEMENTATIONS[spec.kind]
    try:
        implementation: type[Cluster] = getattr(import_module(module), name)
    except ImportError as error:
        raise ClusterError(
            f"clusters of kind {spec.kind!r} cannot be used in this environment",
            where=module,
            cause=str(error),
            next_step="install what is missing into the environment that the driver runs in",
        ) from error
    return implementation(spec, seed=seed)
