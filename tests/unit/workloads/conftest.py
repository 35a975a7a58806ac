from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dask.utils import key_split
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin


class _Counting(SchedulerPlugin):
    name = "test-counting"

    def __init__(self) -> None:
        self.tasks: Counter[str] = Counter()
        self.keys: set[Any] = set()

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start == "processing" and finish == "memory":
            self.tasks[key_split(key)] += 1
            self.keys.add(key)


class Place:
    """A cluster, a client of it, and what ran there."""

    def __init__(self, cluster: LocalCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client

    @contextmanager
    def counting(self) -> Iterator[_Counting]:
        counting = _Counting()
        self.cluster.scheduler.add_plugin(counting)
        try:
            yield counting
        finally:
            self.cluster.scheduler.remove_plugin(counting.name)


def _place(**options: Any) -> Iterator[Place]:
    with (
        LocalCluster(dashboard_address="127.0.0.1:0", silence_logs=False, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield Place(cluster, client)


@pytest.fixture(scope="session")
def inproc() -> Iterator[Place]:
    """Scheduler and workers in this process, tasks that do not travel as bytes."""
    yield from _place(n_workers=3, threads_per_worker=2, processes=False)


@pytest.fixture(scope="session")
def processes() -> Iterator[Place]:
    """A worker in a process of its own; one, since each spends seconds on importing Beam."""
    yield from _place(n_workers=1, threads_per_worker=2, processes=True)
