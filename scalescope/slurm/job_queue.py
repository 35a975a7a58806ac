"""Submits jobs with sbatch, looks at all of them with one squeue, and says how they ended; nothing of Prefect."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import anyio
from anyio import to_thread

from scalescope.errors import ClusterError, JobsEnded
from scalescope.slurm import failures
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.jobs import Run, SlurmJob

FORGOTTEN = "FORGOTTEN"
"""State, of our own, of a job that Slurm no longer knows."""

NAME_PREFIX = "prefect-"
"""Of the names of flow runs' jobs. A number alone may be another job's by now: Slurm begins to count anew at times."""

SUBMIT_TIMEOUT_S = 60.0
MISSES = 3
"""Looks in a row that do not show a job, before it is taken for forgotten."""

_TEMPORARY = re.compile(r"PartitionDown|PartitionInactive|[Hh]eld|HOLD")


# ------------------------------------------------------------------ submission


def submission_environment(environ: Mapping[str, str], more: Mapping[str, str | None]) -> dict[str, str]:
    """The environment of sbatch, which becomes the job's.

    A worker that itself runs in a job has variables that describe that job; sbatch would take some for options.

    Args:
        environ: The worker's.
        more: What the job's configuration adds.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}
    return kept | {name: value for name, value in more.items() if value is not None}


