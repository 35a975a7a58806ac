"""A real Grid Engine of two hosts, for the whole session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from support import infra
from support.opening import opening

from scalescope.clusters.jobqueue.sge_cluster import SgeCluster
from scalescope.clusters.jobqueue.systems import SgeSpec


@pytest.fixture(scope="session")
def mini() -> ModuleType:
    return infra.module("minisge", "infra/sge/mini.py")


@pytest.fixture(scope="session")
def sge(mini: ModuleType, missing: Any) -> Iterator[Any]:
    """A real Grid Engine of two hosts with four slots each, which is reset after each test; or a skip."""
    if reason := mini.unmet():
        missing("sge", reason)
    with tempfile.TemporaryDirectory(prefix="sge-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # for other users
        with mini.MiniGridEngine(folder) as cluster:
            yield cluster


@pytest.fixture
def in_sge(sge: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The cluster `sge`, found by commands that this very process starts."""
    for name, value in sge.environment.items():
        monkeypatch.setenv(name, value)
    yield sge
    sge.reset()


@pytest.fixture
def opened(in_sge: Any) -> Iterator[Callable[..., SgeCluster]]:
    """Opens clusters of given fields, and closes them."""

    def spec(**given: Any) -> SgeSpec:
        return SgeSpec(**{"start_timeout_s": 60.0, "parallel_environment": "smp", **given})

    with opening(spec) as opened:
        yield opened
