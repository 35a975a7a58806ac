"""Workloads of users of `dask.array` and `dask.dataframe`, collected without the rules at hand."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from declare import case, mends, remedy
from distributed import worker_client


@case("sequential-graph", 12, near="narrow-stage results-awaited-in-loop straggler")
@remedy("an asterisk in the name: a file for each partition", files="many")
def partitions_appended_to_one_csv(client, partitions: int = 36, files: str = "one"):
    """make dd.to_csv accept name_function and asterisk in filename (each partition is linked to the one before it),
    dask/dask#1303."""

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


@case("recomputation", 8, near="results-awaited-in-loop client-busy sequential-graph")
@remedy("save with compute=False, then compute all at once", together=True)
def products_saved_one_by_one(client, products: int = 4, segments: int = 24, together: bool = False):
    """Layz dask working extra just for fun? (save_dataset for each product computes the longitudes every time),
    pytroll/satpy#2434."""

    @delayed
    def get_lonlats(segment):
        time.sleep(2)
        return np.ones((10, 10))

    @delayed
    def read_channel(product, segment):
        time.sleep(0.5)
        return np.ones((10, 10))

    def enhance(channel, lonlats):
        time.sleep(0.5)
        return channel * lonlats

    def array(parts):
        return da.concatenate([da.from_delayed(part, (10, 10), dtype=float, meta=np.empty((0, 0))) for part in parts])

    lonlats = array([get_lonlats(segment) for segment in range(segments)])
    saved = []
    for product in range(products):
        channel = array([read_channel(product, segment) for segment in range(segments)])
        image = da.map_blocks(enhance, channel, lonlats, dtype=float, meta=np.empty((0, 0)))
        if together:
            saved.append(image.max())
        else:
            image.max().compute()
    dask.compute(saved)


@case("client-busy", 12, near="healthy slow-submission large-graph late-workers")
@remedy("name=False", hashed=False)
def arrays_hashed_one_by_one(client, files: int = 60, hashed: bool = True):
    """Fix Dask tokenisation performance issues by not hashing (all of the time is spent in it), DKISTDC/dkist#361."""

    class FileLoader:
        shape = (10,)
        ndim = 1
        dtype = np.dtype(float)

        def __init__(self, file):
            self.file = file

        def __dask_tokenize__(self):
            time.sleep(0.25)
            return "loader", self.file

        def __getitem__(self, item):
            time.sleep(2)
            return np.ones(10)[item]

    arrays = []
    for file in range(files):
        name = None if hashed else False
        arrays.append(da.from_array(FileLoader(file), chunks=10, name=name, meta=np.empty(0)))
    return {"mean": float(da.stack(arrays).mean().compute())}


@case("nested-client", 8, near="straggler too-few-partitions undersubscribed-threads")
@remedy("secede: worker_client() with a separate thread", separate_thread=True)
def flow_that_computes_in_its_tasks(
    client, tasks: int = 6, partitions: int = 8, seconds: float = 2.0, separate_thread: bool = False
):
    """Add get_dask_client (worker_client with separate_thread=False, for collections within tasks of a flow),
    prefect-archive/prefect-dask#33."""

    def timeseries(i):
        time.sleep(seconds)
        return pd.DataFrame({"x": [float(i)]})

    def calling_compute_in_a_task(task):
        with worker_client(separate_thread=separate_thread) as client:
            parts = range(task * partitions, (task + 1) * partitions)
            df = dd.from_map(timeseries, parts, meta=pd.DataFrame({"x": [0.0]}))
            return client.compute(df.x.mean()).result()

    client.gather(client.map(calling_compute_in_a_task, range(tasks), pure=False))


@case("healthy", 10, threads=2, near="tiny-tasks transfer-bound sequential-graph data-locality")
def sliding_mean_with_overlap(client, chunks: int = 120, seconds: float = 3.0):
    """Dask documentation, Overlapping Computations (a sliding mean):
    https://docs.dask.org/en/latest/array-overlap.html."""

    def sliding_mean(x):
        if x.size:
            time.sleep(seconds)
        return (x + np.roll(x, 1) + np.roll(x, -1)) / 3

    x = da.zeros(chunks * 100, chunks=100)
    smooth = x.map_overlap(sliding_mean, depth=1, boundary="none", dtype=float, meta=np.empty(0))
    smooth.sum().compute()


@case("healthy", 8, "light", near="data-locality transfer-bound large-graph narrow-stage")
def large_table_joined_with_a_small_one(client, partitions: int = 16, seconds: float = 3.0):
    """Dask documentation, Joins (large to small): https://docs.dask.org/en/latest/dataframe-joins.html."""

    def read(i):
        time.sleep(seconds)
        return pd.DataFrame({"id": np.arange(20), "value": float(i)})

    large = dd.from_map(read, range(partitions), meta=pd.DataFrame({"id": [0], "value": [0.0]}))
    small = pd.DataFrame({"id": np.arange(20), "name": np.arange(20) % 4})
    large.merge(small, on="id").groupby("name").value.sum().compute()


