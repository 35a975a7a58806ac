"""Busy tasks and what they do inside: wait for a lock, the outside or a rate; import, unpickle, compute.

Collected and labelled before there was a rule that reads what tasks do inside. The last third, from
`writers_of_one_database` on, was looked at only after the rules had been written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

from dask.utils import SerializableLock
from declare import case, remedy
from distributed import get_worker


@contextmanager
def server(seconds: float) -> Iterator[str]:
    """A server whose every answer takes so long."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            time.sleep(seconds)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * 1000)

        def log_message(self, *args):
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Answer) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/"
        finally:
            running.shutdown()


@contextmanager
def installed(name: str, text: str) -> Iterator[str]:
    """The folder of an installed package of this name and text, which stands for one that is slow to use."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "site-packages", name)
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
        yield str(package.parent)


# ------------------------------------------------------------------ they wait for one lock


@case("lock-bound", 1, "local", threads=4, near="gil-bound undersubscribed-threads waiting-tasks")
@remedy("open_rasterio(lock=False): a handle for each thread", locked=False)
def tiles_behind_the_lock_of_a_raster(client, locked: bool = True, tiles: int = 48):
    """Issue with locking when reading from multiple threads with Dask, corteva/rioxarray#214."""
    lock = SerializableLock(uuid.uuid4().hex) if locked else nullcontext()

    def read_tile(i, lock):
        with lock:
            time.sleep(0.06)  # it reads
        time.sleep(0.02)
        return i

    client.gather(client.map(read_tile, range(tiles), lock=lock, pure=False))


@case("lock-bound", 4, "local", near="skewed-tasks undersubscribed-threads work-inflation healthy")
@remedy("a file for each task", databases=32)
def jobs_mark_themselves_in_one_database(client, databases: int = 1, jobs: int = 32):
    """Job processing tasks may raise "database is locked" errors (a long transaction of one keeps all others waiting),
    dstackai/dstack#825."""
    with tempfile.TemporaryDirectory() as folder:
        for i in range(databases):
            with closing(sqlite3.connect(f"{folder}/{i}.db")) as database:
                database.execute("create table jobs (id integer, state text)")
                database.commit()

        def process(i):
            with closing(sqlite3.connect(f"{folder}/{i % databases}.db", timeout=60, isolation_level=None)) as database:
                database.execute("begin immediate")
                time.sleep(0.08)  # it works while its transaction is open
                database.execute("insert into jobs values (?, 'done')", (i,))
                database.execute("commit")
            return i

        client.gather(client.map(process, range(jobs), pure=False))


@case("lock-bound", 1, "local", threads=4, near="gil-bound event-loop-blocked undersubscribed-threads")
@remedy("processes instead of threads", workers=4, threads=1)
def reads_behind_the_lock_of_a_library(client, chunks: int = 32):
    """Multi-threaded reads use only 100% CPU? (every call of the library takes one lock of the process, also while it
    decompresses), h5py/h5py#591."""

    def read_chunk(i):
        phil = get_worker().__dict__.setdefault("phil", threading.RLock())
        with phil:
            time.sleep(0.07)
        return i

    client.gather(client.map(read_chunk, range(chunks), pure=False))


