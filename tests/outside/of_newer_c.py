"""Scripts collected and labelled after those of `of_newer_b.py`: threads since 2023, without a look at a first verdict.

Most workers share the process of the script, for speed; those that compute are processes.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import time
import uuid

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import threadpoolctl
from dask import delayed
from declare import mends_script, script
from distributed import Client, Lock, as_completed, wait
from of_adaptive import QUICK, cluster, work
from of_memory import MEBIBYTE, block, compute
from of_prefect import load, on_dask
from of_unseen import local, pods
from prefect import flow
from prefect.futures import wait as wait_for

# ------------------------------------------------------------------ inside busy tasks


def run_pools(threads):
    def correlate(i):
        fields = np.random.default_rng(i).random((400, 400))
        for _ in range(40):
            fields = fields @ fields / np.linalg.norm(fields)
        return float(fields[0, 0])

    with local(2) as made, Client(made) as client:
        client.run(lambda: threadpoolctl.threadpool_limits(threads) and None)
        client.gather(client.map(correlate, range(12), pure=False))


@script("oversubscribed-threads", near="work-inflation gil-bound healthy task-overhead host-overloaded lock-bound")
def pools_of_mkl_in_each_worker():
    """update environment variable (OMP and OpenBLAS were limited, MKL_NUM_THREADS was not),
    E3SM-Project/e3sm_diags#725."""
    run_pools(8)


@mends_script(pools_of_mkl_in_each_worker, "MKL_NUM_THREADS=1", factor=1.2)
def one_thread_of_mkl():
    run_pools(1)


def run_references(workers, threads):
    def read_references(i):
        text = ",".join(str(i * 7919 % 10_007 + k) for k in range(60_000))
        return sum(int(number) % 7 for number in text.split(",") for _ in range(8))

    with local(workers, threads) as made, Client(made) as client:
        client.gather(client.map(read_references, range(16), pure=False))


@script("gil-bound", near="event-loop-blocked healthy undersubscribed-threads work-inflation oversubscribed-threads")
def references_made_by_threads():
    """Default dask option for open_virtual_mfdataset not parallelizing (threads; a client with processes does),
    zarr-developers/VirtualiZarr#634."""
    run_references(1, 4)


@mends_script(references_made_by_threads, "processes", factor=1.2)
def references_made_by_processes():
    run_references(2, 1)


class Model:
    """Keeps what it has loaded under its id, which is another one wherever it is unpickled."""

    loaded: dict = {}  # noqa: RUF012 - of the process, as in the source

    def __init__(self, path, stable):
        self.path, self.stable, self.id = path, stable, "model"

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.id = self.id if self.stable else uuid.uuid4().hex

    def predict(self, batch):
        if self.id not in Model.loaded:
            with open(self.path, "rb") as file:
                Model.loaded = {self.id: pickle.load(file)}
        time.sleep(0.05)
        return Model.loaded[self.id][batch][2]


def run_models(stable):
    with tempfile.TemporaryDirectory() as folder, local(2) as made, Client(made) as client:
        with open(f"{folder}/model.pickle", "wb") as file:
            pickle.dump([(i, str(i), i * 0.5) for i in range(250_000)], file)
        model = Model(file.name, stable)
        client.gather([client.submit(model.predict, batch, pure=False) for batch in range(40)])


@script(("task-overhead", "serialisation-bound"), near="gil-bound healthy tiny-tasks garbage-collection large-graph")
def model_loaded_under_a_new_id():
    """Fix a minor bug which was causing loading twice (where it is unpickled, it has a new id),
    rapidsai/crossfit#101."""
    run_models(stable=False)


@mends_script(model_loaded_under_a_new_id, "an id that pickling keeps")
def model_loaded_once():
    run_models(stable=True)


class Store:
    def __setitem__(self, region, values):
        time.sleep(0.15)


def run_store(locked):
    with local(4, processes=False) as made, Client(made):
        values = da.ones(2400, chunks=100).map_blocks(lambda part: work(part, 0.05), meta=np.ones(0))
        da.store(values, Store(), lock=Lock("store") if locked else False)


@script(("waiting-tasks", "lock-bound"), near="undersubscribed-threads skewed-tasks healthy sequential-graph")
def one_lock_for_all_chunks():
    """dask.array.store: support for distributed locks (the whole target is locked, chunks need no lock),
    dask/dask#10238."""
    run_store(locked=True)


