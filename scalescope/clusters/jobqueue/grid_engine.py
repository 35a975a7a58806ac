"""Asks Grid Engine about its jobs and queues. Formats are those of Son of Grid Engine 8.1 (`qstat(1)`)."""

from __future__ import annotations

import os
import re
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scalescope import owner
from scalescope.clusters.jobqueue.job_terms import NO_TERMS, JobTerms, clock_s
from scalescope.errors import ClusterError

COMMAND_TIMEOUT_S = 20.0
VARIABLES = ("SGE_ROOT", "SGE_CELL", "SGE_CLUSTER_NAME", "SGE_QMASTER_PORT", "SGE_EXECD_PORT")  # identify the cell

# Category of each letter in a job's state (sge_status(5) and qstat(1) of 8.1.9). If a state has several letters, the
# first match in this order counts.
JOB_STATES = {
    "z": "finished",
    "d": "deleted",
    "E": "start-failed",
    "h": "held",  # waits; the hold of a running job applies to its next run
    "q": "waiting",
    "w": "waiting",
    "s": "suspended",  # suspended by qmod
    "S": "suspended",  # suspended with its queue
    "T": "suspended",  # suspended by a threshold of its queue
    "r": "running",
    "t": "running",  # about to run
}
# Meaning of each letter in the state of a queue on a host (`qstat -f`).
QUEUE_STATES = {
    "u": "its host does not answer",
    "E": "it is in error state, until an administrator clears it with `qmod -cq`",
    "d": "it is disabled",
    "D": "its calendar has disabled it",
    "s": "it is suspended",
    "C": "its calendar has suspended it",
    "S": "it is suspended in favour of another queue",
    "a": "its host is too loaded",
    "A": "its host is too loaded, and suspends jobs",
    "c": "its configuration is ambiguous",
    "o": "it was removed from the configuration, and only finishes its jobs",
    "P": "it was preempted",
}

_LOOK_S = 0.2
_SILENT = re.compile(r"commlib error|unable to (send|contact)|got (send|read) error|timeout", re.IGNORECASE)


class GridEngineSilent(ClusterError):
    """Grid Engine's master gave no answer; it may answer in a minute."""

    ends_run = True


@dataclass(frozen=True)
class GridEngineJob:
    """A job that has not ended; Grid Engine forgets ended jobs."""

    id: str
    state: str  # letters, such as `qw`, `r`, `Rq` (waits again), `Rr` (runs again), `Eqw` or `dr`
    queue: str  # queue and host, as `all.q@node1`; empty while it waits
    terms: JobTerms = NO_TERMS  # present terms of the job

    @property
    def host(self) -> str:
        return self.queue.partition("@")[2]

    @property
    def category(self) -> str:
        """Category of the job's state by `JOB_STATES`; empty for unknown letters."""
        waits = "q" in self.state or "w" in self.state
        found = (name for letter, name in JOB_STATES.items() if letter in self.state and (waits or letter != "h"))
        return next(found, "") if set(self.state) <= {*JOB_STATES, "R"} else ""  # R: rescheduled

    @property
    def is_pending(self) -> bool:
        """Whether the job waits for a host, for the first time or after it was rescheduled."""
        return self.category in ("waiting", "held")

    @property
    def has_failed(self) -> bool:
        """Whether the job could not be started and waits until somebody clears the error."""
        return self.category == "start-failed"

    @property
    def is_deleted(self) -> bool:
        return self.category in ("deleted", "finished")