@case("lock-bound", 4, "local", near="skewed-tasks undersubscribed-threads work-inflation")
@remedy("a lock for each file instead of one for the folder", locks=24)
def copies_behind_the_lock_of_a_cache(client, locks: int = 1, files: int = 24):
    """FileCache: avoid cache-wide dir lock (copying for the next epoch blocks that for this one),
    rwth-i6/returnn#1548."""
    with tempfile.TemporaryDirectory() as folder:

        def copy(i):
            with open(f"{folder}/{i % locks}.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                time.sleep(0.1)
            return i

        client.gather(client.map(copy, range(files), pure=False))


@case("lock-bound", 1, "local", threads=4, near="undersubscribed-threads gil-bound waiting-tasks")
@remedy("a higher rate", per_s=1000)
def one_request_after_another(client, per_s: int = 12, requests: int = 36):
    """Make a feature proposal about throttling arbitrary code execution across X dask workers (downloads are limited
    in their rate), pangeo-data/jupyter-earth#85."""

    def fetch(i):
        limiter = get_worker().__dict__.setdefault("limiter", threading.Lock())
        with limiter:
            time.sleep(1 / per_s)
        time.sleep(0.03)
        return i

    client.gather(client.map(fetch, range(requests), pure=False))


@case("healthy", 1, "local", threads=4, near="lock-bound waiting-tasks gil-bound")
def a_lock_for_the_header(client, chunks: int = 24):
    """Lockless multi-threaded reads (the default takes a lock only where it opens the file), corteva/rioxarray#224."""
    lock = SerializableLock(uuid.uuid4().hex)

    def read(i, lock):
        with lock:
            time.sleep(0.002)
        time.sleep(0.25)
        return i

    client.gather(client.map(read, range(chunks), lock=lock, pure=False))


# ------------------------------------------------------------------ they wait for the outside


@case("undersubscribed-threads", 1, "local", near="healthy lock-bound")
@remedy("more threads for each worker", threads=8)
def batches_of_images_from_a_bucket(client, batches: int = 32):
    """Recommended cluster setup (nthreads, n workers) for I/O workloads? dask/distributed#3205."""
    with server(0.15) as address:

        def load(i):
            with urlopen(address) as answer:
                return len(answer.read())

        client.gather(client.map(load, range(batches), pure=False))


@case("undersubscribed-threads", 2, "local", near="healthy lock-bound tiny-tasks")
@remedy("more threads for each worker", threads=6)
def pages_of_a_crawler(client, pages: int = 48):
    """Async in process in Threads in Core (a web crawler), dask/distributed#2636."""
    with server(0.15) as address:

        def crawl(i):
            with urlopen(address) as answer:
                page = answer.read()
            return hashlib.sha256(page * 1000).hexdigest()

        client.gather(client.map(crawl, range(pages), pure=False))


@case("undersubscribed-threads", 1, "local", near="healthy gil-bound lock-bound")
@remedy("more threads for each worker", threads=6)
def programs_that_wait(client, files: int = 24):
    """Add support for running tasks in parallel (each task starts a program), MPAS-Dev/MPAS-Analysis#129."""

    def remap(i):
        subprocess.run(["sleep", "0.2"], check=True)  # it waits for the file system
        return i

    client.gather(client.map(remap, range(files), pure=False))


@case("healthy", 1, "local", threads=8, near="undersubscribed-threads lock-bound gil-bound")
def as_many_downloads_as_threads(client, files: int = 8):
    """Recommended cluster setup (nthreads, n workers) for I/O workloads? (as many threads as you like),
    dask/distributed#3205."""
    with server(1.0) as address:

        def load(i):
            with urlopen(address) as answer:
                return len(answer.read())

        client.gather(client.map(load, range(files), pure=False))


@case("healthy", 2, "local", near="undersubscribed-threads lock-bound")
def chain_of_queries(client, steps: int = 6):
    """Recidiviz: Should we limit requests to one per task? (each request needs the answer to the one before),
    Recidiviz/recidiviz-data#97."""
    with server(0.3) as address:

        def ask(before, name):
            with urlopen(address) as answer:
                return len(answer.read())

        people = [None, None]
        for step in range(steps):
            people = [client.submit(ask, person, f"{step} {i}", pure=False) for i, person in enumerate(people)]
        client.gather(people)


# ------------------------------------------------------------------ what surrounds the work costs more than the work


@case("task-overhead", 2, "local", near="work-inflation straggler skewed-tasks late-workers")
@remedy("import it when workers start", preloaded=True)
def modules_imported_by_the_first_tasks(client, preloaded: bool = False, tasks: int = 8):
    """Preloading for some modules (loading them as part of the job makes workers unresponsive),
    LiberTEM/LiberTEM#223."""
    name = f"heavy_{uuid.uuid4().hex[:8]}"
    seconds = 0.0 if preloaded else 1.5  # workers that have imported it at their start find it
    text = f"import time\ntime.sleep({seconds})\n\ndef reduce(frame):\n    time.sleep(0.1)\n"
    with installed(name, text) as folder:

        def frame_mask(frame):
            if folder not in sys.path:
                sys.path.insert(0, folder)
            __import__(name).reduce(frame)
            return frame

        client.gather(client.map(frame_mask, range(tasks), pure=False))


@case("task-overhead", 2, "local", near="tiny-tasks transfer-bound serialisation-bound")
@remedy("load it once in each process", kept=True)
def model_unpickled_by_each_prediction(client, kept: bool = False, frames: int = 40):
    """Slow dask predictions (the time to load the pickle is in each call), dmlc/xgboost#7006."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pickle")
        path.write_bytes(pickle.dumps([(i, float(i), str(i)) for i in range(150_000)]))

        def predict(frame):
            models = get_worker().__dict__.setdefault(f"models {path}", [])
            if not models:
                with open(path, "rb") as file:
                    model = pickle.load(file)
                if kept:
                    models.append(model)
            time.sleep(0.01)
            return frame

        client.gather(client.map(predict, range(frames), pure=False))


@case("task-overhead", 2, "local", near="work-inflation healthy straggler undersubscribed-threads")
@remedy("PREFECT_API_URL: one server for all", url="http://127.0.0.1:4200/api")
def server_started_by_each_worker(client, url: str = "", tasks: int = 8):
    """Investigate if there's a way to optimize DaskTaskRunner (the first tasks of each run are slower),
    prefect-archive/prefect-dask#61."""
    engine = """
import time

servers = []

def start_server():
    time.sleep(2)
    servers.append(1)

def run_task(function, value, url):
    if not url and not servers:
        start_server()
    return function(value)
"""
    with installed("prefect", engine) as folder:

        def load_data(i):
            time.sleep(0.15)
            return i

        def run(i):
            if folder not in sys.path:
                sys.path.insert(0, folder)
            return __import__("prefect").run_task(load_data, i, url)

        client.gather(client.map(run, range(tasks), key="load_data", pure=False))


@case("healthy", 2, "local", near="task-overhead undersubscribed-threads gil-bound")
def hashes_of_blocks(client, blocks: int = 12):
    """Client gets threads_per_worker=1 (computation that fills its cores), PSLmodels/OG-USA#102."""

    def solve(i):
        end = time.thread_time() + 0.25
        while time.thread_time() < end:
            hashlib.sha256(bytes(1 << 20))
        return i

    client.gather(client.map(solve, range(blocks), pure=False))


@case("healthy", 2, "local", near="task-overhead serialisation-bound tiny-tasks")
def records_parsed_by_a_library(client, files: int = 12):
    """SSL error when loading many files from S3 (newline-delimited JSON, whose parsing is the work), dask/dask#1292."""
    text = json.dumps([{"id": i, "words": ["a", "b", "c"] * 5} for i in range(2_000)], indent=1)

    def count(i):
        end = time.thread_time() + 0.25
        while time.thread_time() < end:
            json.dumps(json.loads(text), indent=1)
        return i

    client.gather(client.map(count, range(files), pure=False))


# ------------------------------------------------------------------ looked at only at the end


@case("lock-bound", 3, "local", near="skewed-tasks work-inflation undersubscribed-threads")
@remedy("short transactions", open_s=0.001)
def writers_of_one_database(client, open_s: float = 0.1, files: int = 24):
    """SQLite WAL mode needed for multi-process task queue (workers mostly wait for the lock of the database),
    a1ex4/ownfoil#322."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/files.db"
        with closing(sqlite3.connect(path)) as database:
            database.execute("create table files (id integer)")
            database.commit()

        def scan(i):
            time.sleep(0.02)
            database = sqlite3.connect(path, timeout=60)
            with closing(database), database:
                database.execute("insert into files values (?)", (i,))
                time.sleep(open_s)
            return i

        client.gather(client.map(scan, range(files), pure=False))


@case("lock-bound", 1, "local", threads=6, near="undersubscribed-threads waiting-tasks gil-bound")
@remedy("as many connections as threads", connections=6)
def one_connection_in_the_pool(client, connections: int = 1, rows: int = 36):
    """Dask task scheduling hangs, then eventually flow fails with PoolTimeout (max_connections),
    PrefectHQ/prefect#12877."""

    def query(i):
        import queue

        pool = get_worker().__dict__.setdefault(f"pool {connections}", queue.Queue())
        made = get_worker().__dict__.setdefault(f"made {connections}", [])
        if len(made) < connections:
            made.append(i)
            pool.put(f"connection {i}")
        connection = pool.get()
        try:
            time.sleep(0.07)
        finally:
            pool.put(connection)
        return i

    client.gather(client.map(query, range(rows), pure=False))


@case("undersubscribed-threads", 1, "local", near="lock-bound healthy waiting-tasks")
@remedy("more threads for each worker", threads=6)
def files_fetched_in_another_thread(client, files: int = 24):
    """fs.get hangs or work synchronously when called within a multiprocessing executor (each call waits for a loop in
    another thread), fsspec/s3fs#600."""

    def get(i):
        import asyncio

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.2), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        return i

    client.gather(client.map(get, range(files), pure=False))