@mends_script(one_lock_for_all_chunks, "lock=False", factor=1.5)
def no_lock_for_chunks():
    run_store(locked=False)


# ------------------------------------------------------------------ what the client does


def run_plan(by_client, partitions=24):
    def write(plan):
        time.sleep(0.1)
        return plan

    def planned(i):
        compute(0.12)
        return i

    with local(4, processes=False) as made, Client(made):
        plans = [planned(i) if by_client else delayed(planned, pure=False)(i) for i in range(partitions)]
        dask.compute(*[delayed(write, pure=False)(plan) for plan in plans])


@script("client-busy", near="slow-submission large-graph too-few-partitions results-awaited-in-loop")
def partitions_planned_by_the_client():
    """to_hipscat is significantly slower than to_parquet (one core plans, nothing on the dashboard),
    astronomy-commons/lsdb#352."""
    run_plan(by_client=True)


@mends_script(partitions_planned_by_the_client, "plan in the tasks", factor=1.2)
def partitions_planned_by_tasks():
    run_plan(by_client=False)


@script("results-awaited-in-loop", near="sequential-graph healthy too-few-partitions prefect-overhead")
@flow(task_runner=on_dask())
def states_asked_for_by_submit():
    """Tasks are not running in parallel when using DaskTaskRunner() when using return_state=True,
    PrefectHQ/prefect#12975."""
    for i in range(10):
        load.submit(i, return_state=True)


@mends_script(states_asked_for_by_submit, "return_state=False", factor=2)
@flow(task_runner=on_dask())
def states_asked_for_at_the_end():
    wait_for([load.submit(i) for i in range(10)])


def run_docking(scattered, ligands=60):
    receptor = {name: block(i, 4) for i, name in enumerate(("grid", "charges", "surface"))}

    def dock(ligand, receptor):
        time.sleep(0.02)
        return ligand + len(receptor)

    with local(2) as made, Client(made) as client:
        if scattered:
            [receptor] = client.scatter([receptor], broadcast=True)
        client.gather([client.submit(dock, ligand, receptor, pure=False) for ligand in range(ligands)])


@script(("large-graph", "client-busy", "slow-submission"), near="transfer-bound serialisation-bound client-waits")
def receptor_given_to_each_submit():
    """Properly scatter futures for Dask computation (client.submit(func, big_data)),
    asapdiscovery/asapdiscovery#364."""
    run_docking(scattered=False)


@mends_script(receptor_given_to_each_submit, "client.scatter([receptor], broadcast=True)")
def receptor_scattered():
    run_docking(scattered=True)


def table(i):
    return pd.DataFrame(block(i, 10).reshape(-1, 10), columns=list("abcdefghij"))


def run_benchmark(written):
    with tempfile.TemporaryDirectory() as folder, local(2) as made, Client(made):
        frame = dd.from_map(table, range(30), meta=table(0)[:0])
        if written:
            frame.to_parquet(folder, compression=None, write_index=False)
        else:
            frame.compute()


@script(("client-waits", "transfer-bound", "narrow-stage"), near="memory-spill event-loop-blocked client-busy")
def result_concatenated_and_fetched():
    """Bodo vs Dask comparison (compute() makes one partition of the result and sends it to the client),
    dask/community#411."""
    run_benchmark(written=False)


@mends_script(result_concatenated_and_fetched, "write from the workers", factor=1.2)
def result_written_by_workers():
    run_benchmark(written=True)


# ------------------------------------------------------------------ many tasks, and the same ones again


def run_files(batch, files=1600):
    def mean(first):
        total = 0.0
        for i in range(first, first + batch):
            total += float(np.full((20, 20), i).mean())
        return total

    with local(2) as made, Client(made):
        dask.compute(*[delayed(mean, pure=False)(first) for first in range(0, files, batch)])


@script("tiny-tasks", near="gil-bound task-overhead healthy slow-submission")
def chunks_of_one_small_file():
    """Speed up distributed Dask (the chunks are very small and take < 100 ms to run), DKISTDC/dkist#455."""
    run_files(1)


@mends_script(chunks_of_one_small_file, "more files for each task", factor=1.5)
def chunks_of_many_files():
    run_files(100)


