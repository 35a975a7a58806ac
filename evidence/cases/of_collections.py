"""Workloads written with `dask.bag`, `dask.dataframe`, `dask.array` and `dask.delayed`."""

from __future__ import annotations

import time

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