class GridEngine:
    """The Grid Engine that these environment variables identify; by default, those of this process."""

    def __init__(self, variables: Mapping[str, str] | None = None, *, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self.variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        if variables is not None:
            self.variables = dict(variables)

    def ask(self, *command: str) -> str:
        """Output of a command, even if it fails, as `qalter -w v` may; raises `GridEngineSilent` without answer."""
        environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        try:
            done = subprocess.run(
                command,
                env={**environment, **self.variables, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            raise _silent(command, f"no answer within {self._timeout_s:g} s") from error
        except OSError as error:
            raise _silent(command, str(error)) from error
        if done.returncode and _SILENT.search(done.stdout):
            raise _silent(command, " ".join(done.stdout.split()))
        return done.stdout

    def jobs(self, label: str) -> list[GridEngineJob]:
        """This user's jobs of exactly this name."""
        found = []
        for each in self._qstat("-u", owner.user(), "-r", "-ext").iter("job_list"):
            if each.findtext("JB_name") == label:
                number, state, place = (each.findtext(name) or "" for name in ("JB_job_number", "state", "queue_name"))
                found.append(GridEngineJob(number, state, place, _terms(each)))
        return found

    def queue_states(self) -> dict[str, tuple[str, str]]:
        """State letters and reason of error of the queues that are not normal, by queue and host (`all.q@node1`)."""
        queues = self._qstat("-f", "-explain", "E").iter("Queue-List")
        states = {each.findtext("name") or "": (each.findtext("state") or "", each) for each in queues}
        return {
            name: (state, " ".join(each.findtext("message", "").split()))
            for name, (state, each) in states.items()
            if state
        }

    def _qstat(self, *options: str) -> ElementTree.Element:
        text = self.ask("qstat", *options, "-xml")
        try:
            return ElementTree.fromstring(text)  # noqa: S314 - the batch system is trusted
        except ElementTree.ParseError as error:
            raise _silent(("qstat",), " ".join(text.split())) from error

    def details(self, job_id: str) -> dict[str, list[str]]:
        """Lines of `qstat -j` by field; a field that is not printed, such as any of an ended job, has none."""
        fields: dict[str, list[str]] = defaultdict(list)
        name = ""
        for line in self.ask("qstat", "-j", job_id).splitlines():
            if not line[:1].isspace():
                name, _, line = line.partition(":")
                name = " ".join(name.split())
            fields[name].append(line.strip())
        return fields

    def allocation_rule(self, parallel_environment: str) -> str:
        """How a parallel environment shares out the slots of a job; empty if it does not exist."""
        rows = (line.split(maxsplit=1) for line in self.ask("qconf", "-sp", parallel_environment).splitlines())
        return next((row[1].strip() for row in rows if row[:1] == ["allocation_rule"]), "")

    def unreachable(self) -> set[str]:
        """Queues on hosts that do not answer, as `all.q@node1`."""
        return {line for line in self.ask("qselect", "-qs", "u").split() if "@" in line}

    def delete(self, job_ids: Sequence[str]) -> None:
        if job_ids:
            self.ask("qdel", *job_ids)

    def left(self, label: str, numbers: Collection[str], folder: str) -> tuple[list[str], list[str]]:
        """Numbers of the jobs named `label`: ours (known by number or output folder), and those of others."""
        found = [job.id for job in self.jobs(label)]
        ours = [number for number in found if number in numbers or self._is_in(number, folder)]
        return ours, [number for number in found if number not in ours]

    def _is_in(self, job_id: str, folder: str) -> bool:
        path = Path("".join(self.details(job_id)["stdout_path_list"]).rpartition(":")[2])
        return Path(folder) in path.parents

    def remove(
        self, label: str, numbers: Collection[str], folder: str, *, timeout_s: float, settle_s: float = 0.0
    ) -> tuple[list[str], list[str], list[str]]:
        """Delete our jobs for `settle_s` to `timeout_s`, until none is left; returns deleted, left and others' jobs."""
        deleted: dict[str, None] = {}
        began = time.monotonic()
        while True:
            ours, others = self.left(label, numbers, folder)
            fresh = [number for number in ours if number not in deleted]
            self.delete(fresh)
            deleted.update(dict.fromkeys(fresh))
            passed_s = time.monotonic() - began
            if (not ours and passed_s >= settle_s) or passed_s > timeout_s:
                return list(deleted), ours, others
            time.sleep(_LOOK_S)

    def reasons(self, job_id: str) -> list[str]:
        """Why a job waits: as Grid Engine last noted or, without a note, as it says now; empty if the job may start."""
        looked = [line for line in self.details(job_id)["scheduling info"] if '"' in line]
        told = [re.sub(r'^queue instance "(.*)" dropped because it', r"\1", line) for line in looked]
        told = [
            re.sub(r'(exceeds limit .* in rule "([^"/]+).*)', r"\1 (`qconf -srqs \2` shows it)", line) for line in told
        ]
        states = self.queue_states() if any("not available" in line for line in told) else {}
        told = [f"{line}{in_words(*states.get(line.split()[0], ('', '')))}" for line in told]
        return told or self.verify(job_id, "p")

    def verify(self, job_id: str, level: str) -> list[str]:
        """Why no queue can run a job now (level `p`) or in an empty cluster (`v`); empty if a queue can."""
        lines = self.ask("qalter", "-w", level, job_id).splitlines()
        if "verification: no suitable queues" not in lines:
            return []
        return [re.sub(r"^Job \d+ ", "", line) for line in lines if not line.startswith("verification:")]


def next_step(reasons: Sequence[str]) -> str:
    """What to do about jobs that wait for these reasons; empty if waiting may help."""
    if any("exceeds limit" in line for line in reasons):
        return "use fewer workers or threads at once: a quota of the site allows no more"
    if reasons and all(QUEUE_STATES["E"] in line for line in reasons):
        return "ask the administrators to clear the queue's error, or set another `cluster.queue`"
    return ""


def in_words(states: str, why: str = "") -> str:
    """What the state letters of a queue mean, in brackets; empty if there are none."""
    told = [QUEUE_STATES.get(letter, f"state {letter}, which is not known to Scalescope") for letter in states]
    return f" ({', '.join(told)}{f': {why}' if why else ''})" if told else ""


def asked(script: str) -> JobTerms:
    """Terms that a job script requests; of repeated directives, the last counts."""
    text = "\n".join(line[2:] for line in script.splitlines() if line.startswith("#$"))
    limits, queues = re.findall(r"\bh_rt=([\d:]+)", text), re.findall(r"(?:^|\s)-q (\S+)", text)
    slots, projects = re.findall(r"(?:^|\s)-pe \S+ (\d+)(?!\S)", text), re.findall(r"(?:^|\s)-P (\S+)", text)
    return JobTerms(
        time_s=clock_s(limits[-1]) if limits else None,
        partition=queues[-1] if queues else "",
        account=projects[-1] if projects else "",
        cores=int(slots[-1]) if slots else None,
    )


def _terms(job: ElementTree.Element) -> JobTerms:
    limits = [each.text or "" for each in job.iter("hard_request") if each.get("name") == "h_rt"]
    slots = job.findtext("requested_pe") or ""
    return JobTerms(
        time_s=clock_s(limits[-1]) if limits else None,
        partition=",".join(each.text or "" for each in job.iter("hard_req_queue")),
        account=job.findtext("JB_project") or "",
        cores=int(slots) if slots.isdigit() else None,
    )


def _silent(command: Sequence[str], cause: str) -> GridEngineSilent:
    return GridEngineSilent(
        f"Grid Engine does not answer: `{command[0]}` failed",
        cause=cause,
        next_step="`qhost` shows whether Grid Engine's master is up; running jobs go on without the master",
        category="sge-silent",
    )