def run_cells(together, cells=600):
    def threshold(cells):
        return [np.percentile(np.arange(50) * cell, 90) for cell in cells]

    def seasonal(cells):
        return [np.arange(50).mean() * cell for cell in cells]

    def both(cells):
        return list(zip(threshold(cells), seasonal(cells), strict=True))

    with local(2) as made, Client(made):
        if together:
            parts = [delayed(both, pure=False)(range(i, i + 50)) for i in range(0, cells, 50)]
        else:
            made_of = [[delayed(each, pure=False)([cell]) for each in (threshold, seasonal)] for cell in range(cells)]
            parts = [delayed(tuple)(pair) for pair in made_of]
        dask.compute(*parts)


@script(("tiny-tasks", "large-graph"), near="gil-bound task-overhead healthy")
def functions_delayed_for_each_cell():
    """dask performance (each function of each cell is delayed; do not call many), coecms/xmhw#65."""
    run_cells(together=False)


@mends_script(functions_delayed_for_each_cell, "one delayed function for many cells", factor=1.5)
def functions_for_many_cells():
    run_cells(together=True)


def run_temporal(side):
    with dask.config.set({"array.rechunk.method": "tasks"}), local(2) as made, Client(made):
        snapshots = da.random.random((120, 240, 240), chunks=(1, 240, 240))
        snapshots.rechunk((120, side, side)).sum().compute()


@script(("tiny-tasks", "large-graph"), near="transfer-bound data-locality memory-spill narrow-stage")
def rechunked_to_many_columns():
    """P2P rechunking of ERA-5 from spatial to temporal dimension is failing hard (the graph is far too large),
    dask/dask#11162."""
    run_temporal(10)


@mends_script(rechunked_to_many_columns, "fewer and larger chunks", factor=1.5)
def rechunked_to_few_columns():
    run_temporal(120)


def run_accesses(kept):
    with local(4, processes=False) as made, Client(made):
        data = da.ones(1600, chunks=100).map_blocks(lambda part: work(part, 0.3), meta=np.ones(0))
        if kept:
            data = data.persist()
        for access in ("min", "max", "mean"):
            getattr(data, access)().compute()


@script("recomputation", near="results-awaited-in-loop narrow-stage client-busy healthy")
def computed_at_each_access():
    """Persist data after computation (each access computes, and may read, again), NCAS-CMS/cf-python#929."""
    run_accesses(kept=False)


@mends_script(computed_at_each_access, "persist", factor=1.6)
def computed_once():
    run_accesses(kept=True)


# ------------------------------------------------------------------ shapes of graphs


def run_join(even):
    sizes = [1] * 40 + [20, 27, 33, 47, 67, 100]
    if even:
        sizes = [sum(sizes) / 46] * 46

    with local(4, processes=False) as made, Client(made) as client:
        client.gather(client.map(lambda size: work(size, 0.03 * size), sizes, pure=False))


@script(("skewed-tasks", "straggler"), near="narrow-stage uneven-waves too-few-partitions slow-worker")
def join_of_uneven_partitions():
    """Imbalanced join workflow (some partitions are super large, others tiny, in this order), coiled/benchmarks#883."""
    run_join(even=False)


@mends_script(join_of_uneven_partitions, "repartition by size", factor=1.3)
def join_of_even_partitions():
    run_join(even=True)


def run_reduction(split_every):
    def chunk(part, axis, keepdims):
        time.sleep(0.1)
        return part.sum(axis=axis, keepdims=keepdims)

    def aggregate(parts, axis, keepdims):
        parts = parts if isinstance(parts, list) else [parts]
        time.sleep(0.03 * len(parts))
        return np.sum(parts, axis=0)

    with local(4, processes=False) as made, Client(made):
        values = da.ones(6400, chunks=100)
        settings = {"axis": 0, "dtype": float, "concatenate": False, "split_every": split_every, "keepdims": True}
        da.reduction(values, chunk, aggregate, **settings).compute()


@script("narrow-stage", near="straggler sequential-graph too-few-partitions results-awaited-in-loop skewed-tasks")
def blocks_combined_by_one_task():
    """Optimize split_every (a single machine is waited for that combines all), xarray-contrib/flox#279."""
    run_reduction(64)


@mends_script(blocks_combined_by_one_task, "split_every=4", factor=1.3)
def blocks_combined_by_a_tree():
    run_reduction(4)


