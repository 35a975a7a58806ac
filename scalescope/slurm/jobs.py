"""Finds, shows and cancels Slurm's jobs, and shows its nodes. Formats are those of Slurm 20.11 and later."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from scalescope import owner
from scalescope.slurm.commands import Run, answer, is_silent, plain, silent

POWERING = frozenset({"CONFIGURING", "POWER_UP_NODE"})  # states of jobs whose nodes are powered up, booted or set up
PENDING = POWERING | frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
SUSPENDED = frozenset({"SUSPENDED", "STOPPED"})  # states of jobs whose processes stand still on their nodes
ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY"}
    | {"PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"}
)

COMPLETING = "COMPLETING"  # the processes of the job are being ended, which takes KillWait at most

FORGOTTEN = "FORGOTTEN"  # a state of our own: Slurm no longer knows the job

ENDED_ANYHOW = re.compile(r"already complet|invalid job id", re.IGNORECASE)  # standard error about a job that has ended

_FORMAT = "%i|%T|%P|%V|%S|%e|%N|%u|%j|%r|%l|%m|%a|%q|%D|%k"
_OUTCOMES = {"TimeLimit": "TIMEOUT", "NodeDown": "NODE_FAIL", "OutOfMemory": "OUT_OF_MEMORY", "DeadLine": "DEADLINE"}
_OUTCOMES |= dict.fromkeys(("NonZeroExitCode", "RaisedSignal", "JobLaunchFailure"), "FAILED")
_LOOK_S = 0.2  # seconds between two looks


@dataclass(frozen=True)
class SlurmJob:
    """A job as Slurm knows it. Times are seconds since the epoch; what Slurm does not say is empty, or None."""

    id: str
    name: str
    state: str
    reason: str = ""  # reason why the job waits, or why it ended
    partition: str = ""
    nodes: str = ""  # nodes, as Slurm abbreviates them (`n[1-4]`)
    user: str = ""
    comment: str = ""
    exit_code: str = ""  # `status:signal`
    submitted: float | None = None
    started: float | None = None
    estimated_start: float | None = None  # estimate of Slurm's backfill for a waiting job
    ended: float | None = None
    time_limit: str = ""  # time limit; this and the fields below are as Slurm writes them
    memory: str = ""
    account: str = ""
    qos: str = ""
    node_count: str = ""

    @property
    def why(self) -> str:
        """Why the job waits: its reason, or the state of a job that has nodes but does not run yet."""
        return self.reason or (self.state if self.state in POWERING else "")

    @property
    def is_pending(self) -> bool:
        return self.state in PENDING

    @property
    def outcome(self) -> str:
        """The job's state; for a completing job the state that follows, if its reason tells."""
        return _OUTCOMES.get(self.reason, self.state) if self.state == COMPLETING else self.state

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED or self.state == FORGOTTEN


def find(labels: Iterable[str], *, run: Run, user: str = "") -> list[SlurmJob]:
    """Jobs of a user, in any state, with exactly these names. Slurm keeps ended jobs for MinJobAge (300 s)."""
    wanted = sorted(set(labels))
    if not wanted:
        return []
    user = user or owner.user()
    text = answer(run, "squeue", "-h", "-t", "all", "-u", user, "-n", ",".join(wanted), "-o", _FORMAT)
    return [job for job in parse_squeue(text) if job.name in wanted and job.user == user]


def parse_squeue(text: str) -> list[SlurmJob]:
    jobs = []
    for line in text.splitlines():
        parts = line.split("|", 15)
        if len(parts) != 16:
            continue
        number, state, partition, submitted, started, ended, nodes, user, name, reason, *given, comment = parts
        time_limit, memory, account, qos, node_count = map(_known, given)
        waiting = state in PENDING
        jobs.append(
            SlurmJob(
                id=number,
                name=name,
                state=state,
                reason=_known(reason),
                partition=partition,
                nodes=_known(nodes),
                user=user,
                comment="" if comment == "(null)" else comment,  # unchanged: it says whose job this is
                submitted=when(submitted),
                started=None if waiting else when(started),
                estimated_start=when(started) if waiting else None,
                ended=when(ended) if state in (*ENDED, COMPLETING) else None,
                time_limit=time_limit,
                memory=memory,
                account=account,
                qos=qos,
                node_count=node_count,
            )
        )
    return jobs


def details(job_id: str, *, run: Run) -> dict[str, str]:
    """The fields of `scontrol show job`; empty if the controller has forgotten the job."""
    done = run(("scontrol", "show", "job", "-o", job_id), "")
    if not done.returncode:
        return parse_scontrol(done.stdout)
    if is_silent(done.stderr):
        raise silent(("scontrol",), plain(done.stderr))
    return {}


def parse_scontrol(text: str) -> dict[str, str]:
    parts = re.split(r"(?:^|\s)([A-Z][A-Za-z/:_]*)=", text.strip())
    fields: dict[str, str] = {}
    for name, value in zip(parts[1::2], parts[2::2], strict=False):
        fields.setdefault(name, _known(value.strip()))
    return fields


def is_over(job_id: str, *, run: Run) -> bool:
    """Whether a job has ended, or Slurm has forgotten it."""
    command = ("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T")
    done = run(command, "")
    if done.returncode and not ENDED_ANYHOW.search(done.stderr):
        raise silent(command, plain(done.stderr) or f"exit status {done.returncode}")
    return all(state in ENDED for state in done.stdout.split())


