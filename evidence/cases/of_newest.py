"""The newest set: scripts of threads since 2022, collected and labelled without a look at a first verdict.

Most workers share the process of the script, for speed; those that compute, or that run out of memory, are processes.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import threadpoolctl
import xarray as xr
from dask import delayed
from dask.utils import SerializableLock
from declare import mends, script
from distributed import Client, LocalCluster, Queue, WorkerPlugin, as_completed, get_worker, rejoin, secede, wait
from of_adaptive import cluster, work
from of_memory import MEBIBYTE, block, compute
from of_prefect import crunch, load, on_dask
from prefect import flow, task
from prefect.futures import wait as wait_for
from prefect_dask import get_dask_client
from tornado.ioloop import PeriodicCallback

# ------------------------------------------------------------------ inside busy tasks


def local(workers: int = 2, threads: int = 1, memory: str | int = 0, processes: bool = True, **options) -> LocalCluster:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=processes,
        memory_limit=memory,
        dashboard_address=None,
        **options,
    )


def run_netcdf(lock_of):
    def read(i):
        with SerializableLock(lock_of(i)):  # the same one for the same name, in each process
            time.sleep(0.1)
        return i

    with local(1, threads=4, processes=False) as made, Client(made) as client:
        client.gather(client.map(read, range(60), pure=False))


@script("lock-bound", near="undersubscribed-threads gil-bound waiting-tasks sequential-graph healthy")
def one_lock_for_all_netcdf_files():
    """dask: Reinstate netCDF lock (a global one across all files, or one for each file), NCAS-CMS/cf-python#531."""
    run_netcdf(lambda i: "netcdf")


@mends(one_lock_for_all_netcdf_files, "a lock for each file", factor=1.5)
def one_lock_for_each_netcdf_file():
    run_netcdf(lambda i: f"netcdf-{i}")


def run_decomposition(threads):
    def modes(chunk):
        found = np.eye(400)
        for _ in range(20):
            found = chunk.T @ (chunk @ found)
            found /= np.linalg.norm(found)
        return found[:1]

    with local(2) as made, Client(made) as client:
        client.run(lambda: threadpoolctl.threadpool_limits(threads) and None)
        snapshots = da.random.random((400 * 12, 400), chunks=(400, 400))
        snapshots.map_blocks(modes, chunks=(1, 400), dtype=float).sum().compute()


@script("oversubscribed-threads", near="work-inflation gil-bound healthy host-overloaded lock-bound task-overhead")
def blas_in_each_chunk():
    """Avoid oversubscribing threads (NumPy does the linear algebra of each chunk with many threads of BLAS),
    SVDROM/svdrom#58.
    """
    run_decomposition(4)


@mends(blas_in_each_chunk, "one thread of BLAS for each worker", factor=1.2)
def one_thread_of_blas_in_each_chunk():
    run_decomposition(1)


def run_retrievals(threads, months=36):
    def retrieve_once(month):
        ready = time.time() + 0.4  # it waits in a queue of the service
        while time.time() < ready:
            time.sleep(0.05)
        return month

    with local(2, threads=threads, processes=False) as made, Client(made):
        dask.compute(*[delayed(retrieve_once, pure=False)(month) for month in range(months)])


@script("undersubscribed-threads", near="healthy lock-bound waiting-tasks too-few-partitions")
def months_requested_of_a_service():
    """Dramatically different download speeds between versions (requests wait in a queue; they may be concurrent),
    PyPSA/atlite#371.
    """
    run_retrievals(1)


@mends(months_requested_of_a_service, "more threads for each worker", factor=2)
def months_requested_by_more_threads():
    run_retrievals(6)


def run_basins(kept):
    with tempfile.TemporaryDirectory() as folder, local(2) as made, Client(made) as client:
        for i in range(300):
            Path(folder, f"{i}.json").write_text(json.dumps({"shape": [i] * 50, "codec": {"id": "blosc"}}))

        def open_store(path):
            return {each.name: json.loads(each.read_text()) for each in sorted(Path(path).iterdir())}

        def read_basin(i, path):
            worker = get_worker()
            if not kept or not hasattr(worker, "store"):
                worker.store = open_store(path)
            time.sleep(0.01)
            return len(worker.store[f"{i}.json"])

        client.gather(client.map(read_basin, range(240), path=folder))