# ------------------------------------------------------------------ workers that come and go


def run_trials(all_there):
    with pods(4 if all_there else 1) as made, Client(made) as client:
        made.scale(4)
        client.gather(client.map(work, range(28), [0.4] * 28, pure=False))


@script("late-workers", near="adaptive-scaling workers-missing too-few-partitions skewed-tasks")
def begun_with_the_first_worker():
    """check_workers_available causes execution to hang (else it starts with a tiny fraction of the workers),
    esi-neuroscience/syncopy#438."""
    run_trials(all_there=False)


@mends_script(begun_with_the_first_worker, "wait for the workers before the work", factor=1.2)
def begun_with_all_workers():
    run_trials(all_there=True)


def run_merges(adaptive):
    with cluster(1 if adaptive else 4) as made, Client(made) as client:
        if adaptive:
            made.adapt(minimum=1, maximum=4, **QUICK)
        for _ in range(3):
            parts = client.map(work, range(12), [0.4] * 12, pure=False)
            client.submit(work, parts, 1.2, pure=False).result()


@script(("adaptive-scaling", "late-workers"), near="results-awaited-in-loop sequential-graph workers-missing")
def scaled_down_at_each_merge():
    """Improper scaling of dask workers (scale up and scale down requests in turn), dask/dask-kubernetes#677."""
    run_merges(adaptive=True)


@mends_script(scaled_down_at_each_merge, "a fixed number of workers", factor=1.2)
def as_many_workers_at_each_merge():
    run_merges(adaptive=False)


def run_jobs(dropped):
    with local(3) as made, Client(made) as client:
        pids = list(client.run(os.getpid).values())
        prepared = client.map(work, range(36), [0.3] * 36, pure=False)
        for done, _ in enumerate(as_completed(prepared), 1):
            if dropped and done in (12, 24):
                os.kill(pids.pop(), signal.SIGKILL)  # its job has ended
        wait(client.map(work, prepared, [0.1] * 36, pure=False))


@script(("worker-died", "recomputation"), near="worker-killing-task memory-spill late-workers straggler")
def completed_work_lost_with_workers():
    """Dask dropping workers and completed work in memory in jobqueue mode, asapdiscovery/asapdiscovery#677."""
    run_jobs(dropped=True)


@mends_script(completed_work_lost_with_workers, "jobs that last", factor=1.2)
def completed_work_kept():
    run_jobs(dropped=False)


# ------------------------------------------------------------------ nothing wrong


@script("healthy", near="results-awaited-in-loop few-tasks-in-flight uneven-waves too-few-partitions")
def generations_of_an_evolution():
    """parallel running: added Dask support (the next generation needs the fitness of this one), EC-KitY/EC-KitY#72."""
    with local(4, processes=False) as made, Client(made) as client:
        population = list(range(16))
        for _ in range(5):
            population = client.gather(client.map(work, population, [0.4] * 16, pure=False))


@script("healthy", near="undersubscribed-threads client-waits narrow-stage too-few-partitions")
def references_combined_by_the_client():
    """Add open_virtual_mfdataset (tiny references are returned to the client, which combines them),
    zarr-developers/VirtualiZarr#349."""
    with local(4, processes=False) as made, Client(made) as client:
        references = client.gather(client.map(work, range(48), [0.4] * 48, pure=False))
        compute(0.05)
        sum(references)


@script("healthy", near="narrow-stage sequential-graph straggler tiny-tasks")
def reduction_as_a_tree():
    """Implement custom reductions (a tree), dask/dask-expr#970."""

    def chunk(part, axis, keepdims):
        time.sleep(0.3)
        return part.sum(axis=axis, keepdims=keepdims)

    with local(4, processes=False) as made, Client(made):
        values = da.ones(6400, chunks=100)
        da.reduction(values, chunk, np.sum, axis=0, dtype=float, split_every=4).compute()


@script("healthy", near="recomputation memory-spill client-waits transfer-bound")
def partitions_written_where_they_are():
    """Write to S3 instead of computing (each worker writes what it has computed), bodo-ai/Bodo#275."""

    def write(i):
        time.sleep(0.25)
        return float(np.full(MEBIBYTE // 8, i).mean())

    with local(4, processes=False) as made, Client(made) as client:
        client.gather(client.map(write, range(64), pure=False))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
