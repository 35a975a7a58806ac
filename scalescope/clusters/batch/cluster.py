"""Clusters of jobs of the batch systems besides Slurm."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from scalescope.clusters.jobqueue import script
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec
from scalescope.clusters.jobqueue.cluster import JobQueueCluster
from scalescope.clusters.jobqueue.system import System, Waiting
from scalescope.errors import ClusterError, JobsEnded

if TYPE_CHECKING:
    from dask_jobqueue.core import Job
    from distributed.deploy.spec import SpecCluster

_logger = logging.getLogger(__name__)


class Batch(System):
    """A system of which only what dask-jobqueue knows is used. None of them was ever tried on a real system."""

    def __init__(self, spec: JobQueueSpec, label: str, log_directory: str) -> None:
        super().__init__(spec, label, log_directory)
        self._submitted: list[str] = []
        self._cancel_command = ""

    def check(self) -> None:
        """Look for the commands.

        Raises:
            ClusterError: They are not here.
        """
        job = script.job(self.spec, script.Request("0", 1, 1, folder=str(Path(self.log_directory).parent)))
        self._cancel_command = job.cancel_command
        for command in (job.submit_command, job.cancel_command):
            name = shlex.split(command)[0]
            if shutil.which(name) is None:
                raise ClusterError(
                    f"{name} is not installed here",
                    where="PATH of the driver",
                    cause=f"the commands of {self.spec.kind} exist on its login nodes only, as a rule",
                    next_step="run this on such a node",
                )

    def lease_details(self) -> dict[str, str]:
        """How to cancel."""
        return {"cancel": self._cancel_command}

    def submit(
        self, sizes: Sequence[int], jobs: Sequence[Job], cluster: SpecCluster, stop: threading.Event
    ) -> Iterator[tuple[int, Job, str]]:
        """Submit as dask-jobqueue does.

        Raises:
            JobsEnded: A job was refused.
        """
        for size, job in zip(sizes, jobs, strict=True):
            if stop.is_set():
                return
            try:
                cluster.sync(job.start)
            except (OSError, RuntimeError, ValueError) as error:
                raise JobsEnded(
                    f"{job.submit_command} refused a job",
                    where=self.label,
                    cause=str(error),
                    next_step="submit the text that `scalescope job-script` shows by hand",
                ) from error
            self._submitted.append(job.job_id)
            yield size, job, job.job_id

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Cancel them with one command."""
        if job_ids:
            asyncio.run(self._call([*shlex.split(self._cancel_command), *job_ids]))

    def cancel_all(self) -> None:
        """Cancel all that were submitted."""
        self.cancel(self._submitted)

    @staticmethod
    async def _call(command: list[str]) -> None:
        from dask_jobqueue.core import Job

        try:
            await Job._call(command)
        except RuntimeError as error:  # of jobs that have ended already, among others
            _logger.info("%s", error)

    def explain(self, expected: int, arrived: int) -> Waiting | None:
        """The number of missing workers: whether their jobs wait or run is not known here."""
        missing = expected - arrived
        if not missing:
            return None
        jobs = ", ".join(self._submitted[-8:])
        return Waiting(f"{missing} workers missing; jobs {jobs} of {self.label} wait or start", in_queue=True)


class BatchCluster(JobQueueCluster):
    """Workers in jobs of a batch system. Its job script is tested; it was never run on a real system."""

    system: ClassVar[type[System]] = Batch


CLUSTER = BatchCluster
