"""What Slurm's reasons and states mean for whoever waits for workers: pure functions from text to text.

Reasons are those of `squeue` (https://slurm.schedmd.com/job_reason_codes.html) and of what controllers from 20.11 on
were seen to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm.jobs import SlurmJob, is_down


@dataclass(frozen=True)
class SlurmFailure:
    """What a reader should know.

    Attributes:
        cause: The likely cause; empty where Slurm's own words are all there is.
        next_step: What to do.
        may_return: Whether another such job can be expected to start and stay.
    """

    cause: str
    next_step: str
    may_return: bool = False


# ------------------------------------------------------------------ jobs that wait


_NEVER: tuple[tuple[str, str, str], ...] = (
    (
        r"PartitionTimeLimit",
        "its time limit is above that of the partition",
        "`sinfo -o '%P %l'` shows the limits; lower `cluster.walltime`, or set another `cluster.partition`",
    ),
    (
        r"PartitionNodeLimit",
        "it asks for more nodes than a job may have in the partition",
        "`scontrol show partition` shows MinNodes and MaxNodes; ask for less per job",
    ),
    (
        r"PartitionDown|PartitionInactive",
        "the partition is closed and starts no jobs",
        "`sinfo` and `scontrol show partition` show its state; set another `cluster.partition`, or ask the "
        "administrators when it opens",
    ),
    (
        r"DependencyNeverSatisfied",
        "it depends on a job that failed or was cancelled",
        "look for --dependency in `cluster.directives_add`, and take it out",
    ),
    (
        r"JobHeld|requeued held|RESV_DEL_HOLD|held state",
        "it is held: by you (JobHeldUser), or by an administrator or after a failed launch (others)",
        "`scontrol release JOB` lets it go if you held it; else ask the administrators",
    ),
    (
        r"InvalidAccount|InvalidQOS|QOSNotAllowed|AssociationNotFound",
        "the account or QOS does not exist, or you may not use it here",
        "`sacctmgr show associations user=$USER format=account,partition,qos` lists yours; set `cluster.account` "
        "and `cluster.qos`",
    ),
    (
        r"not permitted to use this partition|can't use this partition",
        "your account, group or QOS may not use the partition",
        "`scontrol show partition` shows AllowAccounts, AllowGroups and AllowQos; set `cluster.account` or another "
        "`cluster.partition`",
    ),
    (
        r"BadConstraints",
        "no node has what it asks for",
        "`sinfo -o '%P %f %G %m %c'` shows what nodes have; change `cluster.constraint` and what a job asks for",
    ),
    (
        r"PerJobLimit|Max(Cpu|GRES|Mem|Node|TRES)\w*PerJob|MaxWallDuration|MaxCpuMinutesPerJob|TimeLimit|Min\w*(NotSatisfied|PerJob)",
        "one job alone asks for more, or less, than the account or QOS allows a job",
        "`sacctmgr show qos` and `sacctmgr show associations user=$USER` show the limits; change what one job asks for",
    ),
)
_ONLY_IF_NODES_ARE_LOST = re.compile(r"DOWN, DRAINED|ReqNodeNotAvail|UnavailableNodes|NodeDown", re.IGNORECASE)

_WAITING: tuple[tuple[str, str], ...] = (
    (r"^$", "Slurm has not looked at it yet"),
    (r"^Resources", "not enough of its nodes are free; it is next in its queue"),
    (r"^Priority", "jobs with a higher priority are ahead of it"),
    (r"maintenance", "its nodes are reserved for maintenance"),
    (r"^Reservation", "its reservation has not begun"),
    (r"^ReqNodeNotAvail|DOWN, DRAINED", "the nodes that fit are reserved or not available now"),
    (r"^BeginTime", "it is not to start before a certain time, or it was requeued"),
    (r"^Dependency", "it depends on a job that has not ended"),
    (r"^Licenses", "all licences are in use"),
    (r"^(AssocGrp|QOSGrp|QOSResource|QOSMax|AssocMax|MaxJobs|QOSUsage)", "a limit on what may run at once is reached"),
    (r"^(Prolog|Cleaning|NodesPrep|BurstBuffer)", "its nodes are being prepared"),
)
_GROUP_LIMIT = re.compile(r"^(AssocGrp|QOSGrp|AssocMax|QOSMax)")


def never(reason: str) -> SlurmFailure | None:
    """Why a waiting job can never start without somebody doing something; None where it may start by itself.

    Reasons that hold only where nodes are lost are not among them, see `needs_nodes`.
    """
    if needs_nodes(reason):
        return None
    return next((SlurmFailure(cause, step) for pattern, cause, step in _NEVER if re.search(pattern, reason)), None)


def needs_nodes(reason: str) -> bool:
    """Whether a reason means waiting where some nodes work, and never where none does: Slurm's words are the same."""
    return bool(_ONLY_IF_NODES_ARE_LOST.search(reason)) and not re.search("maintenance", reason, re.IGNORECASE)


