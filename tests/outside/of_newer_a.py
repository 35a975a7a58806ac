"""Scripts collected and labelled after those of `of_unseen.py`, without a look at any rule: tasks, memory, clients.

Most workers are processes; those that only sleep share one, for speed.
"""

from __future__ import annotations

import operator
import pickle
import sqlite3
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from difflib import SequenceMatcher
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import urlopen

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from declare import mends_script, script
from distributed import Client, get_worker, wait
from of_inside import server
from of_memory import block
from of_unseen import local
from threadpoolctl import threadpool_limits

# ------------------------------------------------------------------ inside busy tasks


def run_fuzzy(workers, threads):
    choices = [f"client number {i * 7919 % 1009}" for i in range(60)]

    def closest(name):
        return max(choices, key=lambda choice: SequenceMatcher(None, name, choice).ratio())

    names = pd.DataFrame({"name": [f"customer no. {i * 7907 % 10_007}" for i in range(3200)]})
    with local(workers, threads) as made, Client(made):
        dd.from_pandas(names, npartitions=16)["name"].apply(closest, meta=("match", "str")).compute()


@script("gil-bound", near="event-loop-blocked healthy undersubscribed-threads work-inflation")
def names_compared_by_threads():
    """Distributed pandas apply (a fuzzy search in pure Python, on one worker with a thread for each core),
    dask/distributed#552."""
    run_fuzzy(1, 4)


@mends_script(names_compared_by_threads, "processes instead of threads", factor=1.3)
def names_compared_by_processes():
    run_fuzzy(2, 1)


def run_archive(one):
    with tempfile.TemporaryDirectory() as folder, local(4) as made, Client(made) as client:

        def make_map(i):
            time.sleep(0.15)  # it makes the map
            path = f"{folder}/{'all' if one else i}.sqlite"
            with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as archive:
                archive.execute("begin immediate")
                archive.execute("create table if not exists maps (i)")
                archive.execute("insert into maps values (?)", (i,))
                time.sleep(0.2)  # the file system is far away
                archive.execute("commit")
            return i

        client.gather(client.map(make_map, range(28), pure=False))


@script("lock-bound", near="waiting-tasks undersubscribed-threads skewed-tasks healthy")
def maps_noted_in_one_archive():
    """Add timeout parameter to SQLite connection (many workers write to one database on a slow file system),
    simonsobs/sotodlib#1496."""
    run_archive(one=True)


@mends_script(maps_noted_in_one_archive, "a database for each map, merged later")
def maps_noted_in_an_archive_each():
    run_archive(one=False)


def run_matches(kept):
    with tempfile.TemporaryDirectory() as folder, local(2) as made, Client(made) as client:
        with open(f"{folder}/model.pickle", "wb") as file:
            pickle.dump([(i, str(i), i * 0.5) for i in range(250_000)], file)

        def match(pair):
            worker = get_worker()
            if not kept or not hasattr(worker, "model"):
                with open(f"{folder}/model.pickle", "rb") as file:
                    worker.model = pickle.load(file)
            time.sleep(0.05)
            return worker.model[pair][2]

        client.gather(client.map(match, range(40), pure=False))


@script(("task-overhead", "serialisation-bound"), near="gil-bound healthy tiny-tasks garbage-collection")
def model_read_by_each_task():
    """Optimize inference with deep models (the model is read from disk every single time), borglab/gtsfm#110."""
    run_matches(kept=False)


@mends_script(model_read_by_each_task, "keep the model in the worker")
def model_read_once():
    run_matches(kept=True)


def run_reads(threads):
    with server(0.12) as address, local(2, threads=threads) as made, Client(made) as client:

        def read_row_group(i):
            for _ in ("head", "footer", "data"):
                with urlopen(address) as answer:
                    answer.read()
            return i

        client.gather(client.map(read_row_group, range(36), pure=False))


@script("undersubscribed-threads", near="healthy lock-bound waiting-tasks gil-bound")
def row_groups_read_with_latency():
    """Dask ReadParquet Performance Bottleneck (several requests for each row group; neither network nor CPU is used),
    coiled/benchmarks#1125."""
    run_reads(1)


@mends_script(row_groups_read_with_latency, "more threads for each worker", factor=2)
def row_groups_read_by_more_threads():
    run_reads(6)


def run_templates(blas):
    with local(2) as made, Client(made) as client:

        def match_templates(i):
            templates = np.random.default_rng(i).random((240, 240))
            with threadpool_limits(blas):
                for _ in range(15):
                    np.linalg.svd(templates)
            return i

        client.gather(client.map(match_templates, range(10), pure=False))


