"""The sweep flow on a real Prefect server, with fake drivers; the last test has real drivers."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from prefect import task_engine
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, TaskRun
from prefect.context import SyncClientContext
from prefect.flow_engine import run_flow
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED,
    temporary_settings,
)
from prefect.states import Pending, State
from prefect.task_engine import SyncTaskRunEngine
from pydantic import BaseModel, model_serializer
from support import leaky
from support.prefect_api import artifacts, by_type
from support.requests import asked
from typer.testing import CliRunner

from scalescope.cli.main import app
from scalescope.errors import ClusterError, InfrastructureError, InvalidField
from scalescope.run import orchestrator_load, progress
from scalescope.run.drivers import Drivers
from scalescope.run.progress import Progress
from scalescope.run.trials import MEASURE
from scalescope.store.schema import RunState
from scalescope.store.store import Store
from scalescope_flows import scale_sweep
from scalescope_flows.runner import _impatient, is_away, listening

SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [1, 2, 4]}, "params": {"items": 4}}

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow without a pause."""
    monkeypatch.setattr("scalescope_flows.runner.BACKOFF_S", 0.0)
    monkeypatch.setattr(orchestrator_load, "wait_until_quiet", lambda processes: 0.0)


def flow_run() -> FlowRun:
    """The newest flow run."""
    with get_client(sync_client=True) as client:
        return max(client.read_flow_runs(), key=lambda run: run.created)


def flow_run_of(flow: Any, name: str, parameters: dict[str, Any], tags: Sequence[str] = ()) -> FlowRun:
    """Create a flow run beforehand, as Prefect's UI does, run it, and return it."""
    with get_client(sync_client=True) as client:
        made = client.create_flow_run(flow, name=name, parameters=parameters, tags=tags, state=Pending())
        run_flow(flow, flow_run=made)
        return client.read_flow_run(made.id)


def task_runs() -> list[TaskRun]:
    """Task runs of the newest flow run, in order; the server learns of their ends a moment later."""
    until = time.monotonic() + 20
    with get_client(sync_client=True) as client:
        while True:
            found = client.read_task_runs(flow_run_filter=FlowRunFilter(id={"any_": [flow_run().id]}))
            if all(run.state and run.state.is_final() for run in found) or time.monotonic() > until:
                break
            time.sleep(0.1)
    return sorted(found, key=lambda run: run.expected_start_time)


# ------------------------------------------------------------------ what is fine


def test_the_sweep_flow_runs_all_trials_and_stores_the_verdict(fake: Any, address: str) -> None:
    sweep = {**SWEEP, "axes": {"__prefect_kind": "json", "value": json.dumps(SWEEP["axes"])}}  # as a schedule sends it
    heard: list[Progress] = []
    with listening(heard.append):
        result = scale_sweep(**sweep, repeats=2, store=address)
    assert [progress.done for progress in heard if progress.trial] == [1, 2, 3, 4, 5, 6]
    assert [progress.text for progress in heard][1] == "opening the cluster"
    assert "makespan 1 s" in heard[-1].text
    assert (result.valid, result.failed, result.invalid, result.resumed) == (6, 0, 0, 0)
    assert result.store == address
    with Store.open(address) as store:
        run = store.run(result.run_id)
    assert run.state is RunState.COMPLETE
    assert run.verdict is not None
    assert run.verdict.line == result.verdict
    assert len(fake.started) == 1
    assert fake.started[0].closed


def test_flow_runs_and_task_runs_have_names_and_tags(fake: Any, address: str) -> None:
    scale_sweep(**SWEEP, store=address)
    sweep = asked(SWEEP).sweep
    labels = {f"sweep:{sweep.id}", "workload:futures-map", "cluster:simulated"}
    assert flow_run().name == "futures-map on simulated: workers 1..4"
    assert labels <= set(flow_run().tags)
    runs = task_runs()
    names = [run.name for run in runs]
    assert names[0] == "provision simulated"
    assert set(names[1:4]) == {
        "measure 1 worker, 4 items · 1/1",
        "measure 2 workers, 4 items · 1/1",
        "measure 4 workers, 4 items · 1/1",
    }
    assert [name.split()[0] for name in names[4:]] == ["teardown", "analyse", "publish"]
    assert all(labels <= set(run.tags) for run in runs)


