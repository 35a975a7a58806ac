"""Tasks that wait inside: for locks, semaphores, queues, actors, events, other processes, and for another attempt."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import nullcontext

from declare import case, mends, remedy
from distributed import Event, Lock, Queue, Semaphore, get_worker


@case("waiting-tasks", 8, near="skewed-tasks undersubscribed-threads work-inflation")
@remedy("a file for each chunk", files="many")
def write_one_file(client, chunks: int = 40, files: str = "one"):
    """Locking for distributed writes (HDF5, one process at a time), dask/dask#1892."""

    def compute_and_write(i):
        time.sleep(0.5)
        with Lock("out.h5") if files == "one" else nullcontext():
            time.sleep(0.5)
        return i

    client.gather(client.map(compute_and_write, range(chunks)))


@case("waiting-tasks", 6, "light", near="skewed-tasks")
@remedy("save_mfdataset: as many files as workers", files=12)
def save_few_datasets(client, files: int = 2, chunks: int = 24):
    """fix distributed writes (a lock per file, two files), pydata/xarray#1793."""

    def store(i):
        time.sleep(0.1)
        lock = Lock(f"{i % files}.nc")
        with lock:
            time.sleep(0.4)

    client.gather(client.map(store, range(chunks), pure=False))


@case("healthy", 8, near="waiting-tasks")
def lock_for_a_log(client, tasks: int = 40):
    """Dask API, Lock: https://distributed.dask.org/en/stable/api.html."""

    def work(i):
        time.sleep(2)
        with Lock("log"):
            time.sleep(0.01)

    client.gather(client.map(work, range(tasks)))


@case("waiting-tasks", 1, threads=10, near="skewed-tasks gil-bound")
@remedy("as many leases as the database takes", leases=10)
def two_leases_of_a_database(client, leases: int = 2, tasks: int = 20):
    """Semaphores release automatically (two leases of a database), dask/distributed#4057."""
    sem = Semaphore(max_leases=leases, name=f"database-{uuid.uuid4().hex}")

    def access_limited(val, sem):
        with sem:
            time.sleep(3)
        return val

    client.gather(client.map(access_limited, range(tasks), sem=sem))
    sem.close()


@case("waiting-tasks", 32, near="too-few-partitions")
@remedy("give the lease back after the download", kept=False)
def lease_kept_too_long(client, tasks: int = 64, kept: bool = True):
    """task throttling (downloads limited to 8 connections; the lease is kept while the data is processed),
    dask/distributed#800."""
    sem = Semaphore(max_leases=8, name=f"server-{uuid.uuid4().hex}")

    def download_and_process(i):
        with sem:
            time.sleep(4 if kept else 1)
        time.sleep(0 if kept else 3)
        return i

    client.gather(client.map(download_and_process, range(tasks)))


@case("waiting-tasks", 4, "light", near="straggler")
@remedy("as many leases as workers", leases=4)
def one_lease_of_a_licence(client, leases: int = 1, tasks: int = 8):
    """Semaphore and other objects as task condition (a worker is held while it waits), dask/distributed#4104."""
    sem = Semaphore(max_leases=leases, name=f"licence-{uuid.uuid4().hex}")

    def solve(i):
        with sem:
            time.sleep(0.5)
        return i

    client.gather(client.map(solve, range(tasks), pure=False))


@case("waiting-tasks", 8, near="slow-submission undersubscribed-threads")
@remedy("put names, and let the consumers read", consumers_read=True)
def consumers_of_a_queue(client, items: int = 40, consumers_read: bool = False):
    """Dask Futures, Queues (tasks take what the client puts): https://docs.dask.org/en/stable/futures.html#queues."""
    name = uuid.uuid4().hex
    queue = Queue(name)

    def consume(i):
        queue = Queue(name)
        done = 0
        while queue.get() is not None:
            time.sleep(1.4 if consumers_read else 1)
            done += 1
        return done

    consumers = client.map(consume, range(8), pure=False)
    for item in range(items):
        if not consumers_read:
            time.sleep(0.4)  # read it from disk
        queue.put(item)
    for _ in consumers:
        queue.put(None)
    client.gather(consumers)


@case("waiting-tasks", 8, near="skewed-tasks undersubscribed-threads")
def all_call_one_actor(client, tasks: int = 32):
    """Stateful Actors (a counter that all increment), dask/distributed#2133."""

    class Counter:
        def __init__(self):
            self.n = 0

        def increment(self):
            time.sleep(0.5)  # keeps it on disk
            self.n += 1
            return self.n

    counter = client.submit(Counter, actor=True, pure=False).result()

    def work(i, counter):
        time.sleep(0.5)
        return counter.increment().result()

    client.gather([client.submit(work, i, counter, pure=False) for i in range(tasks)])


@mends(all_call_one_actor, "count in the results, and keep the sum once")
def count_in_the_results(client, tasks: int = 32):
    def work(i):
        time.sleep(0.5)
        return 1

    assert sum(client.gather(client.map(work, range(tasks), pure=False))) == tasks
    time.sleep(0.5)


