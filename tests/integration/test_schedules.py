"""deployments/*.yaml as their headers tell: a server, a worker, schedules that fire, and killed flow runs."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import psutil
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.objects import FlowRun
from prefect.server.events.schemas.automations import EventTrigger
from prefect.server.events.schemas.events import RelatedResource, Resource
from support.site import ROOT, WORKER, Site, drivers, runs_of
from support.waiting import wait_for

from scalescope.model.trial import TrialState
from scalescope_flows import scheduling

LIMIT_S = 40  # of silence, after which a run counts as killed; the file says 600. Heartbeats are 30 s apart at least
# Takes 54 s and more; 42 s without its first trial.
LONG = {"cluster": "local", "axes": {"workers": [1, 2]}, "params": {"items": 12, "seconds": 1}, "repeats": 3}
TRIALS = 6


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[SyncPrefectClient]:
    with site.client() as made:
        yield made


def state(client: SyncPrefectClient, run: UUID) -> str:
    return str(client.read_flow_run(run).state_name)


def complete(
    client: SyncPrefectClient, deployment: str, creator: str, states: Collection[str] = ("Completed",)
) -> FlowRun | None:
    """A run that was created by a schedule or an automation, and has completed."""
    for run in runs_of(client, deployment):
        if run.state_name in states and run.created_by is not None and run.created_by.type == creator:
            return run
    return None


@pytest.fixture(scope="module")
def killed(site: Site, worker: psutil.Popen, client: SyncPrefectClient) -> UUID:
    """A run that died with its worker and its driver, after its first trial."""
    [automation] = yaml.safe_load((ROOT / "deployments/automations/killed-runs.yaml").read_text())
    automation["trigger"]["within"] = LIMIT_S
    (site.folder / "sooner.yaml").write_text(yaml.safe_dump([automation]))
    site.give(f"prefect automation create --from-file {site.folder}/sooner.yaml")
    deployment = client.read_deployment_by_name("scale-sweep/scale-sweep")
    run = client.create_flow_run_from_deployment(deployment.id, parameters=LONG).id

    def begun() -> bool:
        with site.store() as store:
            return any(each.planned == TRIALS and store.run(each.id).trials for each in store.runs())

    wait_for(begun, "no trial was finished")
    assert state(client, run) == "Running"
    [driver] = drivers(worker)
    flow = driver.parent()
    assert flow is not None
    for process in (worker, flow, driver):
        process.send_signal(signal.SIGKILL)
    return run


# ------------------------------------------------------------------ what is fine


def test_schedules_are_inactive_at_first_and_have_future_runs_once_activated(
    site: Site, client: SyncPrefectClient
) -> None:
    def scheduled(name: str) -> list[FlowRun]:
        """Only runs of the schedule: an automation may have begun others for another test."""
        return [run for run in runs_of(client, name) if run.auto_scheduled]

    for name in ("nightly/nightly-local", "reap/reap-local"):
        deployment = client.read_deployment_by_name(name)
        [schedule] = deployment.schedules
        assert (schedule.active, scheduled(name)) == (False, [])
        client.update_deployment_schedule(deployment.id, schedule.id, active=True)

    def ahead() -> bool:
        return all(scheduled(name) for name in ("nightly/nightly-local", "reap/reap-local"))

    wait_for(ahead, "the scheduler creates no runs")
    wait_for(lambda: not scheduling.overdue(), "the scheduler creates no runs")
    night = scheduled("nightly/nightly-local")[0].expected_start_time
    assert night is not None
    assert night.astimezone(ZoneInfo("Europe/Berlin")).hour == 4


@pytest.mark.parametrize("file", ["local.yaml", "slurm.yaml", "kubernetes.yaml"])
def test_a_crash_of_the_reap_flow_does_not_trigger_reap(file: str) -> None:
    """Otherwise a worker that cannot run anything would make reap crash for ever."""
    [reap] = [
        each for each in yaml.safe_load((ROOT / "deployments" / file).read_text())["deployments"] if "triggers" in each
    ]
    trigger = EventTrigger(posture="Reactive", **reap["triggers"][0])

    def triggers(flow: str, pool: str = reap["work_pool"]["name"]) -> bool:
        resources = [
            {"prefect.resource.id": f"prefect.{role}.1", "prefect.resource.role": role, "prefect.resource.name": name}
            for role, name in [("flow", flow), ("work-pool", pool)]
        ]
        run = Resource({"prefect.resource.id": "prefect.flow-run.1"})
        return trigger.covers_resources(run, [RelatedResource(each) for each in resources])

    assert triggers("scale-sweep")
    assert not triggers("reap")
    assert not triggers("scale-sweep", pool="another")


# ------------------------------------------------------------------ what breaks


@pytest.mark.thorough
def test_a_killed_flow_run_is_marked_crashed_and_reaped(site: Site, client: SyncPrefectClient, killed: UUID) -> None:
    assert site.driver_folders()
    wait_for(lambda: state(client, killed) == "Crashed", "the killed run was not found")
    found = client.read_flow_run(killed).state
    assert found is not None
    assert "Retry continues" in str(found.message)
    site.stay(WORKER.removesuffix(" --limit 1"))
    ended = ("Completed", "Cancelled")  # the later of two simultaneous runs is cancelled
    wait_for(lambda: complete(client, "reap/reap-local", "AUTOMATION", ended), "reap was not triggered")
    wait_for(lambda: site.driver_folders() == [], "reap did not remove what the driver left")


@pytest.mark.thorough
def test_schedules_fire_while_a_retried_run_exceeds_the_heartbeat_limit(
    site: Site, client: SyncPrefectClient, killed: UUID
) -> None:
    site.give(f"prefect flow-run retry {killed}")
    night = client.read_deployment_by_name("nightly/nightly-local")
    quick = {**night.parameters, "workloads": ["futures-map"], "clusters": ["simulated"], "environment": ""}
    client.update_deployment(night.id, DeploymentUpdate(parameters=quick))
    site.give('prefect deployment schedule create nightly/nightly-local --cron "* * * * *" --replace -y')
    soon = (datetime.now(UTC) + timedelta(seconds=20)).isoformat()
    site.give(f"prefect deployment schedule create reap/reap-local --interval 3600 --anchor-date {soon} --replace -y")
    for deployment in ("nightly/nightly-local", "reap/reap-local"):
        run = wait_for(lambda name=deployment: complete(client, name, "SCHEDULE"), f"{deployment} did not run")
        assert run.auto_scheduled

    wait_for(lambda: state(client, killed) == "Completed", "the retried run does not complete")
    ended = client.read_flow_run(killed)
    names = [each.name for each in client.read_flow_run_states(killed)]
    assert names.count("Crashed") == 1
    last = [each for each in client.read_flow_run_states(killed) if each.name in ("Running", "Retrying")][-1]
    assert ended.end_time is not None
    assert (ended.end_time - last.timestamp).total_seconds() > LIMIT_S
    with site.store() as store:
        [resumed] = [run.id for run in store.runs() if run.planned == TRIALS]
        trials = store.run(resumed).trials
    assert [trial.state for trial in trials] == [TrialState.VALID] * TRIALS
    # missing heartbeats before the start or after the end do not count as a crash
    assert "Crashed" not in {run.state_name for run in client.read_flow_runs()}