def shared_out(planned: Any) -> tuple[int, float]:
    """The same work at every size."""
    return planned.point.workers, 4.0 / planned.point.workers


def test_the_verdict_and_table_of_a_sweep_are_published_as_artifacts(fake: Any, address: str) -> None:
    fake.measures = shared_out
    result = scale_sweep(**SWEEP, seed=7, store=address)
    found = by_type(asked({**SWEEP, "seed": 7}).sweep.id)
    assert result.verdict.split(".")[0] in found["markdown"]["data"]
    assert "| 4 |" in found["markdown"]["data"]
    assert len(found["table"]["data"]) > 2
    sweep = asked({**SWEEP, "seed": 7}).sweep
    assert found["markdown"]["key"] == f"futures-map-on-simulated-{sweep.id}"
    assert found["table"]["description"].startswith("No fault found")
    assert found["table"]["description"].endswith("(futures-map on simulated)")


@pytest.mark.thorough
def test_a_page_is_published_once_even_if_its_table_is_retried(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.measures = shared_out
    tries: list[str] = []

    def table(*arguments: Any, key: str, **others: Any) -> None:
        tries.append(key)
        if len(tries) == 1:
            raise httpx.ReadTimeout("the server is slow")

    monkeypatch.setattr("scalescope_flows.runner.create_table_artifact", table)
    scale_sweep(**SWEEP, seed=8, store=address)
    key = f"futures-map-on-simulated-{asked({**SWEEP, 'seed': 8}).sweep.id}"
    assert tries == [f"{key}-table"] * 2
    assert [artifact["type"] for artifact in artifacts(key)] == ["markdown"]


def test_the_verdict_is_the_message_of_the_state_of_a_flow_run(
    fake: Any, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake.measures = shared_out
    result = scale_sweep(**SWEEP, store=address)
    state = flow_run().state
    assert state is not None
    assert (state.name, state.message) == ("Completed", result.verdict)
    said = [record.getMessage() for record in caplog.records if record.name == "prefect.flow_runs"]
    assert said[-2] == result.verdict  # followed by Prefect's "Finished in state"


def test_a_critical_finding_names_the_state_of_a_flow_run(fake: Any, address: str) -> None:
    fake.script = dict.fromkeys(range(3), "fail")
    result = scale_sweep(**SWEEP, store=address)
    state = flow_run().state
    assert state is not None
    assert state.is_completed()
    assert (state.name, state.message) == ("Finding: the workload raised", result.verdict)


@pytest.mark.thorough
def test_only_a_generated_name_of_a_flow_run_is_replaced(fake: Any, address: str) -> None:
    made = flow_run_of(scale_sweep, "Friday's try", {**SWEEP, "store": address})
    assert made.name == "Friday's try"
    for generated in ("misty-lemur", "Tasty-Ajiaco", "iota425-kesprytt", "mu-leonis-majoris-a"):
        made = flow_run_of(scale_sweep, generated, {**SWEEP, "store": address})
        assert made.name == "futures-map on simulated: workers 1..4"


@pytest.mark.thorough
def test_a_copied_flow_run_gets_new_tags_of_ours_and_keeps_the_others(fake: Any, address: str) -> None:
    old = ["sweep:abc", "workload:beam-pardo", "cluster:local", "scalescope", "team:blue"]
    made = flow_run_of(scale_sweep, "copy", {**SWEEP, "store": address}, tags=old)
    sweep = asked(SWEEP).sweep
    ours = {f"sweep:{sweep.id}", "workload:futures-map", "cluster:simulated"}
    assert set(made.tags) == {"scalescope", "team:blue", *ours}


def test_an_interrupted_sweep_flow_is_resumed(fake: Any, address: str) -> None:
    fake.script = {2: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        scale_sweep(**SWEEP, repeats=2, store=address)
    assert fake.started[0].closed
    assert {run.state.name for run in task_runs() if run.state and run.name[:7] == "measure"} == {
        "Measured",
        "Cancelled",
    }
    result = scale_sweep(**SWEEP, repeats=2, store=address)
    assert (result.valid, result.resumed) == (6, 2)
    assert len(fake.begun) == 7  # the one that was interrupted began twice
    assert scale_sweep(**SWEEP, repeats=2, fresh=True, store=address).resumed == 0


def test_a_budget_ends_a_sweep_early_and_a_larger_one_continues_it(fake: Any, address: str) -> None:
    spent = scale_sweep(**SWEEP, seed=3, store=address, budget={"hours": 0.01})
    assert spent.valid == 0
    assert "time limit is 600 s" in spent.ended_early
    assert "the budget ends" in spent.ended_early
    assert flow_run().state_name == "Finding: nothing was measured"
    with Store.open(address) as store:
        run = store.run(spent.run_id)
        assert (run.state, run.verdict is not None) == (RunState.STOPPED, True)
    assert spent.verdict.split(".")[0] in by_type(run.sweep.id)["markdown"]["data"]
    rest = scale_sweep(**SWEEP, seed=3, store=address, budget={"hours": 1})
    assert (rest.run_id, rest.valid, rest.resumed, rest.ended_early) == (spent.run_id, 3, 0, "")


@pytest.mark.thorough
def test_parallel_clusters_share_a_budget(fake: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestrator_load, "cores", lambda: [0, 1])
    result = scale_sweep(**SWEEP, store=address, parallel_clusters=2, budget={"hours": 0.01})
    assert result.valid == 0
    assert result.ended_early


SLURM: dict[str, Any] = {**SWEEP, "cluster": {"kind": "slurm", "queue_timeout_s": 5000}}


@pytest.mark.parametrize(
    ("kind", "fact", "text", "key", "shown"),
    [
        ("slurm", "job_script", "#!/bin/bash\n#SBATCH -n 1\necho ```", "job-script", "````bash\n#!/bin/bash"),
        ("kubernetes", "manifest", "kind: DaskCluster", "manifest", "```yaml\nkind: DaskCluster\n```"),
    ],
)
def test_a_job_script_or_manifest_is_published_before_the_first_trial(
    fake: Any, address: str, kind: str, fact: str, text: str, key: str, shown: str
) -> None:
    fake.submitted = {fact: text}
    result = scale_sweep(**SWEEP, cluster=kind, store=address)
    with Store.open(address) as store:
        [script] = artifacts(f"{key}-of-futures-map-{store.run(result.run_id).sweep.id}")
    assert script["data"].startswith(shown)
    names = [run.name for run in task_runs()]
    assert names[:2] == [f"provision {kind}", "publish"]
    assert script["task_run_id"] == str(task_runs()[1].id)


def test_the_timeout_of_a_trial_includes_the_time_in_the_queue(address: str) -> None:
    request = asked(SLURM, store=address, trial_timeout_s=100)
    with request.open_store() as store:
        drivers = Drivers(request, "run", store)
        assert MEASURE.timeout_s is not None
        assert MEASURE.timeout_s(drivers, request.plan[0]) > 5000 + 100


def test_a_long_wait_in_a_queue_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    heard: list[Progress] = []
    request = asked(SWEEP)
    meter = progress.Meter(request.sweep, request.plan, done=0, tell=heard.append)
    waits = "1 Slurm job waiting (Resources)"
    for seconds, text in [(0, "scaling"), *[(15, waits)] * 3, (300, waits), (15, "running"), (60, "recording")]:
        now[0] += seconds
        meter.says(text)
    assert [each.notable for each in heard] == [False, False, True, False, True, False, False]


@pytest.mark.thorough
def test_parallel_clusters_have_separate_cores_and_trials(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = orchestrator_load.cores()
    if len(cores) < 2:
        pytest.skip("needs two cores")
    result = scale_sweep(**SWEEP, repeats=2, store=address, parallel_clusters=2)
    assert result.valid == 6
    assert sorted(planned.index for planned in fake.begun) == list(range(6))
    assert len(fake.started) == 2
    first, second = (set(driver.cores) for driver in fake.started)
    assert first
    assert second
    assert not first & second
    assert {run.name for run in task_runs()} >= {"cluster 0", "cluster 1"}


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"workload": 5}, "workload"),
        ({"repeats": True}, "repeats"),
        ({"repeats": "2"}, "repeats"),
        ({"axes": {"workers": [True]}}, "axes.workers"),
        ({"axes": [1]}, "axes"),
        ({"fresh": "yes"}, "fresh"),
        ({"store": 5}, "store"),
        ({"cluster": 5}, "cluster"),
        ({"cluster": "simulated-cluster/none"}, "cluster"),
        ({"store": "result-store/none"}, "store"),
        ({"cluster": "light", "parallel_clusters": 2}, "parallel_clusters"),
        ({"axes": {"__prefect_kind": "json"}}, "axes"),  # as the dialog of a schedule sends an untouched editor
    ],
)
def test_an_invalid_parameter_raises_invalid_field_before_anything_starts(
    fake: Any, address: str, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidField) as error:
        scale_sweep(**{**SWEEP, "store": address, **given})
    assert error.value.field == field
    assert fake.started == []
    assert not Path(address).exists()
    assert task_runs() == []


