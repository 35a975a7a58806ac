"""`dataframe-shuffle`: every worker sends something to every other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import fresh, require, wrong
from scalescope.workloads.signatures import workload

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
    """dask.dataframe shuffle by a key."""
    import dask

    with client.as_current(), dask.config.set({"dataframe.shuffle.method": method}):
        shuffled = frame(NAME, range(items), rows=rows, groups=groups).shuffle("key")
        summary = shuffled.map_partitions(summarise, meta=summarise(shuffled._meta))
        parts = client.gather(client.compute(summary))
    check(parts, items=items, rows=rows, groups=groups)
    return {"rows": items * rows, "partitions": len(parts)}


def frame(workload: str, indices: Iterable[int], *, rows: int, groups: int) -> Any:
    for module in ("pandas", "pyarrow"):
        require(module, workload=workload, extra="arrays")
    dd = require("dask.dataframe", workload=workload, extra="arrays")
    empty = partition(0, rows=0, groups=groups, token_of_run="")
    return dd.from_map(partition, list(indices), meta=empty, rows=rows, groups=groups, token_of_run=fresh())


def partition(index: int, *, rows: int, groups: int, token_of_run: str) -> Any:
    """Numbered rows; the key is the number modulo `groups`. `token_of_run` keeps task keys apart from other runs."""
    import numpy as np
    import pandas as pd

    number = np.arange(index * rows, (index + 1) * rows, dtype=np.int64)
    return pd.DataFrame({"key": number % groups, "value": number})


def summarise(frame: Any) -> Any:
    """Rows, sum of values and number of keys of a shuffled partition, as one row."""
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


WORKLOAD = workload(
    NAME, stresses="all-to-all transfer of a data frame", packages=("dask", "pandas", "pyarrow"), extra="arrays"
)(run)
