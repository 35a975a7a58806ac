"""Workloads of dask.dataframe: groups, joins, order and files."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scalescope.model.parameters import Parameter
from scalescope.workloads._common import Directory, check_close, check_same, folder_of_run, fresh, require, wrong
from scalescope.workloads.signatures import workload

if TYPE_CHECKING:
    from distributed import Client

EXTRA = "arrays"
FACTOR = 1_000_003  # a prime: multiplying row numbers by it, modulo the number of rows, permutes them
Partitions = Annotated[int, Parameter("Partitions.", minimum=1)]
Rows = Annotated[int, Parameter("Rows of each partition, of 16 bytes.", minimum=1)]
Groups = Annotated[int, Parameter("Different keys.", minimum=1)]
made = partial(workload, packages=("dask", "pandas", "pyarrow"), extra=EXTRA)


@made("dataframe-shuffle", stresses="all-to-all transfer of a data frame")
def dataframe_shuffle(
    client: Client,
    *,
    items: Partitions = 16,
    rows: Rows = 10_000,
    groups: Groups = 1_000,
    method: Annotated[Literal["p2p", "tasks"], Parameter("How dask shuffles: between workers, or in tasks.")] = "p2p",
) -> dict[str, Any]:
    """dask.dataframe shuffle by a key."""
    import dask

    with client.as_current(), dask.config.set({"dataframe.shuffle.method": method}):
        shuffled = frame(range(items), rows=rows, groups=groups).shuffle("key")
        parts = client.gather(client.compute(shuffled.map_partitions(summarise, meta=summarise(shuffled._meta))))
    check_shuffle(parts, items=items, rows=rows, groups=groups)
    return {"rows": items * rows, "partitions": len(parts)}


def frame(indices: Iterable[int], *, rows: int, groups: int) -> Any:
    for module in ("pandas", "pyarrow"):
        require(module, "arrays")
    dd = require("dask.dataframe", "arrays")
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


def check_shuffle(parts: Any, *, items: int, rows: int, groups: int) -> None:
    """Check that the parts together hold all rows, and that no key is in two parts."""
    count = items * rows
    expected = {"rows": count, "total": count * (count - 1) // 2, "keys": min(count, groups)}
    got = {name: int(parts[name].sum()) for name in expected}
    if got != expected:
        raise wrong(f"the partitions add up to {got} instead of {expected}")


@made("dataframe-groupby", stresses="partial sums in a tree")
def dataframe_groupby(
    client: Client, *, items: Partitions = 16, rows: Rows = 100_000, groups: Groups = 10
) -> dict[str, Any]:
    """Counts and sums of few groups, with dask.dataframe."""
    return _groupby(client, items, rows, groups, split_out=1)


@made("dataframe-groupby-many", stresses="a shuffle of partial results")
def dataframe_groupby_many(
    client: Client, *, items: Partitions = 16, rows: Rows = 50_000, groups: Groups = 200_000
) -> dict[str, Any]:
    """Counts and sums of many groups, with dask.dataframe."""
    return _groupby(client, items, rows, groups, split_out=items)


def _groupby(client: Client, items: int, rows: int, groups: int, split_out: int) -> dict[str, Any]:
    with client.as_current():
        data = frame(range(items), rows=rows, groups=groups)
        totals = data.groupby("key")["value"].agg(["count", "sum"], split_out=split_out)
        got = client.gather(client.compute(totals)).sort_index()
    import numpy as np

    keys = np.arange(min(groups, items * rows))
    counts = (items * rows - 1 - keys) // groups + 1
    check_same(got.index, keys)
    check_close(got["count"], counts)
    check_close(got["sum"], counts * keys + groups * counts * (counts - 1) // 2)
    return {"groups": len(got)}


@made("dataframe-join", stresses="two shuffles at once, and memory")
def dataframe_join(client: Client, *, items: Partitions = 12, rows: Rows = 50_000) -> dict[str, Any]:
    """Join of two large data frames, with dask.dataframe."""
    count = items * rows
    with client.as_current():
        left = frame(range(items), rows=rows, groups=1_000)
        joined = left.merge(frame(reversed(range(items)), rows=rows, groups=1_000), on="value", broadcast=False)
        alike = joined.assign(alike=joined["key_x"] == joined["key_y"])[["value", "alike"]].sum()
        got = client.gather(client.compute(alike))
    check_same(got, [count * (count - 1) // 2, count])
    return {"rows": count}


@made("dataframe-broadcast-join", stresses="one table that every worker needs")
def dataframe_broadcast_join(
    client: Client, *, items: Partitions = 16, rows: Rows = 100_000, groups: Groups = 1_000
) -> dict[str, Any]:
    """Join of a large and a small data frame, with dask.dataframe."""
    count = items * rows
    with client.as_current():
        large = frame(range(items), rows=rows, groups=groups)
        small = frame(range(1), rows=groups, groups=groups).rename(columns={"value": "weight"})
        got = client.gather(client.compute(large.merge(small, on="key")[["value", "weight"]].sum()))
    whole, rest = divmod(count, groups)
    check_same(got, [count * (count - 1) // 2, whole * (groups * (groups - 1) // 2) + rest * (rest - 1) // 2])
    return {"rows": count}


@made("dataframe-set-index", version=2, stresses="quantiles, a shuffle, and sorting")
def dataframe_set_index(client: Client, *, items: Partitions = 12, rows: Rows = 50_000) -> dict[str, Any]:
    """Order a data frame by a column, with dask.dataframe."""
    count = items * rows
    with client.as_current():
        data = frame(range(items), rows=rows, groups=1_000)
        ordered = data.assign(place=data["value"] * FACTOR % count).set_index("place")
        edges = ordered.map_partitions(_edges, count=count, meta=_edges(ordered._meta, count))
        parts = client.gather(client.compute(edges))
    if not parts["in_order"].all() or not parts["low"].iloc[1:].gt(parts["high"].iloc[:-1].to_numpy()).all():
        raise wrong("the rows are not in order, or differ from those put in")
    check_same(parts[["rows", "total"]].sum(), [count, count * (count - 1) // 2])
    return {"rows": count, "partitions": len(parts)}


def _edges(part: Any, count: int) -> Any:
    """Number of rows, sum, first and last entry of an ordered partition's index, and whether its order is right."""
    import pandas as pd

    low, high = (part.index[0], part.index[-1]) if len(part) else (0, 0)
    facts = {"rows": len(part), "total": int(part.index.to_numpy().sum()), "low": int(low), "high": int(high)}
    right = part.index.is_monotonic_increasing and (part["value"] * FACTOR % count == part.index).all()
    return pd.DataFrame([{**facts, "in_order": bool(right)}])


@made("csv-to-parquet", stresses="text that is read and written, and the disk")
def csv_to_parquet(
    client: Client,
    *,
    items: Annotated[int, Parameter("Files.", minimum=1)] = 16,
    rows: Annotated[int, Parameter("Rows of each file.", minimum=1)] = 20_000,
    directory: Directory = None,
) -> dict[str, Any]:
    """Write CSV files, make Parquet files of them, and read one column for some rows, with dask.dataframe."""
    count, groups = items * rows, 10
    with client.as_current(), folder_of_run(directory) as folder:
        data = frame(range(items), rows=rows, groups=groups)
        import dask.dataframe as dd

        data.to_csv(f"{folder}/*.csv", index=False)
        dd.read_csv(f"{folder}/*.csv").to_parquet(folder / "parquet")
        chosen = dd.read_parquet(folder / "parquet", filters=[("key", "==", 0)], columns=["value"])
        got = client.gather(client.compute(chosen["value"].sum()))
    members = -(-count // groups)
    check_same([got], [groups * members * (members - 1) // 2])
    return {"rows": count}
