"""Where a workload runs, as blocks: one for each specification in `scalescope.model.cluster`, with its fields."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Literal, Self

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, SecretStr, model_validator

from scalescope.errors import InvalidField
from scalescope.model.cluster import (
    ClusterSpec,
    CustomSpec,
    LocalSpec,
    SchedulerSpec,
    SimulatedSpec,
    SlurmSpec,
    SshSpec,
    VirtualSpec,
    cluster_spec,
)

START_TIMEOUT = "Seconds within which all workers must have arrived."


class ClusterBlock(Block):
    """Base of the cluster blocks; it cannot be saved itself."""

    # With `extra="forbid"` a block document is never mistaken for another kind's, and a misspelt field is an error.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    _block_schema_capabilities: ClassVar[list[str]] = ["cluster"]
    _spec: ClassVar[type[ClusterSpec]]

    def spec(self) -> ClusterSpec:
        """The specification that a sweep takes.

        Raises:
            InvalidField: A value is not allowed.
        """
        return cluster_spec({"kind": self._spec.kind, **self._fields()})

    def provide(self) -> None:
        """Put what the specification only refers to, for it is secret, where the driver will find it."""

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.spec()
        except InvalidField as error:
            raise ValueError(str(error)) from error
        return self


class SimulatedCluster(ClusterBlock):
    """Dask's real scheduler and workers on a virtual clock: exact, and does not depend on how busy the host is.

    Example:
        ```python
        from scalescope_blocks import SimulatedCluster

        SimulatedCluster(task_cost="cpu").save("prod")
        ```
    """

    _block_type_name = "Simulated Cluster"
    _block_type_slug = "simulated-cluster"
    _spec: ClassVar[type[ClusterSpec]] = SimulatedSpec

    task_cost: Literal["auto", "none", "cpu", "recorded"] = Field(
        default="auto",
        description=(
            "What a task is charged besides the time it sleeps. auto: nothing for workloads that model their compute "
            "by sleeping, measured CPU time for all others. none, cpu: always so. recorded: the durations below."
        ),
    )
    durations: dict[str, float] | None = Field(
        default=None, description='Seconds per task prefix, for task cost "recorded" only.'
    )
    scheduler_us: float | None = Field(
        default=None,
        description=(
            "Scheduler CPU per task transition in microseconds; empty takes this host's calibration, or else the "
            "built-in reference."
        ),
    )
    worker_us: float | None = Field(
        default=None, description="Worker CPU per task in microseconds; empty as for the scheduler."
    )


class VirtualCluster(ClusterBlock):
    """Hundreds of real workers that share few processes, in real time.

    Example:
        ```python
        from scalescope_blocks import VirtualCluster

        VirtualCluster(hosts=2).save("laptop")
        ```
    """

    _block_type_name = "Virtual Cluster"
    _block_type_slug = "virtual-cluster"
    _spec: ClassVar[type[ClusterSpec]] = VirtualSpec

    hosts: int = Field(default=0, description="Processes that the workers share; 0 lets Scalescope choose.")
    start_timeout_s: float = Field(default=120.0, description=START_TIMEOUT)
    check_limit: bool = Field(
        default=True, description="Measure at start-up what this host can emulate, and hold trials to it."
    )


class LocalCluster(ClusterBlock):
    """Worker processes with nannies on one machine.

    Example:
        ```python
        from scalescope_blocks import LocalCluster

        LocalCluster(memory_limit_mb=2048).save("two-gib")
        ```
    """

    _block_type_name = "Local Cluster"
    _block_type_slug = "local-cluster"
    _spec: ClassVar[type[ClusterSpec]] = LocalSpec

    memory_limit_mb: int = Field(default=0, description="Limit per worker in MiB; 0 means none.")
    start_timeout_s: float = Field(default=120.0, description=START_TIMEOUT)


class SlurmCluster(ClusterBlock):
    """Workers in jobs of Slurm. `scalescope job-script -c slurm-cluster/NAME` shows what would be submitted.

    Example:
        ```python
        from scalescope_blocks import SlurmCluster

        SlurmCluster(partition="gpu", account="team", gpus=4, walltime="02:00:00").save("a100")
        ```
    """

    _block_type_name = "Slurm Cluster"
    _block_type_slug = "slurm-cluster"
    _spec: ClassVar[type[ClusterSpec]] = SlurmSpec

    partition: str = Field(default="", description="Where jobs run; empty is the default partition.")
    account: str = Field(default="", description="Who pays for the jobs.")
    qos: str = Field(default="", title="QOS", description="Quality of service.")
    walltime: str = Field(default="01:00:00", description="Time limit of a job, such as 02:00:00 or 1-12.")
    cores: int = Field(default=0, description="Cores per job; 0 is a core for every thread of its workers.")
    memory_mb: int = Field(default=0, description="Memory per job in MiB; 0 leaves it to Slurm.")
    gpus: int = Field(default=0, description="GPUs per job; each worker gets one of them.")
    gres: str = Field(
        default="",
        description="Further generic resources per job, such as nvme:1; gpu:h200 names the type of the GPUs.",
    )
    constraint: str = Field(default="", description="Features that nodes must have.")
    exclude: str = Field(default="", description="Nodes to leave out, such as n[1-3].")
    workers_per_job: int = Field(default=0, description="Dask workers in a job; 0 is one, or one for each GPU.")
    processes: int = Field(default=0, description="Processes of a job that its workers share; 0 is one for each.")
    interface: str = Field(default="", description="Network interface of the workers, such as ib0.")
    scheduler_interface: str = Field(default="", description="Network interface of the scheduler, where it is another.")
    local_directory: str = Field(
        default="",
        description="Where workers spill to; empty is the job's TMPDIR or /tmp, never a network file system.",
    )
    shared_directory: str = Field(
        default="",
        description="Folder that nodes see as well, for certificates, configuration and logs; empty: the user's state.",
    )
    python: str = Field(default="", description="Interpreter in the jobs; empty is the driver's.")
    prologue: list[str] = Field(default_factory=list, description="Shell lines to run before the workers.")
    directives_add: list[str] = Field(default_factory=list, description="Further directives, such as --nice=100.")
    directives_skip: list[str] = Field(default_factory=list, description="Leave out directives with these texts.")
    lifetime_s: float = Field(default=0.0, description="Seconds after which a worker ends by itself; 0 is never.")
    lifetime_stagger_s: float = Field(default=0.0, description="Seconds by which these ends are spread.")
    tls: bool = Field(default=True, title="TLS", description="Encrypt all connections of Dask, and prove both sides.")
    queue_timeout_s: float = Field(default=3600.0, description="Seconds that jobs may wait in the queue.")
    start_timeout_s: float = Field(
        default=180.0, description="Seconds within which workers must have arrived once their jobs run."
    )
    replace_jobs: int = Field(default=16, description="Jobs that may take the place of lost ones.")


class SshCluster(ClusterBlock):
    """Worker processes on machines that are reached over SSH, with keys.

    Example:
        ```python
        from scalescope_blocks import SshCluster

        SshCluster(hosts=["node1", "node2"]).save("lab")
        ```
    """

    _block_type_name = "SSH Cluster"
    _block_type_slug = "ssh-cluster"
    _spec: ClassVar[type[ClusterSpec]] = SshSpec

    hosts: list[str] = Field(description="Machines for the workers, filled in turn.")
    scheduler_host: str = Field(default="", description="Machine of the scheduler; empty is the first of the hosts.")
    username: str = Field(default="", description="Who logs in; empty is the present user.")
    port: int = Field(default=0, description="Of the SSH servers; 0 is 22, or what ~/.ssh/config says.")
    key_file: str = Field(default="", description="File of the private key; empty is the agent and the usual files.")
    known_hosts: str = Field(default="", description="File of the machines' keys; empty is ~/.ssh/known_hosts.")
    python: str = Field(default="", description="Interpreter on the machines; empty is the path of the driver's.")
    memory_limit_mb: int = Field(default=0, description="Limit per worker in MiB; 0 means none.")
    interface: str = Field(default="", description="Network interface of workers and scheduler.")
    local_directory: str = Field(default="", description="Where workers spill to.")
    start_timeout_s: float = Field(default=120.0, description=START_TIMEOUT)


class RunningScheduler(ClusterBlock):
    """A scheduler that runs already. It is used with the workers that it has, never changed and never closed.

    Example:
        ```python
        from scalescope_blocks import RunningScheduler

        RunningScheduler(address="tcp://10.0.0.7:8786").save("shared")
        ```
    """

    _block_type_name = "Running Scheduler"
    _block_type_slug = "running-scheduler"
    _spec: ClassVar[type[ClusterSpec]] = SchedulerSpec

    address: str = Field(default="", description="Such as tls://10.0.0.7:8786.")
    scheduler_file: str = Field(
        default="", description="The file that `dask scheduler --scheduler-file` wrote instead."
    )
    tls_ca_file: str = Field(default="", description="Certificate of the authority that both sides trust.")
    tls_cert: str = Field(default="", description="File of this side's certificate.")
    tls_key: str = Field(default="", description="File of its private key.")
    start_timeout_s: float = Field(
        default=30.0, description="Seconds within which it must answer and have the workers."
    )


class CustomCluster(ClusterBlock):
    """Any cluster class that can be imported, such as those of coiled, dask-gateway or dask-cloudprovider.

    Example:
        ```python
        from scalescope_blocks import CustomCluster

        CustomCluster(
            cluster_class="dask_cloudprovider.aws:FargateCluster", arguments={"image": "daskdev/dask"}
        ).save("aws")
        ```
    """

    _block_type_name = "Custom Cluster"
    _block_type_slug = "custom-cluster"
    _spec: ClassVar[type[ClusterSpec]] = CustomSpec

    cluster_class: str = Field(description="As package.module:Class.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="What it is called with.")
    secrets: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Further arguments that nobody may read; kept encrypted, and not with results.",
    )
    start_timeout_s: float = Field(default=600.0, description=START_TIMEOUT)

    def provide(self) -> None:
        """Put the secrets into the environment of this process, which drivers inherit."""
        for name, secret in self.secrets.items():
            os.environ[_variable(name)] = secret.get_secret_value()

    def _fields(self) -> dict[str, Any]:
        return {**super()._fields(), "secrets": {name: _variable(name) for name in self.secrets}}


def _variable(argument: str) -> str:
    return f"SCALESCOPE_SECRET_{argument.upper()}"
