"""`dataframe-shuffle`: every worker sends something to every other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scalescope.model.parameters import Parameter
from scalescope.model.workload import Workload
from scalescope.workloads import signatures
from scalescope.workloads._common import fresh, require, wrong

if TYPE_CHECKING:
    from distributed import Client

NAME = "dataframe-shuffle"


def run(
    client: Client,
    *,
    items: Annotated[int, Parameter("Partitions.", minimum=1)] = 16,
    rows: Annotated[int, Parameter("Rows of each partition, of 16 bytes.", minimum=1)] = 10_000,
    groups: Annotated[int, Parameter("Different keys.", minimum=1)] = 1_000,
    method: Annotated[Literal["p2p", "tasks"], Parameter("How dask shuffles: between workers, or in tasks.")] = "p2p",
) -> dict[str, Any]:
    """Shuffle a data frame by a key, and sum up each partition.

    Raises:
        WrongAnswer: Rows were lost or doubled, a value changed, or rows of one key are in two partitions.
    """
    import dask

    with client.as_current(), dask.config.set({"dataframe.shuffle.method": method}):
        shuffled = frame(NAME, range(items), rows=rows, groups=groups).shuffle("key")
        summary = shuffled.map_partitions(summarise, meta=summarise(shuffled._meta))
        parts = client.gather(client.compute(summary))
    check(parts, items=items, rows=rows, groups=groups)
    return {"rows": items * rows, "partitions": len(parts)}


def frame(workload: str, indices: Iterable[int], *, rows: int, groups: int) -> Any:
    """A data frame of such partitions, in dask."""
    for module in ("pandas", "pyarrow"):
        require(module, workload=workload, extra="arrays")
    dd = require("dask.dataframe", workload=workload, extra="arrays")
    empty = partition(0, rows=0, groups=groups, token_of_run="")
    return dd.from_map(partition, list(indices), meta=empty, rows=rows, groups=groups, token_of_run=fresh())


def partition(index: int, *, rows: int, groups: int, token_of_run: str) -> Any:
    """One partition before the shuffle: rows are numbered throughout, the key is the number modulo `groups`.

    `token_of_run` makes the task's key that of this run alone.
    """
    import numpy as np
    import pandas as pd

    number = np.arange(index * rows, (index + 1) * rows, dtype=np.int64)
    return pd.DataFrame({"key": number % groups, "value": number})


def summarise(frame: Any) -> Any:
    """One row of a partition after the shuffle: its rows, the sum of its values, its different keys."""
    import pandas as pd

    return pd.DataFrame(
        {"rows": [len(frame)], "total": [int(frame["value"].sum())], "keys": [int(frame["key"].nunique())]}
    )


def check(parts: Any, *, items: int, rows: int, groups: int) -> None:
    """The parts add up to the numbers from 0, and no key is in two of them."""
    count = items * rows
    expected = {"rows": count, "total": count * (count - 1) // 2, "keys": min(count, groups)}
    got = {name: int(parts[name].sum()) for name in expected}
    if got != expected:
        raise wrong(NAME, f"the partitions add up to {got} instead of {expected}")


WORKLOAD = Workload(
    name=NAME,
    version=1,
    summary="dask.dataframe shuffle by a key.",
    stresses="all-to-all transfer of a data frame",
    run=run,
    parameters=signatures.parameters(NAME, run),
    packages=("dask", "pandas", "pyarrow"),
    extra="arrays",
)