@script("oversubscribed-threads", near="work-inflation gil-bound healthy task-overhead host-overloaded")
def a_thread_of_blas_for_each_core_of_the_node():
    """Setting %env OMP_NUM_THREADS=1 speeds up the routines in example 11 tremendously (24 cores, and time goes by in
    sched_yield), pyxem/pyxem-demos#87."""
    run_templates(24)


@mends_script(a_thread_of_blas_for_each_core_of_the_node, "OMP_NUM_THREADS=1", factor=1.3)
def one_thread_of_blas():
    run_templates(1)


# ------------------------------------------------------------------ memory and transfers


def run_writes(held, parts=60, mebibytes=24):
    def write(values):
        time.sleep(0.03)
        return values.nbytes

    with local(2, memory="480MB") as made, Client(made) as client:
        loaded = client.map(block, range(parts), [mebibytes] * parts, pure=False)
        written = client.map(write, loaded, pure=False)
        if not held:
            del loaded
        wait(written)


@script("memory-spill", near="memory-paused recomputation transfer-bound event-loop-blocked")
def partitions_held_until_all_are_written():
    """Implement non-blocking to_parquet (references to all completed tasks prevent that memory is released),
    ml6team/fondant#892."""
    run_writes(held=True)


@mends_script(partitions_held_until_all_are_written, "hold only what is written", factor=1.2)
def partitions_released_when_written():
    run_writes(held=False)


def run_fft(chunks, side=3600):
    config = {"distributed.scheduler.allowed-failures": 1, "array.rechunk.method": "tasks"}
    with dask.config.set(config), local(2, memory="400MB") as made, Client(made) as client:
        image = da.random.random((side, side), chunks=(chunks, side))
        rows = da.fft.fft(image, axis=1)
        spectrum = da.fft.fft(rows.rechunk((side, chunks)), axis=0)
        wait(client.compute(abs(spectrum).sum()))


@script(("worker-killing-task", "worker-died"), near="memory-spill memory-paused recomputation narrow-stage")
def spectrum_of_one_chunk():
    """FFT on modestly large array results in KilledWorker, dask/distributed#1760."""
    run_fft(3600)


@mends_script(spectrum_of_one_chunk, "smaller chunks", factor=0)
def spectrum_of_smaller_chunks():
    run_fft(300)


def run_slices(whole, blocks=10, mebibytes=64):
    def part(values, j):
        return values[j::blocks].copy()

    def analyse(found, j):
        time.sleep(0.05)
        return sum(float(values[j]) for values in found)

    with local(3) as made, Client(made) as client:
        found = client.map(block, range(blocks), [mebibytes] * blocks, pure=False)
        wait(found)
        done = []
        for j in range(blocks):
            needed = found if whole else [client.submit(part, values, j, pure=False) for values in found]
            done.append(client.submit(analyse, needed, j, pure=False))
        client.gather(done)


@script("transfer-bound", near="memory-spill data-locality serialisation-bound narrow-stage")
def whole_arrays_sent_for_slices():
    """Problem with working with large numpy arrays using Dask (arrays are sent to those who work on slices),
    dask/dask#2227."""
    run_slices(whole=True)


@mends_script(whole_arrays_sent_for_slices, "slice where the array is")
def slices_sent():
    run_slices(whole=False)


def run_subsets(scattered, polygons=80):
    points = np.random.default_rng(0).random(2_000_000)

    def inside(polygon, points):
        return int((points * polygons < polygon).sum())

    with local(2) as made, Client(made) as client:
        if scattered:
            points = client.scatter(points, broadcast=True)
        client.gather([client.submit(inside, polygon, points, pure=False) for polygon in range(polygons)])


@script(("large-graph", "client-busy", "slow-submission"), near="transfer-bound serialisation-bound client-waits")
def points_sent_with_each_polygon():
    """Dask warning when applying polygon subsetting (large object in the graph: all points),
    TUDelftGeodesy/stmtools#13."""
    run_subsets(scattered=False)


@mends_script(points_sent_with_each_polygon, "client.scatter(points, broadcast=True)", factor=1.4)
def points_sent_once():
    run_subsets(scattered=True)


def run_images(reduced, images=60, mebibytes=20):
    def image(i):
        values = block(i, mebibytes)
        return float(values.mean()) if reduced else values

    with local(2) as made, Client(made) as client:
        client.gather(client.map(image, range(images), pure=False))


