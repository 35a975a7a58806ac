"""Clusters of jobs of the batch systems in `systems`."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from scalescope.clusters.jobqueue import job_script
from scalescope.clusters.jobqueue.base_cluster import JobQueueCluster, PendingWorkers
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec, JobRequest
from scalescope.errors import ClusterError, JobsEnded

if TYPE_CHECKING:
    from dask_jobqueue.core import Job

_logger = logging.getLogger(__name__)


class BatchCluster(JobQueueCluster):
    """Workers in jobs of a batch system, which dask-jobqueue submits and cancels; never run on a real system."""

    def __init__(self, spec: JobQueueSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._submitted: list[str] = []
        self._cancel_command = ""

    def _check(self) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:  # dask-jobqueue makes the folder of the logs
            job = job_script.job(self.spec, JobRequest("0", 1, 1, folder=folder))
        self._cancel_command = job.cancel_command
        for command in (job.submit_command, job.cancel_command):
            name = shlex.split(command)[0]
            if shutil.which(name) is None:
                raise ClusterError(
                    f"{name} is not installed here",
                    where="PATH of the driver",
                    cause=f"the commands of {self.kind} exist on its login nodes only, as a rule",
                    next_step="run this on such a node",
                    category="batch-system-missing",
                )
        return {"cancel": self._cancel_command}

    def _send(self, sizes: Sequence[int], jobs: Sequence[Job]) -> Iterator[tuple[int, Job, str]]:
        for size, job in zip(sizes, jobs, strict=True):
            if self._closing.is_set():
                return
            try:
                self._cluster().sync(job.start)
            except (OSError, RuntimeError, ValueError) as error:
                raise JobsEnded(
                    f"{job.submit_command} refused a job",
                    where=self.label,
                    cause=str(error).rpartition("stderr:\n")[2].strip(),  # dask-jobqueue quotes all of the command
                    next_step="submit the text that `scalescope job-script` shows by hand",
                    category="refused",
                    ends_run=not self._submitted,
                ) from error
            self._submitted.append(job.job_id)
            yield size, job, job.job_id

    def _cancel(self, job_ids: Sequence[str]) -> None:
        from dask_jobqueue.core import Job

        if job_ids:
            try:
                asyncio.run(Job._call([*shlex.split(self._cancel_command), *job_ids]))
            except RuntimeError as error:  # among others: a job has ended already
                _logger.info("%s", error)

    def _remove_jobs(self, timeout_s: float) -> str:
        self._cancel(self._submitted)
        self._submitted = []
        return ""

    def _explain(self, arrived: int) -> PendingWorkers | None:
        missing = self._workers - arrived
        if not missing:
            return None
        jobs = ", ".join(self._submitted[-8:])
        return PendingWorkers(f"{missing} workers missing; jobs {jobs} of {self.label} wait or start", in_queue=True)
