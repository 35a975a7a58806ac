"""Examples for the pages of causes: for each cause, code that has it, and the same code with the fix.

tests/causes/test_examples.py runs both, and checks that only the first has the cause. Examples run on 16 simulated
workers, or on the numbers given by `on`. Examples marked by `real` run in processes of this machine.
"""

from __future__ import annotations

import fcntl
import gc
import os
import time

import dask
import dask.bag as db
from distributed import Lock, as_completed, get_client, get_worker, wait


def on(*workers):
    """Decorator: run an example on these numbers of workers, if 16 workers do not show its cause."""

    def marked(function):
        function.workers = workers
        return function

    return marked


def real(workers, threads=1, **cluster):
    """Decorator: run an example on a local cluster of worker processes; `cluster`: further fields of the cluster."""

    def marked(function):
        function.workers, function.threads, function.cluster = (workers,), threads, {"kind": "local", **cluster}
        return function

    return marked


def work(*inputs, seconds=1.0):
    time.sleep(seconds)
    return seconds


def fit(data, seconds):
    time.sleep(seconds)


def large(*inputs, mb=400):
    time.sleep(1)
    return Table(mb)


class Table:
    """A value that claims a size of `mb` MB."""

    def __init__(self, mb):
        self.mb = mb

    def __sizeof__(self):
        return self.mb * 1_000_000


# ------------------------------------------------------------------ how much is sent, and when


def results_awaited_in_loop(client):
    for item in range(64):
        client.submit(work, item).result()


def results_awaited_in_loop_mended(client):
    futures = client.map(work, range(64))
    client.gather(futures)


def few_tasks_in_flight(client):
    running = as_completed(client.map(work, range(4)))
    for item, _ in enumerate(running, 4):
        if item < 64:
            running.add(client.submit(work, item))


def few_tasks_in_flight_mended(client):
    running = as_completed(client.map(work, range(32)))
    for item, _ in enumerate(running, 32):
        if item < 64:
            running.add(client.submit(work, item))


def slow_submission(client):
    futures = []
    for item in range(64):
        time.sleep(0.5)  # reads the item's file
        futures.append(client.submit(work, item))
    client.gather(futures)


def slow_submission_mended(client):
    def read_and_work(item):
        time.sleep(0.5)
        return work(item)

    client.gather(client.map(read_and_work, range(64)))


def client_busy(client):
    for future in as_completed(client.map(work, range(64))):
        future.result()
        time.sleep(0.5)  # writes the result


def client_busy_mended(client):
    def work_and_write(item):
        work(item)
        time.sleep(0.5)

    client.gather(client.map(work_and_write, range(64)))


def nested_client(client):
    def outer(item):
        inner = get_client()
        return sum(inner.gather(inner.map(work, [(item, part) for part in range(4)])))

    client.gather(client.map(outer, range(12)))


def nested_client_mended(client):
    parts = client.map(work, range(48))
    client.gather([client.submit(sum, parts[i : i + 4]) for i in range(0, 48, 4)])


# ------------------------------------------------------------------ the shape of the graph


def too_few_partitions(client):
    bag = db.from_sequence(range(64), npartitions=4)
    bag.map(work).compute()


def too_few_partitions_mended(client):
    bag = db.from_sequence(range(64), npartitions=64)
    bag.map(work).compute()


def sequential_graph(client):
    state = dask.delayed(0)
    for _ in range(32):
        state = dask.delayed(work)(state)
    state.compute()


def sequential_graph_mended(client):
    states = [dask.delayed(work)(part, seconds=2.0) for part in range(16)]
    dask.delayed(sum)(states).compute()


def narrow_stage(client):
    loaded = client.map(work, range(64))
    model = client.submit(fit, loaded, seconds=20)
    client.gather(client.map(work, range(64), [model] * 64))


def narrow_stage_mended(client):
    loaded = client.map(work, range(64))
    models = client.map(fit, loaded, seconds=20 / 64)
    client.gather(client.map(work, range(64), models))


def straggler(client):
    seconds = [1.0] * 63 + [30.0]
    client.gather([client.submit(work, i, seconds=each) for i, each in enumerate(seconds)])


def straggler_mended(client):
    seconds = [1.0] * 93
    client.gather([client.submit(work, i, seconds=each) for i, each in enumerate(seconds)])


