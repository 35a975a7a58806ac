"""Workloads written with `dask.bag`, `dask.dataframe` and `dask.array`."""

from __future__ import annotations

import gzip
import tempfile
import time
from pathlib import Path

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from declare import case, remedy


@case("too-few-partitions", 300, near="fewer-items-than-workers uneven-waves")
@remedy("npartitions=300", npartitions=300)
def bag_of_300(client, items: int = 300, npartitions: int = 0):
    """Dask Bag limits parallelism when scaling beyond 100-200 workers, dask/dask#10291."""

    def work(i):
        time.sleep(10)
        return i

    db.from_sequence(range(items), npartitions=npartitions or None).map(work).compute()


@case("healthy", 100, near="too-few-partitions fewer-items-than-workers")
def bag_of_199(client, items: int = 199):
    """Dask Bag limits parallelism (199 items), dask/dask#10291."""

    def work(i):
        time.sleep(10)
        return i

    db.from_sequence(range(items)).map(work).compute()


@case("too-few-partitions", 8, near="sequential-graph")
@remedy("as many files as workers", files=8)
def bag_of_a_gzip_file(client, files: int = 1, lines: int = 64):
    """Cannot do chunked reads on compressed files (blocksize=None makes one partition), dask/dask#7758."""

    def analyse(fields):
        time.sleep(0.5)
        return len(fields)

    with tempfile.TemporaryDirectory() as folder:
        for f in range(files):
            text = "".join(f"{i}\ta\tb\n" for i in range(f, lines, files))
            Path(folder, f"{f}.gz").write_bytes(gzip.compress(text.encode()))
        bag = db.read_text(f"{folder}/*.gz", blocksize=None).str.strip().str.split("\t")
        bag.map(analyse).compute()


@case("too-few-partitions", 4, "light", near="sequential-graph fewer-items-than-workers")
@remedy("row groups, and split_row_groups", row_group=5_000)
def parquet_of_one_row_group(client, row_group: int = 40_000):
    """Support chunksize parameter for read_parquet with a single file (npartitions is 1), dask/dask#5624."""

    def predict(part):
        time.sleep(len(part) * 1e-4)
        return part

    with tempfile.TemporaryDirectory() as folder:
        frame = pd.DataFrame({"a": range(40_000), "b": range(40_000)})
        frame.to_parquet(f"{folder}/out.parquet", row_group_size=row_group)
        df = dd.read_parquet(f"{folder}/out.parquet", split_row_groups=True)
        len(df.map_partitions(predict, meta=df._meta).compute())


@case("too-few-partitions", 16, near="uneven-waves straggler")
@remedy("npartitions: several times the cores", npartitions=64)
def frame_of_five_partitions(client, npartitions: int = 5):
    """What is the role of npartitions in a Dask dataframe?, www.pythond.com/18362 (in Spanish)."""

    def feature(part):
        time.sleep(len(part) * 1e-3)
        return part

    df = dd.from_pandas(pd.DataFrame({"x": range(64_000)}), npartitions=npartitions)
    df.map_partitions(feature, meta=df._meta).x.sum().compute()


@case(("narrow-stage", "too-few-partitions"), 8, near="sequential-graph straggler")
@remedy("split_out=8", split_out=8)
def groupby_into_one_partition(client, split_out: int = 1):
    """Regular KilledWorker exception with dask dataframes (a groupby puts its result into one partition),
    dask/distributed#5611."""

    def load(i):
        time.sleep(1)
        return pd.DataFrame({"key": np.arange(800), "value": float(i)})

    def model(part):
        time.sleep(len(part) * 0.02)
        return part

    df = dd.from_map(load, range(16), meta=pd.DataFrame({"key": [0], "value": [0.0]}))
    means = df.groupby("key").value.mean(split_out=split_out)
    means.map_partitions(model, meta=means._meta).compute()


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


@case("healthy", 10, near="sequential-graph narrow-stage")
def mean_of_many_partitions(client, parts: int = 120):
    """Change split_every=False default for DataFrame reductions like mean?, dask/dask#9450."""

    def load(i):
        time.sleep(1)
        return pd.DataFrame({"value": [float(i)]})

    dd.from_map(load, range(parts), meta=pd.DataFrame({"value": [0.0]})).value.mean().compute()


@case("healthy", 10, threads=2, near="tiny-tasks uneven-waves")
def array_of_right_chunks(client, chunks: int = 200):
    """Dask documentation, Array Best Practices (select a good chunk size):
    https://docs.dask.org/en/stable/array-best-practices.html."""

    def block(x):
        time.sleep(1)
        return x + 1

    da.zeros(chunks * 100, chunks=100).map_blocks(block, dtype=float).sum().compute()


