"""Busy tasks and what they do inside: wait for a lock, the outside or a rate; import, unpickle, compute.

Collected and labelled before there was a rule that reads what tasks do inside. The last third, from
`writers_of_one_database` on, was looked at only after the rules had been written.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from dask.utils import SerializableLock
from declare import case, remedy


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


# ------------------------------------------------------------------ what surrounds the work costs more than the work


@case("task-overhead", 2, "local", near="work-inflation healthy straggler undersubscribed-threads")
@remedy("PREFECT_API_URL: one server for all", url="http://127.0.0.1:4200/api")
def server_started_by_each_worker(client, url: str = "", tasks: int = 8):
    """Investigate if there's a way to optimize DaskTaskRunner (the first tasks of each run are slower),
    prefect-archive/prefect-dask#61.
    """
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
    a1ex4/ownfoil#322.
    """
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


@case("healthy", 1, "local", threads=2, near="undersubscribed-threads lock-bound task-overhead")
def slots_of_a_rate(client, requests: int = 12, per_s: float = 8.0):
    """Throttling tasks (database, web api), dask/distributed#864."""
    begin = time.time() + 0.2

    def call(i, begin):
        time.sleep(max(0.0, begin + i / per_s - time.time()))  # its slot, as the service asks for
        time.sleep(0.15)
        return i

    client.gather(client.map(partial(call, begin=begin), range(requests), pure=False))