@script("task-overhead", near="tiny-tasks gil-bound healthy undersubscribed-threads client-busy")
def store_opened_by_each_task():
    """Cache open_zarr's metadata-only returned objects (each task opens the same store),
    google-research/flood-forecasting#129.
    """
    run_basins(kept=False)


@mends(store_opened_by_each_task, "keep the store in the worker", factor=1.4)
def store_opened_once():
    run_basins(kept=True)


# ------------------------------------------------------------------ memory


def run_metrics(pause, metrics=72, mebibytes=420):
    def metric(i):
        if i % 12 == 0:
            scores = np.ones(mebibytes * MEBIBYTE)
            time.sleep(2.4)
            return float(scores[i])
        time.sleep(0.25)
        return float(i)

    config = {"distributed.worker.memory.pause": pause, "distributed.worker.memory.terminate": False}
    with dask.config.set(config), local(2, threads=4, memory="760MB") as made, Client(made) as client:
        client.gather(client.map(metric, range(metrics), pure=False))


@script("memory-paused", near="undersubscribed-threads straggler skewed-tasks memory-spill healthy")
def paused_by_one_hungry_metric():
    """Dask pauses metric calculation when operating near the memory limit (it stalls and has no benefit),
    TimeEval/TimeEval#58.
    """
    run_metrics(0.8)


@mends(paused_by_one_hungry_metric, "memory.pause: false", factor=1.15)
def never_paused():
    run_metrics(False)


def run_tiles(held, tiles=90, mebibytes=20):
    def write(tile):
        time.sleep(0.02)
        return float(tile[0])

    with local(2, memory="640MB") as made, Client(made) as client:
        finished, written = [], []
        for future in as_completed(client.map(block, range(tiles), [mebibytes] * tiles, pure=False)):
            written.append(client.submit(write, future, pure=False))
            if held:
                finished.append(future)
        client.gather(written)


@script("memory-spill", near="memory-paused recomputation transfer-bound event-loop-blocked client-waits")
def futures_of_tiles_never_released():
    """Explicitly release dask futures, mapchete/mapchete#396."""
    run_tiles(held=True)


@mends(futures_of_tiles_never_released, "release each future when its tile is written", factor=1.2)
def futures_of_tiles_released():
    run_tiles(held=False)


class PeriodicGC(WorkerPlugin):
    def setup(self, worker):
        self.callback = PeriodicCallback(gc.collect, 50)
        self.callback.start()

    def teardown(self, worker):
        self.callback.stop()


def run_events(plugin):
    def read(i):
        return [{"event": j, "muons": [i, j]} for j in range(40_000)]

    def select(events, cut):
        return sum(event["muons"][1] % 7 > cut for event in events for _ in range(8))

    with local(2) as made, Client(made) as client:
        if plugin:
            client.register_plugin(PeriodicGC())
        events = client.map(read, range(8), pure=False)
        client.gather([client.submit(select, each, cut, pure=False) for cut in range(8) for each in events])


@script(("garbage-collection", "event-loop-blocked"), near="gil-bound memory-spill healthy work-inflation")
def collected_by_a_periodic_callback():
    """Add periodic gc.collect() callback to workers, CoffeaTeam/coffea-casa#416."""
    run_events(plugin=True)


@mends(collected_by_a_periodic_callback, "no callback", factor=1.2)
def collected_by_python_alone():
    run_events(plugin=False)


# ------------------------------------------------------------------ Prefect on Dask


@task
def image_field(i):
    time.sleep(0.02)
    return i


@task
def image_fields(numbers):
    return [image_field.fn(i) for i in numbers]


@script(("prefect-overhead", "tiny-tasks"), near="slow-submission undersubscribed-threads task-overhead healthy")
@flow(task_runner=on_dask())
def a_run_for_each_mapped_input():
    """Consolidate spawned tasks from .map into single task (each is registered with the server),
    PrefectHQ/prefect#18883.
    """
    wait_for(image_field.map(range(120)))


@mends(a_run_for_each_mapped_input, "one task for many inputs", factor=1.3)
@flow(task_runner=on_dask())
def a_run_for_many_inputs():
    wait_for(image_fields.map([list(range(i, i + 30)) for i in range(0, 120, 30)]))


