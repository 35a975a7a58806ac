"""Workers in jobs of a batch system: Slurm, and the other systems that dask-jobqueue knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.cluster.base import ClusterSpec

# Each text ends up in a line of the job script. None may hold blanks, quotes, or what a shell would obey.
_NAME = (re.compile(r"[\w.+@:/-]+"), "letters, digits and . _ + - @ : /")
_NAMES = (re.compile(r"[\w.+@:/,-]+"), "names separated by commas, without blanks")
_HOSTS = (re.compile(r"[\w.,\[\]-]+"), "host names as Slurm writes them, such as n[1-3],gpu7")
_FEATURES = (re.compile(r"[\w.+:=&|!*,()\[\]-]+"), "features joined by & or |, without blanks")
_RESOURCES = (re.compile(r"[\w.:,()=/-]+"), "resources as Slurm writes them, such as gpu:h200,nvme:1")
_REQUEST = (re.compile(r"[\w.:,=/+-]+"), "resources as the system writes them, without blanks")
_PATH = (re.compile(r"[\w./${}:+@-]+"), "a path without blanks; it can hold variables such as $TMPDIR")
_PLAIN_PATH = (re.compile(r"[\w./:+@~-]+"), "a path without blanks")

_CLOCK = re.compile(r"(?P<hours>\d+):(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d)")
_SLURM_CLOCKS = (
    re.compile(r"(?P<minutes>\d+)(:(?P<seconds>[0-5]\d))?"),
    re.compile(r"(?P<hours>\d+):(?P<minutes>[0-5]?\d):(?P<seconds>[0-5]\d)"),
    re.compile(r"(?P<days>\d+)-(?P<hours>[01]?\d|2[0-3])(:(?P<minutes>[0-5]?\d)(:(?P<seconds>[0-5]\d))?)?"),
)
_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


@dataclass(frozen=True)
class JobQueueSpec(ClusterSpec):
    """Base of the batch systems. A field that is left empty takes the site's value from Dask's configuration, if any.

    Attributes:
        account: Who pays for the jobs.
        walltime: Time limit of a job.
        cores: Cores per job; 0 is a core for every thread of its workers.
        memory_mb: Memory per job in MiB, shared evenly by its workers. On Slurm 0 leaves it to the system, and the
            workers have no limit of their own.
        workers_per_job: Dask workers in a job; 0 is one, or with GPUs one for each.
        processes: Processes of a job that its workers share; 0 is one for each worker. Workers of one process share
            an interpreter lock: for large numbers of workers that hardly compute.
        interface: Network interface of the workers, such as ib0, and of the scheduler.
        scheduler_interface: Network interface of the scheduler, where it is another.
        local_directory: Where workers spill to. Empty: the job's TMPDIR or else /tmp, never a network file system.
        shared_directory: Folder that the nodes see as well, for certificates, configuration and logs of a cluster.
            Empty: the user's state folder.
        python: Interpreter in the jobs. Empty: that of the driver.
        prologue: Shell lines to run before the workers, such as `module load cuda`.
        directives_add: Further directives, as the system writes them, such as `--nice=100`.
        directives_skip: Directives to leave out: all that contain one of these texts.
        lifetime_s: Seconds after which a worker ends by itself; 0 is never.
        lifetime_stagger_s: Seconds by which these ends are spread.
        tls: Whether all connections between Dask's processes are encrypted and both sides proven.
        queue_timeout_s: Seconds that jobs may wait in the queue.
        start_timeout_s: Seconds within which the workers must have arrived once their jobs run.
        replace_jobs: Jobs that may take the place of lost ones, before the cluster counts as broken.
    """

    max_workers: ClassVar[int] = 10_000
    memory_required: ClassVar[bool] = True

    account: str = ""
    walltime: str = "01:00:00"
    cores: int = 0
    memory_mb: int = 0
    workers_per_job: int = 0
    processes: int = 0
    interface: str = ""
    scheduler_interface: str = ""
    local_directory: str = ""
    shared_directory: str = ""
    python: str = ""
    prologue: tuple[str, ...] = ()
    directives_add: tuple[str, ...] = ()
    directives_skip: tuple[str, ...] = ()
    lifetime_s: float = 0.0
    lifetime_stagger_s: float = 0.0
    tls: bool = True
    queue_timeout_s: float = 3600.0
    start_timeout_s: float = 180.0
    replace_jobs: int = 16

    def __post_init__(self) -> None:
        self._match("account", _NAME)
        for name in ("interface", "scheduler_interface"):
            self._match(name, _NAME)
        self._match("local_directory", _PATH)
        for name in ("shared_directory", "python"):
            self._match(name, _PLAIN_PATH)
        for name, most in (("cores", 4096), ("workers_per_job", 1024), ("processes", 1024), ("replace_jobs", 10_000)):
            fields.integer(f"cluster.{name}", getattr(self, name), minimum=0, maximum=most)
        fields.integer("cluster.memory_mb", self.memory_mb, minimum=0)
        fields.boolean("cluster.tls", self.tls)
        for name in ("queue_timeout_s", "start_timeout_s"):
            fields.number(f"cluster.{name}", getattr(self, name), minimum=1)
        for name in ("prologue", "directives_add", "directives_skip"):
            object.__setattr__(self, name, _lines(f"cluster.{name}", getattr(self, name)))
        self._check_together()

    def _check_together(self) -> None:
        limit = self.walltime_s
        fields.number("cluster.lifetime_s", self.lifetime_s, minimum=0)
        fields.number("cluster.lifetime_stagger_s", self.lifetime_stagger_s, minimum=0)
        if self.lifetime_s + self.lifetime_stagger_s > limit:
            raise InvalidField(
                "cluster.lifetime_s", self.lifetime_s, f"with its stagger at most the walltime, {limit:g} s"
            )
        if self.lifetime_stagger_s > self.lifetime_s:
            raise InvalidField("cluster.lifetime_stagger_s", self.lifetime_stagger_s, "at most cluster.lifetime_s")
        if self.memory_required and not self.memory_mb:
            raise InvalidField("cluster.memory_mb", 0, f"at least 1: jobs of {self.kind} must say how much they need")
        if self.processes > self.job_workers:
            raise InvalidField(
                "cluster.processes",
                self.processes,
                f"at most the workers of a job, {self.job_workers}: a process without a worker has nothing to do",
            )

    @property
    def job_workers(self) -> int:
        """Workers of a full job."""
        return self.workers_per_job or 1

    @property
    def walltime_s(self) -> float:
        """The time limit of a job in seconds.

        Raises:
            InvalidField: It is not written as the system wants it.
        """
        return _seconds(self.walltime, (_CLOCK,), "HOURS:MINUTES:SECONDS")

    @property
    def arrival_limit_s(self) -> float:
        """Seconds in the queue and seconds to start."""
        return self.queue_timeout_s + self.start_timeout_s

    def check_size(self, workers: int, threads_per_worker: int) -> None:
        """Refuse more threads than a job has cores.

        Raises:
            InvalidField: `cores` is given, and too small.
        """
        together = min(workers, self.job_workers)
        needed = together * threads_per_worker
        if self.cores and needed > self.cores:
            raise InvalidField(
                "cluster.cores",
                self.cores,
                f"at least {needed}: a job has {together} workers of {threads_per_worker} threads",
                next_step="leave cluster.cores at 0 to have a core for every thread, or put fewer workers in a job",
            )

    def _match(self, name: str, rule: tuple[re.Pattern[str], str]) -> None:
        value = getattr(self, name)
        if isinstance(value, int) and not isinstance(value, bool):  # an account can be called 4711
            value = str(value)
            object.__setattr__(self, name, value)
        pattern, allowed = rule
        if not isinstance(value, str) or (value and (not pattern.fullmatch(value) or value.startswith("-"))):
            raise InvalidField(f"cluster.{name}", value, allowed)


@dataclass(frozen=True)
class SlurmSpec(JobQueueSpec):
    """Jobs of Slurm.

    Attributes:
        partition: Where the jobs run, or several separated by commas; empty is the default partition.
        qos: Quality of service.
        gpus: GPUs per job. Each worker gets one of them, and a process of its own.
        gres: Further generic resources per job, such as `nvme:1`. `gpu:h200` names the type of the GPUs.
        constraint: Features that nodes must have.
        exclude: Nodes to leave out.
    """

    kind: ClassVar[str] = "slurm"
    memory_required: ClassVar[bool] = False

    partition: str = ""
    qos: str = ""
    gpus: int = 0
    gres: str = ""
    constraint: str = ""
    exclude: str = ""

    def __post_init__(self) -> None:
        self._match("partition", _NAMES)
        self._match("qos", _NAME)
        self._match("gres", _RESOURCES)
        self._match("constraint", _FEATURES)
        self._match("exclude", _HOSTS)
        fields.integer("cluster.gpus", self.gpus, minimum=0, maximum=64)
        super().__post_init__()

    def _check_together(self) -> None:
        super()._check_together()
        gpu = [part for part in self.gres.split(",") if part.split(":")[0] == "gpu"]
        if any(part.split("(")[0].split(":")[-1].isdigit() or part == "gpu" for part in gpu) or len(gpu) > 1:
            raise InvalidField(
                "cluster.gres", self.gres, "one type of GPU at most, as gpu:TYPE; cluster.gpus says how many"
            )
        if gpu and not self.gpus:
            raise InvalidField("cluster.gpus", 0, f"at least 1 together with cluster.gres = {self.gres!r}")
        if self.gpus and self.workers_per_job not in (0, self.gpus):
            raise InvalidField(
                "cluster.workers_per_job",
                self.workers_per_job,
                f"{self.gpus}, or 0: every worker has a GPU of its own, and cluster.gpus = {self.gpus}",
            )
        if self.gpus and self.processes not in (0, self.gpus):
            raise InvalidField(
                "cluster.processes", self.processes, "0 with GPUs: a process sees only the GPU of its worker"
            )

    @property
    def job_workers(self) -> int:
        """Workers of a full job."""
        return self.workers_per_job or self.gpus or 1

    @property
    def walltime_s(self) -> float:
        """The time limit of a job in seconds.

        Raises:
            InvalidField: Slurm does not read it as a time.
        """
        return _seconds(self.walltime, _SLURM_CLOCKS, "MINUTES, MINUTES:SECONDS, HH:MM:SS, DAYS-HH or DAYS-HH:MM:SS")


@dataclass(frozen=True)
class QueueSpec(JobQueueSpec):
    """Base of the systems whose jobs go to a queue.

    Attributes:
        queue: Its name; empty is the default queue.
    """

    queue: str = ""

    def __post_init__(self) -> None:
        self._match("queue", _NAME)
        super().__post_init__()


@dataclass(frozen=True)
class ResourceSpec(QueueSpec):
    """Base of the systems that take a text of resources.

    Attributes:
        resource_spec: What a job needs, in place of what Scalescope writes.
    """

    resource_spec: str = ""

    def __post_init__(self) -> None:
        self._match("resource_spec", _REQUEST)
        super().__post_init__()


@dataclass(frozen=True)
class PbsSpec(ResourceSpec):
    """Jobs of PBS."""

    kind: ClassVar[str] = "pbs"


@dataclass(frozen=True)
class MoabSpec(ResourceSpec):
    """Jobs of Moab."""

    kind: ClassVar[str] = "moab"


@dataclass(frozen=True)
class SgeSpec(ResourceSpec):
    """Jobs of Grid Engine. It reserves memory and cores only as far as `resource_spec` and `directives_add` say."""

    kind: ClassVar[str] = "sge"


@dataclass(frozen=True)
class OarSpec(ResourceSpec):
    """Jobs of OAR. It reserves memory only as far as `resource_spec` and `directives_add` say."""

    kind: ClassVar[str] = "oar"


@dataclass(frozen=True)
class LsfSpec(QueueSpec):
    """Jobs of LSF."""

    kind: ClassVar[str] = "lsf"


@dataclass(frozen=True)
class HTCondorSpec(JobQueueSpec):
    """Jobs of HTCondor.

    Attributes:
        disk_mb: Disk per job in MiB.
    """

    kind: ClassVar[str] = "htcondor"
    disk_mb: int = 1024

    def __post_init__(self) -> None:
        fields.integer("cluster.disk_mb", self.disk_mb, minimum=1)
        super().__post_init__()
        for directive in self.directives_add:
            if "=" not in directive:
                raise InvalidField("cluster.directives_add", directive, "NAME = VALUE")


def _lines(field: str, value: object) -> tuple[str, ...]:
    """Lines of text from a list of them, or from one text."""
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, list | tuple):
        raise InvalidField(field, value, "a list of lines")
    for line in lines:
        if not isinstance(line, str) or not line.strip() or not line.isprintable():
            raise InvalidField(field, line, "a line of text")
    return tuple(lines)


def _seconds(text: object, forms: tuple[re.Pattern[str], ...], allowed: str) -> float:
    if not isinstance(text, str):  # YAML reads 10:00:00 as the number 36000
        raise InvalidField("cluster.walltime", text, 'text such as "00:30:00"; in YAML, in quotes')
    matches = [match for form in forms if (match := form.fullmatch(text))]
    seconds = sum(int(number) * _SECONDS[unit] for unit, number in matches[0].groupdict("0").items()) if matches else 0
    if not seconds:
        raise InvalidField("cluster.walltime", text, f"a time as {allowed}, more than 0")
    return seconds
