"""Busy tasks and what they do inside: wait for a lock, the outside or a rate; import, unpickle, compute.

Collected and labelled before there was a rule that reads what tasks do inside. The last third, from
`writers_of_one_database` on, was looked at only after the rules had been written.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

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


# ------------------------------------------------------------------ what surrounds the work costs more than the work


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