@case("undersubscribed-threads", 1, "local", near="gil-bound healthy lock-bound")
@remedy("more threads for each worker", threads=4)
def tiles_requested_one_by_one(client, blocks: int = 20):
    """Improving Performance with Cloud-Optimized Geotiffs (a synchronous request for each tile),
    pangeo-data/pangeo-example-notebooks#21."""
    compressed = zlib.compress(os.urandom(200_000) * 4)
    with server(0.06) as address:

        def read_block(i):
            for _ in range(3):
                with urlopen(address) as answer:
                    answer.read()
                zlib.decompress(compressed)
            return i

        client.gather(client.map(read_block, range(blocks), pure=False))


@case("task-overhead", 3, "local", near="work-inflation straggler skewed-tasks slow-worker")
@remedy("load them when workers start", preloaded=True)
def many_modules_from_a_slow_disk(client, preloaded: bool = False, tasks: int = 9):
    """Defer pandas import on worker in P2P shuffle (imports are slow from NFS), dask/distributed#5695."""
    run = uuid.uuid4().hex[:8]
    with tempfile.TemporaryDirectory() as folder:
        names = [f"part_{run}_{i}" for i in range(30)]
        seconds = 0.0 if preloaded else 0.05  # workers that have imported them at their start find them
        for name in names:
            Path(folder, f"{name}.py").write_text(f"import time\ntime.sleep({seconds})\n")

        def shuffle(i):
            if folder not in sys.path:
                sys.path.insert(0, folder)
                for name in names:
                    __import__(name)
            time.sleep(0.05)
            return i

        client.gather(client.map(shuffle, range(tasks), pure=False))


