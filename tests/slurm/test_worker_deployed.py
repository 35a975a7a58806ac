"""Flows deployed to a work pool of type slurm: each runs in a Slurm job, submitted by a worker process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL
from prefect.states import Scheduled
from support.waiting import wait_for

from scalescope.model.cluster import cluster_spec
from scalescope.model.trial import TrialState
from scalescope.store.store import Store
from scalescope_flows.work_pools.slurm.configuration import SlurmJobConfiguration, job_name

pytestmark = pytest.mark.timeout(420)
ROOT = Path(__file__).parents[2]
POOL = "scalescope-slurm"
DEPLOYMENTS = ("scale-sweep/scale-sweep-slurm", "nightly/nightly-slurm", "reap/reap-slurm")
FLOWS = """\
import os
from prefect import flow, get_run_logger

@flow
def greet(name: str):
    print("printed on", os.environ["SLURMD_NODENAME"], "with GPU", os.environ["CUDA_VISIBLE_DEVICES"])
    get_run_logger().info("logged for %s, token of %d letters", name, len(os.environ["TOKEN"]))

@flow
def fail():
    raise ValueError("of no use")
"""


class Site:
    """A Slurm, a Prefect server, deployed flows, and workers."""

    def __init__(self, slurm: Any, folder: Path, client: SyncPrefectClient) -> None:
        self.slurm, self.folder, self.client = slurm, folder, client
        self._log = folder / "worker.log"
        (folder / "deployed.py").write_text(FLOWS)

    @contextmanager
    def worker(self) -> Iterator[None]:
        command = ["worker", "start", "--type", "slurm", "--pool", POOL, "--name", "login-1"]
        with (
            self._log.open("wb") as log,
            subprocess.Popen(
                [sys.executable, "-m", "prefect", *command], env=self._environ(), stdout=log, stderr=log
            ) as process,
        ):
            try:
                wait_for(lambda: b"started!" in self._log.read_bytes(), "the worker does not start")
                yield
            finally:
                process.terminate()
                process.wait(30)

    def prefect(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
        return subprocess.run(command, cwd=ROOT, env=self._environ(), text=True, capture_output=True, check=True).stdout

    def _environ(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.slurm.environment,
            "PREFECT_API_URL": str(PREFECT_API_URL.value()),
            "PREFECT_HOME": str(self.folder / "prefect"),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_LOGGING_TO_API_ENABLED": "true",
            "PYTHONUNBUFFERED": "1",
        }

    def submit(self, flow: str, **parameters: Any) -> UUID:
        variables = {"gres": "gpu:1", "memory": "1G", "poll_seconds": 0.5, "env": {"TOKEN": "hush"}}
        deployment = self.client.create_deployment(
            self.client.create_flow_from_name(flow),
            name=f"{flow}-{time.time_ns()}",
            work_pool_name=POOL,
            job_variables=variables,
            entrypoint=f"deployed.py:{flow}",
            pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": str(self.folder)}}],
        )
        return self.client.create_flow_run_from_deployment(deployment, parameters=parameters, state=Scheduled()).id

    def ended(self, run: UUID) -> FlowRun:
        def final() -> FlowRun | None:
            found = self.client.read_flow_run(run)
            return found if found.state is not None and found.state.is_final() else None

        try:
            found: FlowRun = wait_for(final, "the flow run does not end")
        except AssertionError:
            print(self.logs(run), self._log.read_text(), self.slurm.run("squeue", "-t", "all"), sep="\n")
            raise
        return found

    def logs(self, run: UUID) -> list[str]:
        found = self.client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run])))
        return [log.message for log in found]

    def job_state(self, run: UUID) -> str:
        return str(self.slurm.run("squeue", "-h", "-t", "all", "-n", job_name(run), "-o", "%T"))


@pytest.fixture(scope="module")
def site(slurm: Any, prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with get_client(sync_client=True) as client:
        made = Site(slurm, tmp_path_factory.mktemp("site"), client)
        with made.worker():
            yield made


@pytest.fixture(scope="module")
def deployed(site: Site) -> str:
    """The output of deploying the repository's deployments, for a partition that needs an account."""
    text = (ROOT / "deployments/slurm.yaml").read_text()
    for line, filled in (('partition: ""', "partition: paid"), ('account: ""', "account: research")):
        assert text.count(line) == 1
        text = text.replace(line, filled)
    (site.folder / "slurm.yaml").write_text(text)
    return site.prefect("deploy", "--all", "--prefect-file", str(site.folder / "slurm.yaml"))


