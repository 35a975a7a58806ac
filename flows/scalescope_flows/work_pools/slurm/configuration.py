"""Settings of the Slurm job of a flow run, given by a work pool, a deployment or a single run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.settings import PREFECT_HOME
from prefect.utilities.processutils import get_sys_executable
from prefect.workers.base import BaseJobConfiguration
from pydantic import Field, field_validator

from scalescope.slurm.job_queue import NAME_PREFIX
from scalescope.slurm.sbatch_options import objection

if TYPE_CHECKING:
    from prefect.client.schemas.objects import Flow, FlowRun, WorkPool
    from prefect.client.schemas.responses import DeploymentResponse


def job_name(flow_run_id: UUID) -> str:
    return f"{NAME_PREFIX}{flow_run_id.hex[:12]}"


class SlurmJobConfiguration(BaseJobConfiguration):
    """The Slurm job of a flow run. Variables are passed in sbatch's environment, as other users can read the script."""

    partition: str | None = Field(
        default=None, description="Slurm partition; empty for the default one. `sinfo -s` lists them."
    )
    account: str | None = Field(default=None, description="Slurm account that pays for the job.")
    qos: str | None = Field(default=None, description="Slurm quality of service.", title="QOS")
    time_limit: str = Field(
        default="04:00:00",
        pattern=r"^\d+(-\d+)?(:\d+){0,2}$",
        description="Longest time that the job may run, as D-HH:MM:SS, HH:MM:SS or minutes. Slurm ends it then.",
    )
    nodes: int = Field(default=1, ge=1, description="Nodes of the job. A flow itself needs no more than one.")
    cpus: int = Field(default=1, ge=1, title="CPUs", description="CPU cores of the flow's process.")
    memory: str = Field(
        default="2G", pattern=r"^\d+[KMGT]?$", description="Memory of the job on each node, such as 4G. MiB by default."
    )
    gres: str | None = Field(
        default=None, title="GPUs (gres)", description="Generic resources of each node, such as gpu:1 or gpu:a100:2."
    )
    constraint: str | None = Field(default=None, description="Features that the nodes must have, such as `skylake&ib`.")
    directives: list[str] = Field(
        default_factory=list, description="Further options of sbatch, one per line, such as --reservation=night."
    )
    prologue: list[str] = Field(
        default_factory=list,
        description="Shell lines to run before the flow starts, such as `module load cuda`. Other users can read them.",
    )
    working_dir: str | None = Field(
        default=None,
        title="Working Directory",
        description="Folder in which the flow starts; it must exist on the nodes. Default: the folder of the worker.",
    )
    log_directory: str | None = Field(
        default=None,
        description="Folder of the jobs' output, on a file system that worker and nodes share. Default: `slurm-jobs` "
        "in the worker's PREFECT_HOME.",
    )
    stream_output: bool = Field(
        default=True, description="Copy what the job writes to its standard output and error into the run's logs."
    )
    restarts: int = Field(
        default=3,
        ge=0,
        description="How many times a flow run may start again after Slurm ended its job, as at a time limit or a "
        "preemption. If somebody ends the job with scancel, the run is cancelled.",
    )
    poll_seconds: float = Field(
        default=2.0,
        ge=0.2,
        description="Shortest time between two queries of Slurm's queue; the time grows while nothing changes. One "
        "query serves all runs of a worker.",
    )
    cancel_seconds: float = Field(
        default=120.0,
        ge=0,
        description="How long a cancelled flow run may take to end by itself before its job is ended.",
    )

    @field_validator("directives")
    @classmethod
    def _options(cls, lines: list[str]) -> list[str]:
        for line in lines:
            if why := objection(line, "export", "export-file"):
                raise ValueError(f"{line!r} is not allowed: {why}")
        return lines

    @field_validator("partition", "account", "qos", "gres", "constraint", "working_dir", "log_directory")
    @classmethod
    def _empty_is_none(cls, value: str | None) -> str | None:
        return value or None

    def prepare_for_flow_run(
        self,
        flow_run: FlowRun,
        deployment: DeploymentResponse | None = None,
        flow: Flow | None = None,
        work_pool: WorkPool | None = None,
        worker_name: str | None = None,
        worker_id: UUID | None = None,
    ) -> None:
        super().prepare_for_flow_run(flow_run, deployment, flow, work_pool, worker_name, worker_id=worker_id)
        # On SIGTERM, the process cleans up and reschedules its run; without this setting it does neither.
        self.env.setdefault("PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR", "reschedule")

    @staticmethod
    def _base_flow_run_command() -> str:
        return shlex.join([get_sys_executable().strip('"') or sys.executable, "-m", "prefect", "flow-run", "execute"])

    @property
    def output_folder(self) -> Path:
        return Path(self.log_directory).expanduser() if self.log_directory else PREFECT_HOME.value() / "slurm-jobs"

    def output(self, flow_run_id: UUID, job_id: str) -> Path:
        return self.output_folder / f"{flow_run_id}-{job_id}.log"

    def options(self, flow_run_id: UUID) -> list[str]:
        output = str(self.output(flow_run_id, "\0")).replace("%", "%%").replace("\0", "%j")
        comment = f"prefect:{flow_run_id} {self.name or ''}".strip()
        given: dict[str, Any] = {"job-name": job_name(flow_run_id), "comment": comment, "output": output}
        given |= {"time": self.time_limit, "nodes": self.nodes, "cpus-per-task": self.cpus, "mem": self.memory}
        given |= {name: getattr(self, name) for name in ("partition", "account", "qos", "gres", "constraint")}
        given["chdir"] = self.working_dir
        fixed = ["--parsable", "--no-requeue", "--open-mode=append", "--export=ALL"]
        further = [word for line in self.directives for word in shlex.split(line)]
        return [*fixed, *(f"--{name}={value}" for name, value in given.items() if value is not None), *further]

    def script(self) -> str:
        return "\n".join(["#!/bin/bash", *self.prologue, f"exec {self.command}", ""])
