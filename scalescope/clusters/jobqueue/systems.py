"""Batch systems besides Slurm, as data. Only Grid Engine was tested for real; of the others, only job scripts were."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from scalescope.clusters.jobqueue import job_status
from scalescope.clusters.jobqueue.base_spec import CLOCK, NAME, JobQueueSpec, JobRequest
from scalescope.clusters.jobqueue.job_status import StatusCommand
from scalescope.errors import InvalidField
from scalescope.model.cluster import Text
from scalescope.model.parameters import Parameter
from scalescope.waiting import PATIENCE_S

_QUEUE = NAME("Name of the queue; empty is the default queue.")
_RESOURCES = Text(
    "Resources of a job, in place of the ones that Scalescope writes.",
    accepts=re.compile(r"(?!-)[\w.:,=/+-]+").fullmatch,
    allowed="resources as the system writes them, without blanks",
)


@dataclass(frozen=True)
class BatchSpec(JobQueueSpec):
    """Jobs of a batch system that has queues; a subclass for each system."""

    proven: ClassVar[bool] = False
    account_option: ClassVar[str] = "account"  # dask-jobqueue's argument for the account

    queue: Annotated[str, _QUEUE] = ""
    resource_spec: Annotated[str, _RESOURCES] = ""

    def job_options(self, request: JobRequest) -> dict[str, Any]:
        return {
            "queue": self.queue or None,
            self.account_option: self.account or None,
            "walltime": self.walltime,
            "resource_spec": self.resource_spec or None,
        }


@dataclass(frozen=True)
class PbsSpec(BatchSpec):
    """Workers in jobs of PBS; never run on a real system."""

    kind: ClassVar[str] = "pbs"
    title: ClassVar[str] = "PBS Cluster"
    job_class: ClassVar[str] = "dask_jobqueue.pbs:PBSJob"
    status: ClassVar[StatusCommand | None] = job_status.PBS


@dataclass(frozen=True)
class MoabSpec(BatchSpec):
    """Workers in jobs of Moab; never run on a real system."""

    kind: ClassVar[str] = "moab"
    title: ClassVar[str] = "Moab Cluster"
    job_class: ClassVar[str] = "dask_jobqueue.moab:MoabJob"
    status: ClassVar[StatusCommand | None] = job_status.MOAB


@dataclass(frozen=True)
class SgeSpec(BatchSpec):
    """Workers in jobs of Grid Engine.

    Grid Engine reserves a slot per core only with `parallel_environment`, and memory only if `resource_spec` says so.
    """

    kind: ClassVar[str] = "sge"
    implementation: ClassVar[str] = "scalescope.clusters.jobqueue.sge_cluster:SgeCluster"
    title: ClassVar[str] = "Grid Engine Cluster"
    proven: ClassVar[bool] = True
    memory_required: ClassVar[bool] = False
    job_class: ClassVar[str] = "dask_jobqueue.sge:SGEJob"
    account_option: ClassVar[str] = "project"

    parallel_environment: Annotated[
        str,
        NAME("Parallel environment in which a job has a slot for each core, all on one host; empty: one slot per job."),
    ] = ""

    @property
    def open_limit_s(self) -> float:
        return super().open_limit_s + PATIENCE_S

    def job_options(self, request: JobRequest) -> dict[str, Any]:
        # Without -S, the queue's default shell (often csh) would read the script. Without `-r n`, restarted jobs would
        # bring back workers that are already known as lost.
        added = ["-S /bin/bash", "-r n"]
        if self.parallel_environment:
            added.append(f"-pe {self.parallel_environment} {self.cores or request.workers * request.threads}")
        return {**super().job_options(request), "job_extra_directives": [*added, *self.directives_add]}


@dataclass(frozen=True)
class OarSpec(BatchSpec):
    """Workers in jobs of OAR; never run on a real system.

    OAR reserves memory only if `resource_spec` or `directives_add` says so.
    """

    kind: ClassVar[str] = "oar"
    title: ClassVar[str] = "OAR Cluster"
    job_class: ClassVar[str] = "dask_jobqueue.oar:OARJob"
    status: ClassVar[StatusCommand | None] = job_status.OAR
    account_option: ClassVar[str] = "project"


@dataclass(frozen=True)
class LsfSpec(JobQueueSpec):
    """Workers in jobs of LSF; never run on a real system."""

    kind: ClassVar[str] = "lsf"
    title: ClassVar[str] = "LSF Cluster"
    proven: ClassVar[bool] = False
    job_class: ClassVar[str] = "dask_jobqueue.lsf:LSFJob"
    status: ClassVar[StatusCommand | None] = job_status.LSF
    clocks: ClassVar[tuple[re.Pattern[str], ...]] = (CLOCK, re.compile(r"(?P<hours>\d+):(?P<minutes>[0-5]\d)"))
    clock_words: ClassVar[str] = "HOURS:MINUTES or HOURS:MINUTES:SECONDS"

    queue: Annotated[str, _QUEUE] = ""

    def job_options(self, request: JobRequest) -> dict[str, Any]:
        minutes = math.ceil(self.walltime_s / 60)
        walltime = f"{minutes // 60:02}:{minutes % 60:02}"
        named = {"queue": self.queue or None, "project": self.account or None}
        return {**named, "walltime": walltime, "use_stdin": True}


@dataclass(frozen=True)
class HtcondorSpec(JobQueueSpec):
    """Workers in jobs of HTCondor; never run on a real system."""

    kind: ClassVar[str] = "htcondor"
    title: ClassVar[str] = "HTCondor Cluster"
    proven: ClassVar[bool] = False
    job_class: ClassVar[str] = "dask_jobqueue.htcondor:HTCondorJob"
    status: ClassVar[StatusCommand | None] = job_status.HTCONDOR

    disk_mb: Annotated[int, Parameter("Disk per job in MiB.", title="Disk per job, MiB", minimum=1)] = 1024

    def _check_together(self) -> None:
        super()._check_together()
        for directive in self.directives_add:
            if "=" not in directive:
                raise InvalidField("cluster.directives_add", directive, "NAME = VALUE")

    def job_options(self, request: JobRequest) -> dict[str, Any]:
        added = {"batch_name": request.label, "allowed_job_duration": math.ceil(self.walltime_s)}
        if self.account:
            added["accounting_group"] = self.account
        given = (directive.partition("=") for directive in self.directives_add)
        added |= {name.strip(): value.strip() for name, _, value in given}
        return {"disk": f"{self.disk_mb}MiB", "job_extra_directives": added}
