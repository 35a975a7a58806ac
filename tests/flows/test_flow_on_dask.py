"""Recorded Prefect flows on Dask: the work of Prefect within a task, and the verdict on a flow."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.futures import wait

import scalescope

prefect_dask = pytest.importorskip("prefect_dask")
pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def client() -> Any:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


@task
def load(i: int) -> int:
    time.sleep(0.2)
    return i


@task(retries=1, retry_delay_seconds=0.3)
def fetch(i: int, tried: list[int]) -> int:
    time.sleep(0.1)
    tried.append(i)
    if tried.count(i) == 1:
        raise OSError("not yet")
    return i


@task(retries=1, timeout_seconds=0.3)
def ask(tried: list[int], words: list[int]) -> None:
    tried.append(len(words))
    while len(tried) == 1:
        time.sleep(0.05)


@task
def query(name: str) -> None:
    with concurrency(name, occupy=1):
        time.sleep(0.1)


@task
def crunch(x: Any) -> Any:
    return x


def run(client: Client, body: Any) -> Any:
    """Run a flow with this body on the client's cluster within `scalescope.diagnose`."""
    runner = prefect_dask.DaskTaskRunner(address=client.scheduler.address)
    with scalescope.diagnose(client) as found:
        flow(body, name="recorded", task_runner=runner)()
    return found


def noted(found: Any) -> dict[str, float]:
    import json

    events = found._tables["events"]
    waits = [
        json.loads(text) for topic, text in zip(events["topic"], events["message"], strict=True) if topic == "waits"
    ]
    return {f"{each['prefix']} {each['what'].partition('(')[0]}": each["seconds"] for each in waits}


def test_tasks_of_a_flow_are_recorded_with_the_names_of_their_functions(client: Client) -> None:
    found = run(client, lambda: wait(load.map(range(4))))
    assert set(found._tables["tasks"]["prefix"]) == {"load"}
    assert any(name.startswith("PrefectDaskClient") for name in found._tables["graphs"]["client"])
    assert 0.79 <= noted(found)["load Prefect.function"] <= found.metrics.work_s


@pytest.mark.thorough
def test_time_in_concurrency_limits_retries_and_hashing_is_recorded_separately(client: Client) -> None:
    name = f"db-{time.time_ns()}"
    with get_client(sync_client=True) as api:
        api.request("POST", "/v2/concurrency_limits/", json={"name": name, "limit": 1})
    found = run(client, lambda: wait([query.submit(name) for _ in range(2)]))
    assert noted(found)["query concurrency"] > 0
    found = run(client, lambda: wait([fetch.submit(1, [])]))
    assert noted(found)["fetch Prefect.raised OSError"] >= 0.1
    assert noted(found)["fetch Prefect.retry"] >= 0.2
    found = run(client, lambda: wait([ask.submit([], [*range(100_000)])]))
    assert noted(found)["ask Prefect.raised TimeoutError"] >= 0.2
    assert noted(found)["ask Prefect.hash"] > 0


def test_a_flow_that_ends_before_its_tasks_has_the_finding_unfinished_tasks(client: Client) -> None:
    def forgets() -> None:
        for i in range(8):
            load.submit(i)

    found = run(client, forgets)
    assert found.findings[0].code == "unfinished-tasks"
    assert "flow" in found.verdict


def test_diagnose_within_a_flow_finds_the_client_of_the_flow(client: Client) -> None:
    runner = prefect_dask.DaskTaskRunner(address=client.scheduler.address)

    @flow(task_runner=runner)
    def with_a_block() -> Any:
        load.submit(0).result()
        with scalescope.diagnose() as found:
            wait(load.map(range(6)))
        return [found]

    (found,) = with_a_block()
    assert found.metrics.tasks == 6


def test_the_code_on_the_page_about_prefect_on_dask_runs(client: Client) -> None:
    page = (Path(__file__).parents[2] / "docs" / "prefect-on-dask.md").read_text(encoding="utf-8")
    in_a_flow, from_outside, *parts = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert len(parts) == 3
    # globals of a flow are sent to the workers with it, so no client may be among them
    own = {"task": task, "wait": wait, "NO_CACHE": NO_CACHE, "Path": Path, "load": crunch, "crunch": crunch}
    own |= {"say_hello": crunch, "paths": [Path("a"), Path("b")], "names": ["ann"]}
    runner = partial(prefect_dask.DaskTaskRunner, address=client.scheduler.address)  # a new cluster takes seconds
    names = {**own, "flow": flow, "scalescope": scalescope, "client": client, "DaskTaskRunner": runner}
    exec(in_a_flow, names)
    names["my_flow"]()
    names["my_flow"] = flow(lambda: wait(crunch.map([1])), name="my-flow")
    exec(from_outside, names)

    @flow(task_runner=runner())
    def of_a_part(text: str) -> None:
        exec(text, dict(own))

    for part in parts:
        of_a_part(part)
