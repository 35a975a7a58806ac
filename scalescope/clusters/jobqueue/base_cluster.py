"""The base of clusters whose workers are jobs of a batch system, and whose scheduler runs in the driver."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import dask
import distributed
from distributed.core import Status
from distributed.deploy.spec import SpecCluster

from scalescope import leases
from scalescope.clusters import light_workers
from scalescope.clusters.base import NO_HTTP, Cluster, registered
from scalescope.clusters.jobqueue import job_script
from scalescope.clusters.jobqueue.base_spec import JobQueueSpec, JobRequest
from scalescope.clusters.jobqueue.shared_folder import ClusterFolder
from scalescope.clusters.trial_watch import WorkerWatch, cancel_everything
from scalescope.driver_folders import FOLDER
from scalescope.errors import ClusterError, JobsEnded, WorkersMissing
from scalescope.model.words import plural

if TYPE_CHECKING:
    from dask_jobqueue.core import Job

    from scalescope.leases import Lease
    from scalescope.model.sweep import Point
    from scalescope.model.workload import Workload

CLOSE_TIMEOUT_S = 4.0  # seconds for the scheduler to close, then as long again for the jobs to leave the queue
REPORT_INTERVAL_S = 15.0  # seconds between repeated reports of the same wait
SUSPECT_S = 10.0  # seconds without a heartbeat of a worker; then we ask whether its job is suspended
DRAIN_LIMIT_S = 3.0  # seconds that tasks of an aborted trial may run on; then their job is replaced

_POLL_S = 0.05  # seconds between two looks at the workers

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SubmittedJob:
    """A job that the batch system accepted."""

    id: str  # number or name in the batch system
    name: str  # name in this cluster; its workers are `NAME-0`, `NAME-1` and so on
    workers: int
    threads: int  # threads of each worker


@dataclass(frozen=True)
class PendingWorkers:
    """A report on what the cluster waits for; not an error."""

    words: str  # sentence on what is awaited
    in_queue: bool = False  # True if jobs wait in the queue; False if they run, but workers have not registered
    reason: str = ""  # reason in the words of the system
    estimated_start: float | None = None  # the system's estimate for the first waiting job, in seconds since the epoch
    last_start: float | None = None  # expected start of the last job (seconds since the epoch), if the system tells


class JobQueueCluster(Cluster[JobQueueSpec]):
    """A scheduler in this process, and workers in jobs: as many full jobs as the workers fill, one job for the rest."""

    shows: ClassVar[str] = (
        "what this machine does: real nodes, their network and accelerators, serialisation, memory, interpreter locks"
    )
    cannot_show: ClassVar[str] = (
        "what other users do to the nodes and network meanwhile: repeat trials, and compare points of one run only"
    )

    dask_config: ClassVar[Mapping[str, Any]] = NO_HTTP

    def __init__(self, spec: JobQueueSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self.label = leases.new_label()
        self._folder = ClusterFolder(self.label, spec.shared_directory)
        self._dask: SpecCluster | None = None
        self._lease: Lease | None = None
        self._security: distributed.Security | None = None
        self._jobs: list[SubmittedJob] = []
        self._serial = 0
        self._replaced = 0
        self._workers, self._threads = 0, 1
        self._waited_s = self._held_s = self._held_worker_s = 0.0
        self._begin = ""
        self._script = ""
        self._failed = False
        self._lost = ""
        self._closing = threading.Event()

    def open(self) -> None:
        """Start the scheduler; no job is submitted yet."""
        known = self._check()
        self._lease = leases.intend(
            self.kind, self.label, {"folder": str(self._folder.path), **known}, limit_s=self._lease_limit_s()
        )
        self._security = self._folder.create(tls=self.spec.tls)
        interface = self.spec.scheduler_interface or self.spec.interface or None
        options = {
            "protocol": "tls" if self.spec.tls else "tcp",
            "interface": interface,
            "security": self._security,
            "dashboard": False,
        }
        scratch = dask.config.get("temporary-directory", None) or os.environ.get(FOLDER)
        try:
            with dask.config.set({"temporary-directory": scratch}):  # else the scheduler leaves files in TMPDIR
                self._dask = SpecCluster(
                    scheduler={"cls": light_workers.LightScheduler, "options": options},
                    security=self._security,
                    silence_logs=logging.WARNING,
                    name=self.label,
                )
        except (OSError, RuntimeError, ValueError) as error:
            self.close()
            raise ClusterError(
                f"the scheduler of the {self.kind} cluster did not start",
                where=f"process {os.getpid()}, interface {interface or 'of the default route'}",
                cause=str(error.__cause__ or error),
                next_step="`ip address` lists the interfaces; set cluster.scheduler_interface or cluster.interface",
            ) from error
        self._script = self._job(self.spec.job_workers, 1).job_script()

    def close(self) -> None:
        self._closing.set()
        lease, self._lease = self._lease, None
        dask, self._dask = self._dask, None
        if lease is None:
            return
        self._remove_jobs(0)
        if dask is not None:
            try:
                dask.close(timeout=CLOSE_TIMEOUT_S)
            except Exception as error:  # noqa: BLE001 - whatever it raises, the jobs are cancelled below
                _logger.warning("the scheduler did not close cleanly: %r", error)
        left = self._remove_jobs(CLOSE_TIMEOUT_S)
        self._folder.remove(keep_logs=self._failed)
        self._jobs = []
        if left:
            self.left = f"jobs of {self.label} may still exist, and `scalescope reap` removes them: {left}"
        else:
            leases.release(lease)

    def client(self) -> distributed.Client:
        return distributed.Client(self._cluster(), set_as_default=False)

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "layout": f"jobs of {self.spec.job_workers} workers in {self.spec.processes or self.spec.job_workers} "
            f"processes; scheduler in the driver; {'tls' if self.spec.tls else 'tcp'}",
            "label": self.label,
            "workers": self._workers,
            "threads_per_worker": self._threads,
            "jobs": [{"id": job.id, "workers": job.workers} for job in self._jobs],
            "jobs_replaced": self._replaced,
            "waited_for_workers_s": round(self._waited_s, 3),
            "held_worker_s": round(self._held_worker_s, 3),
            "job_script": self._script,
            **self._facts_of_jobs(),
        }

    def submission(self, workers: int, threads_per_worker: int) -> str:
        return job_script.text(self.spec, workers, threads_per_worker)

    def scale(self, workers: int, threads_per_worker: int) -> None:
        """Provide exactly these workers: keep jobs that fit, cancel the others, and replace lost ones."""
        self._cluster()
        self.spec.check_size(workers, threads_per_worker)
        self._workers, self._threads = workers, threads_per_worker
        began = time.monotonic()
        self._held_s = self._held_worker_s = 0.0
        try:
            full, rest = divmod(workers, self.spec.job_workers)
            self._submit(self._keep([self.spec.job_workers] * full + ([rest] if rest else [])))
            self._arrive()
        except Exception:
            self._failed = True
            raise
        finally:
            self._waited_s = time.monotonic() - began

    def _keep(self, layout: Sequence[int]) -> list[int]:
        missing = Counter(layout)
        present = self._present()
        busy = self._busy() if self._lost else set()
        stale = bool(self._lost) and self._is_stale()
        kept, unwanted, lost = [], [], []
        for job in self._jobs:
            if present[job.name] != job.workers:
                lost.append(job)
            elif not stale and job.threads == self._threads and missing[job.workers] and job.name not in busy:
                missing[job.workers] -= 1
                kept.append(job)
            else:
                unwanted.append(job)
        self._replaced += len(lost)
        if self._replaced > self.spec.replace_jobs:
            raise ClusterError(
                f"the cluster has lost {self._replaced} jobs, more than it may replace ({self.spec.replace_jobs})",
                where=f"jobs {', '.join(job.id for job in lost)} of {self.label}",
                cause=self._lost or "nodes fail, or jobs are cancelled or run into their time limit",
                next_step="read the error of the first trial that lost workers; then raise cluster.replace_jobs",
                category="too-many-jobs-lost",
            )
        self._cancel([job.id for job in unwanted + lost])
        self._jobs = kept
        return sorted(missing.elements(), reverse=True)

    def _submit(self, sizes: Sequence[int]) -> None:
        if not sizes:
            return
        assert self._lease is not None
        self._lease = leases.renew(self._lease, limit_s=self._lease_limit_s())
        jobs = [self._job(size, self._threads) for size in sizes]
        self._script = jobs[0].job_script()
        for size, job, number in self._send(sizes, jobs):
            self._lease = leases.renew(self._lease, jobs=[*self._lease.details.get("jobs", ()), number])
            self._jobs.append(SubmittedJob(number, job.name, size, self._threads))

    def _job(self, workers: int, threads: int) -> Any:
        self._serial += 1
        request = JobRequest(
            name=str(self._serial),
            workers=workers,
            threads=threads,
            label=self.label,
            address=self._cluster().scheduler_address,
            folder=str(self._folder.path),
            dask_cuda=job_script.uses_dask_cuda(self.spec),
            begin=self._begin,
            imports=self.folder,
        )
        return job_script.job(self.spec, request)

    def _arrive(self) -> None:
        said, said_at, started_at = "", 0.0, time.monotonic()
        looked_at = started_at
        while (present := self._present()) != (expected := Counter({job.name: job.workers for job in self._jobs})):
            arrived = sum((present & expected).values())
            now = time.monotonic()
            self._held_s += (now - looked_at) * bool(arrived)
            self._held_worker_s += (now - looked_at) * arrived
            looked_at = now
            try:
                waiting = self._explain(arrived)
                if waiting is not None and waiting.in_queue and arrived:
                    self._hold(waiting, arrived)
            except JobsEnded as error:
                self._replace(error)
                started_at = time.monotonic()
                continue
            if waiting is not None and waiting.in_queue:
                started_at = time.monotonic()
            if waiting is not None and (waiting.words != said or now - said_at > REPORT_INTERVAL_S):
                said, said_at = waiting.words, now
                self.report(waiting.words)
            if now - started_at > self.spec.start_timeout_s:
                raise self._missing(arrived, waiting.words if waiting else "")
            if self._closing.wait(_POLL_S):
                raise ClusterError(f"the {self.kind} cluster was closed while it waited for workers")
        self._check_threads()

    def _replace(self, error: JobsEnded) -> None:
        ended = [job for job in self._jobs if job.id in error.job_ids]
        self._replaced += len(ended)
        if not error.may_return or not ended or self._replaced > self.spec.replace_jobs:
            raise error
        words = f"{plural(len(ended), 'job')} replaced: {error.what}"
        _logger.warning("%s", words)
        self.report(words)
        self._cancel([job.id for job in ended])
        self._jobs = [job for job in self._jobs if job not in ended]
        self._submit([job.workers for job in ended])

    def _present(self) -> Counter[str]:
        found = registered(self._cluster().scheduler)
        return Counter(str(worker.name).partition("-")[0] for worker in found if worker.status == Status.running)

    def _busy(self) -> set[str]:
        cluster = self._cluster()
        deadline = time.monotonic() + DRAIN_LIMIT_S
        while True:
            stacks = cluster.sync(cluster.scheduler.broadcast, msg={"op": "call_stack", "keys": None})
            names = {str(ws.name) for ws in registered(cluster.scheduler) if stacks.get(ws.address)}
            if not names or time.monotonic() > deadline:
                return {name.partition("-")[0] for name in names}
            time.sleep(_POLL_S)

    def _check_threads(self) -> None:
        found = {worker.nthreads for worker in registered(self._cluster().scheduler)}
        if found - {self._threads}:
            raise WorkersMissing(
                f"asked for {plural(self._threads, 'thread')} per worker, but workers have "
                f"{' or '.join(map(str, sorted(found)))}",
                where=f"{self.kind} cluster {self.label}",
                cause="cluster.prologue, or the site's configuration of dask-jobqueue, changes the workers' command",
                next_step="look for --nthreads in the script that `scalescope job-script` shows",
                category="wrong-threads",
            )

    def _missing(self, arrived: int, words: str) -> WorkersMissing:
        return WorkersMissing(
            f"{arrived} of {plural(self._workers, 'worker')} registered within {self.spec.start_timeout_s:g} s after "
            "their jobs had started",
            where=f"jobs {', '.join(job.id for job in self._jobs[:8])} of {self.label}",
            cause=words or "their jobs run, but the workers do not register with the scheduler",
            next_step=f"read the jobs' error files in {self._folder.logs}, or raise cluster.start_timeout_s",
            category="start-timeout",
        )

    @contextmanager
    def running(self, workload: Workload, point: Point) -> Iterator[None]:
        """Context of a trial; aborts a trial that has lost workers, because it might wait for them forever."""
        dask = self._cluster()
        suspended: list[ClusterError] = []
        asked_at = time.monotonic()

        def arrived() -> int:
            nonlocal asked_at
            workers, now = registered(dask.scheduler), time.monotonic()
            quiet_s = max((time.time() - each.last_seen for each in workers), default=0.0)
            if min(quiet_s, now - asked_at) > SUSPECT_S and not suspended:
                asked_at = now
                suspended.extend(self._give_back_suspended())
            return sum(each.status == Status.running for each in workers)

        def explain(arrived: int) -> None:
            for error in suspended:
                raise error
            self._explain(arrived)

        watch = WorkerWatch(
            self._workers,
            arrived=arrived,
            explain=explain,
            missing=self._incomplete,
            cancel=lambda: dask.sync(cancel_everything, dask.scheduler),
        )
        self._lost = ""
        with watch:
            yield
        if watch.lost:
            self._failed, self._lost = True, watch.lost

    def _give_back_suspended(self) -> list[ClusterError]:
        """Cancel suspended jobs, because a trial cannot end without their workers; returns one error, or none."""
        ids = self._suspended()
        if not ids:
            return []
        self._cancel(ids)
        return [
            ClusterError(
                f"{self.kind} suspended {plural(len(ids), 'job')} of {self.label}",
                where=f"jobs {', '.join(ids)}",
                cause="an administrator suspended the jobs, or jobs with a higher priority use their cores meanwhile",
                next_step="use a queue, partition or QOS whose jobs are not suspended; the next trial gets new jobs",
                category="suspended",
            )
        ]

    def _suspended(self) -> list[str]:
        """Numbers of our jobs that were started and then suspended by the system."""
        return []

    def _incomplete(self) -> str:
        present, nodes = self._present(), self._nodes()
        lost = [job.id for job in self._jobs if present[job.name] != job.workers]
        return ", ".join(f"job {number}" + (f" on {nodes[number]}" if nodes.get(number) else "") for number in lost)

    def losses(self) -> str:
        return self._lost

    def _cluster(self) -> SpecCluster:
        if self._dask is None:
            raise self._not_open()
        return self._dask

    def _lease_limit_s(self) -> float:
        return self.spec.queue_timeout_s + math.ceil(self.spec.walltime_s) + 600

    # ---------------------------------------------------------------- what differs between batch systems

    @abstractmethod
    def _check(self) -> dict[str, str]:
        """Raise `ClusterError` if jobs cannot be submitted from here; returns the details that `reap` needs later."""

    @abstractmethod
    def _send(self, sizes: Sequence[int], jobs: Sequence[Job]) -> Iterator[tuple[int, Job, str]]:
        """Submit jobs until the cluster closes; yields the size, job and number of each accepted job."""

    @abstractmethod
    def _cancel(self, job_ids: Sequence[str]) -> None:
        """Cancel jobs that are no longer needed."""

    @abstractmethod
    def _remove_jobs(self, timeout_s: float) -> str:
        """Cancel every job of this cluster; returns a sentence on jobs that are left."""

    @abstractmethod
    def _explain(self, arrived: int) -> PendingWorkers | None:
        """Why workers are missing; None if all are there. Raises `ClusterError` if they will never come."""

    def _hold(self, waiting: PendingWorkers, arrived: int) -> None:
        """Cancel and resubmit all jobs if the running ones would wait too long for the queued ones."""

    def _is_stale(self) -> bool:
        """Whether jobs have reached their time limit, so that the remaining jobs soon will."""
        return False

    def _nodes(self) -> dict[str, str]:
        """The nodes of jobs, by job number."""
        return {}

    def _facts_of_jobs(self) -> dict[str, Any]:
        return {}
