"""A cluster of Grid Engine's jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from scalescope.clusters.jobqueue.base_cluster import PendingWorkers
from scalescope.clusters.jobqueue.batch_cluster import SHOWN, BatchCluster, listed
from scalescope.clusters.jobqueue.grid_engine import (
    GridEngine,
    GridEngineJob,
    GridEngineSilent,
    asked,
    next_step,
)
from scalescope.clusters.jobqueue.job_terms import NO_TERMS, JobTerms
from scalescope.clusters.jobqueue.systems import SgeSpec
from scalescope.clusters.jobqueue.watching import excerpt
from scalescope.errors import ClusterError, JobsEnded
from scalescope.model.words import plural
from scalescope.waiting import CLOSING_S, PATIENCE_S, patiently

if TYPE_CHECKING:
    from dask_jobqueue.core import Job

# The next step for the user, by the category of the error.
_LOOK_AT = {
    "jobs-gone": "look at `cluster.python`, `cluster.prologue` and `cluster.interface`, and at the limits of the queue",
    "start-failed": "check the folders that `cluster.directives_add` names, or ask the administrators",
    "node-lost": "`qhost` shows which hosts answer; set another `cluster.queue`, or try again when they are back",
}
_ONE_HOST = "$pe_slots"  # the allocation rule that gives a job all its slots on one host

T = TypeVar("T")


class SgeCluster(BatchCluster):
    """Workers in jobs of Grid Engine; its commands tell why workers do not come."""

    spec: SgeSpec

    def __init__(self, spec: SgeSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._engine = GridEngine()
        self._hosts: dict[str, str] = {}
        self._answered_at = 0.0
        self._asked: dict[str, JobTerms] = {}

    def scale(self, workers: int, threads_per_worker: int) -> None:
        self._answered_at = time.monotonic()
        super().scale(workers, threads_per_worker)

    def _check(self) -> dict[str, str]:
        known = super()._check()
        name = self.spec.parallel_environment
        rule = self._patiently(lambda: self._engine.allocation_rule(name)) if name else _ONE_HOST
        if rule != _ONE_HOST:
            scattered = f"its allocation rule {rule} may spread a job over hosts, but a job's workers need one host"
            raise ClusterError(
                f"jobs of workers cannot use the parallel environment {name}",
                where="cluster.parallel_environment",
                cause=scattered if rule else "it does not exist",
                next_step=f"choose one of `qconf -spl` for which `qconf -sp NAME` shows allocation_rule {_ONE_HOST}",
                category="bad-parallel-environment",
            )
        return {**known, **self._engine.variables}

    def _send(self, sizes: Sequence[int], jobs: Sequence[Job]) -> Iterator[tuple[int, Job, str]]:
        self._patiently(lambda: self._engine.jobs(self.label))
        for size, job, number in super()._send(sizes, jobs):
            self._asked[number] = asked(job.job_script())
            yield size, job, number

    def _patiently(self, ask: Callable[[], T]) -> T:
        return patiently(
            ask,
            who="Grid Engine",
            is_silent=lambda error: isinstance(error, GridEngineSilent),
            says=self.report,
            stopped=self._closing,
        )

    def _cancel(self, job_ids: Sequence[str]) -> None:
        self._patiently(lambda: self._engine.delete(job_ids))

    def _remove_jobs(self, timeout_s: float) -> str:
        engine = GridEngine(self._engine.variables, timeout_s=CLOSING_S)
        try:
            _, left, _ = engine.remove(self.label, self._submitted, str(self._folder.path), timeout_s=timeout_s)
        except GridEngineSilent as error:
            return error.line
        return ", ".join(left)

    def _suspended(self) -> list[str]:
        with suppress(GridEngineSilent):
            return [job.id for job in self._engine.jobs(self.label) if job.category == "suspended"]
        return []

    def _nodes(self) -> dict[str, str]:
        return self._hosts

    def _look(self, missing: int) -> PendingWorkers:
        now = time.monotonic()
        try:
            seen = {job.id: job for job in self._engine.jobs(self.label)}
            self._answered_at = now
            self._hosts |= {job.id: job.host for job in seen.values() if job.host}
            for job in seen.values():
                self._changes_of[job.id] = self._asked.get(job.id, NO_TERMS).changes(job.terms)
            self._raise_for_ended(seen)
            pending = [job for job in seen.values() if job.is_pending]
            if pending:
                return self._waiting(pending, len(seen) - len(pending))
            return self._started(missing, len(seen), self._not_running(seen.values()))
        except GridEngineSilent as error:
            if now - self._answered_at > PATIENCE_S:
                raise
            return PendingWorkers(f"Grid Engine does not answer: {error.cause}", in_queue=True)

    def _waiting(self, pending: Sequence[GridEngineJob], running: int) -> PendingWorkers:
        first = pending[0].id
        if self._waiting_since is None and (never := self._engine.verify(first, "v")):
            raise JobsEnded(
                f"Grid Engine can never start job {first} of {self.label}",
                where=f"qalter -w v {first}",
                cause=_list(never),
                next_step="look at the script that `scalescope job-script` shows, and ask for less per job; `qhost` "
                "shows what hosts have, `qconf -srqs` the site's quotas, which Grid Engine does not name here",
                category="never-starts",
                job_ids=tuple(job.id for job in pending),
                ends_run=True,
            )
        looked = self._engine.reasons(first)
        reasons = _list(looked) or "Grid Engine is about to start them"
        release = f"qrls {first}" if all(job.category == "held" for job in pending) else ""
        if release:
            reasons = f"you or an administrator held job {first}, or it waits for another job"
        return self._wait([job.id for job in pending], reasons, running, release, next_step(looked))

    def _not_running(self, jobs: Iterable[GridEngineJob]) -> str:
        """Why jobs that already have a host do not run."""
        suspended = [job.id for job in jobs if job.category == "suspended"]
        unknown = dict.fromkeys(job.state for job in jobs if not job.category)
        told = [f"jobs {listed(suspended)} are suspended"] if suspended else []
        told += [f"state {state} is not known to Scalescope" for state in unknown]
        return "".join(f"; {words}" for words in told)

    def _raise_for_ended(self, seen: Mapping[str, GridEngineJob]) -> None:
        """Raise for jobs that are gone, could not be started, or lost workers on a host that does not answer."""
        ours = [job.id for job in self._jobs]
        gone = [number for number in ours if number not in seen or seen[number].is_deleted]
        failed = [number for number in ours if number in seen and seen[number].has_failed]
        away = self._engine.unreachable() if any(job.host for job in seen.values()) else set()
        silent = [job for job in self._jobs if job.id in seen and seen[job.id].queue in away]
        # After an outage the master reports all hosts as silent, so a job is lost only if its workers are gone, too.
        lost = [job.id for job in silent if self._present()[job.name] != job.workers]
        if gone:
            output = self._output(gone[0])
            cause = "somebody deleted the job, or a limit ended it" + self._changed()
            cause = f"the end of its output:\n    | {output}" if output else cause
            raise self._ended(gone, "ended too early", cause, "jobs-gone", may_return=not output)
        if failed:
            reason = " ".join(self._engine.details(failed[0])["error reason 1"])
            raise self._ended(failed, "could not be started", reason, "start-failed")
        if lost:
            cause = f"host {seen[lost[0]].host} does not answer to Grid Engine"
            raise self._ended(lost, "lost their host", cause, "node-lost", may_return=True)

    def _ended(
        self, jobs: Sequence[str], what: str, cause: str, category: str, *, may_return: bool = False
    ) -> JobsEnded:
        shows = f"`qstat -j {jobs[0]}`, or `qacct -j {jobs[0]}` once it has ended, shows more"
        return JobsEnded(
            f"{plural(len(jobs), 'job')} of {self.label} {what}",
            where=f"jobs {listed(jobs)}" + (f" on {self._hosts[jobs[0]]}" if jobs[0] in self._hosts else ""),
            cause=cause,
            next_step=f"{shows}; {_LOOK_AT[category]}",
            category=category,
            job_ids=tuple(jobs),
            may_return=may_return,
        )

    def _output(self, number: str) -> str:
        try:
            text = (self._folder.logs / f"{self.label}.o{number}").read_text(errors="replace")
        except OSError:
            return ""
        return excerpt(text).strip().replace("\n", "\n    | ")


def _list(reasons: Sequence[str]) -> str:
    more = f"; {plural(len(reasons) - SHOWN, 'more reason')}" if len(reasons) > SHOWN else ""
    return "; ".join(reasons[:SHOWN]) + more
