"""Searches the releases that brought four regressions of public threads, without being told them: 15 minutes.

    python -m evidence known-regressions [NAME ...]

Each workload is written as its user has it. Packages come from the index; yanked releases only from lock files.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

DATA = Path(tempfile.gettempdir()) / "scalescope-known-regressions"
LOCAL = ("-c", "local", "-a", "workers=2")
SEARCHES = {  # by function: thread, the release that it names, and what is asked
    "query": (
        "dask/dask#11507",
        "2024.11.0, with dask-expr and distributed, which it pins",
        ("--before", str(DATA / "before.txt"), "--after", str(DATA / "after.txt"), "-m", "makespan_s"),
    ),
    "frames": (
        "DKISTDC/dkist#476",
        "2024.12.0",
        ("dask", "--good", "2024.9.0", "--bad", "2025.1.0", "-e", "numpy", "-m", "elapsed_s"),
    ),
    "genes": (
        "NygenAnalytics/scarf#136",
        "2024.8.0",
        (
            "dask",
            "--good",
            "2024.6.0",
            "--bad",
            "2024.12.0",
            "-e",
            "numpy zarr==2.18.3 numcodecs==0.13.1",
            "-m",
            "transferred_bytes",
        ),
    ),
    "flattened": (
        "dask/dask#11579",
        "2024.12.0",
        ("dask", "--good", "2024.6.0", "--bad", "2024.12.0", "-e", "numpy", "-m", "elapsed_s"),
    ),
}
SAME = """click==8.1.7 cloudpickle==3.1.0 importlib-metadata==8.5.0 jinja2==3.1.4 locket==1.0.0 markupsafe==3.0.2
msgpack==1.1.0 partd==1.4.2 psutil==6.1.0 python-dateutil==2.9.0.post0 pytz==2024.2 pyyaml==6.0.2 six==1.16.0
sortedcontainers==2.4.0 tblib==3.0.0 toolz==1.0.0 tornado==6.4.1 tzdata==2024.2 urllib3==2.2.3 zict==3.0.0
zipp==3.20.2"""
BEFORE = """dask==2024.10.0 dask-expr==1.1.16 distributed==2024.10.0 fsspec==2024.9.0 numpy==2.1.2 packaging==24.1
pandas==2.2.2 pyarrow==17.0.0"""
AFTER = """dask==2024.11.0 dask-expr==1.1.17 distributed==2024.11.0 fsspec==2024.10.0 numpy==2.1.3 packaging==24.2
pandas==2.2.3 pyarrow==18.0.0"""


def query(client):
    """Query 1 of TPC-H on small Parquet files."""
    import dask.dataframe as dd
    import pandas as pd

    items = dd.read_parquet(str(DATA / "lineitem"))
    items = items[items.l_shipdate <= pd.Timestamp("1998-09-02")]
    items = items.assign(disc_price=items.l_extendedprice * (1 - items.l_discount))
    items = items.assign(charge=items.disc_price * (1 + items.l_tax))
    sums = {"l_quantity": ["sum", "mean"], "l_extendedprice": ["sum", "mean"], "disc_price": "sum", "charge": "sum"}
    items.groupby(["l_returnflag", "l_linestatus"]).agg({**sums, "l_discount": "mean"}).compute()


def frames(client, *, files: int = 200_000):
    """Frames are picked out of a dataset of many files, one chunk a file, and some are looked at."""
    import dask.array as da
    import numpy as np

    da.ones((files, 16), chunks=(1, 16))[np.arange(files)][:20].sum().compute()


def genes(client, *, share: float = 0.8):
    """Statistics of genes over the cells that passed a filter."""
    import dask
    import dask.array as da
    import numpy as np

    counts, rng = da.from_zarr(str(DATA / "counts.zarr")), np.random.default_rng(1)
    cells, kept = (np.flatnonzero(rng.random(count) < share) for count in counts.shape)
    normed = 1000 * counts[:, kept][cells, :] / (rng.random(len(cells)) + 1).reshape(-1, 1)
    dask.compute(normed.sum(axis=0), normed.var(axis=0))


def flattened(client, *, images: int = 28):
    """An array of many small chunks is flattened for a group-by."""
    import dask.array as da

    da.ones((images, 30, 8, 1, 21, 3), chunks=(1, 1, 1, 1, 1, 3)).ravel()[:6].compute()


def make_data(files: int = 20, rows: int = 200) -> None:
    import numpy as np
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


def main() -> None:
    make_data()
    for name in sys.argv[1:] or SEARCHES:
        thread, known, asked = SEARCHES[name]
        print(f"\n{thread}, brought by {known}:", flush=True)
        began = time.monotonic()
        command = [str(Path(sys.executable).with_name("scalescope")), "find-release", "--no-prefect", *asked, *LOCAL]
        subprocess.run([*command, "-w", f"{__file__}:{name}"], check=False)
        print(f"{time.monotonic() - began:.0f} s")
