"""Fifteen regressions of public threads: `python -m evidence known-regressions [NAME ...]`, 20 minutes.

Both releases run, and `diff` must name first the part and the package that the thread blames. With the name `search`,
`find-release` searches the step that brought one of them. Each workload is as its user has it, as small as shows it.
Packages come from the index; yanked releases only from lock files.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import dask
import dask.array as da
import numpy as np

DATA = Path(tempfile.gettempdir()) / "scalescope-known-regressions"
REPEATS = ("--repeats", "5", "--warmups", "1")
COMMAND = (str(Path(sys.executable).with_name("scalescope")),)
LOCAL = ("-c", "local", "-a", "workers=2")
DASK = "dask=={0} distributed=={0} numpy==1.26.4"
EXPR = "dask-expr==1.1."  # unpinned, it may be resolved to an ancient one
FRAMES = f"{DASK} pandas==2.2.2 pyarrow==17.0.0 {{1}}"
DATES = f"{DASK} pandas==2.2.2 xarray==2024.7.0"
XARRAY = "dask==2023.5.0 distributed==2023.5.0 pandas==1.5.3 numpy==1.23.5 xarray=={0}"
ZARR = f"{DASK} zarr==2.18.3 numcodecs==0.13.1"
# By function: thread, packages that brought it, kinds of the first part, its environment, and versions before and after
REGRESSIONS = {
    "query": ("dask/dask#11507", "dask dask-expr", "slower", FRAMES, f"2024.10.0 {EXPR}16", f"2024.11.0 {EXPR}17"),
    "frames": ("DKISTDC/dkist#476", "dask", "client", DASK, "2024.11.2", "2024.12.0"),
    "genes": ("NygenAnalytics/scarf#136", "dask", "graph chunks transfer", ZARR, "2024.7.1", "2024.8.0"),
    "flattened": ("dask/dask#11579", "dask", "client", DASK, "2024.6.0", "2024.12.0"),
    "hourly": ("dask/dask#11453", "dask", "graph chunks", DATES, "2024.7.1", "2024.8.0"),
    "indexed": ("dask/dask#11735", "dask", "client", DASK, "2024.11.2", "2024.12.0"),
    "masked": ("pydata/xarray#7516", "xarray", "graph", XARRAY, "2022.3.0", "2022.6.0"),
    "resampled": ("dask/dask#11693", "dask", "graph chunks", DATES, "2024.7.1", "2024.8.0"),
    "opened": ("DKISTDC/dkist#361", "dask", "client", DASK, "2024.2.0", "2024.2.1"),
    "symmetries": ("pyxem/pyxem#1123", "dask", "client", DASK, "2024.7.1", "2024.11.2"),
    "filtered": ("dask/dask#12020", "dask", "client", DASK, "2024.11.2", "2024.12.1"),
    "event": ("dask/dask#11260", "dask-expr", "client", FRAMES, "2024.7.1 ", "2024.7.1 dask-expr"),
    "single": ("dask/dask-expr#777", "dask dask-expr", "client graph-size", FRAMES, "2024.2.1 ", "2024.4.2 dask-expr"),
    "jitted": ("dask/dask#11416", "dask", "client", f"{DASK} numba==0.60.0", "2024.1.1", "2024.9.1"),
    "masks": ("dask/dask#11455", "dask-expr", "client", FRAMES, "2024.9.1 ", "2024.9.1 dask-expr"),
}  # fmt: skip
SAME = """click==8.1.7 cloudpickle==3.1.0 importlib-metadata==8.5.0 jinja2==3.1.4 locket==1.0.0 markupsafe==3.0.2
msgpack==1.1.0 partd==1.4.2 psutil==6.1.0 python-dateutil==2.9.0.post0 pytz==2024.2 pyyaml==6.0.2 six==1.16.0
sortedcontainers==2.4.0 tblib==3.0.0 toolz==1.0.0 tornado==6.4.1 tzdata==2024.2 urllib3==2.2.3 zict==3.0.0
zipp==3.20.2"""
BEFORE = """dask==2024.10.0 dask-expr==1.1.16 distributed==2024.10.0 fsspec==2024.9.0 numpy==2.1.2 packaging==24.1
pandas==2.2.2 pyarrow==17.0.0"""
AFTER = """dask==2024.11.0 dask-expr==1.1.17 distributed==2024.11.0 fsspec==2024.10.0 numpy==2.1.3 packaging==24.2
pandas==2.2.3 pyarrow==18.0.0"""


def query(client):
    import dask.dataframe as dd
    import pandas as pd

    items = dd.read_parquet(str(DATA / "lineitem"))
    items = items[items.l_shipdate <= pd.Timestamp("1998-09-02")]
    items = items.assign(disc_price=items.l_extendedprice * (1 - items.l_discount))
    items = items.assign(charge=items.disc_price * (1 + items.l_tax))
    sums = {"l_quantity": ["sum", "mean"], "l_extendedprice": ["sum", "mean"], "disc_price": "sum", "charge": "sum"}
    items.groupby(["l_returnflag", "l_linestatus"]).agg({**sums, "l_discount": "mean"}).compute()


def frames(client, *, files: int = 30_000):
    da.ones((files, 16), chunks=(1, 16))[np.arange(files)][:20].sum().compute()


def genes(client, *, share: float = 0.8):
    counts, rng = da.from_zarr(str(DATA / "counts.zarr")), np.random.default_rng(1)
    cells, kept = (np.flatnonzero(rng.random(count) < share) for count in counts.shape)
    normed = 1000 * counts[:, kept][cells, :] / (rng.random(len(cells)) + 1).reshape(-1, 1)
    dask.compute(normed.sum(axis=0), normed.var(axis=0))


def flattened(client, *, images: int = 14):
    da.ones((images, 30, 8, 1, 21, 3), chunks=(1, 1, 1, 1, 1, 3)).ravel()[:6].compute()


def hourly(client, *, days: int = 2000):
    import pandas as pd
    import xarray as xr

    times = pd.date_range("2000-01-01", periods=days)
    data = xr.DataArray(np.random.randn(days, 3), dims=("time", "place"), coords={"time": times}).chunk(time=365)
    data.resample(time="1h").ffill().mean().compute()


def indexed(client, *, size: int = 40_000):
    da.ones((size,), chunks=(1,))[np.arange(size)][:10].sum().compute()


def masked(client, *, size: int = 3_000):
    import xarray as xr

    ds = xr.Dataset({"field": xr.DataArray(data=da.ones(shape=size, chunks=10), dims=("x"))})
    ds.where(ds["field"] > 0, drop=True)


def resampled(client, *, days: int = 1500):
    import pandas as pd
    import xarray as xr

    times = pd.date_range("2000-01-01", periods=days)
    data = xr.DataArray(np.random.randn(days, 30), dims=("time", "place"), coords={"time": times}).chunk(time=30)
    data.groupby("time.month").mean().compute()


def opened(client, *, files: int = 2):
    class Loader:
        shape, dtype, ndim = (64, 64), np.dtype(float), 2

        def __init__(self, i):
            self.i, self.header = i, {f"k{j}": np.ones(3) for j in range(200)}

        def __getitem__(self, where):
            return np.ones(self.shape)[where]

    da.stack([da.from_array(Loader(i), chunks=(64, 64)) for i in range(files * 200)])[0].sum().compute()


def symmetries(client, *, size: int = 40_000):
    cells = np.empty(size, dtype=object)
    for i in range(size):
        cells[i] = [("phase", i), {"a": i, "b": [i, i]}]
    da.from_array(cells, chunks=size).map_blocks(
        lambda block: np.array([len(block)]), dtype=int, chunks=((1,),)
    ).compute()


def filtered(client, *, steps: int = 1500):
    data = da.ones((2 * steps, 16, 40, 40), chunks=(1, 8, 10, 20))[steps // 2 : steps // 2 + steps]
    kept = np.zeros(steps, dtype=bool)
    kept[::2] = True
    data[kept][:1].sum().compute()


def event(client, *, partitions: int = 1000):
    import dask.dataframe as dd
    import pandas as pd

    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(50_000), "b": 1.0}), npartitions=partitions).clear_divisions()
    for i in range(3):
        frame.loc[100 * i : 100 * i + 15].compute()


def single(client, *, parts: int = 3_000):
    import dask.dataframe as dd
    import pandas as pd

    a = dd.from_dict({"a": np.arange(parts * 10)}, npartitions=parts)
    first = a.to_delayed()
    dd.from_delayed(first[0], meta=pd.DataFrame.from_dict({"a": pd.Series(dtype=np.int64)})).compute()


def jitted(client, *, times: int = 6):
    import numba

    @numba.guvectorize(["void(int8, int8[:])"], "()->()")
    def inc(x, out):
        out[0] = x + 1

    for _ in range(times):
        da.ones((1000, 10), chunks=(500, 10), dtype=np.int8).map_blocks(inc, dtype=np.int8).sum().compute()


def masks(client, *, columns: int = 8):
    import dask.dataframe as dd
    import pandas as pd

    frame = dd.from_pandas(
        pd.DataFrame({"kind": np.arange(2000) % 9, "when": pd.Timestamp("2024-01-01")}), npartitions=1
    )
    names = [f"c{i}" for i in range(columns)]
    for name in names:
        frame[name] = frame["when"]
    for i, name in enumerate(names):
        frame[name] = frame[name].mask(cond=(frame["kind"] == i), other=frame["when"])
    frame.compute()


def make_data(files: int = 20, rows: int = 200) -> None:
    import pandas as pd
    import zarr

    rng = np.random.default_rng(0)
    (DATA / "lineitem").mkdir(parents=True, exist_ok=True)
    for name, pins in (("before", BEFORE), ("after", AFTER)):
        (DATA / f"{name}.txt").write_text("\n".join(sorted((SAME + "\n" + pins).split())) + "\n")
    numbers = ("l_quantity", "l_extendedprice", "l_discount", "l_tax", *(f"l_comment{i}" for i in range(8)))
    for number in range(files):
        table = pd.DataFrame({name: rng.random(rows) for name in numbers})
        table["l_returnflag"], table["l_linestatus"] = rng.choice(list("ANR"), rows), rng.choice(list("FO"), rows)
        table["l_shipdate"] = pd.Timestamp("1995-01-01") + pd.to_timedelta(rng.integers(0, 1000, rows), "D")
        table.to_parquet(DATA / "lineitem" / f"{number}.parquet")
    counts = zarr.open(
        str(DATA / "counts.zarr"), mode="w", shape=(4000, 800), chunks=(250, 200), dtype="u4", zarr_format=2
    )
    counts[:] = rng.poisson(0.3, (4000, 800))


def explain(name: str) -> bool:
    """Whether the first part of the difference and the package are those of the thread."""
    thread, packages, kinds, environment, *versions = REGRESSIONS[name]
    store, runs = ("--store", str(DATA / "s.db"), "--json"), []
    for version in versions:
        asked = ("sweep", "--no-prefect", "--fresh", *LOCAL, "-w", f"{__file__}:{name}", *REPEATS)
        software = environment.format(*version.split(" "))
        done = subprocess.run([*COMMAND, *asked, "-e", software, *store], capture_output=True, text=True, check=False)
        runs.append(json.loads(done.stdout)["run"])
    told = subprocess.run([*COMMAND, "diff", *runs, *store], capture_output=True, text=True, check=True)
    found = json.loads(told.stdout)
    kind = next((part["kind"] for part in found["parts"] if part["named"]), "")
    package = found["culprits"][0]["name"] if found["culprits"] else ""
    right = kind in kinds.split() and package in packages.split()
    print(f"{'right' if right else 'WRONG'}  {thread} {name}: {found['line']}", flush=True)
    return right


def search() -> None:
    """The step between two lock files that brought dask/dask#11507."""
    ends = ("--before", str(DATA / "before.txt"), "--after", str(DATA / "after.txt"), "-m", "makespan_s")
    subprocess.run([*COMMAND, "find-release", "--no-prefect", *ends, *LOCAL, "-w", f"{__file__}:query"], check=False)


def main() -> int:
    make_data()
    if "search" in sys.argv:
        search()
        return 0
    right = [explain(name) for name in sys.argv[1:] or REGRESSIONS]
    print(f"{sum(right)} of {len(right)} right")
    return int(sum(right) < 0.8 * len(right))


if __name__ == "__main__":
    sys.exit(main())
