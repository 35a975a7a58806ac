"""The classes of `support.small_cluster` as fixtures."""

from __future__ import annotations

import pytest
from support.small_cluster import Cluster, Graph, Task


@pytest.fixture(scope="session")
def cluster() -> type[Cluster]:
    return Cluster


@pytest.fixture(scope="session")
def task() -> type[Task]:
    return Task


@pytest.fixture(scope="session")
def graph() -> type[Graph]:
    return Graph
