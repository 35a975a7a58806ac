"""`futures-map`: the simplest parallel work there is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalescope.model.workload import Parameter, Workload
from scalescope.workloads._common import check_same

if TYPE_CHECKING:
    from distributed import Client

NAME = "futures-map"


def run(client: Client, *, items: int = 100, seconds: float = 1.0, stages: int = 1) -> dict[str, Any]:
    """Map sleeping functions over items, every stage over the futures of the one before.

    Raises:
        WrongAnswer: An item did not go through every stage once.
    """
    futures: Sequence[Any] = range(items)
    for stage in range(1, stages + 1):
        futures = client.map(pass_on, futures, seconds=seconds, key=f"stage{stage}", pure=False)
    check(client.gather(futures), items=items, stages=stages)
    return {"items": items, "stages": stages}


def pass_on(value: int, seconds: float) -> int:
    """One task: sleep, and count the stage."""
    time.sleep(seconds)
    return value + 1


def check(results: Sequence[int], *, items: int, stages: int) -> None:
    """Every stage adds one to every item."""
    check_same(NAME, results, range(stages, items + stages))


WORKLOAD = Workload(
    name=NAME,
    version=1,
    summary="Client.map of a sleep over items, in one or more stages: what the scheduler itself can do.",
    run=run,
    parameters=(
        Parameter("items", 100, "Futures of each stage.", "int", minimum=0),
        Parameter("seconds", 1.0, "Seconds that each task sleeps.", "float", minimum=0),
        Parameter("stages", 1, "Stages; each is one task per item, after that of the stage before.", "int", minimum=1),
    ),
    packages=("dask",),
    modelled=True,
)
