"""Files of deployed flows: reports stay reachable by a browser, and code from a pull step is found."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.settings import PREFECT_API_URL, temporary_settings
from support.site import Site
from support.waiting import PATIENCE_S, wait_for

JOB = """
import time

def work(x):
    time.sleep(0.05)
    return x

def run(client, *, items: int = 4):
    '''One task after the other.'''
    for i in range(items):
        client.submit(work, i, pure=False).result()
"""
AXES = {"workers": [2]}

pytestmark = pytest.mark.usefixtures("worker", "api")


@pytest.fixture(scope="module")
def api(site: Site) -> Iterator[None]:
    """Prefect's clients use the server of the site."""
    with temporary_settings({PREFECT_API_URL: site.environ["PREFECT_API_URL"]}):
        yield


@pytest.fixture(scope="module")
def pulled(site: Site) -> None:
    """Deployments whose pull step clones a repository with a workload in it."""
    repository = site.folder / "jobs"
    repository.mkdir()
    (repository / "my_job.py").write_text(JOB)
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "A job"]):
        who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
        subprocess.run(["git", *who, *command], cwd=repository, check=True)
    clone = {"prefect.deployments.steps.git_clone": {"repository": f"file://{repository}", "branch": "main"}}
    pool = {"name": "scalescope-local"}
    declared = {
        "name": "jobs",
        "pull": [clone],
        "deployments": [
            {"name": "pulled", "entrypoint": "scalescope_flows.sweep.scale_sweep", "work_pool": pool},
            {"name": "pulled", "entrypoint": "scalescope_flows.studies.isolate", "work_pool": pool},
        ],
    }
    (site.folder / "jobs.yaml").write_text(yaml.safe_dump(declared))
    site.give(f"prefect --no-prompt deploy --all --prefect-file {site.folder}/jobs.yaml")


def run(deployment: str, **parameters: Any) -> FlowRun:
    ended: FlowRun = run_deployment(deployment, parameters=parameters, timeout=PATIENCE_S, poll_interval=1)
    assert ended.state is not None
    return ended


def log(of: FlowRun) -> list[str]:
    with get_client(sync_client=True) as client:
        found = client.read_logs(LogFilter.model_validate({"flow_run_id": {"any_": [of.id]}}), limit=200)
    return [each.message for each in found]


def page(of: FlowRun, key: str) -> str:
    with get_client(sync_client=True) as client:
        body = {"artifacts": {"flow_run_id": {"any_": [str(of.id)]}}}
        found = client.request("POST", "/artifacts/filter", json=body).json()
    return next(each["data"] for each in found if each["type"] == "markdown" and key in each["key"])


def opened(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.thorough
def test_the_report_of_a_deployed_run_is_kept_with_its_records_and_linked_in_page_and_log(site: Site) -> None:
    ended = run("scale-sweep/scale-sweep", axes=AXES, params={"items": 4}, report="report.html")
    assert ended.state.is_completed(), ended.state
    with site.store() as store:
        kept = store.run("latest").id
    url = f"{site.environ['SCALESCOPE_FILES_URL']}/{kept}/report.html"
    assert opened(url) == (site.records / kept / "report.html").read_text(encoding="utf-8")
    assert f"[report.html]({url})" in page(ended, "")
    wait_for(lambda: f"Report: {url}" in log(ended), "the log does not say where the report is")


@pytest.mark.thorough
@pytest.mark.usefixtures("pulled")
def test_a_workload_from_a_pull_step_is_found_and_isolated(site: Site) -> None:
    """The isolation also replays: its driver reads the recorded graph from the folder of the records."""
    sweep = {"workload": "my_job.py:run", "axes": AXES}
    ended = run("isolate/pulled", sweep=sweep, metric="efficiency < 0.9", max_trials=3)
    assert ended.state.is_completed(), ended.state
    with site.store() as store:
        origin = store.run("latest")
    assert origin.sweep.workload == "my_job.py:run"
    url = f"{site.environ['SCALESCOPE_FILES_URL']}/{origin.id}/isolated"
    assert f"]({url}/isolation.json)" in page(ended, "notebook").replace("\\", "")
    assert "replay" in opened(f"{url}/isolation.json")
    assert list((site.records / origin.id / "isolated").glob("graph-*.json"))