def tiny_tasks(client):
    client.gather(client.map(work, range(3_000), seconds=0.0001))


def tiny_tasks_mended(client):
    def batch(items):
        return [work(item, seconds=0.0001) for item in items]

    client.gather(client.map(batch, [range(i, i + 100) for i in range(0, 3_000, 100)]))


def recomputation(client):
    loaded = [dask.delayed(work)(i) for i in range(64)]
    for seed in range(4):
        dask.compute(*[dask.delayed(work)(each, seed, seconds=0.1) for each in loaded])


def recomputation_mended(client):
    loaded = dask.persist(*[dask.delayed(work)(i) for i in range(64)])
    for seed in range(4):
        dask.compute(*[dask.delayed(work)(each, seed, seconds=0.1) for each in loaded])


# ------------------------------------------------------------------ where tasks run, and what they wait for


def worker_restriction(client):
    first = next(iter(client.nthreads()))
    client.gather(client.map(work, range(64), workers=[first]))


def worker_restriction_mended(client):
    client.gather(client.map(work, range(64)))


def waiting_tasks(client):
    def locked(item):
        with Lock("database"):
            return work(item)

    client.gather(client.map(locked, range(64)))


def waiting_tasks_mended(client):
    def locked(item):
        work(item, seconds=0.97)
        with Lock("database"):
            return work(item, seconds=0.03)

    client.gather(client.map(locked, range(64)))


def transfer_bound(client):
    tables = client.map(large, range(64))
    wait([client.submit(work, tables[i], *tables[i - 8 : i - 5], seconds=0.1) for i in range(64)])


def transfer_bound_mended(client):
    tables = client.map(large, range(64))
    wait(client.map(work, tables, seconds=0.4))


def retried_tasks(client):
    attempts = {}

    def flaky(item):
        work(item)
        attempts[item] = attempts.get(item, 0) + 1
        if attempts[item] < 4:
            raise ConnectionError("reset by peer")

    client.gather(client.map(flaky, range(64), retries=5))


def retried_tasks_mended(client):
    client.gather(client.map(work, range(64)))


def data_locality(client):
    table = client.submit(large, mb=4_000)  # on one worker
    wait(table)
    client.gather(client.map(work, range(30), [table] * 30))


def data_locality_mended(client):
    parts = client.map(large, range(30), mb=130)
    client.gather(client.map(work, range(30), parts))


def client_waits(client):
    tables = client.map(large, range(64))
    client.gather(tables)


def client_waits_mended(client):
    tables = client.map(large, range(64))
    client.gather(client.map(work, tables, seconds=0.1))  # summaries, made where the tables are


def slow_worker(client):
    bad = next(iter(client.nthreads()))  # a worker whose disk fails

    def read(item):
        time.sleep(5 if get_worker().address == bad else 1)

    for _ in range(4):
        client.gather(client.map(read, range(16), pure=False))


def slow_worker_mended(client):
    for _ in range(4):
        client.gather(client.map(work, range(16), pure=False))  # its host is replaced


# ------------------------------------------------------------------ how many items there are, and how long each takes


def fewer_items_than_workers(client, items=6):
    client.gather(client.map(work, range(items)))


def fewer_items_than_workers_mended(client, items=6):
    parts = [(item, part) for item in range(items) for part in range(8)]
    client.gather(client.map(work, parts, seconds=1 / 8))


def uneven_waves(client):
    client.gather(client.map(work, range(18)))


def uneven_waves_mended(client):
    parts = [(item, part) for item in range(18) for part in range(8)]
    client.gather(client.map(work, parts, seconds=1 / 8))


def skewed_tasks(client):
    sizes = range(1, 17)  # files of 1 to 16 MB
    client.gather([client.submit(work, size, seconds=size / 4) for size in sizes])


def skewed_tasks_mended(client):
    parts = [(size, part) for size in range(1, 17) for part in range(size)]
    client.gather(client.map(work, parts, seconds=1 / 4))


@on(4, 16, 64)
def work_inflation(client):
    threads = sum(client.nthreads().values())

    def query(item):
        time.sleep(0.5 * max(1, threads / 8))  # the database serves 8 at once

    client.gather(client.map(query, range(256)))


