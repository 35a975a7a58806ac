"""Clusters of jobs of the batch systems in `systems`."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import tempfile
import time
from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scalescope.clusters.jobqueue import job_script
from scalescope.clusters.jobqueue.base_cluster import JobQueueCluster, PendingWorkers, SubmittedJob
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec, JobRequest
from scalescope.clusters.jobqueue.job_status import CATEGORIES, QUEUED, JobStatus, StatusCommand
from scalescope.clusters.jobqueue.job_terms import JobTerms, in_words
from scalescope.clusters.jobqueue.watching import interval_s
from scalescope.errors import ClusterError, JobsEnded
from scalescope.model.words import plural

if TYPE_CHECKING:
    from dask_jobqueue.core import Job

_AGAIN = "try again when the queue is shorter, or ask for less"
_FULL = "jobs are allowed per user"  # part of Grid Engine's message when a user's limit of jobs is reached
_FEWER = "put more workers into each job with `cluster.workers_per_job`, or wait until the queue is shorter"
SHOWN = 4  # largest number of reasons in a message; Grid Engine gives one per queue and host

_logger = logging.getLogger(__name__)


class BatchCluster(JobQueueCluster):
    """Workers in jobs of a batch system, which dask-jobqueue submits and cancels."""

    def __init__(self, spec: JobQueueSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._submitted: list[str] = []
        self._cancel_command = ""
        self._told: PendingWorkers | None = None
        self._waiting_since: float | None = None
        self._next_look = self._changed_at = 0.0
        # By job number: which requested terms the system changed, in words.
        self._changes_of: dict[str, dict[str, str]] = {}

    def scale(self, workers: int, threads_per_worker: int) -> None:
        self._waiting_since, self._next_look = None, 0.0
        super().scale(workers, threads_per_worker)
        self._waiting_since, self._next_look = None, 0.0  # if workers are lost later, ask the system at once

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
                    cause=f"the commands of {self.kind} usually exist on its login nodes only",
                    next_step="run the same command on a login node",
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
                said = str(error).rpartition("stderr:\n")[2].strip()  # skip the command, which dask-jobqueue quotes
                full = _FULL in said
                raise JobsEnded(
                    f"{job.submit_command} refused a job",
                    where=self.label,
                    cause=said,
                    next_step=_FEWER if full else "try by hand to submit the script that `scalescope job-script` shows",
                    category="queue-full" if full else "refused",
                    ends_run=not self._submitted,
                ) from error
            self._submitted.append(job.job_id)
            yield size, job, job.job_id

    def _cancel(self, job_ids: Sequence[str]) -> None:
        from dask_jobqueue.core import Job

        if job_ids:
            try:
                asyncio.run(Job._call([*shlex.split(self._cancel_command), *job_ids]))
            except RuntimeError as error:  # for example because a job has already ended
                _logger.info("%s", error)

    def _suspended(self) -> list[str]:
        status = self.spec.status
        known = status.ask([job.id for job in self._jobs]) if status else None
        return [job.id for job in known or () if status and status.category(job.state) == "suspended"]

    def _remove_jobs(self, timeout_s: float) -> str:
        self._cancel(self._submitted)
        self._submitted = []
        return ""

    def _explain(self, arrived: int) -> PendingWorkers | None:
        if arrived >= self._workers:
            return None
        now = time.monotonic()
        if now >= self._next_look:
            told = self._look(self._workers - arrived)
            if told != self._told:
                self._told, self._changed_at = told, now
            self._next_look = now + interval_s(now - self._changed_at)
        return self._told

    def _look(self, missing: int) -> PendingWorkers:
        """Ask the system why workers are missing; raises `ClusterError` if they will not come."""
        ids, status = [job.id for job in self._jobs], self.spec.status
        known = status.ask(ids) if status else None
        if status is None or known is None:
            why = f"`{status.name}` gives no answer" if status else f"{self.kind} cannot be asked for job states"
            return self._in_queue(ids, f"{plural(missing, 'worker')} missing; jobs {listed(ids)}: {why}")
        for job in self._jobs:
            if terms := next((each.terms for each in known if each.id == job.id), None):
                self._changes_of[job.id] = self._asked_of(job).changes(terms)
        return self._judge(status, ids, known, missing)

    def _judge(
        self, status: StatusCommand, ids: Sequence[str], known: Sequence[JobStatus], missing: int
    ) -> PendingWorkers:
        found: dict[str, list[JobStatus]] = {}
        for job in known:
            found.setdefault(status.category(job.state), []).append(job)
        gone = sorted({*ids} - {job.id for job in known}) + [job.id for job in found.pop("ended", ())]
        told = [_in_words(name, jobs) for name, jobs in found.items() if name not in (*QUEUED, "running")]
        pending = [job for name in QUEUED for job in found.get(name, ())]
        if pending:
            reasons = dict.fromkeys([*(job.reason or f"state {job.state}, no reason given" for job in pending), *told])
            release = "" if "waiting" in found else status.release.format(pending[0].id)
            running = len(ids) - len(gone) - len(pending)
            return self._wait([job.id for job in pending], "; ".join([*reasons][:SHOWN]), running, release)
        told += [f"jobs {listed(gone)} have ended, or {self.kind} no longer knows them"] if gone else []
        return self._started(missing, len(ids) - len(gone), "".join(f"; {words}" for words in told))

    def _asked_of(self, job: SubmittedJob) -> JobTerms:
        return JobTerms(
            self.spec.walltime_s,
            self.spec.job_memory_mb(job.workers) or None,
            partition=getattr(self.spec, "queue", ""),
            account=self.spec.account,
            cores=self.spec.cores or job.workers * job.threads,
        )

    def _started(self, missing: int, jobs: int, more: str = "") -> PendingWorkers:
        self._waiting_since = None
        words = f"{plural(missing, 'worker')} missing; {plural(jobs, 'job')} have started{more}{self._changed()}"
        return PendingWorkers(words)

    def _wait(
        self, pending: Sequence[str], reasons: str, running: int, release: str = "", step: str = ""
    ) -> PendingWorkers:
        """Report on `pending` jobs; `release` is the command that releases the first, or empty unless all are held."""
        how = "held" if release else "waiting"
        let_go = (
            f"; once the reason for the hold is gone, `{release}` releases the job if you held it" if release else ""
        )
        words = f"{plural(len(pending), 'job')} {how}: {reasons}{let_go}{self._changed()}"
        return self._in_queue(pending, words, running, release, step)

    @property
    def _changes(self) -> dict[str, str]:
        return dict(ChainMap(*(self._changes_of.get(job.id, {}) for job in self._jobs)))

    def _changed(self) -> str:
        words = in_words(self._changes, self.kind)
        return f"; {words}" if words else ""

    def _facts_of_jobs(self) -> dict[str, Any]:
        return {"changed": list(self._changes.values())}

    def _in_queue(
        self, job_ids: Sequence[str], words: str, running: int = 0, release: str = "", step: str = ""
    ) -> PendingWorkers:
        """A report on jobs that wait in the queue; raises `ClusterError` if they have waited too long."""
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if running:
            words += f"; already running: {plural(running, 'job')} of this cluster"
        if now - self._waiting_since > self.spec.queue_timeout_s:
            step = f"{step or _AGAIN}; or raise `cluster.queue_timeout_s`"
            if release:
                step = "remove the hold from `cluster.directives_add`, or release the job while it waits; else ask the "
                step += "administrators"
            raise ClusterError(
                f"{plural(len(job_ids), 'job')} of {self.label} did not start within {self.spec.queue_timeout_s:g} s",
                where=f"jobs {listed(job_ids)}",
                cause=words,
                next_step=step,
                category="job-held" if release else "queue-timeout",
            )
        return PendingWorkers(words, in_queue=True)


def _in_words(category: str, jobs: Sequence[JobStatus]) -> str:
    """Why jobs that already have a host do not run."""
    states = ", ".join(dict.fromkeys(job.state for job in jobs))
    if not category:
        return f"state {states} is not known to Scalescope"
    return f"jobs {listed([job.id for job in jobs])} {CATEGORIES[category]} ({states})"


def listed(job_ids: Sequence[str]) -> str:
    return ", ".join(job_ids[:8])
