"""Watches all Slurm jobs of a label with one squeue, and says why workers do not arrive or were lost."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalescope.clusters.jobqueue.base_cluster import PendingWorkers
from scalescope.clusters.jobqueue.job_terms import NO_TERMS, JobTerms, in_words
from scalescope.clusters.jobqueue.watching import LONGEST_S, excerpt, interval_s
from scalescope.errors import ClusterError, JobsEnded
from scalescope.model.words import plural
from scalescope.slurm import failures
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.commands import CommandSilent, Run, commands
from scalescope.slurm.failures import CLUSTER_FIELDS
from scalescope.slurm.job_facts import job_facts, size
from scalescope.slurm.jobs import FORGOTTEN, SlurmJob
from scalescope.waiting import PATIENCE_S

JITTER = 0.2  # largest random change of an interval, as a share of it
ENDING_S = 5.0  # seconds to wait for the reason why a job is being ended
_SHOWN_IDS, _READ_BYTES = 8, 65_536
_NODE_LOST = ("NODE_FAIL", "BOOT_FAIL")  # states of jobs whose node was lost
# Short names of the sbatch options that `JobTerms` has fields for, and their long names.
_TERMS = {"t": "time", "p": "partition", "A": "account", "q": "qos", "N": "nodes"}
_TERM = re.compile(r"^#SBATCH\s+(?:-([tpAqN])\s*|--(time|mem|partition|account|qos|nodes)[= ])(\S+)", re.MULTILINE)
# By category of a job's end: the field of `JobTerms` that explains the end if Slurm changed it.
_BY_CHANGE = {"time-limit-reached": "time_s", "out-of-memory": "memory_mb"}
_NODES_BACK = (
    "`sinfo -R` shows which nodes are down and why; ask an administrator to resume drained nodes, and try again"
)
_CHANGED = (
    "ask the administrators what changed the job, set another `cluster.partition`, or look for SBATCH_ "
    "variables in the environment"
)


class JobWatch:
    """All jobs of a label, whose error files are in `log_directory`."""

    def __init__(
        self,
        label: str,
        *,
        log_directory: str | Path,
        run: Run | None = None,
        queue_timeout_s: float = 3600.0,
        closed_nodes: Callable[[], dict[str, tuple[str, str]]] = dict,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.label = label
        self.log_directory = Path(log_directory)
        self.queue_timeout_s = queue_timeout_s
        self.closed: dict[str, tuple[str, str]] = {}  # nodes that are down or drained, while jobs wait for nodes
        self.powering: dict[str, tuple[str, str]] = {}  # nodes that are being powered up for our jobs
        self.asked = ""  # why we asked Slurm for a later start; empty if we did not
        self._closed_nodes = closed_nodes
        self._run = run or commands()
        self._clock = clock
        self._rng = rng or random.Random()
        self._jobs: dict[str, SlurmJob] = {}
        self.expected: set[str] = set()  # numbers of the jobs that were submitted
        self._terms: dict[str, JobTerms] = {}  # terms asked for, by number of the job
        self._dismissed: set[str] = set()
        self._ran: set[str] = set()  # numbers of jobs that have been seen running
        self._waiting_since: float | None = None  # time by `clock` at which our jobs began to wait
        self._ending_since: dict[str, float] = {}
        self._complete = True
        self._changed_at = self._next_look = self._answered_at = clock()
        self._silence: CommandSilent | None = None

    def expect(self, job_ids: Iterable[str], script: str = "") -> None:
        """Add jobs submitted with `script`, so that even a job that Slurm forgets before our first look is noticed."""
        new = set(job_ids) - self.expected
        self._terms |= dict.fromkeys(new, _asked(script))
        self.expected |= new
        if new:
            self._hurry()

    def dismiss(self, job_ids: Iterable[str]) -> None:
        """Leave these jobs out of messages: they were cancelled on purpose, or are being replaced."""
        self._dismissed.update(job_ids)

    def jobs(self) -> list[SlurmJob]:
        return list(self._jobs.values())

    def begin(self) -> None:
        """Begin a new point: earlier waits do not count."""
        self._waiting_since = None
        self.asked = ""

    def wait_without_jobs(self, words: str, *, in_vain: bool) -> None:
        """Count a wait for nodes as time in the queue; if `in_vain`, the error after `queue_timeout_s` ends the run."""
        if self._waited_s() > self.queue_timeout_s:
            error = self._too_late("the nodes did not come back", "", self.label, words)
            error.ends_run = in_vain
            raise error

    def _waited_s(self) -> float:
        if self._waiting_since is None:
            self._waiting_since = self._clock()
        return self._clock() - self._waiting_since

    def unexpected(self) -> list[str]:
        """Live jobs of the label that `expect` was not told about."""
        return [job.id for job in self._ours() if job.id not in self.expected and not self._is_over(job)]

    @property
    def timed_out(self) -> bool:
        """Whether some jobs have ended, all of them by their time limit."""
        return {job.outcome for job in self._ours() if self._is_over(job)} == {"TIMEOUT"}

    @property
    def changes(self) -> dict[str, str]:
        """Terms that Slurm changed for our jobs, as phrases by field of `JobTerms`."""
        found: dict[str, str] = {}
        for job in self._ours():
            found |= self._terms.get(job.id, NO_TERMS).changes(_given(job))
        return found

    def facts(self) -> dict[str, Any]:
        return job_facts(self.label, run=self._run, job_ids=(self.expected | self._jobs.keys()) - self._dismissed)

    def check(self, expected_workers: int, arrived: int) -> PendingWorkers | None:
        """Why workers are missing, else None; `ClusterError` if they will not come. Asks Slurm once per interval."""
        if arrived >= expected_workers:
            self._complete = True
            return None
        if self._complete:  # this is the first call, or workers have just left
            self._complete = False
            self._answered_at = self._clock()
            self._hurry()
        if self._clock() >= self._next_look:
            self.refresh()
        self._raise_for_ended()
        self._raise_for_requeued()
        self._raise_for_never()
        missing = plural(expected_workers - arrived, "worker")
        if self._silence is not None:
            words = f"{missing} missing, and Slurm does not answer: {self._silence.cause}"
            return PendingWorkers(words, in_queue=True)  # Slurm cannot say when jobs start
        return self._raise_for_patience() or self._starting(missing)

    def refresh(self) -> None:
        try:
            found = slurm_jobs.find([self.label], run=self._run)
            known = {job.id for job in found}
            gone = [self._forgotten(number) for number in (self.expected | self._jobs.keys()) - known]
        except CommandSilent as error:
            self._silence = error
            self._plan(LONGEST_S / 3)
            if self._clock() - self._answered_at > PATIENCE_S:
                raise
            return
        now = self._clock()
        self._silence, self._answered_at = None, now
        before = self._picture()
        self._jobs |= {job.id: job for job in (*found, *gone)}
        self._ran |= {job.id for job in found if job.state == "RUNNING"}
        if self._pending():
            self._waited_s()
        elif any(job.started for job in self._ours() if job.outcome not in _NODE_LOST):
            self._waiting_since = None  # a job lost with its node does not end the wait: its successor waits on
        with suppress(CommandSilent):
            lacks = any(failures.lacks_nodes(job.why) for job in self._pending())
            self.closed = self._closed_nodes() if lacks else {}
            powering = ",".join(job.nodes for job in self._ours() if job.state in slurm_jobs.POWERING and job.nodes)
            states = slurm_jobs.node_states(powering, run=self._run)
            self.powering = {name: told for name, told in states.items() if failures.has_power_to_come(told[0])}
        ending = {job.id for job in found if job.state == slurm_jobs.COMPLETING}
        self._ending_since = {number: self._ending_since.get(number, now) for number in ending}
        if self._picture() != before:
            self._changed_at = now
        self._plan(interval_s(now - self._changed_at))

    def _hurry(self) -> None:
        self._changed_at = self._next_look = self._clock()

    def _plan(self, interval_s: float) -> None:
        self._next_look = self._clock() + interval_s * self._rng.uniform(1 - JITTER, 1 + JITTER)

    def _picture(self) -> dict[str, tuple[str, str]]:
        return {number: (job.state, job.why) for number, job in self._jobs.items()}

    def _forgotten(self, number: str) -> SlurmJob:
        before = self._jobs.get(number, SlurmJob(number, self.label, ""))
        if before.has_ended:
            return before
        fields = slurm_jobs.details(number, run=self._run)
        if fields.get("JobName") != self.label:  # no such job, or its number now belongs to another user's job
            return replace(before, state=FORGOTTEN)
        state = fields.get("JobState", FORGOTTEN)
        return replace(before, state=state, reason=fields.get("Reason", ""), nodes=fields.get("NodeList", before.nodes))

    def _ours(self) -> list[SlurmJob]:
        return [job for job in self._jobs.values() if job.id not in self._dismissed]

    def _pending(self) -> list[SlurmJob]:
        return [job for job in self._ours() if job.is_pending]

    def _is_over(self, job: SlurmJob) -> bool:
        return job.has_ended or self._clock() - self._ending_since.get(job.id, self._clock()) > ENDING_S

    def _raise_for_ended(self) -> None:
        over = [job for job in self._ours() if self._is_over(job)]
        if not over:
            return
        kinds = Counter((job.state, job.reason) for job in over)
        told = kinds.most_common(1)[0][0]
        alike = [job for job in over if (job.state, job.reason) == told]
        first, log, path = self._post_mortem(alike[0])
        failure = failures.ended(first, log=log, nodes=self._nodes(first), of_workers=True)
        cause, step, changes = failure.cause, failure.step(CLUSTER_FIELDS, first.id), self.changes
        if (changed := changes.get(_BY_CHANGE.get(failure.category, ""))) is not None:
            cause += f"; {in_words({'': changed}, 'Slurm')}"
            step = _CHANGED
        others = [f"{count} {' '.join(kind).strip()}" for kind, count in kinds.items() if kind != told]
        where = _places(alike)
        where += f"; other jobs of the cluster: {', '.join(others)}" if others else ""
        raise JobsEnded(
            f"{plural(len(alike), 'Slurm job')} of {self.label} ended too early: {_ending(first)}",
            where=where,
            cause=_with_tail(cause, log, path),
            next_step=step,
            category=failure.category,
            job_ids=tuple(job.id for job in over),
            may_return=failure.may_return and all(failures.ended(job).may_return for job in over if job not in alike),
        )

    def _raise_for_requeued(self) -> None:
        """Raise for requeued jobs: their workers are gone, and a second run would reuse the workers' names."""
        again = [job for job in self._pending() if job.id in self._ran]
        if again:
            failure = failures.requeued()
            raise JobsEnded(
                f"{plural(len(again), 'Slurm job')} of {self.label} went back into the queue: {again[0].why}",
                where=_ids(again),
                cause=failure.cause,
                next_step=failure.step(CLUSTER_FIELDS, again[0].id),
                category=failure.category,
                job_ids=tuple(job.id for job in again),
                may_return=failure.may_return,
            )

    def _post_mortem(self, job: SlurmJob) -> tuple[SlurmJob, str, str]:
        fields: dict[str, str] = {}
        with suppress(CommandSilent):
            fields = slurm_jobs.details(job.id, run=self._run)
        if fields.get("JobName") != self.label:
            fields = {}
        # While its processes end, a preempted job is COMPLETING, like every other job that is being ended.
        state = "PREEMPTED" if fields.get("PreemptTime") else job.state
        reason, exit_code = fields.get("Reason", job.reason), fields.get("ExitCode", "")
        job = replace(job, state=state, reason=reason, exit_code=exit_code)
        return job, *self._tail(job.id, fields)

    def _tail(self, number: str, fields: Mapping[str, str]) -> tuple[str, str]:
        named = fields.get("StdErr", "")
        for pattern, value in (("%j", number), ("%J", number), ("%A", number), ("%x", self.label)):
            named = named.replace(pattern, value)
        paths = [Path(named)] if named else []
        paths += sorted(self.log_directory.glob(f"*-{number}.err"))
        for path in paths:
            try:
                with path.open("rb") as file:
                    file.seek(max(path.stat().st_size - _READ_BYTES, 0))
                    return excerpt(file.read().decode(errors="replace")), str(path)
            except OSError:
                continue
        return "", str(paths[0]) if paths else ""

    def _nodes(self, job: SlurmJob) -> dict[str, tuple[str, str]]:
        with suppress(CommandSilent):
            return slurm_jobs.node_states(job.nodes, run=self._run)
        return {}

    def _raise_for_never(self) -> None:
        for reason in dict.fromkeys(job.reason for job in self._pending()):
            alike = [job for job in self._pending() if job.reason == reason]
            failure = failures.never(reason)
            if failure is not None:
                raise JobsEnded(
                    f"{plural(len(alike), 'Slurm job')} of {self.label} can never start: {reason}",
                    where=f"{_ids(alike)}, partition {alike[0].partition}",
                    cause=failure.cause + self._limits(failure.category, alike[0]),
                    next_step=failure.step(CLUSTER_FIELDS, alike[0].id),
                    category=failure.category,
                    job_ids=tuple(job.id for job in alike),
                    ends_run=True,
                )

    def _limits(self, category: str, job: SlurmJob) -> str:
        with suppress(CommandSilent):
            if category == "time-limit-too-long":
                return f" ({slurm_jobs.time_limits(job.partition, run=self._run)})"
        return ""

    def _raise_for_patience(self) -> PendingWorkers | None:
        pending = self._pending()
        if not pending:
            return None
        reason = Counter(job.why for job in pending).most_common(1)[0][0]
        alike = [job for job in pending if job.why == reason]
        since_s = self._waited_s()
        starts = [job.estimated_start for job in pending if job.estimated_start is not None]
        first, last = min(starts, default=None), max(starts, default=None)
        words = self._sentence(alike, first, since_s)
        if since_s <= self.queue_timeout_s:
            return PendingWorkers(words, True, reason, first, last)
        raise self._too_late(
            f"{plural(len(pending), 'Slurm job')} of {self.label} did not start",
            f": {reason or 'no reason given'}",
            f"{_ids(pending)}, partition {pending[0].partition}",
            words,
            failures.waiting(reason).step(CLUSTER_FIELDS, alike[0].id),
        )

    def _too_late(self, what: str, why: str, where: str, cause: str, step: str = _NODES_BACK) -> ClusterError:
        return ClusterError(
            f"{what} within {self.queue_timeout_s:g} s{why}",
            where=where,
            cause=cause,
            next_step=f"{step}; or raise `cluster.queue_timeout_s`",
            category="queue-timeout",
        )

    def _sentence(self, alike: list[SlurmJob], estimate: float | None, since_s: float) -> str:
        reason = alike[0].why
        text = f"{plural(len(alike), 'Slurm job')} waiting"
        why = self.asked if self.asked and reason == "BeginTime" else failures.waiting(reason).cause
        text += f"{f' ({reason})' if reason else ''}: {why}"
        if self.closed and failures.lacks_nodes(reason):
            text += f"; {failures.nodes_in_words(self.closed)}"
        if self.powering and alike[0].state in slurm_jobs.POWERING:
            text += f"; {failures.nodes_in_words(self.powering)}"
        text += self._history()
        if started := sum(job.state == "RUNNING" for job in self._ours()):
            text += f"; already running: {plural(started, 'job')} of this cluster"
        if estimate is None:
            return f"{text}; Slurm gives no estimate of the start"
        text += f"; estimated start {_minute(estimate)}"
        until = time.time() + self.queue_timeout_s - since_s
        return f"{text}, but `cluster.queue_timeout_s` ends at {_minute(until)}" if until < estimate else text

    def _history(self) -> str:
        """What happened to earlier jobs of this cluster, and which terms Slurm changed."""
        lost = [job for job in self._jobs.values() if job.id in self._dismissed and job.state in _NODE_LOST]
        told = f"{plural(len(lost), 'job')} ended earlier because nodes failed or never came up: {_places(lost)}"
        changed = in_words(self.changes, "Slurm")
        return "".join(f"; {words}" for words in (told if lost else "", changed) if words)

    def _starting(self, missing: str) -> PendingWorkers:
        running = [job for job in self._ours() if not self._is_over(job)]
        if not running:
            return PendingWorkers(f"{missing} missing; Slurm has no job of {self.label} yet")
        others = Counter(job.state for job in running if job.state != "RUNNING")
        states = "".join(f", {count} of them {state}" for state, count in others.items())
        words = f"{missing} missing; {plural(len(running), 'job')} of this cluster started{states}{self._history()}"
        return PendingWorkers(words)


