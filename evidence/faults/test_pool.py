"""Signals to the worker of a Prefect pool of type process, while a deployed sweep runs."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import psutil
import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import State
from support.faults import STOPPED_S, Commands, afterwards, said
from support.site import DEPLOY, POOL, WORKER, Site, drivers
from support.waiting import wait_for

from evidence.faults.hits import note

pytestmark = pytest.mark.timeout(600, func_only=True)  # a server can take minutes to start on a busy host
SWEEP = {
    "workload": "futures-map",
    "axes": {"workers": 2},
    "params": {"items": 2, "seconds": 1},
    "cluster": "light",
    "warmups": 1,
    "repeats": 2,
}
# Folders that Prefect makes for a flow run; its worker removes them unless it is killed.
PREFECTS = re.compile(r"(then )?tmp/(tmp.*prefect|prefect-.*|runner_storage)").fullmatch
SLOT_S = 400.0  # a killed run keeps its slot of the deployment's concurrency limit for minutes
OURS = ("TMPDIR", "SCALESCOPE_LEASES", "SCALESCOPE_STORE", "XDG_STATE_HOME")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.start_server()
        made.give(POOL)
        made.give(DEPLOY)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[SyncPrefectClient]:
    with site.client() as made:
        yield made


@pytest.fixture
def commands(tmp_path: Path, site: Site) -> Iterator[Commands]:
    """What the next worker starts carries their mark."""
    made = Commands(tmp_path / "commands")
    site.environ |= {name: made.environ[name] for name in (*made.mark, *OURS)}
    yield made
    made.kill()


@pytest.mark.parametrize("stage", ["provisioning", "measuring"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP], ids=lambda each: each.name)
def test_a_signal_to_the_worker(
    number: signal.Signals, stage: str, site: Site, client: SyncPrefectClient, commands: Commands
) -> None:
    worker, run = site.stay(WORKER), started(client)
    wait_for(
        lambda: drivers(worker) if stage == "provisioning" else any(each.trials for each in commands.runs()),
        f"{stage} is never reached",
    )
    time.sleep(0.6)
    worker.send_signal(number)
    if number == signal.SIGSTOP:
        time.sleep(STOPPED_S)
        worker.send_signal(signal.SIGCONT)
    wait_for(
        lambda: state(client, run).is_final() or not {each.pid for each in commands.processes()} - {worker.pid},
        "it does not end",
    )
    seen = state(client, run)

    def go_on() -> None:
        another = site.stay(WORKER)
        again = started(client)
        wait_for(lambda: state(client, again).is_final(), f"{state(client, run)!r}, and then it does not end", SLOT_S)
        wait_for(lambda: {each.pid for each in commands.processes()} == {another.pid}, "it leaves processes")
        end(another)

    end(worker)
    error = "" if seen.is_completed() else said(seen.message or "")
    became = afterwards(commands, f"flow run {seen.name}", error, lambda _: None, go_on)
    leaks = tuple(each for each in became.leaks if not PREFECTS(each))
    note(number.name, "worker of a Prefect pool", stage, replace(became, leaks=leaks))


def started(client: SyncPrefectClient) -> UUID:
    deployment = client.read_deployment_by_name("scale-sweep/scale-sweep")
    return client.create_flow_run_from_deployment(deployment.id, parameters=SWEEP).id


def state(client: SyncPrefectClient, run: UUID) -> State:
    found = client.read_flow_run(run).state
    assert found is not None
    return found


def end(worker: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        worker.kill()
        worker.wait()