@case(("tiny-tasks", "large-graph"), 2, "local", threads=2, near="gil-bound slow-submission")
@remedy("larger chunks", chunk=1_000)
def array_of_tiny_chunks(client, chunk: int = 40):
    """Dask documentation, Array Best Practices (select a good chunk size):
    https://docs.dask.org/en/stable/array-best-practices.html."""
    x = da.ones((2_000, 2_000), chunks=(chunk, chunk))
    (x + 1).sum().compute()


@case("skewed-tasks", 8, near="straggler uneven-waves", factor=1.3)
@remedy("parts of equal numbers of rows", rows_at_once=200)
def days_of_different_size(client, rows_at_once: int = 0):
    """Analyze web-hosted JSON data (a file per day):
    https://examples.dask.org/applications/json-data-on-the-web.html."""
    rows = [200 * (1 + (day * 7) % 5) ** 2 for day in range(20)]
    if rows_at_once:
        rows = [rows_at_once] * (sum(rows) // rows_at_once)

    def parse(count):
        time.sleep(count * 0.005)
        return count

    db.from_sequence(rows, npartitions=len(rows)).map(parse).sum().compute()


@case(("skewed-tasks", "straggler"), 6, "light", near="slow-worker uneven-waves")
@remedy("cut large groups", cut=20)
def apply_to_groups(client, cut: int = 0):
    """Npartitions with Groupby and Apply (groups of any size), dask/dask#967."""
    sizes = [60, 50, 12, 12, 10, 10, 10, 8, 8, 8, 6, 6]
    if cut:
        sizes = [cut] * (sum(sizes) // cut)

    def test_func(n):
        time.sleep(n * 0.05)
        return n

    db.from_sequence(sizes, npartitions=len(sizes)).map(test_func).compute()


@case("recomputation", 4, "light", near="results-awaited-in-loop")
@remedy("persist what was read", persist=True)
def prints_along_the_way(client, persist: bool = False):
    """Post-mortem: why an easy workflow was horribly non-performant, dask/community#301 (prints)."""

    def read(i):
        time.sleep(1.5)
        return pd.DataFrame({"x": [i], "y": [i % 3]})

    df = dd.from_map(read, range(8), meta=pd.DataFrame({"x": [0], "y": [0]}))
    if persist:
        df = df.persist()
    print(len(df))
    print(df.x.isna().sum().compute())
    df = df[df.y > 0]
    print(len(df))
    return {"sum": int(df.x.sum().compute())}


@case("recomputation", 8, near="sequential-graph")
@remedy("persist the parts first", persist=True)
def divisions_read_everything(client, persist: bool = False):
    """Dask seems to re-compute delayed calls after calculating divisions (from_delayed, then sort_values),
    dask/dask#8709."""

    def read(i):
        time.sleep(4)
        return pd.DataFrame({"name": np.arange(50) * 7 % 50, "x": float(i)})

    df = dd.from_map(read, range(16), meta=pd.DataFrame({"name": [0], "x": [0.0]}))
    if persist:
        df = df.persist()
    df = df.sort_values("name")
    df["z"] = df["x"] + 1
    return {"rows": len(df)}


@case("recomputation", 6, near="results-awaited-in-loop")
@remedy("one compute of both, unoptimised", twice=False)
def written_and_kept(client, twice: bool = True):
    """to_parquet(compute=False) returns optimized graph (foo and bar are executed twice), dask/dask#5814."""
    import dask

    @dask.delayed
    def foo(i):
        time.sleep(2)
        return i

    @dask.delayed
    def write(x):
        time.sleep(0.2)

    parts = [foo(i) for i in range(12)]
    if twice:
        client.gather(client.compute([write(part) for part in parts]))
        client.gather(client.compute(parts))
    else:
        client.gather(client.compute([write(part) for part in parts] + parts))


@case("healthy", 6, "light", near="recomputation results-awaited-in-loop")
def queries_of_persisted_data(client, parts: int = 24):
    """Storing Dask DataFrames in Memory with persist: https://www.coiled.io/blog/dask-persist-dataframe."""

    def read(i):
        time.sleep(1)
        return pd.DataFrame({"id": [i], "v": [float(i)]})

    persisted = dd.from_map(read, range(parts), meta=pd.DataFrame({"id": [0], "v": [0.0]})).persist()
    len(persisted)
    persisted.v.mean().compute()