# ------------------------------------------------------------------ what breaks


def test_an_error_is_one_line_in_the_state_and_in_the_log(
    fake: Any, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake.refusals += [ClusterError("no cluster today", where="here", cause="none left", next_step="wait")] * 3
    with pytest.raises(ClusterError) as raised, caplog.at_level(logging.DEBUG, "prefect.flow_runs"):
        scale_sweep(**SWEEP, store=address)
    line = "no cluster today; where: here; cause: none left; next: wait"
    assert raised.value.line == line
    states = [run.state for run in (flow_run(), task_runs()[0])]
    assert [(state.name, state.message) for state in states if state] == [("Failed", line)] * 2
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in errors if "Finished in" not in record.getMessage()] == [line]
    assert [record for record in errors if record.exc_info] == []
    assert [record for record in caplog.records if record.exc_info and record.levelno == logging.DEBUG]


class Met(BaseModel):
    """A result during whose serialisation to JSON a signal arrives."""

    @model_serializer
    def _interrupted(self) -> str:
        raise KeyboardInterrupt


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("met", "how"),
    [
        ("Running", interrupt),
        ("Measured", interrupt),
        pytest.param("Running", lambda: Met().model_dump_json(), id="Running-serialised"),
    ],
)
def test_a_signal_between_two_steps_cancels_the_run_without_a_crash(
    fake: Any, address: str, met: str, how: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    says = SyncTaskRunEngine.set_state

    def stopped(engine: SyncTaskRunEngine[Any, Any], state: State[Any], force: bool = False) -> State[Any]:
        said = says(engine, state, force)
        if state.name == met and engine.task.name == MEASURE.name and len(fake.begun) == 1:
            monkeypatch.undo()
            how()
        return said

    monkeypatch.setattr(SyncTaskRunEngine, "set_state", stopped)
    with pytest.raises(KeyboardInterrupt):
        scale_sweep(**SWEEP, store=address)
    states = [run.state.name for run in task_runs() if run.state and run.name.startswith("measure")]
    assert states == {"Running": ["Measured", "Cancelled"], "Measured": ["Measured"]}[met]


def test_a_flow_run_interrupted_while_publishing_is_cancelled(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scalescope_flows.runner.create_markdown_artifact", stopped)
    with pytest.raises(KeyboardInterrupt):
        scale_sweep(**SWEEP, store=address)
    assert [run.state.name for run in task_runs() if run.state][-1] == "Cancelled"


def test_a_failed_trial_has_a_named_state_and_is_not_repeated(fake: Any, address: str) -> None:
    fake.script = {0: "fail", 1: "invalid"}
    result = scale_sweep(**SWEEP, store=address)
    assert (result.valid, result.failed, result.invalid) == (1, 1, 1)
    assert len(fake.begun) == 3
    states = [run.state for run in task_runs() if run.name.startswith("measure")]
    assert [state.name for state in states if state] == ["Workload failed", "Invalid", "Measured"]
    assert states[0] is not None
    assert states[0].message == "because it should fail"


@pytest.mark.parametrize("refusals", [2, 3])
def test_an_unavailable_cluster_is_requested_three_times_at_most(
    fake: Any, address: str, refusal: Exception, refusals: int
) -> None:
    fake.refusals += [refusal] * refusals
    with nullcontext() if refusals == 2 else pytest.raises(ClusterError, match="no cluster today"):
        assert scale_sweep(**SWEEP, store=address).valid == 3
    assert task_runs()[0].run_count == 3
    assert fake.refusals == []
    with Store.open(address) as store:
        assert store.run("latest").state is (RunState.COMPLETE if refusals == 2 else RunState.FAILED)


def test_a_sweep_whose_result_cannot_be_published_still_returns_it(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr("scalescope_flows.runner.create_markdown_artifact", broken)
    assert scale_sweep(**SWEEP, store=address).valid == 3
    assert task_runs()[-1].run_count == 1


class Door:
    """A proxy to the session's server that can be shut: then no port listens, as after a kill."""

    def __init__(self, port: int) -> None:
        self._port, self._open = port, [socket.create_server(("127.0.0.1", 0))]
        self.is_shut = False
        self.address = f"http://127.0.0.1:{self._open[0].getsockname()[1]}/api"
        threading.Thread(target=self._serve, daemon=True).start()

    def shut(self) -> None:
        self.is_shut = True
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near = self._open[0].accept()[0]
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    """A door whose clients retry only while it is open: then the server is only busy with other tests."""
    door = Door(urlsplit(PREFECT_API_URL.value()).port or 0)
    retries = SimpleNamespace(value=lambda: 0 if door.is_shut else 5)
    monkeypatch.setattr("prefect.client.base.PREFECT_CLIENT_MAX_RETRIES", retries)
    return door


def goes_on_without_a_server(door: Door, address: str, log: pytest.LogCaptureFixture, *, items: int) -> None:
    """Each test gives other items: the process caches a client per set of tags, which would know an older door."""
    sweep = {**SWEEP, "params": {"items": items}}
    with temporary_settings({PREFECT_API_URL: door.address, PREFECT_CLIENT_MAX_RETRIES: 0}):
        assert scale_sweep(**sweep, store=address).valid == 3
    assert door.is_shut
    assert "does not answer" in log.text
    with Store.open(address) as store:
        assert store.run("latest").state == "complete"


def test_a_sweep_continues_without_pages_if_the_server_fails(
    fake: Any, door: Door, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake.script = {0: lambda driver: door.shut() or "measure"}
    goes_on_without_a_server(door, address, caplog, items=5)


@pytest.mark.parametrize(("status", "away"), [(500, True), (503, True), (404, False), (422, False)])
def test_server_errors_and_timeouts_mean_that_the_server_is_away(status: int, away: bool) -> None:
    request = httpx.Request("POST", "http://127.0.0.1:9/api")
    assert is_away(httpx.HTTPStatusError("", request=request, response=httpx.Response(status))) is away
    assert is_away(httpx.ReadTimeout(""))


def test_a_flow_without_a_reachable_server_starts_no_driver(fake: Any, address: str) -> None:
    nobody = {PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(nobody), pytest.raises(InfrastructureError, match="does not answer"):
        scale_sweep(**{**SWEEP, "params": {"items": 7}}, store=address)
    assert fake.started == []


@pytest.mark.timeout(30)  # seconds, less than the default timeout of Prefect's clients
def test_a_server_that_stands_still_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalescope_flows.runner.ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        own = {PREFECT_API_URL: address, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED: False}
        with temporary_settings(own), SyncClientContext(), _impatient() as client:  # a flow run has such a context
            assert isinstance(client.api_healthcheck(), httpx.ReadTimeout)


@pytest.mark.thorough
def test_a_sweep_continues_if_the_server_fails_when_a_task_is_about_to_start(
    fake: Any, door: Door, address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask = task_engine._concurrency

    def asked_too_late(**options: Any) -> Any:
        door.shut()
        return ask(**options)

    monkeypatch.setattr("prefect.task_engine._concurrency", asked_too_late)
    goes_on_without_a_server(door, address, caplog, items=6)


# ------------------------------------------------------------------ with a driver and a cluster


LEAKY_ARGUMENTS = {"n_workers": 0, "threads_per_worker": 1, "processes": False, "dashboard_address": None}


CANARY = "c4nary/of+the \"mine'\\"


def test_a_secret_appears_in_no_error_log_artifact_report_or_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The secret is put into errors, logs, artifacts, events, the report, the specification and the records."""
    monkeypatch.setenv("PYTHONPATH", str(Path(leaky.__file__).parent.parent), prepend=":")
    monkeypatch.setenv("LEAKY_DSN", CANARY)
    kept = tmp_path / "kept"
    store, report = str(kept / "results.db"), str(kept / "report.html")
    cluster: dict[str, Any] = {
        "kind": "custom",
        "cluster_class": "support.leaky:Leaky",
        "arguments": LEAKY_ARGUMENTS,
        "secrets": {"connection.dsn": "LEAKY_DSN"},
        "start_timeout_s": 30,
    }
    sweep = {"workload": "support.leaky:run", "params": {"items": 1}, "store": store}
    with caplog.at_level(logging.INFO):
        result = scale_sweep(**sweep, cluster=cluster, axes={"fail": [False, True]}, report=report)
        assert (result.valid, result.failed) == (1, 1)
        refusing = {**cluster, "arguments": {**LEAKY_ARGUMENTS, "refuse": True}}
        with pytest.raises(ClusterError) as refused:
            scale_sweep(**sweep, cluster=refusing, axes={"fail": [False]})
    texts = {
        "error": f"{refused.value}\n{refused.value.line}\n{refused.value.__dict__}",
        "log": caplog.text,
        "files": "".join(path.read_bytes().decode("utf-8", "replace") for path in kept.rglob("*") if path.is_file()),
    }
    with get_client(sync_client=True) as client:
        for path in ("artifacts", "logs", "flow_runs", "task_runs", "events"):
            texts[path] = client.request("POST", f"/{path}/filter", json={}).raise_for_status().text
    with Store.open(store) as opened:
        run = opened.run(result.run_id)
        texts["spec"] = json.dumps(run.sweep.to_mapping())
        texts["trials"] = repr(run.trials)
        texts["records"] = repr([opened.tables(trial) for trial in run.trials])
    traced = tmp_path / "trace.json"
    for command in (["show"], ["show", "--json"], ["trace", "--output", str(traced)]):
        texts[" ".join(command)] = CliRunner().invoke(app(), [*command, "--store", store, result.run_id]).output
    texts["trace"] = gzip.decompress(traced.read_bytes()).decode()
    for path, text in texts.items():
        assert text, path
        assert "c4nary" not in text, path
    assert "connect-***" in texts["records"]
    assert "no answer from ***" in texts["error"]
