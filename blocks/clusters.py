"""Where a workload runs, as blocks: one for each specification in `scalescope.model.cluster`, with its fields."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, model_validator

from scalescope.errors import InvalidField
from scalescope.model.cluster import ClusterSpec, LocalSpec, SimulatedSpec, VirtualSpec, cluster_spec

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
        from blocks import SimulatedCluster

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
        from blocks import VirtualCluster

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
        from blocks import LocalCluster

        LocalCluster(memory_limit_mb=2048).save("two-gib")
        ```
    """

    _block_type_name = "Local Cluster"
    _block_type_slug = "local-cluster"
    _spec: ClassVar[type[ClusterSpec]] = LocalSpec

    memory_limit_mb: int = Field(default=0, description="Limit per worker in MiB; 0 means none.")
    start_timeout_s: float = Field(default=120.0, description=START_TIMEOUT)
