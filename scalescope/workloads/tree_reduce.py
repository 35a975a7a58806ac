"""`tree-reduce`: parallel leaves, then ever fewer tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import wrong
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

NAME = "tree-reduce"


def run(
    client: Client,
    *,
    items: Annotated[int, Parameter("Leaves.", minimum=1)] = 100,
    seconds: Annotated[float, Parameter("Seconds that each leaf sleeps.", minimum=0)] = 1.0,
    split_every: Annotated[int, Parameter("Results that one reduction takes in.", minimum=2)] = 8,
    reduce_seconds: Annotated[float, Parameter("Seconds that each reduction sleeps.", minimum=0)] = 0.1,
) -> dict[str, Any]:
    """Sleeping leaves and a tree of reductions."""
    level = client.map(leaf, range(items), seconds=seconds, key="leaf", pure=False)
    depth = 0
    while len(level) > 1:
        depth += 1
        groups = [level[start : start + split_every] for start in range(0, len(level), split_every)]
        level = client.map(reduce, groups, seconds=reduce_seconds, key=f"reduce{depth}", pure=False)
    check(client.gather(level[0]), items=items)
    return {"items": items, "depth": depth}


def leaf(value: int, seconds: float) -> int:
    time.sleep(seconds)
    return value


def reduce(values: Sequence[int], seconds: float) -> int:
    time.sleep(seconds)
    return sum(values)


def check(result: int, *, items: int) -> None:
    expected = items * (items - 1) // 2
    if result != expected:
        raise wrong(NAME, f"the sum is {result!r} instead of {expected}")


WORKLOAD = workload(NAME, stresses="the narrow end of a graph", packages=("dask",), modelled=True)(run)