@script("prefect-server-in-workers", near="straggler skewed-tasks healthy task-overhead", without_server=True)
@flow(task_runner=on_dask(2, processes=True))
def no_server_for_the_workers():
    """Dask jobs not executing on Prefect 3.0.1 (each worker begins a server of its own: "daemonic processes are not
    allowed to have children"), PrefectHQ/prefect#15331.
    """
    wait_for(crunch.map(load.map(range(4))))


@mends(no_server_for_the_workers, "PREFECT_API_URL", factor=2)
@flow(task_runner=on_dask(2, processes=True))
def a_server_for_the_workers():
    wait_for(crunch.map(load.map(range(4))))


@task
def write_products(i, seceding):
    with get_dask_client() as client:
        planes = client.map(work, range(8), [0.3] * 8, pure=False)
        if seceding:
            secede()
        for plane in as_completed(planes):
            plane.result()
        if seceding:
            rejoin()


@script(("nested-client", "waiting-tasks"), near="undersubscribed-threads straggler narrow-stage too-few-partitions")
@flow(task_runner=on_dask())
def products_awaited_by_tasks():
    """Report RM-synthesis progress as each product lands (a task waits for others and does not secede; as many as
    workers would wait forever), flint-crew/flint#406.
    """
    wait_for([write_products.submit(i, seceding=False) for i in range(3)])


@mends(products_awaited_by_tasks, "secede() and rejoin() around the wait", factor=1.3)
@flow(task_runner=on_dask())
def products_awaited_by_seceded_tasks():
    wait_for([write_products.submit(i, seceding=True) for i in range(3)])


# ------------------------------------------------------------------ workers that come and go


def run_transformations(unknown):
    with dask.config.set({"distributed.scheduler.unknown-task-duration": unknown}), cluster(0) as made:
        made.adapt(minimum=0, maximum=4, interval="200ms", wait_count=2, target_duration="5s")
        with Client(made) as client:
            for step in ("align", "filter", "count"):
                client.gather(client.map(work, range(8), [1.2] * 8, key=step, pure=False))


@script(("adaptive-scaling", "late-workers"), near="results-awaited-in-loop workers-missing too-few-partitions")
def few_workers_for_unknown_durations():
    """dask-jobqueue scaling and adaptive scaling do not work well with slurm/oar (it goes fine with a larger
    unknown-task-duration), sjdv1982/seamless#261.
    """
    run_transformations("500ms")


@mends(few_workers_for_unknown_durations, "unknown-task-duration: 1m", factor=1.2)
def many_workers_for_unknown_durations():
    run_transformations("1m")


def run_simulations(killed):
    with local(3) as made, Client(made) as client:
        pids = list(client.run(os.getpid).values())
        jobs = client.map(work, range(24), [0.9] * 24, pure=False)
        if killed:
            for pid in pids:
                time.sleep(1.4)
                os.kill(pid, signal.SIGKILL)  # its walltime is over, within a job
        wait(jobs)


@script(("worker-died", "recomputation"), near="worker-killing-task late-workers straggler workers-missing")
def jobs_begun_before_the_walltime():
    """Not all workers are restarted on cluster (a worker accepts a further job, which the walltime then kills; it runs
    again on another worker), queens-py/queens#57.
    """
    run_simulations(killed=True)


@mends(jobs_begun_before_the_walltime, "a walltime of several jobs", factor=1.2)
def jobs_within_the_walltime():
    run_simulations(killed=False)


# ------------------------------------------------------------------ arrays, dataframes, bags


def edges(i):
    time.sleep(0.4)
    return pd.DataFrame({"kind": np.arange(400) % 4, "source": np.arange(400) + i})


def run_edge_groups(kept):
    with local(4, processes=False) as made, Client(made):
        sampled = dd.from_map(edges, range(16), meta=pd.DataFrame({"kind": [0], "source": [0]}))
        if kept:
            sampled = sampled.persist()
        for kind in range(4):
            sampled[sampled.kind == kind].source.max().compute()


@script("recomputation", near="results-awaited-in-loop narrow-stage client-busy healthy too-few-partitions")
def edges_computed_for_each_group():
    """cuGraph-PyG Repeats Dask Computations (persist() is missing where groups are made), rapidsai/cugraph#3080."""
    run_edge_groups(kept=False)


@mends(edges_computed_for_each_group, "persist", factor=1.4)
def edges_computed_once():
    run_edge_groups(kept=True)