async def submit(options: Sequence[str], script: str, environ: Mapping[str, str]) -> str:
    """Submits a job and returns its number.

    Raises:
        CommandSilent: Slurm does not answer; the job may have been submitted all the same.
        JobsEnded: Slurm refuses the job; with its own words.
        ClusterError: There is no Slurm here.
    """

    def call() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sbatch", *options],  # noqa: S607 (where it is differs from site to site)
            input=script,
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=SUBMIT_TIMEOUT_S,
            check=False,
        )

    try:
        done = await to_thread.run_sync(call)
    except FileNotFoundError as error:
        raise ClusterError(
            "sbatch is not installed where the worker runs",
            cause="Slurm's commands exist on the login and compute nodes of a Slurm cluster only",
            next_step="start the worker on such a node, or load the module that brings them (`module load slurm`)",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise slurm_jobs.silent(["sbatch"], f"no answer within {SUBMIT_TIMEOUT_S:g} s") from error
    if done.returncode:
        refusal = slurm_jobs.refused(done.stderr)
        if isinstance(refusal, JobsEnded):
            refusal.next_step = _as_job_variables(refusal.next_step)
        raise refusal
    return done.stdout.strip().partition(";")[0]


# ------------------------------------------------------------------ the queue


class JobQueue:
    """All jobs of a worker, seen with one squeue however many they are."""

    def __init__(self, run: Run | None = None) -> None:
        self._run = run or slurm_jobs.commands()
        self._lock = anyio.Lock()
        self._names: set[str] = set()
        self._seen: dict[str, SlurmJob] = {}
        self._at = float("-inf")

    def add(self, name: str) -> None:
        """Looks at jobs of this name from now on."""
        self._names.add(name)
        self._at = float("-inf")

    def drop(self, name: str) -> None:
        """No longer looks at jobs of this name."""
        self._names.discard(name)

    async def look(self, job_id: str, *, max_age_s: float) -> SlurmJob | None:
        """A job as it was no longer than so many seconds ago; None if Slurm does not show it.

        Raises:
            ClusterError: Slurm does not answer, or is not here.
        """
        async with self._lock:
            if time.monotonic() - self._at >= max_age_s:
                found = await to_thread.run_sync(lambda: slurm_jobs.find(self._names, run=self._run))
                self._seen, self._at = {job.id: job for job in found}, time.monotonic()
        return self._seen.get(job_id)

    async def named(self, name: str) -> SlurmJob | None:
        """The newest job of a name.

        Raises:
            ClusterError: Slurm does not answer, or is not here.
        """
        found = await to_thread.run_sync(lambda: slurm_jobs.find([name], run=self._run))
        return max(found, key=lambda job: int(job.id), default=None)

    async def final(self, job_id: str, last: SlurmJob | None) -> SlurmJob:
        """A flow run's job, with its exit code; from the accounting where the controller has forgotten it.

        A job of another kind that has its number is not looked at: then ours is forgotten.

        Args:
            job_id: Its number.
            last: As it was last seen.
        """
        shown = await to_thread.run_sync(lambda: slurm_jobs.details(job_id, run=self._run))
        if shown and not shown.get("JobName", "").startswith(NAME_PREFIX):
            return SlurmJob(id=job_id, name="", state=FORGOTTEN)
        if shown:
            base = last or SlurmJob(id=job_id, name=shown["JobName"], state=shown["JobState"])
            nodes = shown.get("NodeList", "") or base.nodes
            return replace(base, state=shown["JobState"], exit_code=shown.get("ExitCode", ""), nodes=nodes)
        columns = "State,ExitCode,NodeList,JobName"
        asked = ("sacct", "-X", "-n", "-P", "-j", job_id, "-o", columns)
        try:
            done = await to_thread.run_sync(lambda: self._run(asked, ""))
        except ClusterError:  # no accounting here
            return SlurmJob(id=job_id, name="", state=FORGOTTEN)
        rows = [line.split("|", 3) for line in done.stdout.splitlines()] if done.returncode == 0 else []
        rows = [row for row in rows if len(row) == 4 and row[3].startswith(NAME_PREFIX)]
        if not rows:
            return SlurmJob(id=job_id, name="", state=FORGOTTEN)
        state, exit_code, nodes, _ = rows[-1]
        return SlurmJob(id=job_id, name="", state=state.split()[0], exit_code=exit_code, nodes=nodes)

    async def signal(self, job_id: str) -> None:
        """Sends SIGTERM to the processes of a running job, and to nothing else of it.

        Raises:
            ClusterError: Slurm does not answer, or is not here.
        """
        await self._scancel("--full", "--signal=TERM", job_id)

    async def cancel(self, job_id: str) -> None:
        """Ends a job: at once where it waits, else with SIGTERM and, KillWait seconds later, SIGKILL.

        Raises:
            ClusterError: Slurm does not answer, or is not here.
        """
        await self._scancel(job_id)

    async def _scancel(self, *arguments: str) -> None:
        done = await to_thread.run_sync(lambda: self._run(("scancel", *arguments), ""))
        if done.returncode and not re.search("already complet|invalid job id", done.stderr, re.IGNORECASE):
            raise slurm_jobs.silent(["scancel"], slurm_jobs.plain(done.stderr))


# ------------------------------------------------------------------ what it means


def cannot_start(job: SlurmJob) -> str:
    """Why a waiting job will never start, and what to do; empty where it may.

    A closed partition opens again, and who holds a job may let it go: runs wait for both.
    """
    if not job.is_pending or _TEMPORARY.search(f"{job.state} {job.reason}"):
        return ""
    meaning = failures.never(job.reason)
    if meaning is None:
        return ""
    return f"Slurm job {job.id} can never start ({job.reason}): {meaning.cause}. {_as_job_variables(meaning.next_step)}"


def progress(job: SlurmJob) -> str:
    """What a job does now, in a line for the logs."""
    if job.is_pending:
        why = f" ({job.reason})" if job.reason else ""
        return f"Slurm job {job.id} waits in partition {job.partition}: {failures.waiting(job.reason)}{why}"
    return f"Slurm job {job.id} is {job.state} on {job.nodes or 'no node'}"


@dataclass(frozen=True)
class JobEnd:
    """How a job ended.

    Attributes:
        status: Exit status, in the way of shells: 0 is success, 128 and a number a signal, 124 a time limit.
        text: What happened, why, what to do next; for people.
    """

    status: int
    text: str


_ENDS: dict[str, tuple[int, str, str]] = {
    "TIMEOUT": (124, "its time limit was reached", "raise `time_limit`"),
    "OUT_OF_MEMORY": (137, "it used more memory than it had asked for", "raise `memory`"),
    "CANCELLED": (
        143,
        "somebody, or an administrator, cancelled it without Prefect",
        "`sacct -j JOB -o State%30` shows who, where accounting runs",
    ),
    "PREEMPTED": (75, "a job with a higher priority took its place", "use a `qos` or `partition` without preemption"),
    "NODE_FAIL": (75, "its node died", "run it again; `sinfo -R` shows what is known of the node"),
    "BOOT_FAIL": (75, "its node did not boot", "run it again; `sinfo -R` shows what is known of the node"),
    "DEADLINE": (75, "it could not have ended before its deadline", "look for --deadline in `directives`"),
    FORGOTTEN: (
        1,
        "Slurm no longer knows it, and keeps no accounting: how it ended is not known",
        "look at its output",
    ),
}
_EXITS: dict[str, tuple[str, str]] = {
    "126:0": ("its command is there, but cannot be executed on the node", "see its output"),
    "127:0": (
        "a command does not exist on the node",
        "install the environment on a file system that the nodes share, activate it in `prologue`, or set `command`",
    ),
    "0:9": ("it was killed: most likely it used more memory than it had asked for", "raise `memory`"),
    "0:53": (
        "the node could not open its output file, or not enter its working directory",
        "`log_directory` and `working_dir` must exist on the nodes and be writable there",
    ),
}


def end(job: SlurmJob) -> JobEnd:
    """How a job ended, from its state and exit code."""
    if job.state == "COMPLETED":
        return JobEnd(0, f"Slurm job {job.id} ended in order")
    where = f" on {job.nodes}" if job.nodes else ""
    what = f"Slurm job {job.id}{where} ended: {job.state}"
    if job.state in _ENDS:
        status, cause, next_step = _ENDS[job.state]
        return JobEnd(status, f"{what}. Cause: {cause}. Next: {next_step.replace('JOB', job.id)}.")
    code, _, signal = (job.exit_code or "1:0").partition(":")
    status = int(code) or (128 + int(signal or 0))
    likely = f"its command ended with exit status {status}" if int(code) else f"signal {signal} ended it"
    cause, next_step = _EXITS.get(job.exit_code, (likely, "see its output"))
    return JobEnd(status, f"{what}, exit code {job.exit_code}. Cause: {cause}. Next: {next_step}.")


def _as_job_variables(text: str) -> str:
    """Advice for clusters, in the words of a work pool: what it calls `cluster.walltime` is our `time_limit`."""
    for theirs, ours in (("walltime", "time_limit"), ("memory_mb", "memory"), ("directives_add", "directives")):
        text = text.replace(f"cluster.{theirs}", ours)
    return text.replace("cluster.", "").replace("`gpus` or `gres`", "`gres`")
