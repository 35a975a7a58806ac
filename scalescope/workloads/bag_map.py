"""`bag-map`: how dask.bag divides items into partitions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalescope.model.workload import Parameter, Workload
from scalescope.workloads._common import check_same, fresh, partition_parameters, partitions, require

if TYPE_CHECKING:
    from distributed import Client

NAME = "bag-map"


def run(
    client: Client,
    *,
    items: int = 100,
    seconds: float = 1.0,
    stages: int = 1,
    npartitions: int | str | None = None,
    partition_size: int | None = None,
) -> dict[str, Any]:
    """Map sleeping functions over a bag; dask fuses the stages of a partition into one task.

    Raises:
        InvalidField: Both npartitions and partition_size are given.
        WrongAnswer: An item did not go through every stage once.
    """
    db = require("dask.bag", workload=NAME, distribution="dask", extra="arrays")
    bag = db.from_sequence(range(items), **partitions(items, npartitions, partition_size))
    token = fresh()
    for _ in range(stages):
        bag = bag.map(pass_on, seconds=seconds, token=token)
    check(client.gather(client.compute(bag)), items=items, stages=stages)
    return {"items": items, "stages": stages, "partitions": bag.npartitions}


def pass_on(value: int, seconds: float, token: str) -> int:
    """One item: sleep, and count the stage. `token` makes the task's key that of this run alone."""
    time.sleep(seconds)
    return value + 1


def check(results: Sequence[int], *, items: int, stages: int) -> None:
    """Every stage adds one to every item."""
    check_same(NAME, results, range(stages, items + stages))


WORKLOAD = Workload(
    name=NAME,
    version=1,
    summary="dask.bag.from_sequence and maps that sleep: how a bag divides items into partitions.",
    run=run,
    parameters=(
        Parameter("items", 100, "Items of the bag.", "int", minimum=0),
        Parameter("seconds", 1.0, "Seconds that each item sleeps in each stage.", "float", minimum=0),
        Parameter("stages", 1, "Maps, one after another.", "int", minimum=1),
        *partition_parameters("dask's rule (one item each up to 100 items, about 100 partitions from then on)"),
    ),
    packages=("dask",),
    modelled=True,
)
