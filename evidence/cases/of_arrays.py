"""Workloads of users of `dask.array` and `dask.dataframe`, collected without the rules at hand."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from declare import case, remedy


@case("sequential-graph", 12, near="narrow-stage results-awaited-in-loop straggler")
@remedy("an asterisk in the name: a file for each partition", files="many")
def partitions_appended_to_one_csv(client, partitions: int = 36, files: str = "one"):
    """Make dd.to_csv accept name_function and asterisk in filename (each partition is linked to the one before it),
    dask/dask#1303.
    """

    def read(i):
        time.sleep(2)
        return pd.DataFrame({"x": [i]})

    def to_csv(part, after=None):
        time.sleep(1)
        return len(part)

    df = dd.from_map(read, range(partitions), meta=pd.DataFrame({"x": [0]}))
    if files == "many":
        dask.compute([delayed(to_csv)(part) for part in df.to_delayed()])
        return
    link = None
    for part in df.to_delayed():
        link = delayed(to_csv)(part, link)
    link.compute()


@case("healthy", 10, threads=2, near="tiny-tasks transfer-bound sequential-graph data-locality")
def sliding_mean_with_overlap(client, chunks: int = 120, seconds: float = 3.0):
    """Dask documentation, Overlapping Computations (a sliding mean):
    https://docs.dask.org/en/latest/array-overlap.html.
    """

    def sliding_mean(x):
        if x.size:
            time.sleep(seconds)
        return (x + np.roll(x, 1) + np.roll(x, -1)) / 3

    x = da.zeros(chunks * 100, chunks=100)
    smooth = x.map_overlap(sliding_mean, depth=1, boundary="none", dtype=float, meta=np.empty(0))
    smooth.sum().compute()


@case("retried-tasks", 4, "light", near="skewed-tasks recomputation worker-died")
@remedy("try the write again within the task, after a pause", backoff=True)
def partitions_denied_by_the_store(client, backoff: bool = False, partitions: int = 24, seconds: float = 1.5):
    """Exponential backoff on reading and writing (with retries= of Dask, the whole of a partition is done again),
    fsspec/s3fs#237.
    """
    with tempfile.TemporaryDirectory() as folder:

        def put(i):
            time.sleep(0.1)
            denied = Path(folder, f"{i}.denied")
            times = int(denied.read_text()) if denied.exists() else 0
            if i % 4 and times < 2:
                denied.write_text(str(times + 1))
                raise PermissionError("Access Denied")
            return i

        def read_and_write(i):
            time.sleep(seconds)
            while True:
                try:
                    return put(i)
                except PermissionError:
                    if not backoff:
                        raise
                    time.sleep(0.2)

        parts = [delayed(read_and_write)(i) for i in range(partitions)]
        client.gather(client.compute(parts, retries=10))