@script(("client-waits", "transfer-bound"), near="serialisation-bound memory-spill event-loop-blocked client-busy")
def images_collected_by_the_client():
    """Slow inter-node communication (the computation is quick, but gathering the images takes longer),
    dask/distributed#32."""
    run_images(reduced=False)


@mends_script(images_collected_by_the_client, "reduce on the workers", factor=1.3)
def images_reduced_by_the_workers():
    run_images(reduced=True)


# ------------------------------------------------------------------ small tasks, and a service


def run_preprocessor(chunk):
    with local(2) as made, Client(made):
        tas = da.random.random((480, 480), chunks=(chunk, chunk))
        (tas - tas.mean(axis=0)).std().compute()


@script("tiny-tasks", near="large-graph client-busy gil-bound task-overhead healthy")
def many_small_chunks():
    """Preprocessor creates too many small chunks, ESMValGroup/ESMValCore#2184."""
    run_preprocessor(12)


@mends_script(many_small_chunks, "larger chunks", factor=2)
def few_larger_chunks():
    run_preprocessor(120)


class Service:
    """Answers so many calls a second, and raises for all others."""

    def __init__(self, calls_per_second):
        self.interval, self.free_at, self.lock = 1 / calls_per_second, 0.0, threading.Lock()

    def call(self):
        with self.lock:
            if time.monotonic() < self.free_at:
                raise OSError("429 Too Many Requests")
            self.free_at = time.monotonic() + self.interval


SERVICES: dict[float, Service] = {}


def ask(calls_per_second):
    """Call the service of this process that answers so often."""
    SERVICES.setdefault(calls_per_second, Service(calls_per_second)).call()


@contextmanager
def limited(calls_per_second):
    """A server that answers so many calls a second; to others it says that they are too many."""
    service = Service(calls_per_second)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            try:
                service.call()
                self.send_response(200)
            except OSError:
                self.send_response(429)
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/"
        finally:
            running.shutdown()


def run_tiles(calls_per_second):
    with limited(calls_per_second) as address, local(2, threads=4) as made, Client(made) as client:

        def fetch(tile):
            while True:
                try:
                    with urlopen(address) as answer:
                        answer.read()
                    break
                except HTTPError:
                    time.sleep(0.25)  # too many requests
            time.sleep(0.1)
            return tile

        client.gather(client.map(fetch, range(32), pure=False))


@script(("waiting-tasks", "retried-tasks"), near="undersubscribed-threads lock-bound healthy straggler")
def tiles_of_a_service_with_a_rate_limit():
    """Handle RDA rate limits with retry (within each task), DigitalGlobe/gbdxtools#822."""
    run_tiles(6)


@mends_script(tiles_of_a_service_with_a_rate_limit, "a higher rate limit", factor=2)
def tiles_of_a_service_with_a_higher_limit():
    run_tiles(1_000_000)


# ------------------------------------------------------------------ nothing wrong


@script("healthy", near="retried-tasks undersubscribed-threads straggler unfinished-tasks")
def chunks_stored_in_an_unreliable_target():
    """store in unreliable targets (few of many calls fail, at once, and are repeated), dask/dask#3299."""

    def store(i):
        failed = get_worker().__dict__.setdefault("failed", set())
        if i in (9, 31) and i not in failed:
            failed.add(i)
            raise OSError("random failure")
        time.sleep(0.25)
        return i

    with local(4, processes=False) as made, Client(made) as client:
        client.gather(client.map(store, range(64), pure=False, retries=10))


@script("healthy", near="narrow-stage sequential-graph tiny-tasks few-tasks-in-flight")
def histograms_added_as_a_tree():
    """Merge results with a tree reduction, dask-contrib/dask-histogram#3."""

    @delayed(pure=False)
    def fill(i):
        time.sleep(0.4)
        return np.full(100, i)

    with local(4, processes=False) as made, Client(made):
        found = [fill(i) for i in range(40)]
        while len(found) > 1:
            pairs = zip(found[::2], found[1::2], strict=False)
            found = [delayed(operator.add)(*pair) for pair in pairs] + found[len(found) // 2 * 2 :]
        found[0].compute()


@script("healthy", near="memory-spill memory-paused recomputation results-awaited-in-loop")
def collections_kept_in_memory():
    """Query collections that are currently persisted (much is in memory, which is what it is for),
    dask/distributed#7080."""

    def fit(values, seed):
        return float(np.sort(values * seed).mean())

    with local(2, memory="700MB") as made, Client(made) as client:
        kept = client.map(block, range(8), [30] * 8, pure=False)
        wait(kept)
        for seed in range(1, 4):
            wait(client.map(fit, kept, seed=seed, pure=False))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
