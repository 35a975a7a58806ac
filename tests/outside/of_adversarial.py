"""Twelve cases written against the rules, to see where they break: nobody's work, and their source says so."""

from __future__ import annotations

import time

import dask
from declare import case, mends, remedy
from distributed import Semaphore, fire_and_forget, get_client


@case("healthy", 8, near="nested-client")
def follow_up_not_awaited(client, tasks: int = 32, seconds: float = 2.0):
    """written as an adversarial case."""

    def note(i):
        return i

    def train(i):
        fire_and_forget(get_client().submit(note, i, key=f"note-{i}"))
        time.sleep(seconds)
        return i

    client.gather(client.map(train, range(tasks), key="train", pure=False))


@case("healthy", 8, near="recomputation results-awaited-in-loop")
def same_keys_new_data(client, epochs: int = 5, shards: int = 16, seconds: float = 1.0):
    """written as an adversarial case."""

    def fit(epoch, i):
        time.sleep(seconds)
        return epoch * 1000 + i

    for epoch in range(epochs):
        futures = [client.submit(fit, epoch, i, key=f"shard-{i}") for i in range(shards)]
        client.gather(futures)
        del futures
        time.sleep(0.2)  # the old keys are released


@case("straggler", 4, near="sequential-graph")
@remedy("split the long one", parts=10)
def four_fits_one_long(client, models: int = 4, seconds: float = 1.0, factor: float = 10.0, parts: int = 1):
    """written as an adversarial case."""

    def fit(i):
        time.sleep(seconds * (factor / parts if i >= models - 1 else 1.0))

    client.gather(client.map(fit, range(models - 1 + parts), key="fit", pure=False))


@case("results-awaited-in-loop", 8, near="idle-workers-cause-unknown too-few-partitions")
@remedy("one compute", at_once=True)
def compute_in_a_loop(client, rounds: int = 10, seconds: float = 0.4, at_once: bool = False):
    """written as an adversarial case."""

    def step(x):
        time.sleep(seconds)
        return x

    rest = []
    for turn in range(rounds):
        parts = []
        for i in range(4):
            a = dask.delayed(step, pure=False)(i, dask_key_name=f"load-{turn}-{i}")
            b = dask.delayed(step, pure=False)(a, dask_key_name=f"clean-{turn}-{i}")
            parts.append(dask.delayed(step, pure=False)(b, dask_key_name=f"aggregate-{turn}-{i}"))
        if at_once:
            rest += parts
        else:
            client.gather(client.compute(parts, optimize_graph=False))
    if rest:
        client.gather(client.compute(rest, optimize_graph=False))


@case("waiting-tasks", (1, 2, 4, 8), near="healthy work-inflation")
def two_leases_for_all(client, tasks: int = 32, seconds: float = 0.5, leases: int = 2):
    """written as an adversarial case."""
    Semaphore(max_leases=leases, name="licence")

    def licensed(i):
        with Semaphore(name="licence"):
            time.sleep(seconds)
        return i

    client.gather(client.map(licensed, range(tasks), key="licensed", pure=False))


@mends(two_leases_for_all, "as many leases as workers, of a semaphore that the tasks are given")
def leases_for_all(client, tasks: int = 32, seconds: float = 0.5):
    def licensed(i, licence):
        with licence:
            time.sleep(seconds)
        return i

    licence = Semaphore(max_leases=8, name="licences")
    client.gather(client.map(licensed, range(tasks), licence=licence, key="licensed", pure=False))


@case(("client-busy", "slow-submission"), 8, near="healthy")
@remedy("prepare in tasks", in_tasks=True)
def client_prepares_first(client, seconds: float = 1.0, prepare: float = 9.0, tasks: int = 8, in_tasks: bool = False):
    """written as an adversarial case."""

    def work(i):
        time.sleep(seconds + in_tasks * prepare / tasks)

    time.sleep(prepare * (not in_tasks))  # glob, stat, read headers, build the graph
    client.gather(client.map(work, range(tasks), key="work", pure=False))


@case("healthy", 1, "local", threads=2, near="gil-bound")
def half_waiting_half_computing(client, tasks: int = 8, rounds: int = 12, seconds: float = 0.02):
    """written as an adversarial case."""

    def fetch_and_hash(i):
        import hashlib

        data = bytes(1 << 20)
        for _ in range(rounds):
            time.sleep(seconds)
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                hashlib.sha256(data)  # without the lock
        return i

    client.gather(client.map(fetch_and_hash, range(tasks), key="fetch", pure=False))


@case(("client-waits", "transfer-bound"), 2, "local", near="healthy uneven-waves")
@remedy("reduce on the workers", reduced=True)
def results_come_to_the_client(
    client, tasks: int = 8, mebibytes: int = 48, seconds: float = 0.1, reduced: bool = False
):
    """written as an adversarial case."""

    def make(i):
        import random

        block = random.Random(i).randbytes(1 << 20)
        time.sleep(seconds)
        made = block * mebibytes + bytes([i])
        return len(made) if reduced else made

    client.gather(client.map(make, range(tasks), key="make", pure=False))


@case("results-awaited-in-loop", 8, near="too-few-partitions fewer-items-than-workers")
@remedy("gather after the loop", at_once=True)
def four_rounds_awaited(client, models: int = 4, seconds: float = 2.0, at_once: bool = False):
    """written as an adversarial case."""

    def fit(i):
        time.sleep(seconds)
        return i

    fits = (client.submit(fit, i, key=f"fit-{i}") for i in range(models))
    for future in list(fits) if at_once else fits:
        future.result()


@case(("too-few-partitions", "narrow-stage"), 8, near="idle-workers-cause-unknown sequential-graph", factor=1.3)
@remedy("repartition to 8", few=8, long=3.0)
def repartitioned_to_four(client, parts: int = 64, wide: float = 0.25, few: int = 4, long: float = 6.0):
    """written as an adversarial case."""

    def read(i):
        time.sleep(wide)
        return i

    def model(chunk):
        time.sleep(long)
        return len(chunk)

    read_ = client.map(read, range(parts), key="read", pure=False)
    size = parts // few
    client.gather([client.submit(model, read_[i * size : (i + 1) * size], key=f"model-{i}") for i in range(few)])


class Model:
    def fit(self, seconds):
        time.sleep(seconds)
        return seconds


@case("results-awaited-in-loop", 8, "light", near="idle-workers-cause-unknown slow-submission")
@remedy("call all, then ask for the results", at_once=True)
def actor_called_in_a_loop(client, rounds: int = 2, seconds: float = 0.4, actors: int = 8, at_once: bool = False):
    """written as an adversarial case."""
    made = [future.result() for future in [client.submit(Model, actor=True, pure=False) for _ in range(actors)]]
    for _ in range(rounds):
        calls = (actor.fit(seconds) for actor in made)
        for future in list(calls) if at_once else calls:
            future.result()


@case(("skewed-tasks", "data-locality", "worker-restriction"), 8, near="slow-worker")
@remedy("shards of equal size", factor=1.0, seconds=0.6 * 11 / 8)
def heavy_shard_at_home(client, per_worker: int = 4, seconds: float = 0.6, factor: float = 4.0):
    """written as an adversarial case."""
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])

    def process(shard, part, seconds):
        time.sleep(seconds)
        return part

    futures = [
        client.submit(
            process,
            shard,
            part,
            seconds * (factor if shard == 0 else 1.0),
            key=f"process-{shard}-{part}",
            workers=[address],
        )
        for part in range(per_worker)
        for shard, address in enumerate(addresses)
    ]
    client.gather(futures)