def run_assembly(opaque, pieces=3200, together=100):
    def read(i):
        return np.full(50, i)

    def join(parts):
        return float(np.concatenate(parts).mean())

    def assemble(first):
        return join([read(i) for i in range(first, first + together)])

    with local(2) as made, Client(made):
        if opaque:
            chunks = [delayed(assemble, pure=False)(first) for first in range(0, pieces, together)]
        else:
            parts = [delayed(read, pure=False)(i) for i in range(pieces)]
            chunks = [delayed(join, pure=False)(parts[i : i + together]) for i in range(0, pieces, together)]
        dask.compute(*chunks)


@script(("tiny-tasks", "large-graph"), near="gil-bound task-overhead healthy slow-submission transfer-bound")
def very_small_chunks_assembled():
    """Assembling lots of very small chunks (the scheduler is overwhelmed; opaque tasks help),
    pangeo-data/rechunker#147.
    """
    run_assembly(opaque=False)


@mends(very_small_chunks_assembled, "one opaque task for each new chunk", factor=1.4)
def very_small_chunks_assembled_opaquely():
    run_assembly(opaque=True)


def run_echo_range(pings, channel=5, ping_time=1200, samples=400):
    def multiply(part):
        time.sleep(part.size * 2.5e-6)  # as long as the arrays of the source take
        return part

    with local(4, processes=False) as made, Client(made):
        interval = xr.DataArray(da.ones((channel, ping_time), chunks=(channel, pings)), dims=["ch", "pt"])
        sample = xr.DataArray(da.from_array(np.arange(samples)), dims=["rs"])
        echo_range = sample * interval * (interval * 1053) / 2
        echo_range.copy(data=echo_range.data.map_blocks(multiply, dtype=float)).compute()


@script(("too-few-partitions", "narrow-stage"), near="sequential-graph memory-spill straggler client-waits healthy")
def echo_range_of_one_chunk():
    """Add use_swap for scaling compute_Sv on EK60/EK80 (small arrays are one chunk, and so is their large product: just
    one worker computes), echostack-org/echopype#1329.
    """
    run_echo_range(-1)


@mends(echo_range_of_one_chunk, "chunk the dimension of pings", factor=1.4)
def echo_range_of_many_chunks():
    run_echo_range(75)


def run_ancestors(partitions):
    def match(ancestor):
        time.sleep(0.15)
        return ancestor

    with local(4, processes=False) as made, Client(made):
        for group in range(3):
            ancestors = range(group * 60, group * 60 + 60)
            db.from_sequence(ancestors, npartitions=partitions).map(match).compute()


@script(("uneven-waves", "too-few-partitions"), near="results-awaited-in-loop sequential-graph straggler narrow-stage")
def ancestors_in_large_partitions():
    """Split large ancestor groups up for both caching and dask scheduling (worker time is wasted at the end of a
    group), tskit-dev/tsinfer#838.
    """
    run_ancestors(5)


@mends(ancestors_in_large_partitions, "smaller partitions", factor=1.2)
def ancestors_in_small_partitions():
    run_ancestors(20)


# ------------------------------------------------------------------ actors and queues


class Band:
    def backward(self, seed):
        return np.random.default_rng(seed).random((8, 1200, 1200))

    def image(self, seed):
        return self.backward(seed).sum(axis=0)


def run_bands(dense, iterations=14):
    with local(2) as made, Client(made) as client:
        bands = [client.submit(Band, actor=True, pure=False).result() for _ in range(2)]
        for iteration in range(iterations):
            if dense:
                calls = [band.backward(iteration) for band in bands]
                sum(call.result().sum(axis=0) for call in calls)
            else:
                calls = [band.image(iteration) for band in bands]
                sum(call.result() for call in calls)


@script(("client-waits", "transfer-bound"), near="results-awaited-in-loop client-busy serialisation-bound healthy")
def dense_arrays_returned_by_actors():
    """Slow communication between Dask actors and the runner node, ratt-ru/pfb-imaging#113."""
    run_bands(dense=True)


@mends(dense_arrays_returned_by_actors, "reduce within the actor", factor=1.3)
def images_returned_by_actors():
    run_bands(dense=False)


