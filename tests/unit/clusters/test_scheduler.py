from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import distributed
import pytest

from scalescope import clusters, workloads
from scalescope.cli import main as cli
from scalescope.clusters.observed_cluster import close_client
from scalescope.clusters.scheduler.cluster import SchedulerCluster
from scalescope.clusters.scheduler.spec import SchedulerSpec
from scalescope.driver.process import Driver
from scalescope.errors import ClusterError, ExitStatus, WorkersMissing
from scalescope.model.cluster import cluster_spec
from scalescope.model.sweep import PlannedTrial, Sweep
from scalescope.model.trial import TrialState
from scalescope.own_code import cluster_watch


@pytest.fixture(scope="module")
def theirs() -> Iterator[distributed.LocalCluster]:
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield cluster


def attach(**given: object) -> SchedulerCluster:
    cluster = clusters.build(SchedulerSpec(**given))  # type: ignore[arg-type]
    assert isinstance(cluster, SchedulerCluster)
    cluster.open()
    return cluster


def test_the_workers_of_an_existing_scheduler_are_used_and_kept(theirs: distributed.LocalCluster) -> None:
    cluster = attach(address=theirs.scheduler_address, start_timeout_s=5)
    cluster.scale(2, 1)
    with cluster.client() as client:
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
    assert re.findall(r"\d+", cluster.facts()["layout"]) == ["2", "1"]
    cluster.close()
    cluster.close()
    with distributed.Client(theirs, set_as_default=False) as client:
        assert len(client.nthreads()) == 2
    with pytest.raises(ClusterError):
        cluster.scale(2, 1)


@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (3, 1), (2, 4)])
def test_sizes_that_an_existing_scheduler_does_not_have_are_refused(
    theirs: distributed.LocalCluster, workers: int, threads: int
) -> None:
    cluster = attach(address=theirs.scheduler_address, start_timeout_s=1)
    try:
        with pytest.raises(WorkersMissing) as caught:
            cluster.scale(workers, threads)
    finally:
        cluster.close()
    assert list(map(int, re.findall(r" (\d+)", caught.value.what))) == [2, 1, 1, workers, threads]
    assert "workers to [2]" in caught.value.next_step


def test_a_scheduler_file_can_replace_the_address(theirs: distributed.LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    with distributed.Client(theirs, set_as_default=False) as client:
        client.write_scheduler_file(str(file))
    cluster = attach(scheduler_file=str(file))
    try:
        cluster.scale(2, 1)
    finally:
        cluster.close()


@pytest.mark.parametrize(
    "given", [{"address": "tcp://127.0.0.1:9"}, {"scheduler_file": "/no/such/file"}], ids=["address", "file"]
)
def test_a_scheduler_that_does_not_exist_raises_cluster_error(given: dict[str, str]) -> None:
    with pytest.raises(ClusterError) as caught:
        attach(**given, start_timeout_s=1)
    assert caught.value.where in given.values()
    assert caught.value.next_step


@pytest.fixture
def web_server() -> Iterator[str]:
    """The address of a server that answers as an HTTP proxy does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(64)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def test_an_address_of_a_web_server_is_refused_as_a_scheduler(
    web_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ClusterError) as caught:
        attach(address=web_server, start_timeout_s=2)
    assert "8787 is its dashboard" in caught.value.next_step
    assert cli.run(["watch", web_server]) == ExitStatus.INFRASTRUCTURE
    assert "8787" in capsys.readouterr().err


def test_the_address_of_a_dashboard_is_refused_as_a_scheduler(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["watch", "http://10.0.0.7:8787"]) == ExitStatus.USAGE
    assert "tcp://HOST:8786" in capsys.readouterr().err


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A scheduler with TLS, and the files that open it."""
    made = distributed.Security.temporary()
    files = {}
    for name, text in (("ca_file", made.tls_ca_file), ("cert", made.tls_client_cert), ("key", made.tls_client_key)):
        files[f"tls_{name}"] = str(tmp_path / name)
        (tmp_path / name).write_text(text)
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
        security=made,
        protocol="tls",
    ) as theirs:
        yield {"address": theirs.scheduler_address, **files}


def test_a_scheduler_with_tls_needs_the_certificates(guarded: dict[str, str]) -> None:
    assert guarded["address"].startswith("tls://")
    cluster = attach(**guarded)
    cluster.scale(1, 1)
    assert cluster.facts()["tls"] is True
    cluster.close()
    with pytest.raises(ClusterError):
        attach(address=guarded["address"], start_timeout_s=1)


def test_a_client_whose_reconnection_failed_can_still_be_closed(
    guarded: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tornado raises this error in one of five cases when a scheduler behind a forwarded port goes away."""
    cluster = attach(**guarded)
    client = cluster.client()
    observer = cluster._open()

    def start_tls(*given: object, **more: object) -> None:
        raise ValueError("IOStream is not idle; cannot convert to SSL")

    monkeypatch.setattr("tornado.iostream.IOStream.start_tls", start_tls)
    for each in (client, observer):
        each.loop.add_callback(each.scheduler_comm.comm.abort)
        background = each._handle_report_task
        while not background.done():
            time.sleep(0.05)
        assert isinstance(background.exception(), ValueError)
    close_client(client)
    cluster.close()
    assert [each.status for each in (client, observer)] == ["closed", "closed"]


@pytest.mark.parametrize("configured", [False, True])
def test_watch_connects_with_tls_by_options_or_configuration(
    guarded: dict[str, str], configured: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "INTERVAL_S", 0.2)
    files = {name: value for name, value in guarded.items() if name != "address"}
    options = [] if configured else [f"--{name.replace('_', '-')}={value}" for name, value in files.items()]
    names = {"tls_ca_file": "ca-file", "tls_cert": "client.cert", "tls_key": "client.key"}
    config = {f"distributed.comm.tls.{names[name]}": value for name, value in files.items()} if configured else {}
    with dask.config.set(config):
        assert cli.run(["watch", guarded["address"], "--for", "1s", "--json", *options]) == ExitStatus.OK
    assert json.loads(capsys.readouterr().out)["verdict"] is None


def test_a_beam_workload_connects_with_the_same_certificates(guarded: dict[str, str], tmp_path: Path) -> None:
    """The runner of Beam opens its own client with nothing but the address."""
    pytest.importorskip("apache_beam")
    sweep = Sweep.from_mapping({"workload": "beam-pardo", "points": [{"workers": 1, "items": 2, "seconds": 0}]})
    (point,) = sweep.expand(workloads.load("beam-pardo"))
    with Driver.start(cluster_spec({"kind": "scheduler", **guarded}), folder=tmp_path) as driver:
        outcome = driver.run(PlannedTrial(0, point, 0), "beam-pardo", timeout_s=100)
    assert outcome.state is TrialState.VALID, outcome.reason
