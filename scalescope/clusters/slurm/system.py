"""Slurm, as a cluster of jobs uses it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from scalescope.clusters.jobqueue.base_spec import JobQueueSpec
from scalescope.clusters.jobqueue.system import System, Waiting
from scalescope.clusters.slurm.watch import Watch
from scalescope.errors import ClusterError
from scalescope.slurm import jobs as slurm_jobs

if TYPE_CHECKING:
    from dask_jobqueue.core import Job
    from distributed.deploy.spec import SpecCluster

SUBMISSIONS = 8
"""Submissions at the same time."""

_logger = logging.getLogger(__name__)


class Slurm(System):
    """Slurm, through its own commands."""

    def __init__(self, spec: JobQueueSpec, label: str, log_directory: str) -> None:
        super().__init__(spec, label, log_directory)
        self._run = slurm_jobs.commands()
        self._watch = Watch(label, log_directory=log_directory, run=self._run, queue_timeout_s=spec.queue_timeout_s)

    def check(self) -> None:
        """Have Slurm answer.

        Raises:
            ClusterError: There is none here, or it does not answer.
        """
        self._cluster = slurm_jobs.lease_details(run=self._run)

    def lease_details(self) -> dict[str, str]:
        """User and cluster."""
        return self._cluster

    def submit(
        self, sizes: Sequence[int], jobs: Sequence[Job], cluster: SpecCluster, stop: threading.Event
    ) -> Iterator[tuple[int, Job, str]]:
        """Submit each script over standard input, after Slurm has checked one without taking it.

        Raises:
            JobsEnded: Slurm refused a job.
            ClusterError: It does not answer.
        """
        slurm_jobs.check_submission(jobs[0].job_script(), run=self._run)

        def submit(job: Job) -> str:
            return "" if stop.is_set() else self._sbatch(job.job_script())

        with ThreadPoolExecutor(SUBMISSIONS, thread_name_prefix="sbatch") as pool:
            futures = [pool.submit(submit, job) for job in jobs]
            try:
                for size, job, future in zip(sizes, jobs, futures, strict=True):
                    if number := future.result():
                        self._watch.expect([number])
                        yield size, job, number
            finally:
                for future in futures:
                    future.cancel()

    def _sbatch(self, text: str) -> str:
        done = self._run(("sbatch", "--parsable"), text)
        if done.returncode:
            raise slurm_jobs.refused(done.stderr, text)
        return done.stdout.strip().split(";")[0]

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Cancel them, and hear no more of them.

        Raises:
            ClusterError: Slurm does not answer.
        """
        self._watch.dismiss(job_ids)
        slurm_jobs.cancel(job_ids, self.label, run=self._run)

    def cancel_all(self) -> None:
        """Cancel all jobs of the label; where Slurm does not answer, that is logged and left to `scalescope reap`."""
        try:
            slurm_jobs.cancel([job.id for job in self._left()], self.label, run=self._run)
        except ClusterError as error:
            _logger.warning("jobs of %s could not be cancelled: %s", self.label, error)

    def _left(self) -> list[slurm_jobs.Job]:
        """Jobs that have not ended: of this user, with our name, and with our comment or a number that we were given.

        Raises:
            ClusterError: Slurm does not answer.
        """
        found = slurm_jobs.find([self.label], run=self._run)
        ours = (job for job in found if job.comment == self.label or job.id in self._watch.expected)
        return [job for job in ours if not job.has_ended]

    def await_none(self, timeout_s: float) -> str:
        """Wait until the queue has none of the label; cancels again what was submitted meanwhile."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                left = self._left()
            except ClusterError as error:
                return str(error)
            if not left or time.monotonic() > deadline:
                # Of those that complete, nothing runs any more but what the site cleans up behind jobs.
                return ", ".join(f"{job.id} ({job.state})" for job in left if job.state != "COMPLETING")
            if any(job.is_pending for job in left):
                self.cancel_all()
            time.sleep(0.2)

    def nodes(self) -> dict[str, str]:
        """As Slurm said when it was last asked."""
        return {job.id: job.nodes for job in self._watch.jobs()}

    def facts(self) -> dict[str, Any]:
        """What Slurm says, under its name; nothing before the first job."""
        return {"slurm": self._watch.facts()} if self._watch.expected else {}

    def explain(self, expected: int, arrived: int) -> Waiting | None:
        """What Slurm says.

        Raises:
            ClusterError: As `Watch.check`.
        """
        return self._watch.check(expected, arrived)