def run_messages(queued, messages=32):
    def produce(i):
        time.sleep(0.2)
        return i

    def handle(message):
        time.sleep(0.1)
        return message

    def publish():
        queue = Queue("messages")
        for i in range(messages):
            queue.put(produce(i))
        for _ in range(3):
            queue.put(-1)

    def consume(_):
        queue = Queue("messages")
        while (message := queue.get()) >= 0:
            handle(message)

    with local(4, processes=False) as made, Client(made) as client:
        if queued:
            queue = Queue("messages")
            wait([client.submit(publish, pure=False), *client.map(consume, range(3), pure=False)])
            queue.close()
        else:
            client.gather(client.map(handle, client.map(produce, range(messages), pure=False), pure=False))


@script("waiting-tasks", near="undersubscribed-threads straggler narrow-stage too-few-partitions lock-bound")
def consumers_of_an_empty_queue():
    """Daskqueue (consumers are long-running tasks that take messages of a queue), https://github.com/AmineDiro/daskqueue."""
    run_messages(queued=True)


@mends(consumers_of_an_empty_queue, "a task for each message", factor=1.4)
def a_task_for_each_message():
    run_messages(queued=False)


# ------------------------------------------------------------------ nothing wrong


@script("healthy", near="gil-bound tiny-tasks undersubscribed-threads slow-submission")
def light_curves_by_processes():
    """Light curves in parallel (delayed, pure Python, processes rather than threads),
    https://www.nilesh42.science/posts/dask-parallel-light-curves/.
    """

    def features(star):
        compute(0.3)
        return star

    with local(2) as made, Client(made):
        dask.compute(*[delayed(features, pure=False)(star) for star in range(60)])


@script("healthy", near="too-few-partitions uneven-waves narrow-stage straggler")
def blocks_of_space_for_each_worker():
    """Add gridded SPI/SPEI parallel scaling benchmark (few blocks of similar size, time is a single chunk),
    monocongo/climate_indices#948.
    """

    def index(part):
        compute(3.0)
        return part - part.mean(axis=0)

    with local(2) as made, Client(made):
        months = da.ones((480, 38, 88), chunks=(480, 19, 44))
        months.map_blocks(index, dtype=float).sum().compute()


def light_curves(i):
    compute(0.6)
    return pd.DataFrame({"band": np.arange(300) % 3, "flux": np.arange(300) * 0.5 + i})


@script("healthy", near="recomputation results-awaited-in-loop narrow-stage memory-spill")
def persisted_for_later_computes():
    """Add a persist function to Ensemble (it speeds up later compute() calls), lincc-frameworks/tape#119."""
    with local(2) as made, Client(made):
        ensemble = dd.from_map(light_curves, range(24), meta=pd.DataFrame({"band": [0], "flux": [0.5]})).persist()
        wait(ensemble)
        for statistic in ("min", "max", "mean"):
            getattr(ensemble.flux, statistic)().compute()


@task(persist_result=True)
def run_long_thing(year, day):
    compute(1.2)
    return f"{year}-{day}"


@script("healthy", near="prefect-overhead results-awaited-in-loop task-overhead slow-submission")
@flow(task_runner=on_dask(2, processes=True))
def days_submitted_and_awaited():
    """Tasks not being cached (all days are submitted, then awaited; small results are persisted),
    PrefectHQ/prefect#15559.
    """
    outputs = []
    for day in range(16):
        outputs.append(run_long_thing.submit(2016, day))
    wait_for(outputs)


@script("healthy", near="few-tasks-in-flight results-awaited-in-loop client-waits memory-spill")
def sliding_window_of_days():
    """Allow sliding_window_pipeline results to be discarded (a window of futures; each result that arrives is summed up
    and cancelled, and the next day is submitted), mspass-team/mspass#1014.
    """

    def process(day):
        compute(0.5)
        return day

    with local(2) as made, Client(made) as client:
        days, total = iter(range(36)), 0
        window = as_completed([client.submit(process, next(days), pure=False) for _ in range(6)])
        for future in window:
            total += future.result()
            for day in days:
                window.add(client.submit(process, day, pure=False))
                break


@script("healthy", near="memory-spill too-few-partitions memory-paused narrow-stage oversubscribed-threads")
def chunks_larger_than_the_default():
    """Better chunk size value for chunks=auto setting (larger ones: longer tasks, smaller graphs), dask/dask#11342."""
    with local(2) as made, Client(made):
        values = da.random.random((16, 200 * MEBIBYTE), chunks=(1, 200 * MEBIBYTE))
        np.sin(np.exp(values)).sum().compute()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
