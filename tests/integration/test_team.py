"""A team's set-up, as in docs/prefect.md: services of systemd, PostgreSQL, and several runs at once."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from support.postgresql import PASSWORD, Server
from support.site import POOL, ROOT, Site, answers
from support.systemd import Systemd
from support.waiting import wait_for

from scalescope.environments import uv
from scalescope.model.trial import TrialState

# One run at a time on PostgreSQL is tested by tests/kubernetes/test_work_pool.py
pytestmark = pytest.mark.timeout(300)
DEPLOYMENTS = ("scale-sweep", "beam-partitions")
SECRET = "ann:open-sesame"


@pytest.fixture
def site(postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # the database does not store where records are
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


@pytest.mark.thorough
def test_the_commands_of_the_page_on_prefect_start_the_services(
    postgresql: Server, missing: Any, tmp_path: Path
) -> None:
    """All commands before `prefect block register`: the later ones are those of the comments in deployments/."""
    page = (ROOT / "docs/prefect.md").read_text(encoding="utf-8")
    databases, clone, server, first, worker, once, more, *_ = re.findall(r"^```\n(.*?)^```$", page, re.M | re.S)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}/api"
    given = {
        "REPOSITORY": str(ROOT),
        "PASSWORD": "a-password",
        "DBHOST": f"127.0.0.1:{postgresql.port}",
        "http://SERVER:4200/api": address,
        "SCALESCOPE_FILES_URL=...": "PREFECT_LOGGING_LEVEL=INFO",
        " -f ": " -n 20 ",
    }

    def as_given(block: str) -> str:
        return re.sub("|".join(map(re.escape, given)), lambda name: given[name[0]], block)

    def shell(script: str, answer: str = "", **environ: str) -> None:
        path = f"{Path(sys.executable).parent}:{Path(uv.executable()).parent}:{os.environ['PATH']}"
        subprocess.run(
            ["bash", "-ec", as_given(script)],
            input=answer,
            env={**os.environ, "PATH": path, "HOME": str(tmp_path), **environ},
            text=True,
            check=True,
            start_new_session=True,  # without a terminal, passwords are read from the input
        )

    with closing(Systemd(tmp_path, missing)) as machine:
        names = {"PGHOST": "127.0.0.1", "PGPORT": str(postgresql.port), "PGUSER": "tester", "PGPASSWORD": PASSWORD}
        shell(databases, "a-password\na-password\n", **names)
        shell('pip() { uv pip "$@"; }\n' + clone)
        settings = tmp_path / ".config/scalescope"
        settings.mkdir(parents=True)
        (settings / "server.env").write_text(as_given(server) + f"PREFECT_SERVER_API_PORT={port}\n")
        (settings / "worker.env").write_text(as_given(worker))
        machine.run("cd ~/scalescope\n" + as_given(first), USER="root")

        wait_for(lambda: answers(port), lambda: machine.run("journalctl --user -u prefect-server"))
        [create] = [line for line in once.splitlines() if "work-pool create" in line]
        shell("set -a; . ~/.config/scalescope/worker.env; set +a; . ~/scalescope/.venv/bin/activate\n" + create)
        machine.run(as_given(more))
        with (
            temporary_settings({PREFECT_API_URL: address, PREFECT_API_AUTH_STRING: "team:SECRET"}),
            get_client(sync_client=True) as client,
        ):
            [started] = wait_for(
                lambda: client.read_workers_for_work_pool("scalescope-local"),
                lambda: machine.run("journalctl --user -u scalescope-worker"),
            )
        assert started.status == "ONLINE"


@pytest.mark.thorough
def test_five_simultaneous_runs_on_postgresql_are_all_stored(site: Site, client: SyncPrefectClient) -> None:
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
