"""What the specifications of all clusters of jobs share."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

from scalescope.clusters.jobqueue.job_status import StatusCommand
from scalescope.errors import InvalidField
from scalescope.model.cluster import ClusterSpec, Text
from scalescope.model.parameters import Parameter
from scalescope.model.site_config import SiteConfig

# Names and paths are written into the job script: they may not contain blanks, quotes or shell syntax (`_PATH` allows
# variables), nor begin with a hyphen, like an option.
NAME = partial(Text, accepts=re.compile(r"(?!-)[\w.+@:/-]+").fullmatch, allowed="letters, digits and . _ + - @ : /")
_PLAIN_PATH = partial(Text, accepts=re.compile(r"(?!-)[\w./:+@~-]+").fullmatch, allowed="a path without blanks")
_PATH = partial(
    Text,
    accepts=re.compile(r"(?!-)[\w./${}:+@-]+").fullmatch,
    allowed="a path without blanks; it can hold variables such as $TMPDIR",
)
_LINES = partial(Text, accepts=lambda line: bool(line.strip()) and line.isprintable(), allowed="a line of text")

CLOCK = re.compile(r"(?P<hours>\d+):(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d)")
# The forms in which job-script directives ask for CPUs.
_CPUS = re.compile(r"(?:--cpus-per-task[= ]|^-c ?|\bncpus=|\bppn=)(?P<cpus>\d+)")
_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


@dataclass(frozen=True)
class JobRequest:
    """A job whose script is to be written."""

    name: str  # name in its cluster; its workers are `NAME-0`, `NAME-1` and so on
    workers: int
    threads: int  # threads of each worker
    label: str = "scalescope-LABEL"  # name of all jobs of the cluster in the queue
    address: str = "tls://SCHEDULER:0"
    folder: str = "FOLDER"  # folder that the nodes share (`shared_folder`)
    dask_cuda: bool = False  # True if `dask cuda worker` starts the workers
    begin: str = ""  # earliest start, in the system's notation
    imports: str = ""  # additional folder from which the workers may import


@dataclass(frozen=True)
class JobQueueSpec(ClusterSpec):
    """Workers in jobs; the section `jobqueue.KIND` of Dask's configuration sets the defaults of the fields."""

    implementation: ClassVar[str] = "scalescope.clusters.jobqueue.batch_cluster:BatchCluster"
    reaper: ClassVar[str] = "scalescope.clusters.jobqueue.reaper:reap"
    extra: ClassVar[str] = "slurm"
    packages: ClassVar[tuple[str, ...]] = ("dask_jobqueue", "cryptography")
    max_workers: ClassVar[int] = 10_000
    job_class: ClassVar[str] = ""  # class of dask-jobqueue that writes the job scripts, as `module:Class`
    clocks: ClassVar[tuple[re.Pattern[str], ...]] = (CLOCK,)  # notations of a time limit that the system accepts
    clock_words: ClassVar[str] = "HOURS:MINUTES:SECONDS"  # `clocks` in words, for messages
    status: ClassVar[StatusCommand | None] = None  # prints job states; None: the cluster class asks by itself
    memory_required: ClassVar[bool] = True  # True if a job must say how much memory it needs

    account: Annotated[str, NAME("Account that pays for the jobs.")] = ""
    walltime: Annotated[
        str,
        Parameter("Time limit of a job, such as 02:00:00; in YAML, write it in quotes.", title="Time limit of a job"),
    ] = "01:00:00"
    cores: Annotated[
        int,
        Parameter(
            "Cores per job; 0: one core for each thread of its workers.",
            title="Cores per job",
            minimum=0,
            maximum=4096,
        ),
    ] = 0
    memory_mb: Annotated[
        int,
        Parameter(
            "Memory per job in MiB, shared evenly by its workers. 0 (only on Slurm and Grid Engine) leaves the memory "
            "to the system, and the workers have no limit of their own.",
            title="Memory per job, MiB",
            minimum=0,
        ),
    ] = 0
    workers_per_job: Annotated[
        int, Parameter("Dask workers in a job; 0: one worker, or one for each GPU.", minimum=0, maximum=1024)
    ] = 0
    processes: Annotated[
        int,
        Parameter(
            "Processes of a job that its workers share; 0 is one for each worker. Workers of one process share an "
            "interpreter lock, which suits large numbers of workers that hardly compute.",
            title="Processes per job",
            minimum=0,
            maximum=1024,
        ),
    ] = 0
    interface: Annotated[str, NAME("Network interface of the workers, such as ib0, and of the scheduler.")] = ""
    scheduler_interface: Annotated[str, NAME("Network interface of the scheduler, if not the workers'.")] = ""
    local_directory: Annotated[
        str,
        _PATH(
            "Folder that workers spill to. If empty, the job's TMPDIR or else /tmp, or a local folder in place of a "
            "network one."
        ),
    ] = ""
    shared_directory: Annotated[
        str,
        _PLAIN_PATH(
            "Folder on a file system that the nodes share, for certificates, configuration and logs. If empty, the "
            "user's state folder."
        ),
    ] = ""
    python: Annotated[
        str, _PLAIN_PATH("Interpreter in the jobs; empty is the driver's.", title="Python interpreter")
    ] = ""
    prologue: Annotated[
        tuple[str, ...], _LINES("Shell lines to run before the workers, such as `module load cuda`.")
    ] = ()
    directives_add: Annotated[
        tuple[str, ...],
        _LINES("Further directives, as the system writes them, such as --nice=100.", title="Further directives"),
    ] = ()
    directives_skip: Annotated[
        tuple[str, ...],
        _LINES("Leave out each directive that contains one of these texts.", title="Directives to leave out"),
    ] = ()
    lifetime_s: Annotated[
        float,
        Parameter(
            "Seconds after which a worker ends by itself; 0 is never.", title="Lifetime of a worker, s", minimum=0
        ),
    ] = 0.0
    lifetime_stagger_s: Annotated[
        float,
        Parameter(
            "Most seconds by which a worker's lifetime is randomly shortened or lengthened.",
            title="Spread of lifetimes, s",
            minimum=0,
        ),
    ] = 0.0
    tls: Annotated[
        bool, Parameter("Encrypt all connections between Dask's processes, with mutual certificates.", title="TLS")
    ] = True
    queue_timeout_s: Annotated[float, Parameter("Seconds that jobs may wait in the queue.", minimum=1)] = 3600.0
    start_timeout_s: Annotated[
        float, Parameter("Seconds within which the workers must register once their jobs run.", minimum=1)
    ] = 180.0
    replace_jobs: Annotated[
        int,
        Parameter(
            "Lost jobs that the cluster may replace before it counts as broken.",
            title="Replacement jobs",
            minimum=0,
            maximum=10_000,
        ),
    ] = 16

    def __post_init__(self) -> None:
        if not isinstance(self.walltime, str):  # YAML reads 10:00:00 as the number 36000
            raise InvalidField("cluster.walltime", self.walltime, 'text such as "00:30:00"; in YAML, in quotes')
        super().__post_init__()
        self._check_together()

    def _check_together(self) -> None:
        limit = self.walltime_s
        if self.lifetime_s + self.lifetime_stagger_s > limit:
            raise InvalidField(
                "cluster.lifetime_s",
                self.lifetime_s,
                f"at most the walltime of {limit:g} s, with lifetime_stagger_s added",
            )
        if self.lifetime_stagger_s > self.lifetime_s:
            raise InvalidField("cluster.lifetime_stagger_s", self.lifetime_stagger_s, "at most cluster.lifetime_s")
        if self.memory_required and not self.memory_mb:
            raise InvalidField("cluster.memory_mb", 0, f"at least 1: jobs of {self.kind} must request memory")
        if self.processes > self.job_workers:
            raise InvalidField(
                "cluster.processes",
                self.processes,
                f"at most the workers of a job, {self.job_workers}: a process without a worker has nothing to do",
            )

    @property
    def needs(self) -> tuple[str, ...]:
        return self.packages if self.tls else self.packages[:1]

    @property
    def job_workers(self) -> int:
        return self.workers_per_job or self.job_gpus or 1

    @property
    def job_gpus(self) -> int:
        return 0

    @property
    def dask_cuda_options(self) -> tuple[str, ...]:
        return ()

    @property
    def walltime_s(self) -> float:
        found = next((match for form in self.clocks if (match := form.fullmatch(self.walltime))), None)
        seconds = sum(int(number) * _SECONDS[unit] for unit, number in found.groupdict("0").items()) if found else 0
        if not seconds:
            raise InvalidField("cluster.walltime", self.walltime, f"a time above 0, written as {self.clock_words}")
        return seconds

    def cores_per_worker(self, threads: int) -> float:
        return self.cores / self.job_workers if self.cores else threads

    def held_worker_s(self, workers: int) -> float:
        return super().held_worker_s(workers) if workers > self.job_workers else 0.0

    @property
    def arrival_limit_s(self) -> float:
        return self.queue_timeout_s + self.start_timeout_s

    def job_memory_mb(self, workers: int) -> int:
        """Memory of a job with `workers` workers, in MiB: their share of a full job's."""
        return math.ceil(self.memory_mb * workers / self.job_workers)

    @abstractmethod
    def job_options(self, request: JobRequest) -> dict[str, Any]:
        """Arguments of `job_class` that only this batch system has."""

    @classmethod
    def site_config(cls) -> SiteConfig:
        from scalescope.clusters.jobqueue import site_config

        return site_config.read(cls)

    def notes(self, threads_per_worker: int) -> list[str]:
        used = self.job_workers * threads_per_worker
        cores = self.cores or used
        found = []
        if cores > used:
            found.append(
                f"a job has {cores} cores, and its {self.job_workers} workers of {threads_per_worker} threads use "
                f"{used}: set the axis threads_per_worker to {cores // self.job_workers}, or cluster.cores to 0"
            )
        for text in (*self.directives_add, getattr(self, "resource_spec", "")):
            if (asked := _CPUS.search(text)) and int(asked["cpus"]) != cores:
                found.append(f"a job has {cores} cores, and `{text}` asks for {asked['cpus']}")
        return found

    def check_size(self, workers: int, threads_per_worker: int) -> None:
        together = min(workers, self.job_workers)
        needed = together * threads_per_worker
        if self.cores and needed > self.cores:
            raise InvalidField(
                "cluster.cores",
                self.cores,
                f"at least {needed}: a job has {together} workers of {threads_per_worker} threads",
                next_step="set cluster.cores to 0 to have a core for every thread, or put fewer workers in a job",
            )