@pytest.mark.thorough
def test_a_deployed_flow_run_ends_in_the_state_of_its_flow(site: Site) -> None:
    good, bad = site.submit("greet", name="Ada"), site.submit("fail")
    ended = site.ended(good)
    assert ended.state is not None
    assert ended.state.is_completed(), site.logs(good)
    ended = site.ended(bad)
    assert ended.state is not None
    assert ended.state.name == "Failed"
    assert "of no use" in str(ended.state.message)

    wait_for(lambda: site.job_state(good) == "COMPLETED", "the job does not end")
    wait_for(lambda: any(line.startswith("printed on n") for line in site.logs(good)), "its output is not streamed")
    told = site.logs(good)
    assert next(line for line in told if line.startswith("printed on"))[-1] in "01"
    assert [line for line in told if "logged for Ada" in line] == ["logged for Ada, token of 4 letters"]


@pytest.mark.thorough
def test_the_slurm_deployments_of_the_repository_have_pool_account_and_schedule(site: Site, deployed: str) -> None:
    assert deployed.count("successfully created") == len(DEPLOYMENTS)
    found = {name: site.client.read_deployment_by_name(name) for name in DEPLOYMENTS}
    for deployment in found.values():
        assert deployment.work_pool_name == POOL
        assert deployment.pull_steps == [{"prefect.deployments.steps.set_working_directory": {"directory": "."}}]
        job = SlurmJobConfiguration(**(deployment.job_variables or {}))
        assert (job.partition, job.account, job.qos) == ("paid", "research", None)
    night = found["nightly/nightly-slurm"]
    [cluster] = map(cluster_spec, night.parameters["clusters"])
    assert (cluster.kind, cluster.account) == ("slurm", "research")  # type: ignore[attr-defined]
    assert (night.job_variables or {})["time_limit"] == "12:00:00"
    assert [schedule.slug for schedule in night.schedules] == ["nightly"]


def test_a_sweep_runs_in_a_job_that_submits_the_jobs_of_its_workers(site: Site, deployed: str) -> None:
    """The flow run is created through the API with its own parameters and job variables, as Prefect's UI does."""
    store = site.folder / "results.db"
    own = {"XDG_STATE_HOME": str(site.folder / "state"), "SCALESCOPE_LEASES": str(site.folder / "leases")}
    found = [site.client.read_deployment_by_name(name) for name in DEPLOYMENTS]
    small = {"cores": 0, "workers_per_job": 2, "processes": 1, "memory_mb": 500}
    flow_run = site.client.create_flow_run_from_deployment(
        found[0].id,
        parameters={
            "workload": "futures-map",
            "axes": {"workers": [1, 4]},
            "params": {"items": 8, "seconds": 0.1},
            "cluster": {**found[0].parameters["cluster"], **small},
            "store": str(store),
        },
        job_variables={"memory": "1500M", "time_limit": "01:00:00", "poll_seconds": 0.5, "env": own},
        state=Scheduled(),
    )
    reap = site.client.create_flow_run_from_deployment(found[2].id, job_variables={"env": own}, state=Scheduled())
    ended = site.ended(flow_run.id)
    assert ended.state is not None
    assert ended.state.is_completed(), site.logs(flow_run.id)

    with Store.open(str(store)) as opened:
        trials = opened.run("latest").trials
    trials = [trial for trial in trials if not trial.virtual]  # On a slow host, simulated experiments follow.
    assert [trial.state for trial in trials] == [TrialState.VALID] * 2, [trial.reason for trial in trials]
    facts = next(trial.facts["cluster"] for trial in trials if trial.point.workers == 4)
    assert [job["workers"] for job in facts["jobs"]] == [2, 2]
    jobs = facts["slurm"]["jobs"]
    assert {job["id"] for job in jobs} == {job["id"] for job in facts["jobs"]}
    assert str(ended.infrastructure_pid) not in {job["id"] for job in jobs}
    for job in jobs:
        assert job["state"] == "RUNNING"
        assert job["nodes"].startswith("n")
        assert job["queue_wait_s"] >= 0
        assert job["max_rss_bytes"] > 10_000_000
        assert job["tres"]["cpu"] == "2"
    assert list((site.folder / "leases").iterdir()) == []
    assert site.ended(reap.id).state_name == "Completed"
    rows = site.slurm.run("squeue", "-h", "-t", "all", "-p", "paid", "-o", "%a %u").splitlines()
    assert len(rows) == 2 + len(jobs) + 1  # the jobs of both flows, and of both points' workers
    assert {row.split()[0] for row in rows} == {"research"}
    shown = site.client.read_artifacts(artifact_filter=ArtifactFilter(flow_run_id={"any_": [flow_run.id]}))
    keys = [artifact.key for artifact in shown if artifact.key]
    assert any(key.startswith("job-script-of-futures-map-") for key in keys), keys
    assert any(key.endswith("-table") for key in keys), keys
