"""A cluster of threads for tests that only need real messages."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as local:
        yield local


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as connected:
        yield connected
        deadline = time.monotonic() + 60
        while connected.run_on_scheduler(lambda dask_scheduler: any(dask_scheduler.tasks.values())):
            assert time.monotonic() < deadline, "tasks are still held"
            gc.collect()  # futures in cycles; of a large process, Python collects the oldest rarely
            time.sleep(0.02)


def rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """A table as rows."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.fixture(name="rows")
def rows_fixture() -> Any:
    return rows
