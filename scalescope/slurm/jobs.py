"""Slurm's commands, and what they answer.

Running a command is apart from reading its answer, so that answers of other versions can be tested as text. Formats are
those of Slurm 20.11 and later.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from scalescope import owner
from scalescope.errors import ClusterError, JobsEnded
from scalescope.leases import MARK
from scalescope.slurm import PATIENCE_S

Run = Callable[[Sequence[str], str], "subprocess.CompletedProcess[str]"]
"""Runs a command with a text on its standard input. It raises `ClusterError` where the command is missing, and
`CommandSilent` where it does not answer; an exit status other than 0 is the caller's to judge."""

COMMAND_TIMEOUT_S = 20.0
"""Seconds that a command has to answer: Slurm's own tools give up on their controller after 10 by default."""

AGAIN_S, SAY_S = 5.0, 4.0
"""Seconds between a command that got no answer and the next; and after which it is said that there is none yet."""

PENDING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "REVOKED",
        "TIMEOUT",
    }
)

COMPLETING = "COMPLETING"
"""Its processes are being ended, which may take as long as Slurm's KillWait; its reason may say why."""

_FORMAT = "%i|%T|%P|%V|%S|%e|%D|%C|%N|%u|%j|%r|%k"
_OUTCOMES = {"TimeLimit": "TIMEOUT", "NonZeroExitCode": "FAILED", "JobLaunchFailure": "FAILED", "NodeDown": "NODE_FAIL"}
_FILTERS = ("SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_")
"""Variables of the user's environment that change what these commands show or ask."""


T = TypeVar("T")


class CommandSilent(ClusterError):
    """A command of Slurm gave no answer in time, or its controller did not: it may do so in a minute."""

    ends_run = True


@dataclass(frozen=True)
class SlurmJob:
    """A job, as Slurm knows it. Times are seconds since the epoch; None where Slurm does not say.

    Attributes:
        id: Its number.
        name: As it was submitted.
        state: In Slurm's words, in capitals.
        reason: Why it waits, or why it ended, in Slurm's words; empty where there is none.
        partition: Where it waits or runs.
        nodes: Its nodes, as Slurm abbreviates them (`n[1-4]`); empty before it starts.
        user: Whose it is.
        comment: As it was submitted.
        exit_code: `status:signal`; empty where that is not known (yet).
        submitted: When.
        started: When it started.
        estimated_start: When a waiting one will start, as Slurm's backfill reckons.
        ended: When it ended.
    """

    id: str
    name: str
    state: str
    reason: str = ""
    partition: str = ""
    nodes: str = ""
    user: str = ""
    comment: str = ""
    exit_code: str = ""
    submitted: float | None = None
    started: float | None = None
    estimated_start: float | None = None
    ended: float | None = None

    @property
    def is_pending(self) -> bool:
        """Whether it waits for its start."""
        return self.state in PENDING

    @property
    def outcome(self) -> str:
        """Its state, or that to which it is coming, where its reason tells."""
        return _OUTCOMES.get(self.reason, self.state) if self.state == COMPLETING else self.state

    @property
    def has_ended(self) -> bool:
        """Whether it will never run again."""
        return self.state in ENDED


# ------------------------------------------------------------------ running commands


