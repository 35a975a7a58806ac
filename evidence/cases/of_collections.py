"""Workloads written with `dask.bag`, `dask.dataframe`, `dask.array` and `dask.delayed`."""

from __future__ import annotations

import time

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from declare import case, remedy


@case(("narrow-stage", "too-few-partitions"), 12, near="sequential-graph")
@remedy("split_out=12", split_out=12)
def duplicates_into_one_partition(client, split_out: int = 1):
    """Aggregations with multiple outputs (drop_duplicates ends with a single partition), dask/dask#1796."""

    def load(i):
        time.sleep(2)
        return pd.DataFrame({"user": np.arange(i % 2, 600, 2)})

    def clean(part):
        time.sleep(len(part) * 0.02)
        return part

    df = dd.from_map(load, range(24), meta=pd.DataFrame({"user": [0]}))
    users = df.drop_duplicates(split_out=split_out)
    users.map_partitions(clean, meta=users._meta).compute()


@case("healthy", 10, threads=2, near="tiny-tasks uneven-waves")
def array_of_right_chunks(client, chunks: int = 200):
    """Dask documentation, Array Best Practices (select a good chunk size):
    https://docs.dask.org/en/stable/array-best-practices.html.
    """

    def block(x):
        time.sleep(1)
        return x + 1

    da.zeros(chunks * 100, chunks=100).map_blocks(block, dtype=float).sum().compute()


@case("skewed-tasks", 8, near="straggler uneven-waves", factor=1.3)
@remedy("parts of equal numbers of rows", rows_at_once=200)
def days_of_different_size(client, rows_at_once: int = 0):
    """Analyze web-hosted JSON data (a file per day):
    https://examples.dask.org/applications/json-data-on-the-web.html.
    """
    rows = [200 * (1 + (day * 7) % 5) ** 2 for day in range(20)]
    if rows_at_once:
        rows = [rows_at_once] * (sum(rows) // rows_at_once)

    def parse(count):
        time.sleep(count * 0.005)
        return count

    db.from_sequence(rows, npartitions=len(rows)).map(parse).sum().compute()


@case("recomputation", 8, near="sequential-graph")
@remedy("persist the parts first", persist=True)
def divisions_read_everything(client, persist: bool = False):
    """Dask seems to re-compute delayed calls after calculating divisions (from_delayed, then sort_values),
    dask/dask#8709.
    """

    def read(i):
        time.sleep(4)
        return pd.DataFrame({"name": np.arange(50) * 7 % 50, "x": float(i)})

    df = dd.from_map(read, range(16), meta=pd.DataFrame({"name": [0], "x": [0.0]}))
    if persist:
        df = df.persist()
    df = df.sort_values("name")
    df["z"] = df["x"] + 1
    return {"rows": len(df)}


@case("uneven-waves", 5, near="sequential-graph straggler", factor=1.2)
@remedy("as many tasks as the threads divide", items=10)
def eight_increments_on_five(client, items: int = 8):
    """Parallelize code with dask.delayed, github.com/JDASoftwareGroup/gridka2019-dask-workshop (why didn't we go
    down to 1 s?, asked of 5 workers).
    """

    @delayed
    def inc(x):
        time.sleep(8 / items)
        return x + 1

    delayed(sum)([inc(x) for x in range(items)]).compute()


@case("straggler", 300, near="uneven-waves")
@remedy("the long one first", long_first=True)
def eight_thousand_series(client, series: int = 1190, long_first: bool = False):
    """Dask really slow towards the end of the job, dask/distributed#2835."""

    def run_prophet(i):
        time.sleep(40.0 if i == series - 1 else 10.0)
        return i

    x = [delayed(run_prophet)(i) for i in range(series)]
    first = [client.compute(x.pop(), priority=10)] if long_first else []
    client.gather([*first, *client.compute(x, retries=10)])
