"""A team's set-up, as in docs/prefect.md: Prefect's server and the results in PostgreSQL, and several runs at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient
from support.postgresql import Server
from support.site import POOL, ROOT, Site
from support.waiting import wait_for

from scalescope.model.trial import TrialState

# One run at a time on PostgreSQL is tested by tests/kubernetes/test_work_pool.py
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(200)]
DEPLOYMENTS = ("scale-sweep", "beam-partitions")
SECRET = "ann:open-sesame"


@pytest.fixture
def site(postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # that of the site: a database does not say where records are
    made = Site(
        tmp_path,
        PREFECT_API_DATABASE_CONNECTION_URL=postgresql.new_database().replace("postgresql:", "postgresql+asyncpg:"),
        PREFECT_SERVER_API_AUTH_STRING=SECRET,
        PREFECT_API_AUTH_STRING=SECRET,
        SCALESCOPE_STORE=postgresql.create(),
    )
    found = yaml.safe_load((ROOT / "deployments/local.yaml").read_text())
    found["deployments"] = [each for each in found["deployments"] if each["name"] in DEPLOYMENTS]
    for each in found["deployments"]:
        each["concurrency_limit"]["limit"] = 5
    (tmp_path / "team.yaml").write_text(yaml.safe_dump(found))
    try:
        made.start_server()
        made.give(POOL)
        made.give(f"prefect --no-prompt deploy --all --prefect-file {tmp_path}/team.yaml")
        made.stay("prefect worker start --pool scalescope-local")
        yield made
    finally:
        made.close()


@pytest.fixture
def client(site: Site) -> Iterator[SyncPrefectClient]:
    with site.client() as made:
        yield made


def test_five_runs_at_once_on_postgresql_are_all_kept(site: Site, client: SyncPrefectClient) -> None:
    ids = [client.read_deployment_by_name(f"scale-sweep/{name}").id for name in DEPLOYMENTS]
    asked = [40, 41, 42, 43, 44]
    started = [
        client.create_flow_run_from_deployment(
            ids[items % 2],
            parameters={"workload": "futures-map", "axes": {"workers": [10, 20]}, "params": {"items": items}},
        ).id
        for items in asked
    ]

    def ended() -> bool:
        return all(client.read_flow_run(run).end_time for run in started)

    wait_for(ended, "not all runs end")
    runs = [client.read_flow_run(run) for run in started]
    assert [run.state_name for run in runs] == ["Completed"] * 5
    assert max(run.start_time for run in runs if run.start_time) < min(run.end_time for run in runs if run.end_time)
    with site.store() as store:
        kept = [store.run(run.id) for run in store.runs()]
        assert sorted(run.sweep.params["items"] for run in kept) == asked
        for run in kept:
            assert [trial.state for trial in run.trials] == [TrialState.VALID] * 2
            assert all(
                len(store.tables(trial, "tasks")["tasks"]["key"]) == run.sweep.params["items"] for trial in run.trials
            )
