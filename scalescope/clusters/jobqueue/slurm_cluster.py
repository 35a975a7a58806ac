"""A cluster of Slurm jobs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from scalescope import waiting
from scalescope.clusters.jobqueue.base_cluster import JobQueueCluster, PendingWorkers
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec
from scalescope.clusters.jobqueue.slurm_watch import JobWatch
from scalescope.errors import ClusterError, JobsEnded
from scalescope.model.words import plural
from scalescope.slurm import commands, failures, submission
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.commands import CommandSilent
from scalescope.slurm.jobs import ClusterJobs
from scalescope.waiting import CLOSING_S

if TYPE_CHECKING:
    from dask_jobqueue.core import Job

    from scalescope.slurm.capacity import SlurmCapacity

SUBMISSIONS = 8  # largest number of sbatch commands that run at the same time
NODES_S = 10.0  # seconds between two checks whether nodes are back
ASKED = "Scalescope asked for this start (--begin): Slurm expects room for all jobs of the cluster by then"

T = TypeVar("T")


class SlurmCluster(JobQueueCluster):
    """Workers in jobs of Slurm; its commands tell why workers do not come."""

    spec: SlurmSpec

    def __init__(self, spec: SlurmSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._run = commands.commands()
        self._watch = JobWatch(
            self.label,
            log_directory=self._folder.logs,
            run=self._run,
            queue_timeout_s=spec.queue_timeout_s,
            closed_nodes=partial(spec.closed_nodes, run=self._run),
        )
        self._judged: dict[str, tuple[str, str]] = {}  # nodes that were down or drained at the last check for room
        self._given_back = False  # True once this point's jobs were cancelled and submitted again together

    def scale(self, workers: int, threads_per_worker: int) -> None:
        self._watch.begin()
        self._judged, self._given_back = {}, False
        super().scale(workers, threads_per_worker)

    def _check(self) -> dict[str, str]:
        return self._patiently(lambda: slurm_jobs.lease_details(run=self._run))

    def _patiently(self, ask: Callable[[], T]) -> T:
        return commands.patiently(ask, says=self.report, stopped=self._closing)

    def _send(self, sizes: Sequence[int], jobs: Sequence[Job]) -> Iterator[tuple[int, Job, str]]:
        def submit(job: Job) -> str:
            number = "" if self._closing.is_set() else self._sbatch(job)
            self._watch.expect([number] if number else [], job.job_script())
            return number

        with ThreadPoolExecutor(SUBMISSIONS, thread_name_prefix="sbatch") as pool:
            futures = [pool.submit(submit, job) for job in jobs]
            try:
                for size, job, future in zip(sizes, jobs, futures, strict=True):
                    if number := future.result():
                        yield size, job, number
            except JobsEnded as error:
                wait(futures)
                error.ends_run = not self._watch.expected  # Slurm accepted some jobs, so smaller points may fit
                raise
            finally:
                for future in futures:
                    future.cancel()

    def _submit(self, sizes: Sequence[int]) -> None:
        super()._submit(self._await_nodes(sizes) if sizes else ())

    def _await_nodes(self, sizes: Sequence[int]) -> Sequence[int]:
        """Wait until working nodes have room for all workers; otherwise the first workers would idle.

        Before it waits, it cancels the jobs of the cluster; returns `sizes` with the sizes of these jobs.
        """
        while (room := self._patiently(self._check_room)) is not None and room.now < self._workers:
            words = f"the working nodes have room for {room.now} of {plural(self._workers, 'worker')}"
            words = f"{words}, so no jobs are submitted yet: {failures.nodes_in_words(room.closed)}"
            self._watch.wait_without_jobs(words, in_vain=not room.now)
            sizes = [*sizes, *self._give_back()]
            self.report(words)
            if self._closing.wait(min(NODES_S, self.spec.queue_timeout_s)):
                raise ClusterError(f"the {self.kind} cluster was closed while it waited for nodes")
        return sorted(sizes, reverse=True)

    def _check_room(self) -> SlurmCapacity | None:
        if self._jobs:
            self._watch.refresh()  # reads the nodes of jobs that have just started
        nodes = self._nodes()
        ours = {nodes[job.id] for job in self._jobs if job.id in nodes}
        return self.spec.require_room(self._workers, self._threads, run=self._run, ours=ours)

    def _give_back(self) -> list[int]:
        """Cancel all jobs; returns the number of workers of each."""
        sizes = [job.workers for job in self._jobs]
        self._cancel([job.id for job in self._jobs])
        self._jobs = []
        return sizes

    def _sbatch(self, job: Job) -> str:
        looks, pause_s = 0, 0.0

        def submit() -> str:
            nonlocal looks, pause_s
            for _ in range(looks):
                if number := self._arrived(job.name):
                    return number
                self._closing.wait(pause_s)
            # Look twice: after an outage, the controller may answer queries before it carries out earlier submissions.
            looks, pause_s = 2, waiting.AGAIN_S
            return submission.submit(job.job_script(), run=self._run)

        deadline = time.monotonic() + min(self.spec.queue_timeout_s, waiting.PATIENCE_S)
        while True:
            try:
                return self._patiently(submit)
            except JobsEnded as error:  # for example, a full queue may have room later
                if not error.may_return or time.monotonic() > deadline or self._never_holds(error):
                    raise
                self.report(f"{error.what}: {error.cause}; Scalescope submits the job again until Slurm accepts it")
                if self._closing.wait(waiting.AGAIN_S):
                    raise
                looks, pause_s = 1, 0.0  # Slurm has answered: one look is enough

    def _never_holds(self, error: JobsEnded) -> bool:
        """Whether Slurm's queue is too small for all jobs of this point, even if it were empty."""
        if error.category != "queue-full":
            return False
        most = self._patiently(lambda: slurm_jobs.most_jobs(run=self._run))
        needed = math.ceil(self._workers / self.spec.job_workers)
        if never := 0 < most <= needed:
            error.cause = (
                f"Slurm holds fewer jobs than its MaxJobCount of {most}; this point needs {plural(needed, 'job')}"
            )
        return never

    def _arrived(self, name: str) -> str:
        for job in slurm_jobs.find([self.label], run=self._run):
            if job.id not in self._watch.expected:
                errors = slurm_jobs.details(job.id, run=self._run).get("StdErr", "")
                if os.path.basename(errors).startswith(f"{name}-"):
                    return job.id
        return ""

    def _cancel(self, job_ids: Sequence[str]) -> None:
        self._watch.dismiss(job_ids)
        self._patiently(lambda: slurm_jobs.cancel(job_ids, self.label, run=self._run))

    def _suspended(self) -> list[str]:
        with suppress(CommandSilent):
            found = slurm_jobs.find([self.label], run=self._run)
            return [job.id for job in found if job.state in slurm_jobs.SUSPENDED]
        return []

    def _remove_jobs(self, timeout_s: float) -> str:
        jobs = ClusterJobs(self.label, self._watch.expected, str(self._folder.path))
        try:
            _, ours, others = jobs.remove(run=commands.commands(timeout_s=CLOSING_S), timeout_s=timeout_s)
        except ClusterError as error:
            return error.line
        return ", ".join(f"{job.id} ({job.state})" for job in (*ours, *others))

    def _nodes(self) -> dict[str, str]:
        return {job.id: job.nodes for job in self._watch.jobs()}

    def _facts_of_jobs(self) -> dict[str, Any]:
        if not self._watch.expected:
            return {}
        facts = self._watch.facts()
        cpus = {job["id"]: job["tres"].get("cpu", "") for job in facts["jobs"]}
        cores = [int(found) for job in self._jobs if (found := cpus.get(job.id, "")).isdigit()]
        return {
            "slurm": facts,
            "changed": list(self._watch.changes.values()),
            "cores_per_worker": sum(cores) / self._workers if cores and len(cores) == len(self._jobs) else None,
            "walltime_reached": bool(self._lost) and self._watch.timed_out,
        }

    def _is_stale(self) -> bool:
        return self._watch.timed_out

    def _explain(self, arrived: int) -> PendingWorkers | None:
        waiting = self._watch.check(self._workers, arrived)
        if doubled := self._watch.unexpected():  # Slurm carried out a submission that we took for failed
            self._cancel(doubled)
        return waiting

    def _hold(self, waiting: PendingWorkers, arrived: int) -> None:
        if self._watch.closed != self._judged:
            self._judged = self._watch.closed
            room = self._patiently(self._check_room)
            if room is not None and room.now < self._workers:
                self._submit(self._give_back())
                return
        # After half of a job's time limit, the rest may be too short for a trial.
        left_s = min(self.spec.hold_s, self.spec.walltime_s / 2) - self._held_s
        if left_s <= 0:
            raise ClusterError(
                f"Scalescope gave up: the started workers waited {self._held_s:.0f} s for the others, and idle workers "
                "cost as much as busy ones",
                where=self.label,
                cause=waiting.words,
                next_step="try again when the queue is shorter, or ask for fewer workers",
                category="held-too-long",
            )
        # Jobs may wait for half of the remaining time, so that repeated waits add up to at most `hold_s`.
        if self._given_back or not _starts_after(waiting, left_s / 2):
            return
        # Whatever let some jobs start may meanwhile have let all jobs start, so look again.
        self._watch.refresh()
        now = self._explain(arrived)
        if now is None or not (start := _starts_after(now, left_s / 2)):
            return
        self.report(
            "Scalescope cancels all jobs and submits them again, to start together: the started jobs would wait too "
            f"long for the rest. {now.words}"
        )
        self._given_back, self._watch.asked = True, ASKED
        sizes = self._give_back()
        self._begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(start))
        try:
            self._submit(sizes)
        finally:
            self._begin = ""


def _starts_after(waiting: PendingWorkers, wait_s: float) -> float:
    start = waiting.last_start or 0.0
    return start if start - time.time() > wait_s else 0.0
