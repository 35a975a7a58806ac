"""A real Slurm of many virtual nodes, for the whole session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import infra
from support.opening import opening

from scalescope.clusters.jobqueue.slurm_cluster import SlurmCluster
from scalescope.clusters.jobqueue.slurm_spec import SlurmSpec

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def mini() -> ModuleType:
    return infra.module("minislurm", "infra/slurm/mini.py")


@pytest.fixture(scope="session")
def slurm(mini: ModuleType, missing: Any) -> Iterator[Any]:
    """A real Slurm of 16 nodes with two fake GPUs each, which is reset after each test; or a skip."""
    if programs := mini.missing_programs():
        missing("slurm", f"no Slurm on this machine: {', '.join(programs)} missing (apt-get install slurm-wlm)")
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder,
        mini.MiniSlurm(folder) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="session")
def strict(slurm: Any, mini: ModuleType) -> Iterator[Any]:
    """Another one, of four nodes, for all users: jobs need an account, comments are rewritten, and its nodes differ."""
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        with mini.MiniSlurm(folder, nodes=4, gpus=0, **mini.STRICT) as cluster:
            yield cluster


@pytest.fixture
def in_strict(strict: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The cluster `strict`, found by commands that this very process starts."""
    monkeypatch.setenv("SLURM_CONF", str(strict.conf))
    yield strict
    strict.reset()


@pytest.fixture
def in_slurm(slurm: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cluster `slurm`, found by commands that this very process starts."""
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    return slurm


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., SlurmCluster]]:
    """Opens clusters of given fields, on `strict` where the test has it, and closes them."""
    strict = "in_strict" in request.fixturenames
    request.getfixturevalue("in_strict" if strict else "in_slurm")
    usual: dict[str, Any] = {"start_timeout_s": 60.0} | ({"account": "research"} if strict else {})

    def spec(**given: Any) -> SlurmSpec:
        # Slurm's default of 100 MB is less than a worker takes, and it ends one that lives for long.
        memory_mb = 400 * given.get("workers_per_job", 1)
        return SlurmSpec(**{**usual, "memory_mb": memory_mb, **given})

    with opening(spec) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_jobs_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "slurm" in request.fixturenames:
        request.getfixturevalue("slurm").reset()