@dataclass(frozen=True)
class ClusterJobs:
    """The jobs of a cluster, known by comment or number; where a site rewrites comments, by the folder of the log."""

    label: str
    numbers: Collection[str]
    folder: str
    user: str = ""  # name of the user; empty: this user

    def left(self, *, run: Run) -> tuple[list[SlurmJob], list[SlurmJob]]:
        """Our jobs that have not ended, and others of the same name."""
        found = [job for job in find([self.label], run=run, user=self.user) if not job.has_ended]
        ours = [job for job in found if self._is_ours(job, run)]
        return ours, [job for job in found if job not in ours]

    def _is_ours(self, job: SlurmJob, run: Run) -> bool:
        if job.comment == self.label or job.id in self.numbers:
            return True
        return Path(self.folder) in Path(details(job.id, run=run).get("StdErr", "")).parents

    def remove(
        self, *, run: Run, timeout_s: float, settle_s: float = 0.0
    ) -> tuple[list[str], list[SlurmJob], list[SlurmJob]]:
        """Cancel our jobs for `settle_s` to `timeout_s`, until none is left; returns cancelled, left, others' jobs."""
        cancelled: dict[str, None] = {}
        began = time.monotonic()
        while True:
            ours, others = self.left(run=run)
            fresh = [job.id for job in ours if job.id not in cancelled]
            cancel(fresh, self.label, run=run)
            cancelled.update(dict.fromkeys(fresh))
            passed_s = time.monotonic() - began
            if (not ours and passed_s >= settle_s) or passed_s > timeout_s:
                return list(cancelled), ours, others
            time.sleep(_LOOK_S)


def cancel(job_ids: Iterable[str], label: str, *, run: Run) -> None:
    """Cancel by number and name: a number alone may be another job's by now."""
    wanted = list(job_ids)
    if not wanted:
        return
    done = run(("scancel", "--name", label, "--user", owner.user(), *wanted), "")
    trouble = [line for line in done.stderr.splitlines() if line.strip() and not ENDED_ANYHOW.search(line)]
    if done.returncode and trouble:
        raise silent(("scancel",), plain("\n".join(trouble)))


def node_states(nodes: str, *, run: Run) -> dict[str, tuple[str, str]]:
    """State and reason of each node, such as `("down*", "Not responding")`; `*` marks one that Slurm cannot reach."""
    if not nodes:
        return {}
    text = answer(run, "sinfo", "-h", "-N", "-n", nodes, "-o", "%N|%T|%E")
    rows = (line.split("|", 2) for line in text.splitlines())
    return {row[0]: (row[1], "" if row[2] == "none" else row[2]) for row in rows if len(row) == 3}


def is_down(state: str) -> bool:
    """Whether a node in this state has lost its jobs; on a drained node, jobs run on."""
    return state.endswith("*") or any(word in state for word in ("down", "fail", "error"))


def is_closed(state: str) -> bool:
    """Whether a node in this state starts no job until somebody repairs or resumes it."""
    return state.startswith(("down", "drain", "fail", "error"))


def time_limits(partitions: str, *, run: Run) -> str:
    """The longest time that a job may have in each partition, as Slurm writes it: `main 4:00:00`."""
    rows = (line.split() for line in answer(run, "sinfo", "-h", "-p", partitions, "-o", "%R %l").splitlines())
    return ", ".join(dict.fromkeys(" ".join(row) for row in rows))


def default_partition(*, run: Run) -> str:
    """The partition of jobs that name none; empty if Slurm has no default."""
    names = answer(run, "sinfo", "-h", "-o", "%P").split()
    return next((name.removesuffix("*") for name in names if name.endswith("*")), "")


def cluster_name(*, run: Run) -> str:
    found = re.search(r"^ClusterName\s*=\s*(\S+)", answer(run, "scontrol", "show", "config"), re.MULTILINE)
    return found[1] if found else ""


def most_jobs(*, run: Run) -> int:
    """How many jobs the controller holds at most, ended ones among them (MaxJobCount); 0 if it does not say."""
    found = re.search(r"^MaxJobCount\s*=\s*(\d+)", answer(run, "scontrol", "show", "config"), re.MULTILINE)
    return int(found[1]) if found else 0


def lease_details(*, run: Run) -> dict[str, str]:
    """What a reaper needs to find jobs again."""
    conf = os.environ.get("SLURM_CONF")
    return {"user": owner.user(), "cluster": cluster_name(run=run)} | ({"slurm_conf": conf} if conf else {})


def when(text: str) -> float | None:
    """Seconds since the epoch of a local time as Slurm writes it; None for `N/A`, `Unknown`, `None`."""
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        return None


def seconds(text: str) -> float | None:
    """Seconds of a time limit as Slurm reads and writes it: `30`, `30:00`, `1:00:00`, `1-12`; None for other texts."""
    if text == "UNLIMITED":
        return math.inf
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in (*parts, days or "0")) or len(parts) > 3:
        return None
    # without days, one part is minutes, and two are minutes and seconds
    parts = [*parts, "0", "0"][:3] if dash else [*(["0"] if len(parts) < 3 else []), *parts, "0"][:3]
    hours, minutes, rest = map(int, parts)
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest


def leading_number(text: str) -> int:
    """The number at the start of a text: 16 for `16+`; 0 if there is none."""
    found = re.match(r"\d+", text.strip())
    return int(found[0]) if found else 0


def _known(text: str) -> str:
    text = text.strip()
    return "" if text in ("(null)", "None", "N/A", "Unknown") else text
