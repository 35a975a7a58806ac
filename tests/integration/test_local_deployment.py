"""deployments/local.yaml for real: a process work pool, a worker, a run from the API, and one that is cancelled."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

ROOT = Path(__file__).parents[2]
POOL = "scalescope-local"
PATIENCE_S = 120.0


def prefect(environ: dict[str, str], *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "prefect", *arguments], cwd=ROOT, env=environ, text=True, capture_output=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def environ(prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Deployed, and ready for a worker."""
    from prefect.settings import PREFECT_API_URL

    folder = tmp_path_factory.mktemp("deployment")
    environ = {
        **os.environ,
        "PREFECT_API_URL": str(PREFECT_API_URL.value()),
        "PREFECT_HOME": str(folder / "prefect"),
        "SCALESCOPE_STORE": str(folder / "results.db"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
    }
    prefect(environ, "work-pool", "create", "--type", "process", POOL)
    shown = prefect(environ, "--no-prompt", "deploy", "--all", "--prefect-file", "deployments/local.yaml")
    declared = yaml.safe_load((ROOT / "deployments/local.yaml").read_text())["deployments"]
    assert shown.count("successfully created") == len(declared)
    return environ


@pytest.fixture(scope="module")
def worker(environ: dict[str, str]) -> Iterator[psutil.Process]:
    process = subprocess.Popen(
        [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--limit", "1"], cwd=ROOT, env=environ
    )
    tree = psutil.Process(process.pid)
    yield tree
    children = tree.children(recursive=True)
    process.terminate()
    process.wait(30)
    for child in children:
        if child.is_running():
            child.kill()


def drivers(worker: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in worker.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it may end while we look
            if "scalescope.driver" in child.cmdline():
                found.append(child)
    return found


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return found


def test_a_deployed_sweep_runs(worker: psutil.Process) -> None:
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment

    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("scale-sweep/scale-sweep")
    assert deployment.entrypoint == "scalescope_flows.sweep.scale_sweep"
    assert deployment.pull_steps == []
    assert deployment.parameter_openapi_schema is not None
    assert "What to run" in deployment.parameter_openapi_schema["properties"]["workload"]["description"]

    parameters = {"axes": {"workers": [1, 2]}, "params": {"items": 4}}
    run = run_deployment("scale-sweep/scale-sweep", parameters=parameters, timeout=PATIENCE_S)
    assert run.state is not None
    assert run.state.is_completed(), run.state
    assert "workload:futures-map" in run.tags
    assert drivers(worker) == []


def test_a_cancelled_sweep_leaves_nothing(worker: psutil.Process) -> None:
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment
    from prefect.states import Cancelling

    parameters = {"cluster": "local", "axes": {"workers": [1, 2]}, "params": {"items": 4}, "repeats": 50}
    run = run_deployment("scale-sweep/scale-sweep", parameters=parameters, timeout=0)
    [driver] = wait_for(lambda: drivers(worker), "no driver was started")
    wait_for(driver.children, "no cluster was started")
    tree = [driver, *driver.children(recursive=True)]
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, Cancelling())
        _, alive = psutil.wait_procs(tree, timeout=30)
        assert alive == []
        wait_for(lambda: client.read_flow_run(run.id).state_name == "Cancelled", "the run was not marked as cancelled")
    assert drivers(worker) == []
