"""`futures-map`: the simplest parallel work there is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import check_stages, pass_on
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

NAME = "futures-map"
check = partial(check_stages, NAME)


def run(
    client: Client,
    *,
    items: Annotated[int, Parameter("Futures of each stage.", minimum=0)] = 100,
    seconds: Annotated[float, Parameter("Seconds that each task sleeps.", minimum=0)] = 1.0,
    stages: Annotated[
        int, Parameter("Stages; each is one task per item, after that of the stage before.", minimum=1)
    ] = 1,
) -> dict[str, Any]:
    """Client.map of a sleep over items, in one or more stages."""
    futures: Sequence[Any] = range(items)
    for stage in range(1, stages + 1):
        futures = client.map(pass_on, futures, seconds=seconds, key=f"stage{stage}", pure=False)
    check(client.gather(futures), items=items, stages=stages)
    return {"items": items, "stages": stages}


WORKLOAD = workload(NAME, stresses="what the scheduler itself can do", packages=("dask",), modelled=True)(run)
