"""The cluster of each batch system."""

from __future__ import annotations

from scalescope.clusters.jobqueue.base_cluster import JobQueueCluster
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec
from scalescope.clusters.jobqueue.batch_cluster import BatchCluster
from scalescope.clusters.jobqueue.slurm_cluster import SlurmCluster
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec


def CLUSTER(spec: JobQueueSpec, *, seed: int = 0) -> JobQueueCluster:
    """A cluster of Slurm, or of another batch system."""
    return SlurmCluster(spec, seed=seed) if isinstance(spec, SlurmSpec) else BatchCluster(spec, seed=seed)
