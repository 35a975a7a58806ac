"""Tasks that wait inside: for locks, semaphores, queues, actors, events, other processes, and for another attempt."""

from __future__ import annotations

import time
import uuid

from declare import case, remedy
from distributed import Event, Queue, get_worker


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


@case("retried-tasks", 4, "light", near="skewed-tasks")
@remedy("mend what fails", failing=0)
def backs_off_within_the_task(client, failing: int = 3, tasks: int = 12):
    """Add support for retrying failed tasks (with tenacity within the task instead), dask/distributed#352."""

    def call(i):
        for attempt in range(failing):
            time.sleep(0.1 * 2**attempt)
        time.sleep(0.3)
        return i

    client.gather(client.map(call, range(tasks), pure=False))


@case("work-inflation", (2, 8), near="straggler skewed-tasks late-workers")
@remedy("load it when workers start", loading=0.0)
def a_model_for_each_worker(client, videos: int = 64, loading: float = 20.0):
    """Use case with deep-learning frameworks: prediction in parallel (a model created on each worker),
    dask/dask-ml#281.
    """

    def detect(video):
        models = get_worker().__dict__.setdefault("models", [])
        if not models:
            time.sleep(loading)
            models.append("a model")
        time.sleep(5)
        return video

    client.gather(client.map(detect, range(videos), pure=False))
