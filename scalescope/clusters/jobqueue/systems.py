"""What differs between batch systems once a job script is written: submitting, cancelling, and knowing of jobs.

`Slurm` asks Slurm why workers do not come. Of the `Other` systems only what dask-jobqueue knows is used: how to submit
and how to cancel.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalescope.clusters.jobqueue import script
from scalescope.clusters.jobqueue.watch import Watch
from scalescope.errors import ClusterError, JobsEnded
from scalescope.slurm import jobs as slurm_jobs

if TYPE_CHECKING:
    from dask_jobqueue.core import Job
    from distributed.deploy.spec import SpecCluster

    from scalescope.model.cluster import JobQueueSpec

SUBMISSIONS = 8
"""Submissions at the same time."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Waiting:
    """What is being waited for.

    Attributes:
        words: A sentence.
        in_queue: Whether that is the queue; else jobs that run and whose workers have not registered.
    """

    words: str
    in_queue: bool


class System(ABC):
    """A batch system, as one cluster uses it.

    Args:
        spec: The cluster.
        label: Name of its jobs.
        log_directory: Where their error files are.
    """

    def __init__(self, spec: JobQueueSpec, label: str, log_directory: str) -> None:
        self.spec = spec
        self.label = label
        self.log_directory = log_directory

    @abstractmethod
    def check(self) -> None:
        """Find out whether jobs can be submitted from here.

        Raises:
            ClusterError: They cannot.
        """

    @abstractmethod
    def lease_details(self) -> dict[str, str]:
        """What a reaper needs to know to find the jobs again."""

    @abstractmethod
    def submit(
        self, sizes: Sequence[int], jobs: Sequence[Job], cluster: SpecCluster, stop: threading.Event
    ) -> Iterator[tuple[int, Job, str]]:
        """Submit jobs; yields size, job and number of each that was taken.

        Args:
            sizes: Workers of each job.
            jobs: What to submit.
            cluster: Of the scheduler, for its event loop.
            stop: When it is set, no more are submitted.

        Raises:
            ClusterError: A job was refused.
        """

    @abstractmethod
    def cancel(self, job_ids: Sequence[str]) -> None:
        """Cancel jobs that are not wanted any more."""

    @abstractmethod
    def cancel_all(self) -> None:
        """Cancel every job of this cluster, also one that is just being submitted."""

    @abstractmethod
    def await_none(self, timeout_s: float) -> str:
        """Wait until no job of this cluster is left; returns which are, as far as the system can be asked."""

    def nodes(self) -> dict[str, str]:
        """Where jobs run, by their number, as far as the system was asked."""
        return {}

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What the system knows of the jobs: where they ran, how long they waited, what they used. JSON."""

    @abstractmethod
    def explain(self, expected: int, arrived: int) -> Waiting | None:
        """Why workers are missing; None when none is.

        Raises:
            ClusterError: They will not come.
        """


def system(spec: JobQueueSpec, label: str, log_directory: str) -> System:
    """The system that a specification names."""
    return (Slurm if spec.kind == "slurm" else Other)(spec, label, log_directory)


# ------------------------------------------------------------------ Slurm


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
        _require_dask_jobqueue()
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
        waiting = self._watch.check(expected, arrived)
        return None if waiting is None else Waiting(waiting.words, in_queue=waiting.since_s > 0 or bool(waiting.reason))


# ------------------------------------------------------------------ the others


class Other(System):
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
        _require_dask_jobqueue()
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

    def await_none(self, timeout_s: float) -> str:
        """Nothing: there is no way to ask that all systems share."""
        return ""

    def facts(self) -> dict[str, Any]:
        """Nothing, for the same reason."""
        return {}

    def explain(self, expected: int, arrived: int) -> Waiting | None:
        """The number of missing workers: whether their jobs wait or run is not known here."""
        missing = expected - arrived
        if not missing:
            return None
        jobs = ", ".join(self._submitted[-8:])
        return Waiting(f"{missing} workers missing; jobs {jobs} of {self.label} wait or start", in_queue=True)


def _require_dask_jobqueue() -> None:
    try:
        import dask_jobqueue  # noqa: F401
    except ImportError as error:
        raise ClusterError(
            "jobs cannot be submitted from this environment",
            cause=str(error),
            next_step="install `scalescope[slurm]`, or dask-jobqueue into the environment that the driver runs in",
        ) from error