def no_nodes(partition: str) -> SlurmFailure:
    """Why a job cannot start in a partition of which every node is lost."""
    return SlurmFailure(
        f"every node of partition {partition} that it could use is down, drained or does not answer",
        "`sinfo -R` shows since when and why; set another `cluster.partition`, or ask the administrators",
    )


def waiting(reason: str) -> str:
    """Why a job waits, in a sentence."""
    for pattern, words in _WAITING:
        if re.search(pattern, reason):
            return f"{words} (it never starts if it alone is above it)" if _GROUP_LIMIT.search(reason) else words
    return "it waits"


# ------------------------------------------------------------------ jobs that ended


_TEXTS: tuple[tuple[str, str, str], ...] = (
    (
        r"scalescope: \S+ cannot reach the scheduler",
        "the node cannot open a connection to the scheduler: wrong network interface, or a firewall between them",
        "set `cluster.interface` to a network that this host and the nodes share (`ip -brief address` lists them)",
    ),
    (
        r"Exceeded job memory limit|oom[-_ ]kill|Out Of Memory|MemoryError|Cannot allocate memory|killed by SIGKILL",
        "it used more memory than it had asked for",
        "raise `cluster.memory_mb`, or give each worker less to hold",
    ),
    (
        r"No module named '?(dask|distributed|psutil|scalescope)\b",
        "the interpreter of the workers lacks Dask: on the nodes it is another one than here",
        "install the environment on a file system that the nodes share, or activate it in `cluster.prologue`",
    ),
    (
        r"ModuleNotFoundError|ImportError|cannot open shared object file",
        "something that the worker imports is not installed on the nodes",
        "activate the right environment in `cluster.prologue`, or load the module that brings the library",
    ),
    (
        r"is not a valid network interface|interface .*(does not|doesn't) have|doesn't have an IPv4 address",
        "the nodes have no network interface of that name",
        "`srun ip -brief address` lists those of a node; set `cluster.interface`",
    ),
    (
        r"no such option|unrecognized arguments|invalid value for|unexpected extra argument|Usage: .*dask",
        "the worker does not know an argument: its version of Dask may be another one",
        "compare the versions here and on the nodes, and look at the text that `scalescope job-script` shows",
    ),
    (
        r"Timed out trying to connect|Connection refused|No route to host|Network is unreachable|failed during .*Nanny"
        r"|Name or service not known|Scheduler was unable|Could not connect",
        "the worker did not reach the scheduler: wrong network interface, a firewall between them, or the "
        "scheduler has ended",
        "set `cluster.interface` to a network that this host and the nodes share (`ip -brief address` lists them)",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|\[SSL",
        "worker and scheduler do not trust each other's certificates",
        "the folder of the certificates must be on a file system that the nodes share, and their clocks right",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        "a disk of the node, or a quota, is full",
        "set `cluster.local_directory` to a folder with room, and look at the quota of the log directory",
    ),
    (
        r"Permission denied|Read-only file system|PermissionError",
        "the worker may not write, or not execute, something on the node",
        "the path is in the text above; check it on the node with `srun ls -ld PATH`",
    ),
)
_EXITS: dict[str, SlurmFailure] = {
    "97:0": SlurmFailure(*_TEXTS[0][1:]),
    "96:0": SlurmFailure(
        "Slurm gave the job fewer GPUs than it has workers",
        "set `cluster.gpus` to the workers of a job, and look at `cluster.directives_skip`",
    ),
    "126:0": SlurmFailure(
        "the program of the worker is there, but cannot be executed on the node",
        "`srun ls -l PYTHON` shows why; the nodes may have another processor or mount it without execution",
    ),
    "127:0": SlurmFailure(
        "the interpreter of the workers does not exist on the node",
        "install the environment on a file system that the nodes share, or activate it in `cluster.prologue`",
    ),
    "2:0": SlurmFailure(
        "the worker's command line is wrong: its version of Dask may be another one",
        "compare the versions here and on the nodes, and look at the text that `scalescope job-script` shows",
    ),
    "0:53": SlurmFailure(
        "the node could not open the job's output files, or could not start its script",
        "the folder of the logs must exist on the nodes and be writable there: set `cluster.shared_directory` to one "
        "on a shared file system; `srun ls -ld FOLDER` shows what a node sees",
    ),
    "0:9": SlurmFailure(
        "it was killed: most likely it used more memory than it had asked for",
        "raise `cluster.memory_mb`, or give each worker less to hold",
    ),
}
_LOST_NODE = "`sinfo -R` shows what is known of it; `cluster.exclude` keeps away from it"
_STATES: dict[str, SlurmFailure] = {
    slurm_jobs.COMPLETING: SlurmFailure(
        "its processes are being ended: somebody cancelled it, or its node failed",
        "`scontrol show job JOB` shows more in a minute",
        may_return=True,
    ),
    "TIMEOUT": SlurmFailure(
        "its time limit was reached",
        "raise `cluster.walltime` above the length of a trial, or set `cluster.lifetime_s` below it with a stagger",
        may_return=True,
    ),
    "CANCELLED": SlurmFailure(
        "somebody, or an administrator, cancelled it",
        "`sacct -j JOB -o State%30,User` shows who, where accounting runs",
        may_return=True,
    ),
    "PREEMPTED": SlurmFailure(
        "a job with a higher priority took its place",
        "use a QOS or a partition without preemption, or expect trials to be invalid now and then",
        may_return=True,
    ),
    "NODE_FAIL": SlurmFailure("its node died", _LOST_NODE, may_return=True),
    "BOOT_FAIL": SlurmFailure("its node did not boot", _LOST_NODE, may_return=True),
    "DEADLINE": SlurmFailure(
        "it could not have ended before its deadline", "look for --deadline in `cluster.directives_add`"
    ),
    "OUT_OF_MEMORY": SlurmFailure(
        "it used more memory than it had asked for", "raise `cluster.memory_mb`, or give each worker less to hold"
    ),
    "COMPLETED": SlurmFailure(
        "its workers ended by themselves, in order: their lifetime was over, the scheduler sent them away or did not "
        "answer for longer than their death timeout",
        "read the job's error file above; raise `cluster.lifetime_s` if there is one",
        may_return=True,
    ),
}


def ended(job: SlurmJob, error_text: str, nodes: Mapping[str, tuple[str, str]] | None = None) -> SlurmFailure:
    """Why a job ended: from the state of its nodes, its own last words, its exit status and its state, in this order.

    Args:
        job: It has ended.
        error_text: The end of its error file; empty where there is none.
        nodes: State and reason of each of its nodes.
    """
    lost = {name: (state, why) for name, (state, why) in (nodes or {}).items() if is_down(state)}
    if lost and job.outcome not in ("TIMEOUT", "FAILED", "OUT_OF_MEMORY"):  # these are of its own doing
        shown = ", ".join(f"{name} is {state}{f' ({why})' if why else ''}" for name, (state, why) in lost.items())
        return SlurmFailure(
            f"its node was lost: {shown}",
            "`sinfo -R` shows more; `cluster.exclude` keeps away from it",
            may_return=True,
        )
    if job.outcome in ("FAILED", "OUT_OF_MEMORY"):
        for pattern, cause, step in _TEXTS:
            if re.search(pattern, error_text, re.IGNORECASE):
                return SlurmFailure(cause, step)
        if meaning_of_exit := _EXITS.get(job.exit_code):
            return meaning_of_exit
        if job.reason == "JobLaunchFailure":
            return _EXITS["0:53"]
    if known := _STATES.get(job.outcome):
        return known
    return SlurmFailure("", "read the job's error file above, and `scontrol show job JOB`")