def _asked(script: str) -> JobTerms:
    """Terms that a job script requests; of repeated directives, the last counts."""
    found = {_TERMS.get(short, short) or long: value.strip("\"'") for short, long, value in _TERM.findall(script)}
    nodes = found.get("nodes", "1")
    return JobTerms(
        time_s=slurm_jobs.seconds(found.get("time", "")),
        memory_mb=_mb(found.get("mem", "")),
        partition=found.get("partition", ""),
        account=found.get("account", ""),
        qos=found.get("qos", ""),
        nodes=int(nodes) if nodes.isdigit() else None,
    )


def _given(job: SlurmJob) -> JobTerms:
    nodes = None if job.state == "PENDING" or not job.node_count.isdigit() else int(job.node_count)
    time_s = slurm_jobs.seconds(job.time_limit)
    return JobTerms(time_s, _mb(job.memory), job.partition, job.account, job.qos, nodes)


def _mb(text: str) -> float | None:
    found = size(f"{text}M" if text.isdigit() else text)
    return found / 2**20 if found else None


def _minute(moment: float) -> str:  # without seconds, so that a repeated message has the same text
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def _ending(job: SlurmJob) -> str:
    if job.state == FORGOTTEN:
        return "Slurm has no record of the end"
    exit_code = f", ExitCode={job.exit_code}" if job.exit_code and job.exit_code != "0:0" else ""
    return f"{job.state}{f' {job.reason}' if job.reason else ''}{exit_code}"


def _with_tail(cause: str, text: str, path: str) -> str:
    if text:
        indented = text.replace("\n", "\n    | ")
        return f"{cause}; the end of {path}:\n    | {indented}"
    return f"{cause}; " + (f"its error file {path} does not exist or is empty" if path else "there is no error file")


def _places(jobs: list[SlurmJob]) -> str:
    """Jobs by their nodes: `job 35 on n1, job 36 on n2`."""
    nodes = list(dict.fromkeys(job.nodes for job in jobs))
    shown = [(each, _ids([job for job in jobs if job.nodes == each])) for each in nodes[:_SHOWN_IDS]]
    more = [f"and jobs on {plural(len(nodes) - _SHOWN_IDS, 'more node')}"] if len(nodes) > _SHOWN_IDS else []
    return ", ".join([*(ids + (f" on {each}" if each else "") for each, ids in shown), *more])


def _ids(jobs: list[SlurmJob]) -> str:
    shown = ", ".join(job.id for job in jobs[:_SHOWN_IDS])
    more = f" and {len(jobs) - _SHOWN_IDS} more" if len(jobs) > _SHOWN_IDS else ""
    return f"job {shown}" if len(jobs) == 1 else f"jobs {shown}{more}"