@case("retried-tasks", 4, "light", near="skewed-tasks recomputation worker-died")
@remedy("try the write again within the task, after a pause", backoff=True)
def partitions_denied_by_the_store(client, backoff: bool = False, partitions: int = 24, seconds: float = 1.5):
    """Exponential backoff on reading and writing (with retries= of Dask, the whole of a partition is done again),
    fsspec/s3fs#237."""
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


@case("results-awaited-in-loop", 8, "light", near="client-busy too-few-partitions sequential-graph slow-submission")
@remedy("prefetch: ask for the next batches before the first is used", prefetch=True)
def batches_fetched_when_needed(client, batches: int = 10, arrays: int = 4, prefetch: bool = False):
    """Overlapping computations, prefetching like Tensorflow dataset pipeline? (batches of a stacked array for
    Keras), dask/dask#5602."""

    def load(block):
        if block.size:
            time.sleep(1)
        return block

    def fit(batch):
        time.sleep(0.3)
        return batch.shape

    size = 100
    columns = [
        da.full(batches * size, i, chunks=size, dtype=float).map_blocks(load, dtype=float, meta=np.empty(0))
        for i in range(arrays)
    ]
    data = da.stack(columns, axis=1)
    if prefetch:
        for future in client.compute([data[b * size : (b + 1) * size] for b in range(batches)]):
            fit(future.result())
    else:
        for b in range(batches):
            fit(dask.compute(data[b * size : (b + 1) * size])[0])


def parsed(records):
    lines = "".join(f"<record id='{i}'>text {i}</record>" for i in range(records))
    return ElementTree.fromstring(f"<records>{lines}</records>")


@case("gil-bound", 1, "local", threads=2, near="undersubscribed-threads host-overloaded oversubscribed-threads healthy")
@remedy("processes instead of threads", workers=2, threads=1)
def slow_function_applied(client, rows: int = 320, loops: int = 80_000, npartitions: int = 16):
    """Options to run pandas DataFrame.apply in parallel (a slow function of pure Python, with threads):
    https://www.wrighters.io/options-to-run-pandas-dataframe-apply-in-parallel/."""

    def slow_function(start):
        res = 0.0
        for i in range(int(loops * start)):
            res += math.atan(i) * math.atan(i)
        return res

    frame = pd.DataFrame({"start": np.linspace(0.9, 1.1, rows)})
    df = dd.from_pandas(frame, npartitions=npartitions, sort=False)
    df["start"].apply(slow_function, meta=("start", "f8")).sum().compute()


@case("tiny-tasks", 2, "local", threads=2, near="gil-bound slow-submission large-graph client-busy event-loop-blocked")
@remedy("fewer and larger files", files=20)
def many_small_files(client, files: int = 400, rows: int = 40_000):
    """Repartitioning Dask DataFrames (the small file problem: 18 times slower):
    https://coiled.io/blog/repartition-dataframe/."""

    def read(file):
        return pd.DataFrame({"id": range(rows // files), "value": float(file)})

    df = dd.from_map(read, range(files), meta=pd.DataFrame({"id": [0], "value": [0.0]}))
    df[df.value >= 0].value.sum().compute()


@case(
    ("serialisation-bound", "large-graph"),
    2,
    "local",
    near="slow-submission transfer-bound tiny-tasks event-loop-blocked",
)
def large_xml_with_every_task(client, tasks: int = 20, records: int = 5_000):
    """Dask multiprocessing scheduler much slower than implementation with built-in multiprocessing (the same large
    XML goes with every task), dask/dask#1783."""
    vast_xml = parsed(records)

    def modify(xml, i):
        time.sleep(0.05)
        return len(xml) + i

    dask.compute([delayed(modify)(vast_xml, i) for i in range(tasks)])


@mends(large_xml_with_every_task, "scatter it once")
def large_xml_scattered(client, tasks: int = 20, records: int = 5_000):
    vast_xml = client.scatter(parsed(records), broadcast=True)

    def modify(xml, i):
        time.sleep(0.05)
        return len(xml) + i

    client.gather([client.submit(modify, vast_xml, i, pure=False) for i in range(tasks)])


@case("healthy", 2, "local", threads=2, near="gil-bound transfer-bound memory-spill undersubscribed-threads")
def images_deconvolved_and_stored(client, images: int = 40, seconds: float = 0.5):
    """Dask and ITK for large scale image analysis (each image of a stack deconvolved, and written where it is):
    https://blog.dask.org/2019/08/09/image-itk/."""

    def deconvolve(image, psf):
        if image.size:
            time.sleep(seconds)
        return (image * psf.mean()).astype(np.float32)

    psf = np.ones((16, 16), dtype=np.float32)
    stack = da.ones((images, 512, 512), chunks=(1, 512, 512), dtype=np.float32)
    out = stack.map_blocks(deconvolve, psf=psf, dtype=np.float32, meta=np.empty((0, 0, 0), dtype=np.float32))
    with tempfile.TemporaryDirectory() as folder:
        da.to_npy_stack(folder, out, axis=0)
