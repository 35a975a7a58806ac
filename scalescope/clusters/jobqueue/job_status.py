"""How jobs stand on batch systems that are only known by the text of their commands."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.clusters.jobqueue.job_terms import NO_TERMS, JobTerms, clock_s

COMMAND_TIMEOUT_S = 20.0  # seconds; a busy PBS answers `qstat` within a few


@dataclass(frozen=True)
class JobStatus:
    """A job that the system knows."""

    id: str
    state: str  # as the system writes it
    reason: str = ""  # why it waits, in the system's words
    terms: JobTerms = NO_TERMS  # what it has by now


@dataclass(frozen=True)
class StatusCommand:
    """A command that tells how jobs stand, and how its output is read."""

    command: str  # `{}` stands for the numbers of jobs
    job: re.Pattern[str]  # one job of the output, with the groups `id`, `state` and `reason`
    waiting: frozenset[str]  # states of jobs in the queue
    gone: re.Pattern[str]  # what is written of jobs that are no longer known
    # What a job has, with the groups `time` (s or h:m:s), `partition`, `account`, `cores` and `memory` (MB)
    terms: tuple[re.Pattern[str], ...] = ()

    @property
    def name(self) -> str:
        return self.command.partition(" ")[0]

    def ask(self, job_ids: Sequence[str]) -> list[JobStatus] | None:
        """Those of these jobs that the system knows; None if it gives no answer."""
        try:
            done = subprocess.run(
                shlex.split(self.command.format(" ".join(job_ids))),
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
    frozenset("QHWT"),
    re.compile("Unknown Job Id|Job has finished"),
    (
        re.compile(r"^ +Resource_List\.walltime = (?P<time>[\d:]+)$", re.MULTILINE),
        re.compile(r"^ +queue = (?P<partition>\S+)$", re.MULTILINE),
        re.compile(r"^ +Account_Name = (?P<account>\S+)$", re.MULTILINE),
    ),
)
LSF = StatusCommand(
    """bjobs -noheader -o "jobid stat queue proj_name pend_reason delimiter='|'" {}""",
    re.compile(r"^(?P<id>\d+)\|(?P<state>\w+)\|[^|\n]*\|[^|\n]*\|(?P<reason>.*)$", re.MULTILINE),
    frozenset(("PEND", "PSUSP", "WAIT")),
    re.compile("is not found"),
    (re.compile(r"^\d+\|\w+\|(?P<partition>[^|-][^|\n]*)\|(?P<account>[^|-][^|\n]*)?"),),
)
HTCONDOR = StatusCommand(
    "condor_q {} -af:j JobStatus RequestCpus RequestMemory AllowedJobDuration HoldReason",
    re.compile(
        r"^(?P<id>\d+\.\d+) (?P<state>\d) (?:[\d.]+|undefined) (?:[\d.]+|undefined) (?:[\d.]+|undefined) "
        r"(?:undefined|(?P<reason>.*))$",
        re.MULTILINE,
    ),
    frozenset("15"),  # idle, held
    re.compile(r"(?!)"),  # it writes nothing, and ends well
    (re.compile(r"^\S+ \d (?:(?P<cores>\d+)|\S+) (?:(?P<memory>[\d.]+)|\S+) (?:(?P<time>\d+)|\S+) "),),
)
