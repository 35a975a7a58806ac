"""A cluster whose workers are threads, for tests that only need real messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster
from support.waiting import wait_for


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, silence_logs=False, dashboard_address="127.0.0.1:0"
    ) as local:
        yield local


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client whose tasks the scheduler has forgotten before the next test begins."""
    with Client(cluster) as connected:
        yield connected
    scheduler = cluster.scheduler
    held = scheduler.tasks
    wait_for(lambda: not held, lambda: f"tasks are still held: {list(held.items())[:5]}", 60, 0.02)
    # A cluster of threads does not replace a worker that left: fail in the test that lost it, not in the next one
    wait_for(
        lambda: {worker.address for worker in cluster.workers.values()} == set(scheduler.workers),
        lambda: f"workers left: {[event for event in scheduler.get_events('all') if 'remove' in str(event)]}",
        10,
        0.02,
    )


def rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.fixture(name="rows")
def rows_fixture() -> Any:
    return rows
