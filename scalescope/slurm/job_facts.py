"""Slurm's facts about the jobs of a trial: from its accounting if that runs, else from its queue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.commands import CommandSilent, Run, answer, plain
from scalescope.slurm.jobs import when

_SACCT = tuple("JobID State ExitCode Submit Start End Reserved NodeList AllocTRES MaxRSS Partition Reason".split())  # noqa: SIM905
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def job_facts(label: str, *, run: Run, job_ids: Iterable[str] | None = None) -> dict[str, Any]:
    """Wait times, nodes, ends and resource use of a label's jobs as JSON; `absent` says what is not known, and why."""
    try:
        jobs, absent = _accounted(label, run)
        source = "sacct"
        if jobs is None:
            jobs, more = _queued(label, run)
            absent, source = absent + more, "squeue and sstat"
    except CommandSilent as error:
        return {"source": "", "jobs": [], "absent": [f"{error.what}: {error.cause}"]}
    if job_ids is not None:
        wanted = set(job_ids)
        jobs = [job for job in jobs if job["id"] in wanted]
        if forgotten := wanted - {job["id"] for job in jobs}:
            absent.append(f"jobs {', '.join(sorted(forgotten))}: Slurm has forgotten them")
    waits = [job["queue_wait_s"] for job in jobs if job["queue_wait_s"] is not None]
    return {
        "source": source,
        "jobs": jobs,
        "queue_wait_s": {"max": max(waits), "median": median(waits)} if waits else None,
        "nodes": sorted({job["nodes"] for job in jobs if job["nodes"]}),
        "absent": absent,
    }


def _facts(number: str, times: tuple[float | None, float | None, float | None], **more: Any) -> dict[str, Any]:
    submitted, started, ended = times
    return {"id": number, "queue_wait_s": _between(submitted, started), "run_s": _between(started, ended), **more}


def _accounted(label: str, run: Run) -> tuple[list[dict[str, Any]] | None, list[str]]:
    command = ("sacct", "-n", "-P", "-S", "now-7days", "--name", label, "-o", ",".join(_SACCT))
    done = run(command, "")
    if done.returncode and re.search(r"invalid field.*Reserved", done.stderr, re.IGNORECASE):  # renamed in 23.02
        done = run([part.replace("Reserved", "Planned") for part in command], "")
    if done.returncode:
        return None, [f"accounting: {plain(done.stderr) or 'sacct failed'}"]
    jobs = parse_sacct(done.stdout)
    if not jobs:
        return None, ["accounting: sacct does not list these jobs yet"]
    unmeasured = [job["id"] for job in jobs if job["max_rss_bytes"] is None]
    return jobs, [f"MaxRSS of jobs {', '.join(unmeasured)}: Slurm records it only when they end"] if unmeasured else []


def parse_sacct(text: str) -> list[dict[str, Any]]:
    """Facts of each job; MaxRSS is in the lines of the job's steps."""
    jobs: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        values = dict(zip(_SACCT, line.split("|"), strict=False))
        number, _, step = values["JobID"].partition(".")
        if not step:
            times = when(values["Submit"]), when(values["Start"]), when(values["End"])
            jobs[number] = _facts(
                number,
                times,
                state=values["State"],
                reason="" if values.get("Reason") == "None" else values.get("Reason", ""),
                partition=values.get("Partition", ""),
                nodes="" if values["NodeList"].startswith("None") else values["NodeList"],
                exit_code=values["ExitCode"],
                tres=tres(values["AllocTRES"]),
                max_rss_bytes=None,
            )
        elif number in jobs and (used := size(values.get("MaxRSS", ""))) is not None:
            jobs[number]["max_rss_bytes"] = max(used, jobs[number]["max_rss_bytes"] or 0)
    return list(jobs.values())


def _queued(label: str, run: Run) -> tuple[list[dict[str, Any]], list[str]]:
    jobs = slurm_jobs.find([label], run=run)
    used, why = _max_rss([job.id for job in jobs if job.state == "RUNNING"], run)
    columns = "JobID:.24,exit_code:.16,tres-alloc:.400"
    text = answer(run, "squeue", "-h", "-t", "all", "-n", label, "-O", columns)
    more = {row[0]: (row[1], row[2]) for line in text.splitlines() if len(row := line.split()) == 3}
    facts = []
    for job in jobs:
        status, allocated = more.get(job.id, ("", ""))
        facts.append(
            _facts(
                job.id,
                (job.submitted, job.started, job.ended),
                state=job.state,
                reason=job.reason,
                partition=job.partition,
                nodes=job.nodes,
                exit_code=exit_code(status) if job.has_ended and status else "",
                tres=tres(allocated),
                max_rss_bytes=used.get(job.id),
            )
        )
    absent = ["MaxRSS of jobs that have ended: only accounting keeps it"] if any(job.has_ended for job in jobs) else []
    return facts, absent + ([f"MaxRSS: {why}"] if why else [])


def _max_rss(job_ids: Sequence[str], run: Run) -> tuple[dict[str, int], str]:
    if not job_ids:
        return {}, "no job is running"
    done = run(("sstat", "-a", "-n", "-P", "-j", ",".join(job_ids), "-o", "JobID,MaxRSS"), "")
    found: dict[str, int] = {}
    for line in done.stdout.splitlines():
        step, _, text = line.partition("|")
        number, used = step.partition(".")[0], size(text)
        if used is not None:
            found[number] = max(used, found.get(number, 0))
    return found, "" if found else plain(done.stderr) or "the site does not record it (JobAcctGatherType)"


def tres(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name: value for name, _, value in pairs}


def size(text: str) -> int | None:
    """Bytes of a size as Slurm writes it (`63880K`); None for other texts."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text.strip())
    return None if found is None else int(float(found[1]) * _UNITS[found[2]])


def exit_code(text: str) -> str:
    """`status:signal` of a wait status as squeue writes it."""
    status = int(text) if text.isdigit() else 0
    return f"{status >> 8}:{status & 0x7F}"


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(end - start, 0.0)
