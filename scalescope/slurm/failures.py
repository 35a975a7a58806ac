"""What the categories of Slurm's refusals and reasons (`reasons`), its states and its exit codes mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from scalescope.model.words import plural
from scalescope.slurm import reasons
from scalescope.slurm.jobs import COMPLETING, FORGOTTEN, SlurmJob, is_down

CLUSTER_FIELDS = {
    "partition": "`cluster.partition`",
    "time_limit": "`cluster.walltime`",
    "memory": "`cluster.memory_mb`",
    "cores": "`cluster.cores`, or the axis threads_per_worker",
    "fewer_jobs": "put more workers into each job with `cluster.workers_per_job`",
    "gres": "`cluster.gpus` or `cluster.gres`",
    "account": "`cluster.account` or `cluster.qos`",
    "constraint": "`cluster.constraint`",
    "exclude": "`cluster.exclude`",
    "directives": "`cluster.directives_add`",
    "prologue": "`cluster.prologue`",
    "python": "`cluster.python`",
    "interface": "`cluster.interface`",
    "logs": "`cluster.shared_directory`",
    "spill": "`cluster.local_directory`",
    "script": "the text that `scalescope job-script` shows",
}
POOL_FIELDS = CLUSTER_FIELDS | {
    "partition": "`partition`",
    "time_limit": "`time_limit`",
    "memory": "`memory`",
    "cores": "`cpus`",
    "fewer_jobs": "let fewer flow runs execute at once (concurrency limit of the work pool)",
    "gres": "`gres`",
    "account": "`account` or `qos`",
    "constraint": "`constraint`",
    "exclude": "`--exclude` in `directives`",
    "directives": "`directives`",
    "prologue": "`prologue`",
    "python": "`command`",
    "logs": "`log_directory` and `working_dir`",
    "script": "the job variables of the run",
}


@dataclass(frozen=True)
class SlurmFailure:
    """Why a job did not start, or ended."""

    category: str
    cause: str
    next_step: str  # advice with the names of fields in braces

    @property
    def may_return(self) -> bool:
        """Whether another job of this kind can be expected to start and to run on."""
        return self.category in _MAY_RETURN

    def step(self, fields: Mapping[str, str], job_id: str = "") -> str:
        return self.next_step.format_map({**fields, "job": job_id})


_AGAIN = "try again when the queue is shorter, or ask for less"
_LIMITS = "`sacctmgr show qos` and `sacctmgr show associations user=$USER` show the limits"
_NODES = (
    "`sinfo -o '%P %D %c %m %G %f'` shows what nodes have; ask for less per job with {cores}, or change {constraint}"
)
_ASSOCIATIONS = "`sacctmgr show associations user=$USER format=account,partition,qos` lists yours; set {account}"
_ENVIRONMENT = (
    "install the environment on a file system that the nodes share, activate it in {prologue}, or name the interpreter "
    "of that environment in {python}"
)
_VERSIONS = "compare the versions of Dask here and on the nodes, and look at {script}"
_LOST_NODE = "`sinfo -R` shows since when the node is down, and why; exclude it with {exclude}"

_TABLE = {
    # ------------------------------------------------------------------ waiting
    "not-looked-at": ("Slurm has not yet considered the job", _AGAIN),
    "nodes-busy": (
        "not enough nodes are free; the job is next in the queue",
        "try again when the queue is shorter, or ask for less with {cores}, or {memory}",
    ),
    "jobs-ahead": ("jobs with a higher priority are ahead", _AGAIN),
    "nodes-away": (
        "the nodes that fit the job are down, drained, reserved or not available now",
        "`sinfo -R` shows which nodes and why; try again when they are back, or set another {partition}",
    ),
    "nodes-prepare": ("the nodes of the job are being prepared", _AGAIN),
    "nodes-power-up": (
        "the nodes of the job are being powered up, booted or set up",
        "`scontrol show node` and `sinfo -R` show whether the nodes become ready; ask the administrators, or set "
        "another {partition}",
    ),
    "maintenance": (
        "the nodes are reserved for a maintenance that begins before the job's time limit ends",
        "`scontrol show reservation` shows when; lower {time_limit} so that jobs end before then, or try again later",
    ),
    "burst-buffer": (
        "the burst buffer of the job is not ready, or not available",
        "`scontrol show burstbuffer` shows its state; look for a burst buffer in {directives}",
    ),
    "power-cap": ("the site's limit on electric power is reached", _AGAIN),
    "reservation-to-come": (
        "the job's reservation has not begun",
        "`scontrol show reservation` shows when it begins; look for --reservation in {directives}",
    ),
    "begin-time": ("the job may not start before a given time, or was requeued", "look for --begin in {directives}"),
    "dependency-waits": ("the job depends on another job that has not ended", "look for --dependency in {directives}"),
    "licences-busy": ("all licences are in use", "`scontrol show licenses` shows how many there are; {fewer_jobs}"),
    "federation": ("another cluster of the federation considers or runs the job", "look at `squeue --federation`"),
    "running-jobs-limit": (
        "a limit on the number of jobs that run at once is reached",
        "{fewer_jobs}, or set another {account}; " + _LIMITS,
    ),
    "submitted-jobs-limit": (
        "a limit on the number of jobs in the queue is reached",
        "{fewer_jobs}, or set another {account}; " + _LIMITS,
    ),
    "use-limit": (
        "a limit on the resources of running jobs is reached (a job that exceeds the limit by itself will never start)",
        "ask for less at once, or set another {account}; " + _LIMITS,
    ),
    "usage-spent": (
        "the account, or the QOS, has used up its computing time",
        "`sshare` and `sacctmgr show associations` show the use; set another {account}, or ask for more",
    ),
    "remaining-time-limit": (
        "with this job, the running jobs would reserve more computing time (cores times the remaining time limit) than "
        "is allowed",
        "lower {time_limit}; " + _LIMITS,
    ),
    "queue-full": (
        "Slurm holds as many jobs as it may (MaxJobCount); ended jobs still count for some minutes",
        "{fewer_jobs}, or wait until the queue is shorter; `scontrol show config` shows MaxJobCount",
    ),
    "state-folder-full": (
        "Slurm's controller cannot write to its folder StateSaveLocation: the disk is full or fails",
        "tell the administrators; `scontrol show config` names StateSaveLocation, and `df` on the controller's host "
        "shows the free space",
    ),
    # ------------------------------------------------------------------ refused, or never to start
    "unnamed-limit": (
        "a limit of the account or QOS is exceeded, and Slurm does not say which: number of jobs, size or time",
        _LIMITS,
    ),
    "reservation-gone": (
        "the reservation of the job does not exist any more, or you may not use it",
        "`scontrol show reservation` lists reservations; look for --reservation in {directives}",
    ),
    "job-minutes-limit": (
        "the job's cores (or another resource) times its minutes exceed the limit for one job",
        "lower {time_limit}, or ask for less per job; " + _LIMITS,
    ),
    "unknown-partition": (
        "there is no such partition, or you may not use it",
        "`sinfo -s` lists the partitions; set {partition}",
    ),
    "partition-not-allowed": (
        "your account, group or QOS may not use the partition",
        "`scontrol show partition` shows AllowAccounts, AllowGroups and AllowQos; set {account}, or another "
        "{partition}",
    ),
    "partition-closed": (
        "the partition is closed and starts no jobs",
        "`sinfo` and `scontrol show partition` show its state; set another {partition}, or ask the administrators "
        "when it opens",
    ),
    "too-many-nodes": (
        "the job's number of nodes is outside the limits of the partition",
        "`scontrol show partition` shows MinNodes and MaxNodes; ask for less per job, or set another {partition}",
    ),
    "time-limit-too-long": (
        "the job's time limit is longer than the partition or account allows",
        "`sinfo -o '%P %l'` shows the limits; lower {time_limit}, or set another {partition}",
    ),
    "account-time-limit": (
        "the job's time limit is longer than the account or QOS allows",
        "lower {time_limit}, or set another {account}; " + _LIMITS,
    ),
    "account-refused": ("the account, QOS or wckey does not exist, or you may not use it here", _ASSOCIATIONS),
    "unknown-gres": (
        "no node has such a GPU or other generic resource",
        "`sinfo -o '%P %G'` lists what each partition has; set {gres}",
    ),
    "too-much-memory": (
        "no node has as much memory as the job asks for, or a limit allows less",
        "`sinfo -o '%P %m'` shows the memory of the nodes in MB; lower {memory}",
    ),
    "unknown-licence": (
        "there is no such licence",
        "`scontrol show licenses` lists the licences; look for --licenses in {directives}",
    ),
    "unknown-feature": ("no node has this feature", "`sinfo -o '%P %f'` lists the features; set {constraint}"),
    "no-such-node": (
        "no node of the partition has what the job asks for, or all that have it are drained (`sinfo -R`)",
        _NODES,
    ),
    "job-limit": (
        "the job asks for more than the account, QOS or partition allows per job, or for less than their minimum",
        _LIMITS + "; change what one job asks for: {memory}, {cores}, or {gres}",
    ),
    "unknown-option": ("sbatch does not know an option of the job", "look at {directives} and at {script}"),
    "dependency-failed": (
        "the job depends on a job that failed or was cancelled",
        "remove --dependency from {directives}",
    ),
    "job-held": (
        "the job is held: by you (JobHeldUser), by an administrator, or after a failed launch (other reasons)",
        "look for --hold in {directives}; else ask the administrators why, and run again",
    ),
    # ------------------------------------------------------------------ ended
    "scheduler-unreachable": (
        "the node cannot connect to the scheduler: wrong network interface, a firewall between them, or the scheduler "
        "has ended",
        "set {interface} to a network that this host and the nodes share (`ip -brief address` lists them)",
    ),
    "out-of-memory": (
        "the job used more memory than asked for",
        "raise {memory}, or let workers hold less data; if `sacct -o MaxRSS` shows little, something else killed it",
    ),
    "dask-missing": (
        "the Python on the nodes lacks Dask or Scalescope: it is not the Python used here",
        _ENVIRONMENT,
    ),
    "import-failed": (
        "something that the process imports is not installed on the nodes",
        "activate the right environment in {prologue}, or load the module that brings the library",
    ),
    "interface-missing": (
        "the nodes have no network interface of that name",
        "`srun ip -brief address` lists the interfaces of a node; set {interface}",
    ),
    "unknown-argument": ("the worker does not know an argument: the nodes may have another version of Dask", _VERSIONS),
    "certificates-refused": (
        "worker and scheduler do not trust each other's certificates",
        "the nodes must share the folder of the certificates ({logs}), and their clocks must be right",
    ),
    "disk-full": (
        "a disk of the node, or a quota, is full",
        "set {spill} to a folder with room, and look at the quota of {logs}",
    ),
    "permission-denied": (
        "the process may not write, or not execute, something on the node",
        "the path is in the job's output; check it on the node with `srun ls -ld PATH`; workers write to {spill}",
    ),
    "too-few-gpus": (
        "Slurm gave the job fewer GPUs than it has workers",
        "set {gres} to the number of workers per job, and look for --gres in {directives}",
    ),
    "not-executable": (
        "the program is on the node, but cannot be executed there",
        "`srun ls -l PROGRAM` shows why; the node may have another processor, or mount the disk noexec; name another "
        "program in {python}",
    ),
    "program-missing": ("a program of the job does not exist on the node", _ENVIRONMENT),
    "output-not-writable": (
        "the node could not open the job's output files, or could not start its script",
        "{logs} must exist on the nodes and be writable there; `srun ls -ld FOLDER` shows what a node sees",
    ),
    "time-limit-reached": ("the time limit of the job was reached", "raise {time_limit}"),
    "cancelled": (
        "a user or an administrator cancelled the job",
        "`sacct -j {job} -o State%30,User` shows who (if accounting runs)",
    ),
    "preempted": (
        "the job was preempted by one with a higher priority",
        "use a QOS or a {partition} without preemption, or run again: this can happen at any time",
    ),
    "requeued": (
        "Slurm put the job back into the queue after it started: somebody requeued it, or its node or prolog failed",
        "Scalescope submits jobs with --no-requeue; if `scontrol show job {job}` shows Requeue=1, something overrides "
        "that: ask the administrators",
    ),
    "node-lost": ("the node of the job died or did not boot", _LOST_NODE),
    "prolog-failed": (
        "the site's prolog failed on the node of the job, and Slurm drained that node",
        "tell the administrators; every further job would drain another node; exclude these nodes with {exclude}",
    ),
    "reconfiguration-failed": ("the node could not be set up with the features of the job", _LOST_NODE),
    "launch-failed": ("Slurm could not launch the job on a node", "`scontrol show job {job}` and `sinfo -R` show more"),
    "system-failure": ("Slurm itself failed", "tell the administrators; the logs of slurmctld and slurmd say more"),
    "inactive": ("Slurm ended the inactive job (InactiveLimit)", "ask the administrators for a higher InactiveLimit"),
    "deadline": ("the job could not have ended before its deadline", "look for --deadline in {directives}"),
    "ending": (
        "the job is being ended: somebody cancelled it, a job with a higher priority preempted it, or its node failed",
        "run `scontrol show job {job}` in a minute: it then shows why",
    ),
    "workers-left": (
        "the workers ended normally: their lifetime was over, or the scheduler sent them away or stopped answering",
        "read the job's error file above; raise `cluster.lifetime_s` if it is set",
    ),
    "forgotten": (
        "Slurm has forgotten the job",
        "read the job's output; `sacct -j {job}` shows more if accounting runs",
    ),
    "failed": ("the command failed", "read the job's output, look at {prologue}, and at `scontrol show job {job}`"),
}
_MAY_RETURN = frozenset(
    {"time-limit-reached", "cancelled", "preempted", "requeued", "node-lost", "ending", "workers-left", "queue-full"}
    | {"state-folder-full"}
)
# A job that waits for one of these never starts by itself.
_NEVER = frozenset(
    {
        "time-limit-too-long",
        "account-time-limit",
        "too-many-nodes",
        "too-much-memory",
        "partition-closed",
        "partition-not-allowed",
    }
    | {"dependency-failed", "reservation-gone", "job-held", "account-refused", "no-such-node", "job-limit"}
    | {"job-minutes-limit"}
)
_BY_CATEGORY = {category: SlurmFailure(category, *texts) for category, texts in _TABLE.items()}

# ------------------------------------------------------------------ how each is known

_LOGS = (
    (r"scalescope: \S+ cannot reach the scheduler", "scheduler-unreachable"),
    (
        r"Exceeded job memory limit|oom[-_ ]kill|Out Of Memory|MemoryError|Cannot allocate memory|killed by SIGKILL",
        "out-of-memory",
    ),
    (r"No module named '?(dask|distributed|psutil|scalescope)\b", "dask-missing"),
    (r"ModuleNotFoundError|ImportError|cannot open shared object file", "import-failed"),
    (
        r"is not a valid network interface|interface .*(does not|doesn't) have|doesn't have an IPv4 address",
        "interface-missing",
    ),
    (
        r"no such option|unrecognized arguments|invalid value for|unexpected extra argument|Usage: .*dask",
        "unknown-argument",
    ),
    (
        r"Timed out trying to connect|Connection refused|No route to host|Network is unreachable|failed during .*Nanny"
        r"|Name or service not known|Scheduler was unable|Could not connect",
        "scheduler-unreachable",
    ),
    (r"CERTIFICATE_VERIFY_FAILED|SSLError|\[SSL", "certificates-refused"),
    (r"No space left on device|Disk quota exceeded", "disk-full"),
    (r"Permission denied|Read-only file system|PermissionError", "permission-denied"),
)
_EXITS = {"126:0": "not-executable", "127:0": "program-missing", "0:9": "out-of-memory", "0:53": "output-not-writable"}
# For jobs of workers alone: the exit statuses of `reach_scheduler`, `worker_process` and argparse.
_WORKER_EXITS = {"97:0": "scheduler-unreachable", "96:0": "too-few-gpus", "2:0": "unknown-argument"}

_STATES = {
    COMPLETING: "ending",
    "TIMEOUT": "time-limit-reached",
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node-lost",
    "BOOT_FAIL": "node-lost",
    "DEADLINE": "deadline",
    "OUT_OF_MEMORY": "out-of-memory",
    "LAUNCH_FAILED": "launch-failed",
    "RECONFIG_FAIL": "reconfiguration-failed",
    "REVOKED": "federation",
    "COMPLETED": "workers-left",
    FORGOTTEN: "forgotten",
}
_REASONS_OF_ENDS = ("JobLaunchFailure", "SystemFailure", "InactiveLimit", "OutOfMemory", "BurstBufferOperation")
_OWN_DOING = ("TIMEOUT", "FAILED", "OUT_OF_MEMORY")

_PROLOG = re.compile("prolog", re.IGNORECASE)  # pattern in the reason of a drained node

_LACKS_NODES = frozenset({"nodes-busy", "nodes-away", "node-lost"})
_SHOWN_NODES = 4
_POWER = {"#": "powers up", "~": "is powered off", "%": "powers down", "!": "is to power down", "@": "boots"}


def _first(patterns: Iterable[tuple[str, str]], text: str, flags: int = 0) -> SlurmFailure | None:
    return next((_BY_CATEGORY[category] for pattern, category in patterns if re.search(pattern, text, flags)), None)


def refused(said: str) -> SlurmFailure:
    unknown = SlurmFailure("refused", "Scalescope does not know this refusal", "run `sbatch` by hand with {script}")
    return _BY_CATEGORY.get(reasons.of_refusal(said), unknown)


def waiting(reason: str) -> SlurmFailure:
    """Why a job waits; an unknown reason has a category of its own."""
    if re.search("maintenance", reason, re.IGNORECASE):
        return _BY_CATEGORY["maintenance"]
    unknown = SlurmFailure("unknown-reason", "Scalescope does not know this reason", _AGAIN)
    return _BY_CATEGORY.get(reasons.of_reason(reason), unknown)


def never(reason: str, state: str = "") -> SlurmFailure | None:
    """Why a waiting job can never start; None if it may start by itself."""
    failure = _BY_CATEGORY["job-held"] if state == "RESV_DEL_HOLD" else waiting(reason)
    return failure if failure.category in _NEVER else None


def requeued() -> SlurmFailure:
    return _BY_CATEGORY["requeued"]


def lacks_nodes(reason: str) -> bool:
    """Whether a job with this reason waits for nodes, some of which may be down or drained."""
    return waiting(reason).category in _LACKS_NODES


def has_power_to_come(state: str) -> bool:
    """Whether a node in this state is powered off, boots, or is powering up or down."""
    return state[-1:] in _POWER


def nodes_in_words(nodes: Mapping[str, tuple[str, str]]) -> str:
    """Words like `n2 is drained (cooling)`, from the state and reason of each node, by name."""
    said = [
        f"{name} {_POWER.get(state[-1:]) or f'is {state}'}{f' ({why})' if why else ''}"
        for name, (state, why) in nodes.items()
    ]
    more = [f"and {plural(len(said) - _SHOWN_NODES, 'more node')}"] if len(said) > _SHOWN_NODES else []
    return ", ".join(said[:_SHOWN_NODES] + more)


def ended(
    job: SlurmJob, *, log: str = "", nodes: Mapping[str, tuple[str, str]] | None = None, of_workers: bool = False
) -> SlurmFailure:
    """Why a job ended: by the state of its nodes, the end of its log, its exit code and its state, in this order."""
    lost = {name: (state, why) for name, (state, why) in (nodes or {}).items() if is_down(state)}
    if lost and job.outcome not in _OWN_DOING:
        return replace(_BY_CATEGORY["node-lost"], cause=f"a node of the job was lost: {nodes_in_words(lost)}")
    failing = {name: (state, why) for name, (state, why) in (nodes or {}).items() if _PROLOG.search(why)}
    if failing and job.outcome not in _OWN_DOING:
        cause = f"the site's prolog failed: {nodes_in_words(failing)}"
        return replace(_BY_CATEGORY["prolog-failed"], cause=cause)
    if job.outcome in ("FAILED", "OUT_OF_MEMORY"):
        if by_log := _first(_LOGS, log, re.IGNORECASE):
            return by_log
        exits = _EXITS | _WORKER_EXITS if of_workers else _EXITS
        if category := exits.get(job.exit_code):
            return _BY_CATEGORY[category]
        if job.reason in _REASONS_OF_ENDS:
            return _BY_CATEGORY[reasons.of_reason(job.reason)]
    if category := _STATES.get(job.outcome):
        return _BY_CATEGORY[category]
    if job.outcome != "FAILED":
        return SlurmFailure("unknown-state", "Scalescope does not know this state", _TABLE["failed"][1])
    status, _, signal = (job.exit_code or "1:0").partition(":")
    what = f"the command had exit status {status}" if status != "0" else f"the command got signal {signal}"
    return replace(_BY_CATEGORY["failed"], cause=what)
