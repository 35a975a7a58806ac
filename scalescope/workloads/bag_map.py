"""`bag-map`: how dask.bag divides items into partitions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import PartitionSize, check_stages, fresh, partitions, pass_on, require
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

NAME = "bag-map"
RULE = "one item each up to 100 items, about 100 partitions from then on"
check = partial(check_stages, NAME)


def run(
    client: Client,
    *,
    items: Annotated[int, Parameter("Items of the bag.", minimum=0)] = 100,
    seconds: Annotated[float, Parameter("Seconds that each item sleeps in each stage.", minimum=0)] = 1.0,
    stages: Annotated[int, Parameter("Maps, one after another.", minimum=1)] = 1,
    npartitions: Annotated[
        int | Literal["items"] | None,
        Parameter(f"Partitions, or 'items' for one per item; null takes dask's rule ({RULE}).", minimum=1),
    ] = None,
    partition_size: PartitionSize = None,
) -> dict[str, Any]:
    """dask.bag.from_sequence and maps that sleep."""
    db = require("dask.bag", workload=NAME, extra="")
    bag = db.from_sequence(range(items), **partitions(items, npartitions, partition_size))
    token = fresh()
    for _ in range(stages):
        bag = bag.map(pass_on, seconds=seconds, token=token)
    check(client.gather(client.compute(bag)), items=items, stages=stages)
    return {"items": items, "stages": stages, "partitions": bag.npartitions}


WORKLOAD = workload(NAME, stresses="how a bag divides items into partitions", packages=("dask",), modelled=True)(run)