@case(("waiting-tasks", "results-awaited-in-loop"), 5, "light", near="idle-workers-cause-unknown")
@remedy("call all, then ask for the results", at_once=True)
def actors_one_by_one(client, calls: int = 3, at_once: bool = False):
    """Actor futures for as_completed (five actors, each called when it has answered), dask/distributed#5092."""

    class Actor:
        def ping(self, seconds):
            time.sleep(seconds)
            return seconds

    actors = [client.submit(Actor, actor=True, pure=False).result() for _ in range(5)]
    for _ in range(calls):
        pongs = (actor.ping(0.3) for actor in actors)
        for pong in list(pongs) if at_once else pongs:
            pong.result()


@case("waiting-tasks", 4, near="late-workers slow-submission")
@remedy("what needs no table is done first", needed=False)
def wait_for_the_go(client, tasks: int = 8, needed: bool = True):
    """Dask Futures, Events (tasks wait until somebody sets it): https://docs.dask.org/en/stable/futures.html#events."""
    event = Event(uuid.uuid4().hex)

    def wait_and_work(i, name):
        if needed:
            Event(name).wait()
        time.sleep(2)
        return i

    futures = client.map(wait_and_work, range(tasks), name=event.name, pure=False)
    time.sleep(6)  # the table that they need is written
    event.set()
    client.gather(futures)


@case("retried-tasks", 8, near="skewed-tasks straggler")
@remedy("mend what fails", failing=0)
def most_attempts_fail(client, failing: int = 3, tasks: int = 32):
    """add support for retrying failed tasks (retries= hides that most attempts fail), dask/distributed#352."""
    name = uuid.uuid4().hex

    def download(i):
        time.sleep(1)
        attempts = get_worker().__dict__.setdefault("attempts", {})
        from distributed import Variable

        seen = Variable(f"{name}-{i}")
        try:
            n = seen.get(timeout=0.01)
        except TimeoutError:
            n = 0
        seen.set(n + 1)
        attempts[i] = n
        if n < failing * (i % 2):
            raise OSError("503 Service Unavailable")
        return i

    client.gather(client.map(download, range(tasks), retries=10, pure=False))


@case("retried-tasks", 4, "light", near="skewed-tasks")
@remedy("mend what fails", failing=0)
def backs_off_within_the_task(client, failing: int = 3, tasks: int = 12):
    """add support for retrying failed tasks (with tenacity within the task instead), dask/distributed#352."""

    def call(i):
        for attempt in range(failing):
            time.sleep(0.1 * 2**attempt)
        time.sleep(0.3)
        return i

    client.gather(client.map(call, range(tasks), pure=False))


@case("healthy", 4, near="invalid-trials nothing-measured")
def programs_on_the_simulated_cluster(client, tasks: int = 8):
    """Sending large graph (each task starts a program for an image), danforthcenter/plantcv#1773."""

    def simulate(i):
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.25)"], check=True)
        return i

    client.gather(client.map(simulate, range(tasks), pure=False))


@case("healthy", 4, "light", near="gil-bound undersubscribed-threads")
def programs(client, tasks: int = 8):
    """Sending large graph (each task starts a program for an image), danforthcenter/plantcv#1773."""

    def simulate(i):
        subprocess.run([sys.executable, "-S", "-c", "import time; time.sleep(1.5)"], check=True)
        return i

    client.gather(client.map(simulate, range(tasks), pure=False))


@case(("lock-bound", "work-inflation"), (1, 2, 4), "local", near="waiting-tasks healthy")
@remedy("a file for each worker", files=40)
def chunks_of_one_locked_file(client, files: int = 1, chunks: int = 40):
    """Parallel non-locked read using dask.Client crashes (60 % of the time is spent in a file lock),
    pydata/xarray#2190."""
    with tempfile.TemporaryDirectory() as folder:

        def read_and_square(i):
            with open(f"{folder}/{i % files}.nc", "a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                time.sleep(0.06)
            time.sleep(0.04)
            return i

        client.gather(client.map(read_and_square, range(chunks), pure=False))


@case("work-inflation", (1, 4), threads=9, near="healthy gil-bound", items_per_worker=18)
@remedy("workers that share no memory bandwidth", shared=False)
def filters_on_more_cores(client, items: int = 18, shared: bool = True):
    """Performance evaluation (weak scaling: `filter_func` takes 14 s instead of 8), ocean-eddy-cpt/gcm-filters#45."""
    several = len(client.scheduler_info(n_workers=-1)["workers"]) > 1

    def filter_func(i):
        time.sleep(14 if shared and several else 8)
        return i

    client.gather(client.map(filter_func, range(items), pure=False))


@case("work-inflation", (2, 8), near="straggler skewed-tasks late-workers")
@remedy("load it when workers start", loading=0.0)
def a_model_for_each_worker(client, videos: int = 64, loading: float = 20.0):
    """Use case with deep-learning frameworks: prediction in parallel (a model created on each worker),
    dask/dask-ml#281."""

    def detect(video):
        models = get_worker().__dict__.setdefault("models", [])
        if not models:
            time.sleep(loading)
            models.append("a model")
        time.sleep(5)
        return video

    client.gather(client.map(detect, range(videos), pure=False))
