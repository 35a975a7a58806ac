"""A cluster of Slurm jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from scalescope.clusters.jobqueue.cluster import JobQueueCluster
from scalescope.clusters.jobqueue.waiting import Waiting
from scalescope.clusters.slurm.spec import SlurmSpec
from scalescope.clusters.slurm.watch import Watch
from scalescope.errors import ClusterError
from scalescope.slurm import jobs as slurm_jobs

if TYPE_CHECKING:
    from dask_jobqueue.core import Job

SUBMISSIONS = 8
"""Submissions at the same time."""

_logger = logging.getLogger(__name__)


class SlurmCluster(JobQueueCluster):
    """Workers in jobs of Slurm, which is asked through its own commands why they do not come."""

    def __init__(self, spec: SlurmSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._run = slurm_jobs.commands()
        self._watch = Watch(
            self.label, log_directory=self._folder.logs, run=self._run, queue_timeout_s=spec.queue_timeout_s
        )

    def _check(self) -> dict[str, str]:
        return slurm_jobs.lease_details(run=self._run)

    def _send(self, sizes: Sequence[int], jobs: Sequence[Job]) -> Iterator[tuple[int, Job, str]]:
        """Submit each script over standard input, after Slurm has checked one without taking it."""
        slurm_jobs.check_submission(jobs[0].job_script(), run=self._run)

        def submit(job: Job) -> str:
            return "" if self._closing.is_set() else self._sbatch(job.job_script())

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

    def _cancel(self, job_ids: Sequence[str]) -> None:
        self._watch.dismiss(job_ids)
        slurm_jobs.cancel(job_ids, self.label, run=self._run)

    def _cancel_all(self) -> None:
        """Where Slurm does not answer, that is logged and left to `scalescope reap`."""
        try:
            slurm_jobs.cancel([job.id for job in self._left()], self.label, run=self._run)
        except ClusterError as error:
            _logger.warning("jobs of %s could not be cancelled: %s", self.label, error)

    def _left(self) -> list[slurm_jobs.Job]:
        """Jobs that have not ended: of this user, with our name, and our comment or a number that we were given."""
        found = slurm_jobs.find([self.label], run=self._run)
        ours = (job for job in found if job.comment == self.label or job.id in self._watch.expected)
        return [job for job in ours if not job.has_ended]

    def _await_none(self, timeout_s: float) -> str:
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
                self._cancel_all()
            time.sleep(0.2)

    def _nodes(self) -> dict[str, str]:
        return {job.id: job.nodes for job in self._watch.jobs()}

    def _facts_of_jobs(self) -> dict[str, Any]:
        return {"slurm": self._watch.facts()} if self._watch.expected else {}

    def _explain(self, arrived: int) -> Waiting | None:
        return self._watch.check(self._workers, arrived)


CLUSTER = SlurmCluster
