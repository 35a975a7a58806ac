"""Schedulers of other Dask releases, each with a worker, in separate environments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from scalescope import environments
from scalescope.clusters.observed_cluster import versions_of
from scalescope.errors import ScalescopeError
from scalescope.model.environment import Environment

RUN = """
import sys, distributed
if __name__ == "__main__":
    options = {"n_workers": 1, "processes": False, "dashboard_address": None, "protocol": "tcp"}
    with distributed.LocalCluster(**options) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture(params=["2023.5.0", "2024.8.0"])
def scheduler(request: pytest.FixtureRequest, missing: Any) -> Iterator[tuple[str, str]]:
    """Address and release of a real scheduler with a worker."""
    try:
        environment = Environment.parse(f"dask=={request.param} distributed=={request.param}")
        python = environments.ensure(environment).python
    except ScalescopeError as error:
        missing("releases", f"no environment of another release: {error}")
    with subprocess.Popen([python, "-c", RUN], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), request.param
        finally:
            process.kill()


@pytest.mark.thorough
def test_versions_of_a_scheduler_of_another_release_can_be_read(scheduler: tuple[str, str]) -> None:
    address, release = scheduler
    found = versions_of(address, None, 30.0)
    assert found["distributed"] == release
    assert found["python"].split(".")[:2] == [str(each) for each in sys.version_info[:2]]