@case("task-overhead", 2, "local", near="tiny-tasks undersubscribed-threads healthy")
@remedy("a client for each process", shared=True)
def a_client_for_each_request(client, shared: bool = False, entropies: int = 16):
    """bug 1433148: switch from boto to boto3 (creating a client takes 0.5 s for some reason, in each process),
    mozilla-services/socorro#5039."""
    text = "import time\n\ndef client(name):\n    time.sleep(0.2)\n    return name\n"
    with installed("boto3", text) as folder:

        def check_crashids(entropy):
            if folder not in sys.path:
                sys.path.insert(0, folder)
            clients = get_worker().__dict__.setdefault(f"clients {folder}", [])
            if not (shared and clients):
                clients.append(__import__("boto3").client("s3"))
            time.sleep(0.03)
            return entropy

        client.gather(client.map(check_crashids, range(entropies), pure=False))


@case("healthy", 1, "local", threads=2, near="undersubscribed-threads lock-bound task-overhead")
def slots_of_a_rate(client, requests: int = 12, per_s: float = 8.0):
    """Throttling tasks (database, web api), dask/distributed#864."""
    begin = time.time() + 0.2

    def call(i, begin):
        time.sleep(max(0.0, begin + i / per_s - time.time()))  # its slot, as the service asks for
        time.sleep(0.15)
        return i

    client.gather(client.map(partial(call, begin=begin), range(requests), pure=False))


@case("healthy", 2, "local", near="task-overhead lock-bound undersubscribed-threads")
def frames_sorted_by_pandas(client, partitions: int = 8):
    """Embarrassingly parallel workload example (functions of a library that others wrote), dask/dask-examples#34."""

    def simulate(i):
        import numpy as np
        import pandas as pd

        frame = pd.DataFrame({"a": np.random.default_rng(i).random(150_000)})
        end = time.thread_time() + 0.4
        while time.thread_time() < end:
            frame.sort_values("a").rolling(5).mean()
        return i

    client.run(lambda: __import__("pandas"))
    client.gather(client.map(simulate, range(partitions), pure=False))