@on(4, 16, 64)
def work_inflation_mended(client):
    def query(item):
        time.sleep(0.5)  # the database now has a connection per thread

    client.gather(client.map(query, range(256)))


# ------------------------------------------------------------------ in processes of this machine


@real(1, threads=2)
def gil_bound(client):
    def count(upto):  # Python code holds the interpreter lock
        return sum(number % 7 for number in range(upto))

    client.gather(client.map(count, range(10_000_000, 10_000_008)))


@real(1, threads=2)
def gil_bound_mended(client):
    import numpy as np

    def count_in_numpy(upto):  # other threads run meanwhile
        return int((np.arange(upto) % 7).sum())

    client.gather(client.map(count_in_numpy, range(50_000_000, 50_000_008)))


@real(1, threads=4)
def lock_bound(client):
    lock = "/tmp/table.lock"

    def save(item):
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return work(item, seconds=0.3)  # computes and writes

    client.gather(client.map(save, range(24)))


@real(1, threads=4)
def lock_bound_mended(client):
    lock = "/tmp/table.lock"

    def save(item):
        row = work(item, seconds=0.3)
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return row  # only writes

    client.gather(client.map(save, range(24)))


@real(2)
def garbage_collection(client):
    def clean(item):
        rows = [[item] for _ in range(200_000)]
        for _ in range(10):
            gc.collect()
        return len(rows)

    client.gather(client.map(clean, range(8)))


@real(2)
def garbage_collection_mended(client):
    import numpy as np

    def clean(item):
        rows = np.full((200_000, 1), item)
        return work(seconds=0.5) + len(rows)

    client.gather(client.map(clean, range(8)))


@real(2)
def task_overhead(client):
    import pickle

    model = pickle.dumps({number: str(number) for number in range(400_000)})
    [sent] = client.scatter([model], broadcast=True)

    def predict(model, item):
        return work(seconds=0.02) + len(pickle.loads(model)) + item  # loads the model for each item

    client.gather([client.submit(predict, sent, item) for item in range(40)])


@real(2)
def task_overhead_mended(client):
    import pickle

    model = pickle.dumps({number: str(number) for number in range(400_000)})
    [sent] = client.scatter([model], broadcast=True)

    def predict(model, items):
        table = pickle.loads(model)  # once for twenty items
        return [work(seconds=0.1) + len(table) + item for item in items]

    client.gather([client.submit(predict, sent, range(first, first + 20)) for first in (0, 20)])


@real(2)
def large_graph(client):
    def look_up(item, table):
        return work(seconds=0.05) + table[item]

    table = os.urandom(10_000_000)
    client.gather([client.submit(look_up, item, table) for item in range(40)])  # sent forty times


@real(2)
def large_graph_mended(client):
    def look_up(item, table):
        return work(seconds=0.05) + table[item]

    table = client.scatter(os.urandom(10_000_000), broadcast=True)  # sent once
    client.gather([client.submit(look_up, item, table) for item in range(40)])


@real(2)
def worker_killing_task(client):
    def parse(text):
        work(seconds=0.2)
        if text == "bad":
            os._exit(1)  # a crash in native code ends the process like this
        return text

    client.gather(client.map(parse, ["good"] * 3 + ["bad"] + ["good"] * 4, pure=False))


@real(2)
def worker_killing_task_mended(client):
    def parse(text):
        work(seconds=0.2)
        return "" if text == "bad" else text  # checked before native code gets it

    client.gather(client.map(parse, ["good"] * 3 + ["bad"] + ["good"] * 4, pure=False))


@real(2)
def failed_trials(client):
    client.gather(client.map(int, ["1", "2", "three", "4"]))


@real(2)
def failed_trials_mended(client):
    def number(text):
        work(seconds=0.5)
        return int(text) if text.isdigit() else None

    client.gather(client.map(number, ["1", "2", "three", "4"]))


@real(2, memory_limit_mb=400)
def memory_spill(client):
    def load(item):
        return os.urandom(30_000_000)

    tables = client.map(load, range(24))
    wait(tables)
    client.gather(client.map(len, tables))  # all tables are kept until here


@real(2, memory_limit_mb=400)
def memory_spill_mended(client):
    def length(item):
        return len(os.urandom(30_000_000))

    client.gather(client.map(length, range(24)))  # a table is gone with its task
