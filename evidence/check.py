"""How exact `scalescope check` is: 80 collections are checked, then run on real workers and measured.

Cap on workers: with more threads than tasks, each task waits until no more tasks begin, then all end; the most that ran
at once is compared exactly. Bytes: those of all results. Peak memory: most bytes of results that two workers with two
threads hold, as distributed's scheduler counts managed memory at each change.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import distributed
import distributed.worker
import numpy as np
import pandas as pd
import xarray as xr
from dask._task_spec import Alias, DataNode
from dask.delayed import delayed
from distributed.diagnostics.plugin import SchedulerPlugin

from scalescope.checking.check import examined
from scalescope.checking.interception import NeedsValue, Seen, intercepted
from scalescope.checking.peak_memory import scheduling

QUIET_S, LONGEST_S = 2.0, 120  # seconds without a new task after which none can begin; most of a measured run
THREADS, WORKERS, EACH = 400, 2, 2
CLOSE, LITTLE = 0.25, 64 << 10  # share, and bytes, by which an answer may be off
Build = Callable[[], Any]


def _x(n: int = 2_000, c: Any = 500) -> da.Array:
    return da.random.default_rng(1).random((n, n), chunks=c)


def _frame(rows: int = 200_000, parts: int = 8) -> Any:
    k = np.arange(rows)
    return dd.from_pandas(pd.DataFrame({"k": k % 97, "g": k % 5, "v": k * 0.5, "w": k * 1.5}), npartitions=parts)


def _text(rows: int = 100_000) -> Any:
    return dd.from_pandas(pd.DataFrame({"s": [f"name {i % 1000}" for i in range(rows)], "v": 1.0}), npartitions=5)


def _write(folder: str) -> None:
    for part in range(6):
        k = np.arange(10_000) + 10_000 * part
        frame = pd.DataFrame({"k": k % 97, "g": k % 5, "v": k * 0.5, "w": k * 1.5})
        frame.to_parquet(f"{folder}/{part}.parquet")
        frame.to_csv(f"{folder}/{part}.csv", index=False)


def _cube(time_chunk: int = 73, space: int = 60) -> xr.Dataset:
    days = pd.date_range("2001-01-01", periods=730)
    data = da.random.default_rng(2).random((730, 120, 60), chunks=(time_chunk, space, 60))
    return xr.Dataset({"t": (("time", "x", "y"), data)}, coords={"time": days})


def _zeros(n: int) -> np.ndarray:
    return np.zeros(n)


def _tree(leaves: int, n: int) -> Any:
    level = [delayed(np.ones)(n) for _ in range(leaves)]
    while len(level) > 1:
        level = [delayed(np.add)(*level[i : i + 2]) for i in range(0, len(level), 2)]
    return level[0]


IN_PROCESSES: dict[str, Build] = {
    "top of rows": lambda: da.topk(_x(3_000), 50, axis=0),
    "places of the top": lambda: da.argtopk(_x(2_000, 250), 5, axis=1),
    "mean of windows": lambda: _cube().isel(x=slice(30)).rolling(x=5, y=5).mean(),
    "maximum of windows": lambda: _cube(200).t.rolling(time=10).construct("w").max("w"),
    "left join": lambda: _frame(400_000, 10).merge(_frame(90, 2)[["k", "w"]], on="k", how="left"),
    "bag groups": lambda: db.range(30_000, npartitions=15).groupby(lambda v: v % 20, shuffle="tasks"),
    "images in pairs": lambda: delayed(sum)([a + b for a, b in pairwise(map(delayed(np.ones), [300_000] * 24))]),
    "tensor product": lambda: da.tensordot(_x(600, 200), _x(600, 200), axes=((1,), (0,))).sum(axis=0),
    "cholesky": lambda: da.linalg.cholesky(_x(1_200, 300) @ _x(1_200, 300).T + 2_000 * da.eye(1_200, chunks=300)),
    "anomaly of months": lambda: (lambda groups: groups - groups.mean())(_cube().t.groupby("time.month")),
}


def collections(folder: str) -> dict[str, Build]:
    rng = np.random.default_rng(3)
    shuffled, few = rng.permutation(2_000), rng.integers(0, 2_000, 50)
    array: dict[str, Build] = {
        "sum": lambda: _x().sum(),
        "mean of rows": lambda: _x().mean(axis=1),
        "variance": lambda: _x().var(axis=0),
        "standard score": lambda: (_x() - _x().mean(axis=0)) / _x().std(axis=0),
        "minimum and maximum": lambda: da.stack([_x().min(axis=0), _x().max(axis=0)]),
        "transpose": lambda: _x() + _x().T,
        "product": lambda: _x(1_500) @ _x(1_500),
        "gram": lambda: (lambda x: x.T @ x)(_x(1_200, (300, 600))),
        "three products": lambda: (lambda x: x @ x @ x)(_x(1_000, 250)),
        "rechunk rows": lambda: _x().rechunk((2_000, 100)),
        "rechunk finer": lambda: _x(2_000, 1_000).rechunk(200).sum(axis=1),
        "rechunk coarser": lambda: _x(2_000, 200).rechunk(1_000) + 1,
        "slice by order": lambda: _x()[shuffled],
        "slice few": lambda: _x()[few, :].sum(axis=1),
        "stride": lambda: _x()[::3, 1::2].mean(),
        "roll": lambda: da.roll(_x(), 100, axis=0),
        "flip": lambda: _x()[::-1] * 2,
        "concatenate": lambda: da.concatenate([_x(), _x() + 1], axis=1).sum(axis=0),
        "stack": lambda: da.stack([_x(1_000), _x(1_000, 250)[::-1]]).max(axis=0),
        "flatten": lambda: _x(1_500, 300).reshape(-1),
        "reshape to four axes": lambda: _x().reshape(20, 100, 20, 100).mean(axis=(1, 3)),
        "diagonal": lambda: da.diagonal(_x()).sum(),
        "where": lambda: da.where(_x() > 0.5, 1.0, _x()),
        "clip and cast": lambda: _x().clip(0.1, 0.9).astype("f4"),
        "argument of maximum": lambda: _x().argmax(axis=0),
        "cumulative sum": lambda: _x().cumsum(axis=1),
        "percentile": lambda: da.percentile(_x().ravel(), [5, 95]),
        "histogram": lambda: da.histogram(_x(), bins=50, range=(0, 1))[0],
        "top": lambda: da.topk(_x(), 10, axis=1),
        "fourier": lambda: abs(da.fft.fft(_x(1_500, (250, 1_500)), axis=1)),
        "singular values": lambda: da.linalg.svd(_x(2_000, (500, 2_000))[:, :100])[1],
        "qr": lambda: da.linalg.qr(_x(2_000, (250, 2_000))[:, :80])[1],
        "outer": lambda: da.outer(_x(1_500, 300)[0], _x(1_500, 300)[1]).sum(axis=0),
        "einsum": lambda: da.einsum("ij,kj->ik", _x(1_000, 250), _x(1_000, 250)),
        "overlap": lambda: da.overlap.overlap(_x(), depth=5, boundary="reflect").sum(),
        "gradient": lambda: da.gradient(_x(), axis=0),
        "difference": lambda: da.diff(_x(), axis=1),
        "coarsen": lambda: da.coarsen(np.mean, _x(), {0: 10, 1: 10}),
        "in memory": lambda: da.from_array(np.ones((2_000, 1_000)), chunks=250) * 2,
        "user's function": lambda: _x().map_blocks(lambda block: block[::2], chunks=((250,) * 4, (500,) * 4)),
        "user's function, then sum": lambda: _x().map_blocks(np.sort).sum(axis=0),
        "masked": lambda: da.ma.masked_less(_x(), 0.2).mean(),
        "random integers": lambda: da.random.default_rng(1).integers(0, 9, (2_000, 2_000), chunks=400).sum(axis=0),
        "arange": lambda: (da.arange(2_000_000, chunks=100_000) ** 2).sum(),
        "ones": lambda: da.ones((3_000, 1_000), chunks=300).cumsum(axis=0),
        "narrow": lambda: _x(2_000, 2_000).sum(axis=0),
    }
    labelled: dict[str, Build] = {
        "climatology": lambda: _cube().groupby("time.month").mean(),
        "anomaly": lambda: (lambda c: c - c.mean("time"))(_cube()),
        "monthly": lambda: _cube().resample(time="MS").sum(),
        "rolling": lambda: _cube().rolling(time=7).mean(),
        "all of time": lambda: _cube().chunk({"time": -1, "x": 12}).quantile(0.5, "time"),
        "interpolated": lambda: _cube().isel(time=slice(10, 400)).coarsen(x=4).mean(),
        "weighted": lambda: _cube().t.weighted(xr.DataArray(np.ones(60), dims="y")).mean(("x", "y")),
        "one day": lambda: _cube().sel(time="2001-03-04").mean("x"),
    }
    frames: dict[str, Build] = {
        "column sum": lambda: _frame().v.sum(),
        "new column": lambda: _frame().assign(z=lambda f: f.v * f.w),
        "group mean": lambda: _frame().groupby("k").v.mean(),
        "group of two": lambda: _frame().groupby(["k", "g"]).agg({"v": "sum", "w": "max"}),
        "filter": lambda: _frame()[_frame().g > 2].w.mean(),
        "counts": lambda: _frame().k.value_counts(),
        "description": lambda: _frame().describe(),
        "shuffle": lambda: _frame().shuffle("k").v.sum(),
        "join": lambda: _frame().merge(_frame(50_000, 4).drop_duplicates("k")[["k", "w"]], on="k"),
        "repartition": lambda: _frame().repartition(npartitions=3),
        "running sum": lambda: _frame().v.cumsum(),
        "text": lambda: _text().assign(n=lambda f: f.v + 1),
        "text length": lambda: _text().s.str.len().sum(),
        "parquet": lambda: dd.read_parquet(f"{folder}/*.parquet").assign(z=lambda f: f.v + f.w),
        "parquet column": lambda: dd.read_parquet(f"{folder}/*.parquet").v.mean(),
        "csv": lambda: dd.read_csv(f"{folder}/*.csv").groupby("g").v.sum(),
        "time series": lambda: dask.datasets.timeseries(end="2000-01-11").x.rolling(10).mean(),
        "concatenated": lambda: dd.concat([_frame(), _frame(100_000, 4)]).v.max(),
    }
    others: dict[str, Build] = {
        "bag sum": lambda: db.from_sequence(range(20_000), npartitions=20).sum(),
        "bag map": lambda: db.from_sequence(range(20_000), npartitions=16).map(lambda v: v + 1),
        "bag fold": lambda: db.from_sequence(range(5_000), npartitions=12).filter(lambda v: v % 2).count(),
        "bag frequencies": lambda: db.from_sequence(["a", "b", "c"] * 3_000, npartitions=9).frequencies(),
        "delayed tree": lambda: _tree(32, 100_000),
        "delayed chain": lambda: delayed(np.sum)(delayed(np.sort)(delayed(_zeros)(500_000))),
        "delayed fan": lambda: delayed(sum)([delayed(_zeros)(50_000 + i) for i in range(24)]),
        "delayed of arrays": lambda: delayed(np.dot)(_x(800, 200), np.ones(800)),
    }
    return {**array, **labelled, **frames, **others}


class _Held(SchedulerPlugin):  # type: ignore[misc]
    def __init__(self, scheduler: Any) -> None:
        self.scheduler, self.peak, self.sizes = scheduler, 0, dict[Any, int]()

    def transition(self, key: Any, start: str, finish: str, *_: Any, **named: Any) -> None:
        if finish == "memory":
            self.sizes[key] = self.scheduler.tasks[key].nbytes
            self.peak = max(self.peak, sum(each.nbytes for each in self.scheduler.workers.values()))


def measured(collection: Any, *, processes: bool) -> tuple[int, float, int]:
    """Most tasks at once (not in processes: 0), bytes of all results, most bytes held at once."""
    most = 0 if processes else _at_once(collection)
    with _cluster(WORKERS, EACH, processes=processes) as client:
        held = _Held(client.cluster.scheduler)
        held.scheduler.add_plugin(held)
        _run(client, collection)
    return most, float(sum(held.sizes.values())), held.peak


def _at_once(collection: Any) -> int:
    at_once = dask.config.set({"distributed.scheduler.worker-saturation": "inf"})
    with at_once, _levels() as most, _cluster(1, THREADS) as client:
        _run(client, collection)
    return most[0]


def _run(client: Any, collection: Any) -> None:
    distributed.wait(client.persist(collection), timeout=LONGEST_S)


@contextmanager
def _cluster(workers: int, threads: int, *, processes: bool = False) -> Any:
    made = {"processes": processes, "memory_limit": "1GiB" if processes else 0, "dashboard_address": None}
    made |= {"n_workers": workers, "threads_per_worker": threads}
    dask.config.set({"distributed.worker.profile.enabled": False})  # it may hang in Python 3.11 (CPython issue 106883)
    with distributed.LocalCluster(**made) as cluster, distributed.Client(cluster) as client:
        yield client


@contextmanager
def _levels() -> Any:
    """Tasks end together when no other has begun for a while, so that all that can run at once do."""
    most, now, lock, began, ends = [0], [0], threading.Lock(), [time.monotonic()], [0.0]
    name = "_run_task_simple"
    original = getattr(distributed.worker, name)

    def held(task: Any, *others: Any, **named: Any) -> Any:
        if isinstance(task, (Alias, DataNode)):
            return original(task, *others, **named)
        with lock:
            now[0] += 1
            mine = began[0] = time.monotonic()
            most[0] = max(most[0], now[0])
        while mine > ends[0]:
            time.sleep(0.05)
            with lock:
                if time.monotonic() - began[0] > QUIET_S:
                    ends[0] = time.monotonic()
        with lock:
            now[0] -= 1
        return original(task, *others, **named)

    setattr(distributed.worker, name, held)
    try:
        yield most
    finally:
        setattr(distributed.worker, name, original)


def main() -> int:
    given = argparse.ArgumentParser()
    given.add_argument("names", nargs="*")
    given.add_argument("--output", default="", help="file for the rows as JSON lines; rows that it has are kept")
    given.add_argument("--processes", action="store_true", help="ten others, on processes with 1 GiB each")
    asked = given.parse_args()
    warnings.simplefilter("ignore")
    path = Path(asked.output or Path(tempfile.mkdtemp(), "rows.jsonl"))
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    with tempfile.TemporaryDirectory() as folder, scheduling() as schedule, path.open("a") as output:
        _write(folder)
        for name, build in (IN_PROCESSES if asked.processes else collections(folder)).items():
            if (asked.names and name not in asked.names) or name in [row["name"] for row in rows]:
                continue
            try:
                row = _row(name, build, schedule, processes=asked.processes)
            except Exception as error:  # noqa: BLE001 - the other collections are measured
                row = {"name": name, "problem": f"{type(error).__name__}: {str(error)[:200]}"}
            rows.append(row)
            print(json.dumps(row), file=output, flush=True)
            print(json.dumps(row), file=sys.stderr)
    _tell(rows)
    return 0


def _row(name: str, build: Build, schedule: Any, *, processes: bool) -> dict[str, Any]:
    seen = Seen()
    with intercepted(seen, ("dask.array", "dask.bag", "dask.dataframe")):
        try:
            collection = build()
        except NeedsValue:
            return {"name": name, "problem": f"{seen.stopped_by} at {seen.stopped_at}"}
    checked, graph = examined([collection], seen, name, None)
    memory = schedule(graph, WORKERS, EACH).nbytes if graph else 0.0
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        cap, nbytes, peak = measured(collection, processes=processes)
    return {
        "name": name, "told": round(checked.sizes_told, 2), "cap": [checked.cap, cap],
        "bytes": [checked.result_bytes, nbytes], "peak": [memory, peak],
    }  # fmt: skip


def _tell(rows: list[dict[str, Any]]) -> None:
    good = [row for row in rows if "cap" in row]
    told = [row for row in good if row["told"] >= 0.9]
    print(f"{len(rows)} collections; not checked: {[row['name'] for row in rows if 'cap' not in row]}")
    _share("cap on threads exact", [row for row in good if row["cap"][1]], "cap", 0.0)
    _share("bytes within 25 %", good, "bytes", CLOSE)
    _share("peak memory within 25 %, where metadata tells sizes", told, "peak", CLOSE)
    _share("peak memory within 25 %, all", good, "peak", CLOSE)


def _share(what: str, rows: list[dict[str, Any]], name: str, within: float) -> None:
    every = [(row["name"], *row[name]) for row in rows]
    off = [row for row in every if abs(row[1] - row[2]) > max(within * row[2], LITTLE * bool(within))]
    print(f"{what}: {len(rows) - len(off)} of {len(rows)}")
    for each, said, seen in off:
        print(f"    {each}: {said:,.0f}, measured {seen:,.0f}")
