"""`beam-pardo` shows how Apache Beam's Dask runner divides elements among workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.workloads._beam import BeamPartitions, run_pipeline
from scalescope.workloads._common import PartitionSize, check_same, fresh, partitions
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client


@workload(
    "beam-pardo",
    stresses="how Beam divides elements into partitions",
    packages=("apache-beam", "dask"),
    extra="beam",
    modelled=True,
)
def beam_pardo(
    client: Client,
    *,
    items: Annotated[int, Parameter("Elements of the pipeline.", minimum=0)] = 100,
    seconds: Annotated[float, Parameter("Seconds that each element sleeps in each stage.", minimum=0)] = 10.0,
    stages: Annotated[int, Parameter("ParDo stages, one after another.", minimum=1)] = 3,
    npartitions: BeamPartitions = None,
    partition_size: PartitionSize = None,
) -> dict[str, Any]:
    """Apache Beam on Dask: Create and ParDo stages that sleep, as in apache/beam#26669."""
    chosen = partitions(items, npartitions, partition_size)

    def build(beam: Any, pipeline: Any) -> None:
        from scalescope.workloads._beam_dofns import Sleep

        token = fresh()
        collection = pipeline | "create" >> beam.Create([(item, 0) for item in range(items)])
        for stage in range(1, stages + 1):
            collection = collection | f"stage {stage}" >> beam.ParDo(Sleep(seconds, token))

    check(run_pipeline(client, build, chosen), items=items, stages=stages)
    return {"items": items, "stages": stages}


def check(results: Iterable[tuple[int, int]], *, items: int, stages: int) -> None:
    """Check that every item came out once, after all stages, in any order."""
    check_same(sorted(tuple(result) for result in results), [(item, stages) for item in range(items)])
