"""The specification of a cluster of Slurm jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from threading import Event
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from scalescope.clusters.jobqueue.base_spec import NAME, JobQueueSpec, JobRequest
from scalescope.errors import ClusterError, InvalidField, JobsEnded
from scalescope.model.cluster import CUDA_OPTIONS, Text
from scalescope.model.parameters import Parameter
from scalescope.slurm.sbatch_options import objection
from scalescope.waiting import PATIENCE_S

if TYPE_CHECKING:
    from scalescope.slurm.capacity import SlurmCapacity, SlurmRoom
    from scalescope.slurm.commands import Run


@dataclass(frozen=True)
class SlurmSpec(JobQueueSpec):
    """Workers in jobs of Slurm; `scalescope job-script` shows what would be submitted."""

    kind: ClassVar[str] = "slurm"
    title: ClassVar[str] = "Slurm Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.jobqueue.slurm_cluster:SlurmCluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"partition": "gpu", "account": "team", "gpus": 4, "walltime": "02:00:00"}
    )
    memory_required: ClassVar[bool] = False
    job_class: ClassVar[str] = "dask_jobqueue.slurm:SLURMJob"
    clocks: ClassVar[tuple[re.Pattern[str], ...]] = (
        re.compile(r"(?P<minutes>\d+)(:(?P<seconds>[0-5]\d))?"),
        re.compile(r"(?P<hours>\d+):(?P<minutes>[0-5]?\d):(?P<seconds>[0-5]\d)"),
        re.compile(r"(?P<days>\d+)-(?P<hours>[01]?\d|2[0-3])(:(?P<minutes>[0-5]?\d)(:(?P<seconds>[0-5]\d))?)?"),
    )
    clock_words: ClassVar[str] = "MINUTES, MINUTES:SECONDS, HH:MM:SS, DAYS-HH or DAYS-HH:MM:SS"
    # Most seconds that the started workers of a point wait for the others, before it fails. If Slurm expects to need
    # more than half of the seconds left, all jobs are cancelled and submitted again, once per point.
    hold_s: ClassVar[float] = 600.0

    partition: Annotated[
        str,
        Text(
            "Partition of the jobs, or several separated by commas; empty is the default partition.",
            accepts=re.compile(r"(?!-)[\w.+@:/,-]+").fullmatch,
            allowed="names separated by commas, without blanks",
        ),
    ] = ""
    qos: Annotated[str, NAME("Quality of service.", title="QOS")] = ""
    gpus: Annotated[
        int,
        Parameter(
            "GPUs per job; each worker gets one of them, and a process of its own.",
            title="GPUs per job",
            minimum=0,
            maximum=64,
        ),
    ] = 0
    gres: Annotated[
        str,
        Text(
            "Further generic resources per job, such as nvme:1; gpu:h200 names the type of the GPUs.",
            title="Generic resources",
            accepts=re.compile(r"(?!-)[\w.:,()=/-]+").fullmatch,
            allowed="resources as Slurm writes them, such as gpu:h200,nvme:1",
        ),
    ] = ""
    cuda_options: Annotated[tuple[str, ...], CUDA_OPTIONS] = ()
    constraint: Annotated[
        str,
        Text(
            "Features that nodes must have.",
            accepts=re.compile(r"(?!-)[\w.+:=&|!*,()\[\]-]+").fullmatch,
            allowed="features joined by & or |, without blanks",
        ),
    ] = ""
    exclude: Annotated[
        str,
        Text(
            "Nodes to leave out, such as n[1-3].",
            title="Excluded nodes",
            accepts=re.compile(r"(?!-)[\w.,\[\]-]+").fullmatch,
            allowed="host names as Slurm writes them, such as n[1-3],gpu7",
        ),
    ] = ""

    @property
    def open_limit_s(self) -> float:
        return super().open_limit_s + PATIENCE_S

    @property
    def arrival_limit_s(self) -> float:
        return super().arrival_limit_s + PATIENCE_S

    def _check_together(self) -> None:
        super()._check_together()
        for line in self.directives_add:
            if why := objection(line):
                raise InvalidField("cluster.directives_add", line, f"an option that can be added: {why}")
        gpu = self._gpu_types
        if any(part.split("(")[0].split(":")[-1].isdigit() or part == "gpu" for part in gpu) or len(gpu) > 1:
            raise InvalidField(
                "cluster.gres", self.gres, "one type of GPU at most, as gpu:TYPE; cluster.gpus says how many"
            )
        if gpu and not self.gpus:
            raise InvalidField("cluster.gpus", 0, f"at least 1 together with cluster.gres = {self.gres!r}")
        if self.cuda_options and not self.gpus:
            raise InvalidField("cluster.gpus", 0, "at least 1 together with cluster.cuda_options")
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

    def cores_per_worker(self, threads: int) -> float:
        """Cores that a worker occupies: as requested, or its share of a node if jobs share none; asks Slurm once."""
        whole = _cores_of_whole_nodes(self._room)
        return whole / self.job_workers if whole else super().cores_per_worker(threads)

    def priced_as(self) -> tuple[str, ...]:
        return tuple(name for name in self.partition.split(",") if name) or (_default_partition() or self.kind,)

    def check_room(self, sizes: Iterable[tuple[int, int]], says: Callable[[str], object]) -> None:
        """Call `require_room` for the largest size per number of threads; waits while Slurm's controller is away."""
        from scalescope.slurm import commands

        largest: dict[int, int] = {}
        for workers, threads in sizes:
            largest[threads] = max(workers, largest.get(threads, 0))
        for threads, workers in largest.items():
            ask = partial(self.require_room, workers, threads, run=commands.commands())
            commands.patiently(ask, says=says, stopped=Event())

    def require_room(self, workers: int, threads: int, *, run: Run, ours: Collection[str] = ()) -> SlurmCapacity | None:
        """Raise `JobsEnded` if `workers` workers can never run at once, even on an otherwise idle cluster.

        Returns how many workers fit on working nodes, including the nodes of jobs `ours`; None: only sbatch can tell.
        """
        from scalescope.slurm.capacity import SlurmNodeShape

        def job(count: int) -> SlurmNodeShape:
            return SlurmNodeShape(self.cores or count * threads, self.job_memory_mb(count), count if self.gpus else 0)

        capacity = self._room.capacity(job, self.job_workers, run=run, ours=ours)
        if capacity is not None and workers > (most := capacity.most):
            held = f"{most // self.job_workers} jobs of {job(self.job_workers)}"
            raise JobsEnded(
                f"{workers} workers can never run at the same time: there is room for {most}",
                where=f"partition {self.partition}" if self.partition else "the default partition",
                cause=f"the partition's nodes hold at most {held}, even without other jobs",
                next_step=f"ask for at most {most} workers, or less per job; `sinfo -No '%N %c %m %G'` shows the nodes",
                category="no-room",
            )
        return capacity

    def closed_nodes(self, *, run: Run) -> dict[str, tuple[str, str]]:
        """State and reason of the down or drained nodes among those that jobs of this cluster may use."""
        return self._room.closed_nodes(run)

    @property
    def _room(self) -> SlurmRoom:
        from scalescope.slurm.capacity import SlurmRoom

        gpu, alone = next(iter(self._gpu_types), "gpu"), "--exclusive" in self.directives_add
        return SlurmRoom(self.partition, self.exclude, self.constraint, gpu, alone)

    @property
    def job_gpus(self) -> int:
        return self.gpus

    @property
    def dask_cuda_options(self) -> tuple[str, ...]:
        return self.cuda_options

    @property
    def _gpu_types(self) -> list[str]:
        return [part for part in self.gres.split(",") if part.split(":")[0] == "gpu"]

    def job_options(self, request: JobRequest) -> dict[str, Any]:
        """Directives of sbatch. The comment and the log's name identify a job whose number we did not receive."""
        gpus = [f"{(self._gpu_types or ['gpu'])[0]}:{request.workers}"] if self.gpus else []
        others = [part for part in self.gres.split(",") if part and part not in self._gpu_types]
        given = {
            "qos": self.qos,
            "gres": ",".join([*gpus, *others]),
            "constraint": self.constraint,
            "exclude": self.exclude,
            "begin": request.begin,
        }
        logs = f"{request.folder}/logs/{request.name}-%j"
        added = [f'--error="{logs}.err"', f'--output="{logs}.out"', f"--comment={request.label}", "--no-requeue"]
        added += [f"--{name}={value}" for name, value in given.items() if value]
        return {
            "queue": self.partition or None,
            "account": self.account or None,
            "walltime": self.walltime,
            "log_directory": None,  # dask-jobqueue would not quote it
            "job_mem": f"{self.job_memory_mb(request.workers)}M",  # dask-jobqueue would round it up to GiB
            "job_directives_skip": [*self.directives_skip, *([] if self.memory_mb else ["--mem="])],
            "job_extra_directives": [*added, *self.directives_add],
        }


@cache
def _cores_of_whole_nodes(room: SlurmRoom) -> int:
    from scalescope.slurm import commands

    try:
        return room.cores_of_whole_nodes(commands.commands())
    except ClusterError:
        return 0


@cache
def _default_partition() -> str:
    from scalescope.slurm import commands, jobs  # imported late: specifications load only the standard library

    try:
        return jobs.default_partition(run=commands.commands())
    except ClusterError:
        return ""
