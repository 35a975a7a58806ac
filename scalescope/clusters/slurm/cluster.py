"""A cluster of Slurm jobs."""

from __future__ import annotations

from typing import ClassVar

from scalescope.clusters.jobqueue.cluster import JobQueueCluster
from scalescope.clusters.jobqueue.system import System
from scalescope.clusters.slurm.system import Slurm


class SlurmCluster(JobQueueCluster):
    """Workers in jobs of Slurm."""

    system: ClassVar[type[System]] = Slurm


CLUSTER = SlurmCluster
