"""Results that do not fit into memory, or only just; workers that pause; and many Python objects."""

from __future__ import annotations

import time

import dask
import numpy as np
from dask import delayed
from declare import case, remedy
from distributed import wait

TINY = {"kind": "local", "memory_limit_mb": 400}
SMALL = {"kind": "local", "memory_limit_mb": 600}
AMPLE = {"kind": "local", "memory_limit_mb": 3_000}
MEBIBYTE = 2**17  # doubles


def block(i, mebibytes):
    return np.random.default_rng(i).random(mebibytes * MEBIBYTE)


def compute(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


# ------------------------------------------------------------------ what does not fit


@case("memory-spill", 1, SMALL, threads=2, near="gil-bound memory-paused garbage-collection", factor=1.2)
@remedy("more memory for each worker", cluster=AMPLE)
def shuffle_of_partitions(client, partitions: int = 20, mebibytes: int = 40):
    """OOMs on seemingly simple shuffle job (about as large as the memory of all workers), dask/dask#2456."""

    @delayed(pure=False)
    def load(i):
        return block(i, mebibytes)

    @delayed(pure=False)
    def split(rows, j):
        return rows[j::partitions].copy()

    @delayed(pure=False)
    def combine(parts):
        return float(np.concatenate(parts).mean())

    loaded = [load(i) for i in range(partitions)]
    dask.compute(*[combine([split(rows, j) for rows in loaded]) for j in range(partitions)])


# ------------------------------------------------------------------ pauses


# ------------------------------------------------------------------ garbage collection


# ------------------------------------------------------------------ nothing wrong


@case("healthy", 2, TINY, near="memory-spill")
def spilled_and_read_behind_long_tasks(client, items: int = 10, mebibytes: int = 50):
    """Add Spill-to-disk policy for workers (excess data goes to disk), dask/distributed#485."""

    def load(i):
        time.sleep(0.8)
        return block(i, mebibytes)

    def fit(data):
        time.sleep(1.2)
        return float(data[0])

    loaded = client.map(load, range(items), pure=False)
    wait(loaded)
    client.gather(client.map(fit, loaded, pure=False))
