"""Job states on batch systems that tell them only in the output of a command."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalescope.clusters.jobqueue.job_terms import NO_TERMS, JobTerms, clock_s

COMMAND_TIMEOUT_S = 20.0  # seconds; a busy PBS answers `qstat` within a few

# What jobs do, in words, by category of their state.
CATEGORIES = {
    "waiting": "wait",
    "held": "are held",
    "running": "run",
    "suspended": "are suspended",
    "silent": "are on hosts that do not answer",
    "ending": "are ending",
    "ended": "have ended",
}
QUEUED = ("waiting", "held")  # categories of jobs that have no host yet


@dataclass(frozen=True)
class JobStatus:
    """A job that the system knows."""

    id: str
    state: str  # state in the system's notation
    reason: str = ""  # why the job waits, in the system's words
    terms: JobTerms = NO_TERMS  # present terms of the job


@dataclass(frozen=True)
class StatusCommand:
    """A command that prints the states of jobs, and how its output is read."""

    command: str  # `{}` stands for the numbers of jobs
    job: re.Pattern[str]  # matches one job of the output; groups: `id`, `state` and `reason`
    states: Mapping[str, str]  # states by category, separated by blanks, as in the system's manual
    gone: re.Pattern[str]  # matches output about jobs that the system has forgotten
    release: str  # command that releases a held job; `{}` stands for its number
    # Match terms of a job; groups: `time` (s or h:m:s), `partition`, `account`, `cores` and `memory` (MB)
    terms: tuple[re.Pattern[str], ...] = ()
    between: str = " "  # separator of the numbers of jobs
    takes_one: bool = False  # True if the command takes a single job

    def category(self, state: str) -> str:
        """The category of a state; empty if the manual does not list it."""
        return next((name for name, states in self.states.items() if state in states.split()), "")

    @property
    def name(self) -> str:
        return self.command.partition(" ")[0]

    def ask(self, job_ids: Sequence[str]) -> list[JobStatus] | None:
        """The status of each of these jobs that the system knows; None if it gives no answer."""
        known: list[JobStatus] = []
        for each in [[job_id] for job_id in job_ids] if self.takes_one else [job_ids]:
            if (found := self._ask(each)) is None:
                return None
            known += found
        return known

    def _ask(self, job_ids: Sequence[str]) -> list[JobStatus] | None:
        try:
            done = subprocess.run(
                shlex.split(self.command.format(self.between.join(job_ids))),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        known = self.read(done.stdout)
        return known if known or not done.returncode or self.gone.search(done.stdout + done.stderr) else None

    def read(self, text: str) -> list[JobStatus]:
        unfolded = text.replace("\n\t", "")
        jobs = list(self.job.finditer(unfolded))
        ends = [job.start() for job in jobs[1:]] + [len(unfolded)]
        return [
            JobStatus(
                job["id"], job["state"], (job["reason"] or "").strip(" ;"), self._terms(unfolded[job.start() : end])
            )
            for job, end in zip(jobs, ends, strict=False)
        ]

    def _terms(self, text: str) -> JobTerms:
        found = {
            name: value
            for form in self.terms
            if (match := form.search(text))
            for name, value in match.groupdict().items()
        }
        return JobTerms(
            time_s=clock_s(found["time"]) if found.get("time") else None,
            memory_mb=float(found["memory"]) if found.get("memory") else None,
            partition=found.get("partition", ""),
            account=found.get("account", ""),
            cores=int(found["cores"]) if found.get("cores") else None,
        )


PBS = StatusCommand(
    "qstat -f {}",
    re.compile(
        r"^Job Id: (?P<id>\d+).*?^ +job_state = (?P<state>\w)(?:(?:(?!^Job Id: ).)*?^ +comment = (?P<reason>[^\n]*))?",
        re.MULTILINE | re.DOTALL,
    ),
    # qstat(1) of OpenPBS 23 and of TORQUE 6
    {
        "waiting": "Q T W",
        "held": "H",
        "running": "R B",
        "suspended": "S U",
        "ending": "E",
        "ended": "F X C M",  # M: it was moved to another server
    },
    re.compile("Unknown Job Id|Job has finished"),
    "qrls {}",
    (
        re.compile(r"^ +Resource_List\.walltime = (?P<time>[\d:]+)$", re.MULTILINE),
        re.compile(r"^ +queue = (?P<partition>\S+)$", re.MULTILINE),
        re.compile(r"^ +Account_Name = (?P<account>\S+)$", re.MULTILINE),
    ),
)
LSF = StatusCommand(
    """bjobs -noheader -o "jobid stat queue proj_name pend_reason delimiter='|'" {}""",
    re.compile(r"^(?P<id>\d+)\|(?P<state>\w+)\|[^|\n]*\|[^|\n]*\|(?P<reason>.*)$", re.MULTILINE),
    # bjobs(1) of LSF 10.1
    {
        "waiting": "PEND FWD_PEND PROV WAIT",
        "held": "PSUSP",
        "running": "RUN",
        "suspended": "USUSP SSUSP",
        "silent": "UNKWN ZOMBI",
        "ended": "DONE EXIT POST_DONE POST_ERR",
    },
    re.compile("is not found"),
    "bresume {}",
    (re.compile(r"^\d+\|\w+\|(?P<partition>[^|-][^|\n]*)\|(?P<account>[^|-][^|\n]*)?"),),
)
HTCONDOR = StatusCommand(
    "condor_q {} -af:j JobStatus RequestCpus RequestMemory AllowedJobDuration HoldReason",
    re.compile(
        r"^(?P<id>\d+\.\d+) (?P<state>\d) (?:[\d.]+|undefined) (?:[\d.]+|undefined) (?:[\d.]+|undefined) "
        r"(?:undefined|(?P<reason>.*))$",
        re.MULTILINE,
    ),
    # JobStatus in the HTCondor 24 manual (job attributes); only HTCondor's source code names state 0
    {"waiting": "0 1", "held": "5", "running": "2", "suspended": "7", "ending": "6", "ended": "3 4"},
    re.compile(r"(?!)"),  # condor_q writes nothing about unknown jobs, and succeeds
    "condor_release {}",
    (re.compile(r"^\S+ \d (?:(?P<cores>\d+)|\S+) (?:(?P<memory>[\d.]+)|\S+) (?:(?P<time>\d+)|\S+) "),),
)
OAR = StatusCommand(
    "oarstat -f -j {}",
    re.compile(
        r"^Job_Id: (?P<id>\d+)\n(?:(?!^Job_Id: ).)*?^    state = (?P<state>\w+)$"
        r"(?:(?:(?!^Job_Id: ).)*?^    message = (?P<reason>[^\n]*))?",
        re.MULTILINE | re.DOTALL,
    ),
    # oarstat and the database schema of OAR 2.5.9
    {
        "waiting": "Waiting toLaunch toAckReservation",
        "held": "Hold",
        "running": "Launching Running",
        "suspended": "Suspended Resuming",
        "ending": "Finishing toError",
        "ended": "Terminated Error",
    },
    re.compile("No job specified"),
    "oarresume {}",
    (
        re.compile(r"^    walltime = (?P<time>[\d:]+)$", re.MULTILINE),
        re.compile(r"^    queue = (?P<partition>\S+)$", re.MULTILINE),
        re.compile(r"^    project = (?P<account>\S+)$", re.MULTILINE),
    ),
    between=" -j ",
)
MOAB = StatusCommand(
    "checkjob {}",
    re.compile(
        r"^job (?P<id>[\w.]+).*?^State: (?P<state>\w+)(?:.*?^(?:BLOCK MSG|NOTE|Messages): *(?P<reason>[^\n]*))?",
        re.MULTILINE | re.DOTALL,
    ),
    # The manual of Moab 9: checkjob, showq and job holds
    {
        "waiting": "Idle Deferred NotQueued Staged Staging Migrated Blocked",
        "held": "Hold UserHold SystemHold BatchHold",
        "running": "Starting Running",
        "suspended": "Suspended",
        "ended": "Completed Removed Vacated",
    },
    re.compile("invalid job|cannot locate job|no such job", re.IGNORECASE),
    "releasehold {}",
    (
        re.compile(r"^WallTime: .* of (?P<time>[\d:]+)$", re.MULTILINE),
        re.compile(r"^Creds: .*\bclass:(?P<partition>\S+)", re.MULTILINE),
        re.compile(r"^Creds: .*\baccount:(?P<account>\S+)", re.MULTILINE),
    ),
    takes_one=True,
)