def commands(environ: Mapping[str, str] | None = None, *, timeout_s: float = COMMAND_TIMEOUT_S) -> Run:
    """A way to run Slurm's commands.

    Args:
        environ: Variables besides those of this process, such as SLURM_CONF.
        timeout_s: Seconds that each has to answer.
    """

    def run(command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        kept = os.environ.keys() - {MARK}  # sbatch hands the environment on, and jobs are not of this driver's lease
        variables = {name: os.environ[name] for name in kept if not name.startswith(_FILTERS)}
        variables |= {**(environ or {}), "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8"}
        if shutil.which(command[0], path=variables.get("PATH", os.defpath)) is None:
            raise ClusterError(
                f"{command[0]} is not installed here",
                where="PATH of this process",
                cause="Slurm's commands exist on the login and compute nodes of a Slurm cluster only",
                next_step="run this on such a node, or load the module that brings them (`module load slurm`)",
            )
        try:
            return subprocess.run(
                list(command),
                input=stdin,
                env=variables,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise silent(command, f"no answer within {timeout_s:g} s") from error

    return run


def silent(command: Sequence[str], cause: str) -> CommandSilent:
    """The error that says that Slurm does not answer."""
    return CommandSilent(
        f"Slurm does not answer: `{command[0]}` failed",
        cause=cause,
        next_step="`scontrol ping` shows whether its controller is up; jobs that run go on without it",
    )


def answer(run: Run, *command: str) -> str:
    """The standard output of a command that must succeed.

    Raises:
        CommandSilent: It failed; what it wrote to standard error is in the text.
        ClusterError: It is missing.
    """
    done = run(command, "")
    if done.returncode:
        raise silent(command, plain(done.stderr) or f"exit status {done.returncode}")
    return done.stdout


def patiently(ask: Callable[[], T], *, says: Callable[[str], object], stopped: threading.Event) -> T:
    """What `ask` returns, once Slurm answers; until then it is called again, and every few seconds told what for.

    Args:
        ask: Gives commands. One that may have been obeyed without an answer must look first.
        says: Told what is waited for.
        stopped: Set when nobody waits for it any more.

    Raises:
        CommandSilent: Slurm has not answered for `PATIENCE_S`.
    """
    deadline = time.monotonic() + PATIENCE_S
    with _saying(f"Slurm's controller does not answer: waiting for it, at most {PATIENCE_S / 60:g} min", says):
        while True:
            try:
                return ask()
            except CommandSilent as error:
                away = _SILENT.search(error.cause)  # else it has said what is wrong, such as a line of slurm.conf
                if not away or time.monotonic() > deadline or stopped.wait(AGAIN_S):
                    raise


@contextmanager
def _saying(words: str, says: Callable[[str], object]) -> Iterator[None]:
    """Say something every `SAY_S` while this lasts."""
    over = threading.Event()

    def say() -> None:
        while not over.wait(SAY_S):
            says(words)

    thread = threading.Thread(target=say, name="scalescope-patience", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def plain(text: str) -> str:
    """What a command wrote to standard error, without its own name in front of every line."""
    lines = (re.sub(r"^\w+: (error: |fatal: )?", "", line.strip()) for line in text.splitlines())
    return "; ".join(line for line in lines if line)


# ------------------------------------------------------------------ jobs


def find(labels: Iterable[str], *, run: Run, user: str = "") -> list[SlurmJob]:
    """Jobs of a user, in any state, whose name is exactly one of these labels; one command for all.

    Ended jobs are among them for as long as Slurm keeps them (MinJobAge, 300 s by default).

    Raises:
        CommandSilent: Slurm does not answer.
        ClusterError: There is no Slurm here.
    """
    wanted = sorted(set(labels))
    if not wanted:
        return []
    user = user or owner.user()
    text = answer(run, "squeue", "-h", "-t", "all", "-u", user, "-n", ",".join(wanted), "-o", _FORMAT)
    return [job for job in parse_squeue(text) if job.name in wanted and job.user == user]


def ours(
    found: Iterable[SlurmJob], label: str, numbers: Collection[str], folder: str | os.PathLike[str], *, run: Run
) -> list[SlurmJob]:
    """Jobs of a label's name that are surely of its cluster: their comment is the label, or their number is known.

    Where a site rewrites comments and the number never came, the job's log is in the folder of the cluster.

    Args:
        found: Jobs of that name and of this user.
        label: Of the cluster.
        numbers: Of jobs that are known.
        folder: Of the cluster.
        run: Runs Slurm's commands.

    Raises:
        CommandSilent: Slurm does not answer.
        ClusterError: There is no Slurm here.
    """

    def logs_here(job: SlurmJob) -> bool:
        return Path(folder) in Path(details(job.id, run=run).get("StdErr", "")).parents

    return [job for job in found if job.comment == label or job.id in numbers or logs_here(job)]


def parse_squeue(text: str) -> list[SlurmJob]:
    """Jobs in the output of `squeue` in our format; lines of any other form are not ours."""
    jobs = []
    for line in text.splitlines():
        parts = line.split("|", 12)
        if len(parts) != 13:
            continue
        number, state, partition, submitted, started, ended, _, _, where, user, name, reason, comment = parts
        waiting = state in PENDING
        jobs.append(
            SlurmJob(
                id=number,
                name=name,
                state=state,
                reason=_known(reason),
                partition=partition,
                nodes=_known(where),
                user=user,
                comment="" if comment == "(null)" else comment,  # exactly: it says whose job it is
                submitted=when(submitted),
                started=None if waiting else when(started),
                estimated_start=when(started) if waiting else None,
                ended=when(ended) if state in (*ENDED, COMPLETING) else None,
            )
        )
    return jobs


def details(job_id: str, *, run: Run) -> dict[str, str]:
    """What the controller knows of a job, in the words of `scontrol show job`; empty where it has forgotten it.

    Raises:
        ClusterError: There is no Slurm here, or it does not answer.
    """
    done = run(("scontrol", "show", "job", "-o", job_id), "")
    if done.returncode and _SILENT.search(done.stderr):
        raise silent(("scontrol",), plain(done.stderr))
    return {} if done.returncode else parse_scontrol(done.stdout)


def parse_scontrol(text: str) -> dict[str, str]:
    """The fields of one line of `scontrol -o`; a value may hold blanks."""
    parts = re.split(r"(?:^|\s)([A-Z][A-Za-z/:_]*)=", text.strip())
    fields: dict[str, str] = {}
    for name, value in zip(parts[1::2], parts[2::2], strict=False):
        fields.setdefault(name, _known(value.strip()))
    return fields


def node_states(nodes: str, *, run: Run) -> dict[str, tuple[str, str]]:
    """State and reason of every node in an abbreviated list, such as `("down*", "Not responding")`.

    A node that Slurm cannot reach has a `*` behind its state.
    """
    if not nodes:
        return {}
    text = answer(run, "sinfo", "-h", "-N", "-n", nodes, "-o", "%N|%T|%E")
    rows = (line.split("|", 2) for line in text.splitlines())
    return {row[0]: (row[1], "" if row[2] == "none" else row[2]) for row in rows if len(row) == 3}


def usable_nodes(job: SlurmJob, *, run: Run) -> int:
    """Nodes that can run a job now or later, that is, are neither down nor drained; none if it names one that is.

    Raises:
        CommandSilent: Slurm does not answer.
        ClusterError: There is no Slurm here.
    """
    named = node_states(details(job.id, run=run).get("ReqNodeList", ""), run=run)
    if named:
        return 0 if any(is_closed(state) for state, _ in named.values()) else len(named)
    text = answer(run, "sinfo", "-h", "-p", job.partition, "-o", "%D|%T")
    rows = (line.split("|", 1) for line in text.splitlines())
    return sum(_count(row[0]) for row in rows if len(row) == 2 and not is_closed(row[1]))


def is_down(state: str) -> bool:
    """Whether a node in this state has lost its jobs; those of a drained one run on."""
    return state.endswith("*") or any(word in state for word in ("down", "fail", "error"))


def is_closed(state: str) -> bool:
    """Whether a node in this state starts no job until somebody does something.

    One that has not answered yet (`idle*`, `unknown`), as all after a restart of the controller, does so by itself.
    """
    return any(word in state for word in ("down", "drain", "fail", "error", "maint"))


@dataclass(frozen=True)
class SlurmNodeShape:
    """What a job asks for, or a node has.

    Attributes:
        cores: Cores.
        memory_mb: Memory in MB; 0 is what the partition gives.
        gpus: GPUs.
        threads: Of each real core, where jobs get whole ones; a job that asks for less gets all of them.
    """

    cores: int
    memory_mb: int = 0
    gpus: int = 0
    threads: int = 1

    def __str__(self) -> str:
        parts = ((self.cores, "core"), (self.memory_mb, "MB"), (self.gpus, "GPU"))
        return ", ".join(f"{count} {unit}{'s' if count > 1 and unit != 'MB' else ''}" for count, unit in parts if count)

    def holds(self, asked: SlurmNodeShape) -> int:
        """How many jobs that ask for this run on such a node at the same time."""
        pairs = ((self.cores, self._whole(asked)), (self.memory_mb, asked.memory_mb), (self.gpus, asked.gpus))
        return max(min(has // wants for has, wants in pairs if wants), 0)

    def less(self, number: int, asked: SlurmNodeShape) -> SlurmNodeShape:
        """What is left beside so many of them."""
        return SlurmNodeShape(
            self.cores - number * self._whole(asked),
            self.memory_mb - number * asked.memory_mb,
            self.gpus - number * asked.gpus,
            self.threads,
        )

    def _whole(self, asked: SlurmNodeShape) -> int:
        return math.ceil(asked.cores / self.threads) * self.threads


@dataclass(frozen=True)
class SlurmRoom:
    """Where jobs may run.

    Attributes:
        partition: Or several, separated by commas; empty is the default one.
        exclude: Nodes to leave out, as Slurm abbreviates them.
        constraint: Features that nodes must have. Only names joined by `&` are understood, and others ignored.
        gpu: The generic resource that is a GPU, with its type if it matters: `gpu` or `gpu:h200`.
        whole_nodes: Whether no two jobs share a node.
    """

    partition: str = ""
    exclude: str = ""
    constraint: str = ""
    gpu: str = "gpu"
    whole_nodes: bool = False


def room(place: SlurmRoom, asked: Callable[[int], SlurmNodeShape], full: int, *, run: Run) -> int | None:
    """Most workers that run at the same time, in full jobs and one with the rest, when nobody else is there.

    Nodes that are down or drained count: they may come back. This process, where it is a job itself, keeps its cores.

    Args:
        place: Where.
        asked: What a job of so many workers asks for.
        full: Workers of a full job.
        run: Runs Slurm's commands.

    Returns:
        None where cores can be shared, and where not even one full job fits: sbatch says why.

    Raises:
        CommandSilent: Slurm does not answer.
        ClusterError: There is no Slurm here.
    """
    nodes = _nodes(place, run)
    if nodes is None:
        return None
    jobs, rest = 0, 0
    for (node, alone), number in Counter(nodes).items():
        fits = min(node.holds(asked(full)), 1 if alone else node.cores)
        jobs += number * fits
        left = SlurmNodeShape(0) if alone and fits else node.less(fits, asked(full))
        rest = max(rest, next((n for n in range(full - 1, 0, -1) if left.holds(asked(n))), 0))
    return jobs * full + rest if jobs else None


def _nodes(place: SlurmRoom, run: Run) -> list[tuple[SlurmNodeShape, bool]] | None:
    """What each node has for such jobs, and whether a job has it alone; None where its cores can be shared."""
    asked_of = ("-p", place.partition) if place.partition else ()
    text = answer(run, "sinfo", "-h", "-N", *asked_of, "-o", "%N|%c|%X %Y %Z|%m|%B|%h|%P|%f|%G")
    rows = [row for line in text.splitlines() if len(row := line.split("|", 8)) == 9]
    left_out = answer(run, "scontrol", "show", "hostnames", place.exclude).split() if place.exclude else []
    wanted = set(place.constraint.split("&")) if re.fullmatch(r"[\w.&-]+", place.constraint) else set()
    config = answer(run, "scontrol", "show", "config")
    linear = re.search(r"^SelectType\s*=\s*select/linear", config, re.MULTILINE) is not None
    own = {os.environ.get("SLURMD_NODENAME", ""): _count(os.environ.get("SLURM_CPUS_ON_NODE", ""))}
    found: dict[str, tuple[SlurmNodeShape, bool]] = {}
    for name, cpus, topology, memory, most, shared, partition, features, gres in rows:
        if name in left_out or not wanted <= set(features.split(",")) or not (place.partition or partition[-1:] == "*"):
            continue
        if shared.startswith(("YES", "FORCE")):
            return None
        has = _count(cpus) - own.get(name, 0)
        most_here = _count(most) if most[:1].isdigit() else has
        before = found.get(name, (SlurmNodeShape(0),))[0].cores  # as one of another of the partitions
        gpus = sum(int(number) for number in re.findall(rf"{re.escape(place.gpu)}(?::[^:,(]+)?:(\d+)", gres))
        alone = place.whole_nodes or linear or shared.startswith("EXCLUSIVE")
        whole = "CR_CPU" not in config and math.prod(map(int, topology.split())) == _count(cpus)
        threads = int(topology.split()[2]) if whole else 1
        found[name] = SlurmNodeShape(min(has, before + most_here), _count(memory), gpus, threads), alone
    return list(found.values())


def default_partition(*, run: Run) -> str:
    """The name of the partition where jobs go that name none; empty where there is no such.

    Raises:
        CommandSilent: Slurm does not answer.
        ClusterError: There is no Slurm here.
    """
    names = answer(run, "sinfo", "-h", "-o", "%P").split()
    return next((name.removesuffix("*") for name in names if name.endswith("*")), "")


def is_over(job_id: str, *, run: Run) -> bool:
    """Whether a job has ended; also true of one that Slurm has forgotten.

    Raises:
        CommandSilent: Slurm does not answer.
        ClusterError: There is no Slurm here.
    """
    command = ("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T")
    done = run(command, "")
    if done.returncode:
        if re.search("invalid job id", done.stderr, re.IGNORECASE):
            return True
        raise silent(command, plain(done.stderr) or f"exit status {done.returncode}")
    states = done.stdout.split()
    return all(state in ENDED for state in states)


def cluster_name(*, run: Run) -> str:
    """The name of the Slurm cluster that answers here.

    Raises:
        CommandSilent: None does.
    """
    found = re.search(r"^ClusterName\s*=\s*(\S+)", answer(run, "scontrol", "show", "config"), re.MULTILINE)
    return found[1] if found else ""


def cancel(job_ids: Iterable[str], label: str, *, run: Run) -> None:
    """Cancel jobs of this user that have these numbers and also this name: a number alone could be another's by now.

    Raises:
        CommandSilent: Slurm does not answer.
        ClusterError: There is no Slurm here.
    """
    wanted = list(job_ids)
    if not wanted:
        return
    done = run(("scancel", "--name", label, "--user", owner.user(), *wanted), "")
    trouble = [line for line in done.stderr.splitlines() if not _is_over(line)]
    if done.returncode and trouble:
        raise silent(("scancel",), plain("\n".join(trouble)))


def lease_details(*, run: Run) -> dict[str, str]:
    """What a reaper needs to know to find jobs again: whose they are, and on which Slurm.

    Raises:
        CommandSilent: Slurm does not answer.
        ClusterError: There is no Slurm here.
    """
    found = {"user": owner.user(), "cluster": cluster_name(run=run)}
    if conf := os.environ.get("SLURM_CONF"):
        found["slurm_conf"] = conf
    return found


# ------------------------------------------------------------------ submission


_REFUSALS: tuple[tuple[str, str, str], ...] = (
    (
        r"invalid partition|partition name",
        "there is no such partition, or you may not use it",
        "`sinfo -s` lists the partitions; set `cluster.partition`",
    ),
    (
        r"gres|generic resource",
        "no node has such a GPU or other generic resource",
        "`sinfo -o '%P %G'` lists what each partition has; set `cluster.gpus` or `cluster.gres`",
    ),
    (
        r"memory specification|memory",
        "no node has so much memory, or it is more than a job may have",
        "`sinfo -o '%P %m'` shows the memory of the nodes in MB; lower `cluster.memory_mb`",
    ),
    (
        r"licen[cs]e",
        "there is no such licence",
        "`scontrol show licenses` lists them",
    ),
    (
        r"time ?limit",
        "the time limit is above what the partition or your account allows",
        "`sinfo -o '%P %l'` shows the limits; lower `cluster.walltime`",
    ),
    (
        r"account|association",
        "the account is unknown, or it may not use this partition",
        "`sacctmgr show associations user=$USER` lists yours; set `cluster.account`",
    ),
    (
        r"qos",
        "there is no such QOS, or you may not use it here",
        "`sacctmgr show associations user=$USER format=account,partition,qos` lists yours; set `cluster.qos`",
    ),
    (
        r"feature|constraint",
        "no node has this feature",
        "`sinfo -o '%P %f'` lists the features; set `cluster.constraint`",
    ),
    (
        r"node configuration|too many|more processors|cpu count|node count|nodes? .*not available|invalid node",
        "no node of the partition has so many cores, so much memory, or these GPUs together; or all that have are "
        "drained (`sinfo -R`)",
        "`sinfo -o '%P %D %c %m %G'` shows what nodes have; ask for less per job",
    ),
    (
        r"partition.*(down|inactive|drained)|required partition not available",
        "the partition takes no jobs now",
        "`sinfo` shows its state; set another `cluster.partition`, or ask the administrators",
    ),
    (
        r"job violates|policy",
        "a limit of your account, QOS or partition refuses such jobs",
        "`sacctmgr show qos` and `sacctmgr show associations user=$USER` show the limits",
    ),
    (
        r"unrecognized option|invalid option|invalid --|unknown option",
        "an option in the job script is none of sbatch's",
        "look at `cluster.directives_add` and at the text that `scalescope job-script` shows",
    ),
)
_SILENT = re.compile(
    r"unable to contact|timed out|connect failure|communication connection|temporarily|no answer", re.IGNORECASE
)


def submit(script: str, *, run: Run) -> str:
    """Submit a job script over standard input; return the job's number.

    Raises:
        CommandSilent: Slurm does not answer; the job may have been submitted all the same.
        JobsEnded: Slurm refuses the job.
        ClusterError: There is no Slurm here.
    """
    done = run(("sbatch", "--parsable"), script)
    if done.returncode:
        raise refused(done.stderr, script)
    return done.stdout.strip().partition(";")[0]


def refused(error_text: str, script: str = "") -> CommandSilent | JobsEnded:
    """What to say when sbatch fails.

    Args:
        error_text: What it wrote to standard error.
        script: The job script; its directives are shown.
    """
    said = plain(error_text)
    if _SILENT.search(said):
        return silent(("sbatch",), said)
    noise = r"allocation failure: |Batch job submission failed: |; Batch job submission failed: Unspecified error"
    said = re.sub(noise, "", said) or "no reason given"
    cause, next_step = "", "`sbatch` with the text that `scalescope job-script` shows says the same"
    for pattern, likely, then in _REFUSALS:
        if re.search(pattern, said, re.IGNORECASE):
            cause, next_step = likely, then
            break
    lines = [line.removeprefix("#SBATCH").strip() for line in script.splitlines() if line.startswith("#SBATCH")]
    directives = [line for line in lines if not line.startswith(("-J ", "--error=", "--output=", "--comment="))]
    where = f"sbatch {' '.join(directives)}" if directives else "sbatch"
    return JobsEnded(f"Slurm refuses the job: {said}", where=where, cause=cause, next_step=next_step, ends_run=True)


# ------------------------------------------------------------------ small things


def when(text: str) -> float | None:
    """Seconds since the epoch of a time as Slurm writes it, which is local time; None for `N/A`, `Unknown`, `None`."""
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        return None


def _known(text: str) -> str:
    text = text.strip()
    return "" if text in ("(null)", "None", "N/A", "Unknown") else text


def _count(text: str) -> int:
    found = re.match(r"\d+", text.strip())
    return int(found[0]) if found else 0


def _is_over(line: str) -> bool:
    """Whether scancel complains of a job that has ended anyhow."""
    return not line.strip() or re.search(r"already complet|invalid job id", line, re.IGNORECASE) is not None
