"""`beam-pardo`: how Apache Beam's Dask runner divides elements among workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from scalescope.model.workload import Parameter, Workload
from scalescope.workloads._beam import beam_partition_parameters, run_pipeline
from scalescope.workloads._common import check_same, fresh, partitions

if TYPE_CHECKING:
    from distributed import Client

NAME = "beam-pardo"


def run(
    client: Client,
    *,
    items: int = 100,
    seconds: float = 10.0,
    stages: int = 3,
    npartitions: int | str | None = None,
    partition_size: int | None = None,
) -> dict[str, Any]:
    """Create elements and let each sleep in every stage (apache/beam#26669).

    Raises:
        UsageError: Beam is missing, or too old for a partition option; both partition options are given.
        WrongAnswer: An item did not go through every stage once.
    """
    chosen = partitions(items, npartitions, partition_size)

    def build(beam: Any, pipeline: Any) -> None:
        from scalescope.workloads._beam_dofns import Sleep

        token = fresh()
        collection = pipeline | "create" >> beam.Create([(item, 0) for item in range(items)])
        for stage in range(1, stages + 1):
            collection = collection | f"stage {stage}" >> beam.ParDo(Sleep(seconds, token))

    results = run_pipeline(client, build, workload=NAME, partitions=chosen)
    check(results, items=items, stages=stages)
    return {"items": items, "stages": stages}


def check(results: Iterable[tuple[int, int]], *, items: int, stages: int) -> None:
    """Every item came out once, with every stage counted; Beam promises no order."""
    check_same(NAME, sorted(tuple(result) for result in results), [(item, stages) for item in range(items)])


WORKLOAD = Workload(
    name=NAME,
    version=1,
    summary="Apache Beam on Dask: Create and ParDo stages that sleep, as in apache/beam#26669.",
    run=run,
    parameters=(
        Parameter("items", 100, "Elements of the pipeline.", "int", minimum=0),
        Parameter("seconds", 10.0, "Seconds that each element sleeps in each stage.", "float", minimum=0),
        Parameter("stages", 3, "ParDo stages, one after another.", "int", minimum=1),
        *beam_partition_parameters(),
    ),
    packages=("apache-beam", "dask"),
    modelled=True,
)
