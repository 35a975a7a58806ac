"""The jobs of a work pool: submits them, looks at all of them with one squeue, and says how they ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import anyio
from anyio import to_thread

from scalescope.errors import ClusterError
from scalescope.slurm import failures, submission
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.commands import commands, plain, silent
from scalescope.slurm.failures import POOL_FIELDS
from scalescope.slurm.jobs import FORGOTTEN, SlurmJob

NAME_PREFIX = "prefect-"  # names of flow runs' jobs begin with it; a job number alone may be reused by Slurm

SUBMIT_TIMEOUT_S = 60.0  # seconds for sbatch to answer
MISSES = 3  # looks in a row without a job, after which Slurm counts as having forgotten it

_MAY_END = ("partition-closed", "job-held")  # temporary states: a partition opens again, a held job is released


def submission_environment(environ: Mapping[str, str], more: Mapping[str, str | None]) -> dict[str, str]:
    # A Prefect worker that runs in a job has variables about that job, which sbatch would take for options.
    kept = {name: value for name, value in environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}
    return kept | {name: value for name, value in more.items() if value is not None}


async def submit(options: Sequence[str], script: str, environ: Mapping[str, str]) -> str:
    run = commands(environ=environ, timeout_s=SUBMIT_TIMEOUT_S)
    return await to_thread.run_sync(lambda: submission.submit(script, run=run, options=options, fields=POOL_FIELDS))


class JobQueue:
    """All jobs of a Prefect worker. Methods that ask Slurm raise `ClusterError`."""

    def __init__(self) -> None:
        self._run = commands()
        self._lock = anyio.Lock()
        self._names: set[str] = set()
        self._seen: dict[str, SlurmJob] = {}
        self._at = float("-inf")

    def add(self, name: str) -> None:
        self._names.add(name)
        self._at = float("-inf")

    def drop(self, name: str) -> None:
        self._names.discard(name)

    async def look(self, job_id: str, *, max_age_s: float) -> SlurmJob | None:
        """A job as it was at most `max_age_s` seconds ago; None if Slurm does not show it."""
        async with self._lock:
            if time.monotonic() - self._at >= max_age_s:
                found = await to_thread.run_sync(lambda: slurm_jobs.find(self._names, run=self._run))
                self._seen, self._at = {job.id: job for job in found}, time.monotonic()
        return self._seen.get(job_id)

    async def named(self, name: str) -> SlurmJob | None:
        found = await to_thread.run_sync(lambda: slurm_jobs.find([name], run=self._run))
        return max(found, key=lambda job: int(job.id), default=None)

    async def final(self, job_id: str, last: SlurmJob | None = None) -> SlurmJob:
        """A job with its exit code, from `sacct` if need be; `FORGOTTEN` if unknown, or now another job's number."""
        base = last or SlurmJob(id=job_id, name="", state=FORGOTTEN)
        shown = await to_thread.run_sync(lambda: slurm_jobs.details(job_id, run=self._run))
        name, state = shown.get("JobName", ""), shown.get("JobState", "")
        exit_code, nodes = shown.get("ExitCode", ""), shown.get("NodeList", "")
        if not shown:
            name, state, exit_code, nodes = await to_thread.run_sync(lambda: self._accounted(job_id))
        if not name.startswith(NAME_PREFIX):
            return SlurmJob(id=job_id, name="", state=FORGOTTEN)
        return replace(base, name=name, state=state, exit_code=exit_code, nodes=nodes or base.nodes)

    def _accounted(self, job_id: str) -> tuple[str, str, str, str]:
        columns = "JobName,State,ExitCode,NodeList"
        try:
            done = self._run(("sacct", "-X", "-n", "-P", "-j", job_id, "-o", columns), "")
        except ClusterError:
            return "", "", "", ""
        rows = [line.split("|") for line in done.stdout.splitlines()] if done.returncode == 0 else []
        name, state, exit_code, nodes = next((row for row in reversed(rows) if len(row) == 4), [""] * 4)
        return name, state.partition(" ")[0], exit_code, nodes

    async def cancel(self, job_id: str, *options: str) -> None:
        """End a job: at once if it waits, else with SIGTERM and, KillWait seconds later, SIGKILL."""
        done = await to_thread.run_sync(lambda: self._run(("scancel", *options, job_id), ""))
        if done.returncode and not slurm_jobs.ENDED_ANYHOW.search(done.stderr):
            raise silent(["scancel"], plain(done.stderr))


def cannot_start(job: SlurmJob) -> str:
    """Why a waiting job will never start, and what to do; empty if it may start."""
    failure = failures.never(job.why, job.state) if job.is_pending else None
    if failure is None or failure.category in _MAY_END:
        return ""
    step = failure.step(POOL_FIELDS, job.id)
    return f"Slurm job {job.id} can never start ({job.reason}): {failure.cause}. Next: {step}."


def progress(job: SlurmJob) -> str:
    if job.is_pending:
        why = f" ({job.reason})" if job.reason else ""
        return f"Slurm job {job.id} waits in partition {job.partition}: {failures.waiting(job.why).cause}{why}"
    return f"Slurm job {job.id} is {job.state} on {job.nodes or 'no node'}"


@dataclass(frozen=True)
class JobEnd:
    """How a job ended."""

    status: int  # exit status as a shell gives it: 0 is success, 128 plus a number is a signal
    category: str  # category of the failure; empty is success
    text: str  # what happened, why and what to do next; for people


def end(job: SlurmJob) -> JobEnd:
    if job.state == "COMPLETED":
        return JobEnd(0, "", f"Slurm job {job.id} ended normally")
    code, _, signal = (job.exit_code or "1:0").partition(":")
    failure = failures.ended(job)
    what = f"Slurm job {job.id}{f' on {job.nodes}' if job.nodes else ''} ended: {job.state}"
    what += f", exit code {job.exit_code}" if job.exit_code else ""
    step = failure.step(POOL_FIELDS, job.id)
    status = int(code) or (128 + int(signal) if signal not in ("", "0") else 1)
    return JobEnd(status, failure.category, f"{what}. Cause: {failure.cause}. Next: {step}.")
