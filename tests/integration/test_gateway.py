"""Clusters of a real server of Dask Gateway, whose schedulers and workers are processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from support import another_user, http_servers
from support.faults import Commands, see
from support.gateway import MOST, PASSWORD, VARIABLE, Server, serving
from support.opening import opening
from support.waiting import wait_for

from scalescope import leases
from scalescope.cli import main as cli
from scalescope.clusters import reaping
from scalescope.clusters.gateway import left_alone
from scalescope.clusters.gateway.spec import GatewaySpec
from scalescope.clusters.reaping import Fate, Reaped
from scalescope.errors import ClusterError, ExitStatus, UsageError, WorkersMissing
from scalescope.leases import Lease
from scalescope.own_code import cluster_watch

SCRIPT = """
import time
from dask_gateway import GatewayCluster

with GatewayCluster(worker_cores=1) as cluster:
    cluster.scale(1)
    client = cluster.get_client()
    client.wait_for_workers(1)
    print(sum(client.gather(client.map(lambda number: time.sleep(0.1) or number, range(4)))))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, missing: Any) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch, serving(tmp_path_factory.mktemp("gateway"), missing) as made:
        patch.setenv(VARIABLE, PASSWORD)
        yield made


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


@pytest.fixture
def opened(server: Server) -> Iterator[Any]:
    with opening(GatewaySpec) as made:
        yield lambda **given: made(**{**server.fields(), "start_timeout_s": 60, **given})


def test_a_gateway_cluster_answers_no_request_of_another_user(server: Server, opened: Any) -> None:
    cluster = opened()
    cluster.scale(2, 1)
    with cluster.client() as client:
        (scheduler,) = client.run_on_scheduler(lambda: [os.getpid()])
        processes = [psutil.Process(pid) for pid in (scheduler, *client.run(os.getpid).values())]
    listening = http_servers.ports(processes)
    assert len(listening) >= 3
    assert http_servers.answered(listening) == []


def configured(server: Server) -> dict[str, Any]:
    """Dask settings with which users of Dask Gateway reach their server."""
    login = {"type": "basic", "kwargs": {"username": "me", "password": f"{{{VARIABLE}}}"}}
    return {"gateway.address": server.address, "gateway.auth": login}


@pytest.mark.thorough
def test_a_gateway_cluster_has_exact_sizes_and_leaves_nothing(
    server: Server,
    opened: Any,
    ledger: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = opened(options={"worker_cores": 2})
    (lease,) = ledger.glob("*.json")
    assert server.clusters() == [json.loads(lease.read_text())["details"]["cluster"]]
    assert PASSWORD not in lease.read_text() + str(cluster.facts())
    for workers in (1, 2, 1):
        cluster.scale(workers, 2)
        with cluster.client() as client:
            assert client.submit(sum, [1, 2]).result(timeout=30) == 3
            assert list(client.nthreads().values()) == [2] * workers
    with pytest.raises(WorkersMissing) as caught:
        cluster.scale(1, 1)
    assert "another number of threads" in caught.value.cause
    with pytest.raises(ClusterError) as refused:
        cluster.scale(MOST + 1, 2)
    assert refused.value.category == "refused"
    assert f"limit of {MOST} workers" in refused.value.cause
    cluster.scale(1, 2)  # after the refusal the server had begun to start MOST workers

    monkeypatch.setattr(cluster_watch, "INTERVAL_S", 0.2)
    address = cluster._report.scheduler_address
    with dask.config.set(configured(server)):
        assert cli.run(["watch", address, "--for", "1s", "--json", "--record"]) == ExitStatus.OK
    assert json.loads(capsys.readouterr().out)["workers"] == 1
    server.stop("me", cluster._name)
    with pytest.raises(ClusterError) as ended:
        cluster.scale(1, 2)
    assert ended.value.category == "ended"
    cluster.close()
    cluster.close()
    assert server.clusters() == []
    assert list(ledger.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "password", "error", "says"),
    [
        ({}, "wrong", "not-allowed", "401"),
        ({"options": {"gpus": 1}}, PASSWORD, "refused", "gpus"),
        ({"address": "http://127.0.0.1:9"}, PASSWORD, "server-away", "Connect call failed"),
    ],
    ids=["password", "option", "address"],
)
def test_a_wrong_password_option_or_address_is_refused_at_once(
    given: dict[str, Any],
    password: str,
    error: str,
    says: str,
    server: Server,
    opened: Any,
    ledger: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, password)
    with pytest.raises(ClusterError) as caught:
        opened(**given)
    assert caught.value.category == error
    assert says in caught.value.cause
    assert caught.value.ends_run is (error != "server-away")
    assert [*ledger.glob("*")] == []


def test_a_gateway_cluster_without_an_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with opening(GatewaySpec) as made, pytest.raises(UsageError, match="missing or wrong"):
        made()
    assert cli.run(["watch", "gateway://127.0.0.1:9/none", "--for", "1s"]) == ExitStatus.USAGE
    assert "gateway.address" in capsys.readouterr().err


# ------------------------------------------------------------------ what dead owners left


def reap(**options: Any) -> dict[str, Reaped]:
    return {each.label: each for each in reaping.reap(**options)}


def orphan(server: Server, **details: Any) -> Lease:
    """A lease whose owner is dead."""
    lease = leases.intend("gateway", leases.new_label(), {**server.fields(), **details})
    dead = replace(lease, owner=replace(lease.owner, process_started=1.0))
    leases._write(dead)
    return dead


