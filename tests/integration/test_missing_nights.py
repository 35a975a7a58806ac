"""deployments/automations/missing-nights.yaml tells of a night that is missing or measured nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.events import Event
from prefect.events.schemas.automations import AutomationCore
from support.processes import kill_tree
from support.site import POOL, ROOT, WORKER, Site
from support.waiting import wait_for

from scalescope.model.study import Study
from scalescope.nightly import missing_nights
from scalescope.nightly.night_record import Night, NightRecord

LIMIT_S = 10  # seconds without a night until it is told; the file has 26 hours
WORKLOAD = """
from pathlib import Path

def run(client, *, items: int = 2):
    client.gather(client.map(str, range(items), pure=False))
    if (Path(__file__).parent / "broken").exists():
        raise RuntimeError("it is broken")
"""


class Inbox(HTTPServer):
    """A webhook; `told` has the subjects of the messages that it received."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receives)
        self.told: list[str] = []


class _Receives(BaseHTTPRequestHandler):
    server: Inbox

    def do_POST(self) -> None:
        found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.told.append(found["subject"])
        self.send_response(204)
        self.end_headers()


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with Inbox() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def automate(site: Site, inbox: Inbox) -> None:
    """Create the automation of the file with a shorter time limit."""
    [automation] = yaml.safe_load((ROOT / "deployments/automations/missing-nights.yaml").read_text())
    with site.client() as client:
        url = f"http://127.0.0.1:{inbox.server_port}"
        webhook = CustomWebhookNotificationBlock(name="inbox", url=url, json_data={"subject": "{{subject}}"})
        automation["actions"][0]["block_document_id"] = str(webhook.save("inbox", overwrite=True))
        automation["trigger"]["within"] = LIMIT_S
        client.create_automation(AutomationCore.model_validate(automation))


@pytest.mark.thorough
def test_only_the_first_missing_night_is_reported(site: Site, inbox: Inbox) -> None:
    automate(site, inbox)
    for number in range(2):
        study = Study(f"nightly-{time.time_ns()}", "nightly", {"history": "mine"})
        made = missing_nights.event(Night(study, NightRecord()))
        sent = Event(event=made.name, resource={"prefect.resource.id": made.resource}, payload=made.payload)
        with site.client() as client:
            client.request("POST", "/events", json=[sent.model_dump(mode="json")]).raise_for_status()
        time.sleep(0.6 * LIMIT_S if number == 0 else 0.5 * LIMIT_S)
    assert inbox.told == []
    wait_for(lambda: inbox.told, "the night that did not come was not told")
    (told,) = inbox.told
    assert "mine" in told
    assert "26 hours" in told


# ------------------------------------------------------------------ real nights


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Site]:
    """A server that the test may kill, with a deployment of a small night."""
    made = Site(tmp_path, PREFECT_SERVER_EVENTS_EXPIRED_BUCKET_BUFFER="P2D")
    (tmp_path / "own.py").write_text(WORKLOAD)
    parameters = {"history": "mine", "workloads": [f"{tmp_path}/own.py:run"], "axes": {"workers": [2]}}
    deployment = {
        "name": "mine",
        "entrypoint": "scalescope_flows.studies.nightly",
        "work_pool": {"name": "scalescope-local"},
        "parameters": parameters,
    }
    stay = {"prefect.deployments.steps.set_working_directory": {"directory": "."}}
    deployments = {"name": "own", "pull": [stay], "deployments": [deployment]}
    (tmp_path / "night.yaml").write_text(yaml.safe_dump(deployments))
    try:
        yield made
    finally:
        made.close()


def end(process: psutil.Popen) -> None:
    kill_tree(process)
    process.wait()


def night(site: Site) -> str:
    """Run a night; return the name of its last state."""
    with site.client() as client:
        deployment = client.read_deployment_by_name("nightly/mine")
        run = client.create_flow_run_from_deployment(deployment.id).id

        def ended() -> Any:
            state = client.read_flow_run(run).state
            return state if state and state.is_final() else None

        return str(wait_for(ended, "the night does not end").name)


@pytest.mark.thorough
def test_a_missing_or_empty_night_is_reported_even_after_a_restart_of_the_server(own: Site, inbox: Inbox) -> None:
    server = own.start_server()
    own.give(POOL)
    own.give(f"prefect --no-prompt deploy --all --prefect-file {own.folder}/night.yaml")
    automate(own, inbox)
    worker = own.stay(WORKER)
    assert night(own) == "Completed"
    end(worker)
    end(server)
    time.sleep(70)  # seconds, longer than a server keeps ended automation states by default (60 s)
    assert inbox.told == []
    own.start_server()
    wait_for(lambda: len(inbox.told) == 1, "the night that did not come was not told")

    own.stay(WORKER)
    assert night(own) == "Completed"
    (own.folder / "broken").touch()
    assert night(own) == "Finding"
    wait_for(lambda: len(inbox.told) == 2, "the night that measured nothing was not told")
    with own.client() as client:
        asked = {"filter": {"event": {"name": [missing_nights.MEASURED]}}}
        assert client.request("POST", "/events/filter", json=asked).json()["total"] == 2
