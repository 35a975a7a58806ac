"""Twelve cases written against the rules, to see where they break: nobody's work, and their source says so."""

from __future__ import annotations

import time

from declare import case, mends, remedy
from distributed import Semaphore, fire_and_forget, get_client


@case("healthy", 8, near="nested-client")
def follow_up_not_awaited(client, tasks: int = 32, seconds: float = 2.0):
    """Written as an adversarial case."""

    def note(i):
        return i

    def train(i):
        fire_and_forget(get_client().submit(note, i, key=f"note-{i}"))
        time.sleep(seconds)
        return i

    client.gather(client.map(train, range(tasks), key="train", pure=False))


@case("healthy", 8, near="recomputation results-awaited-in-loop")
def same_keys_new_data(client, epochs: int = 5, shards: int = 16, seconds: float = 1.0):
    """Written as an adversarial case."""

    def fit(epoch, i):
        time.sleep(seconds)
        return epoch * 1000 + i

    for epoch in range(epochs):
        futures = [client.submit(fit, epoch, i, key=f"shard-{i}") for i in range(shards)]
        client.gather(futures)
        del futures
        time.sleep(0.2)  # the old keys are released


@case("waiting-tasks", (1, 2, 4, 8), near="healthy work-inflation")
def two_leases_for_all(client, tasks: int = 32, seconds: float = 0.5, leases: int = 2):
    """Written as an adversarial case."""
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


class Model:
    def fit(self, seconds):
        time.sleep(seconds)
        return seconds


@case("results-awaited-in-loop", 8, "light", near="idle-workers-cause-unknown slow-submission")
@remedy("call all, then ask for the results", at_once=True)
def actor_called_in_a_loop(client, rounds: int = 2, seconds: float = 0.4, actors: int = 8, at_once: bool = False):
    """Written as an adversarial case."""
    made = [future.result() for future in [client.submit(Model, actor=True, pure=False) for _ in range(actors)]]
    for _ in range(rounds):
        calls = (actor.fit(seconds) for actor in made)
        for future in list(calls) if at_once else calls:
            future.result()


@case(("skewed-tasks", "data-locality", "worker-restriction"), 8, near="slow-worker")
@remedy("shards of equal size", factor=1.0, seconds=0.6 * 11 / 8)
def heavy_shard_at_home(client, per_worker: int = 4, seconds: float = 0.6, factor: float = 4.0):
    """Written as an adversarial case."""
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
