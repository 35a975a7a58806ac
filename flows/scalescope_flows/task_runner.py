"""The workload `scalescope_flows.task_runner:run`: a Prefect flow whose tasks run on the trial's cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from prefect import flow, task
from prefect_dask import DaskTaskRunner

from scalescope.errors import WrongAnswer
from scalescope.model.parameters import Parameter
from scalescope_flows import server

if TYPE_CHECKING:
    from distributed import Client


@task
def square(number: int) -> int:
    return number * number


@flow(name="squares", log_prints=False)
def squares(items: int) -> int:
    return sum(square.map(range(items)).result())


def run(
    client: Client, *, items: Annotated[int, Parameter("Task runs of the flow.", minimum=0)] = 50
) -> dict[str, Any]:
    """A Prefect flow that maps a task over numbers with prefect-dask's DaskTaskRunner.

    If no Prefect API is configured, a temporary server is started first, and its start is measured with the flow.
    """
    server.ready()
    total = squares.with_options(task_runner=DaskTaskRunner(address=client.scheduler.address))(items)
    if total != (items - 1) * items * (2 * items - 1) // 6:
        raise WrongAnswer(f"the flow returned {total!r} as the sum of {items} squares")
    return {"items": items}
