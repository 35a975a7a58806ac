"""Scripts collected and labelled when all rules had been written: here those of memory.

`evidence/outside.md` has their first count.
"""

from __future__ import annotations

import sys

import dask
import dask.array as da
from declare import mends, script
from distributed import Client, LocalCluster, wait
from of_memory import MEBIBYTE


def local(workers: int = 2, threads: int = 1, memory: str | int = 0, processes: bool = True, **options) -> LocalCluster:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=processes,
        memory_limit=memory,
        dashboard_address=None,
        **options,
    )


# ------------------------------------------------------------------ memory


def run_median(contiguous, images=48, rows=24):
    chunks = (images, 1, MEBIBYTE) if contiguous else (1, rows, MEBIBYTE)
    config = {"array.rechunk.method": "tasks", "array.chunk-size": "32MiB"}
    with local(2, memory="700MB") as made, Client(made) as client, dask.config.set(config):
        stack = da.random.random((images, rows, MEBIBYTE), chunks=chunks)
        wait(client.persist(da.median(stack, axis=0).sum(axis=1)))


@script("memory-spill", near="transfer-bound recomputation event-loop-blocked memory-paused")
def median_mosaic():
    """How to make a big-ish median mosaic (one chunk for each image: the whole stack is moved), as large as the memory
    of all workers, microsoft/PlanetaryComputer#12.
    """
    run_median(contiguous=False)


@mends(median_mosaic, "read chunks that are contiguous along time", factor=1.3)
def median_mosaic_of_contiguous_chunks():
    run_median(contiguous=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