def test_reap_stops_only_the_gateway_cluster_of_a_dead_owner(server: Server, ledger: Path) -> None:
    theirs, mine, left = server.submit("other"), server.submit("me"), server.submit("me")
    named, gone = orphan(server, cluster=left), orphan(server, cluster="0" * 32)
    shown = reap(dry_run=True)
    assert (shown[named.label].fate, shown[named.label].removed) == (Fate.WOULD_REMOVE, (left,))
    assert {left, mine} == set(server.clusters())
    done = reap()
    assert (done[named.label].fate, done[named.label].removed) == (Fate.REMOVED, (left,))
    assert (done[gone.label].fate, done[gone.label].removed) == (Fate.REMOVED, ())
    assert (server.clusters(), server.clusters("other")) == ([mine], [theirs])
    assert list(ledger.iterdir()) == []

    nameless, another = orphan(server), orphan(server, cluster=theirs)
    done = reap()
    assert done[nameless.label].fate is Fate.ELSEWHERE
    assert mine in done[nameless.label].next_step
    assert done[another.label].fate is Fate.FAILED
    assert server.clusters("other") == [theirs]
    server.stop("me", mine)
    server.stop("other", theirs)


@pytest.mark.thorough
def test_a_gateway_cluster_ends_by_itself_once_its_owner_is_gone(server: Server, opened: Any) -> None:
    cluster = opened(idle_timeout_s=1)
    time.sleep(3 * left_alone.LOOK_S)
    assert len(server.clusters()) == 1
    cluster._disconnect()
    wait_for(lambda: server.clusters() == [])


# ------------------------------------------------------------------ sweeps and scripts


def options(server: Server) -> list[str]:
    given = {**server.fields(), "secrets": json.dumps(server.fields()["secrets"]), "start_timeout_s": 100}
    return ["--cluster=gateway", *(f"--cluster-option={name}={value}" for name, value in given.items())]


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path / "commands")
    yield made
    made.kill()


@pytest.mark.thorough
def test_a_sweep_on_a_gateway_cluster_leaves_no_cluster_and_no_password(server: Server, commands: Commands) -> None:
    sweep = ("sweep", "-w", "futures-map", "-a", "workers=1,2,4", "-p", "items=4", "-p", "seconds=0.2")
    assert commands.start(*sweep, *options(server)).wait(200) in (0, 1), commands.text()
    (run,) = commands.runs()
    assert sorted((trial.point.workers, trial.state.value) for trial in run.trials if not trial.warmup) == [
        (1, "valid"),
        (2, "valid"),
        (4, "valid"),
    ]
    assert PASSWORD.encode() not in b"".join(path.read_bytes() for path in commands.store.parent.rglob("*.*"))
    assert (server.clusters(), commands.left()) == ([], [])


@pytest.mark.thorough
@pytest.mark.parametrize("stage", ["provisioning", "scaling", "measuring"])
def test_a_killed_sweep_on_a_gateway_cluster_can_be_resumed(stage: str, server: Server, commands: Commands) -> None:
    theirs = server.submit("other")

    def kill(commands: Commands, flow: Any) -> None:
        for each in (flow, *flow.children(recursive=True)):
            each.kill()

    seen = see(commands, stage, kill, *options(server))
    assert (seen.leaks, seen.lost, seen.finished) == ((), 0, True), commands.text()
    assert (server.clusters(), server.clusters("other")) == ([], [theirs])
    server.stop("other", theirs)


@pytest.mark.thorough
def test_a_trial_is_repeated_if_the_gateway_server_was_away(server: Server, commands: Commands) -> None:
    def away(commands: Commands, flow: Any) -> None:
        server.signal(signal.SIGSTOP)
        time.sleep(20)
        server.signal(signal.SIGCONT)

    seen = see(commands, "measuring", away, *options(server))
    assert (seen.leaks, seen.lost, seen.finished, seen.again) == ((), 0, True, False), commands.text()
    [repeated] = [trial for trial in seen.trials if trial != "valid"]
    assert "second attempt" in repeated
    assert server.clusters() == []


@pytest.mark.thorough
def test_a_script_that_creates_a_gateway_cluster_is_recorded(server: Server, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(SCRIPT)
    settings = {"DASK_GATEWAY__ADDRESS": server.address, "DASK_GATEWAY__AUTH__KWARGS__PASSWORD": PASSWORD}
    command = [sys.executable, "-c", "from scalescope.cli.main import main; main()", "run", "--json", "theirs.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, text=True, timeout=200, check=False
    )
    shown = json.loads(done.stdout)
    assert (shown["status"], shown["problems"]) == (0, []), done.stderr
    assert shown["clusters"][0]["points"][0]["tasks"] == 4
    wait_for(lambda: server.clusters() == [])


@pytest.mark.thorough
@another_user.only_root
def test_another_user_gets_nothing_of_a_sweep_on_gateway(server: Server) -> None:
    fields = {
        "address": server.address,
        "auth": "basic",
        "username": "me",
        "secrets": json.dumps({"password": VARIABLE}),
    }
    options = [f"--cluster-option={name}={value}" for name, value in fields.items()]

    def clusters_of_me() -> list[psutil.Process]:
        return [each for each in server.process.children(recursive=True) if "proxy" not in each.name()]

    got, tried = another_user.gets_of_a_sweep("-c", "gateway", *options, others=clusters_of_me)
    assert got == []
    assert len(tried["ports"]) >= 3
