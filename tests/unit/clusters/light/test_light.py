from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import psutil
import pytest

from scalescope.clusters.light.cluster import LightCluster
from scalescope.clusters.light.spec import LightSpec
from scalescope.errors import ClusterError, WorkersMissing

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LightCluster]:
    cluster = LightCluster(LightSpec(hosts=2))
    cluster.open()
    yield cluster
    cluster.close()


def workers(cluster: LightCluster) -> dict[str, Any]:
    with cluster.client() as client:
        return client.scheduler_info(n_workers=-1)["workers"]


def processes() -> list[psutil.Process]:
    """All processes of light clusters that this process opened."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and "clusters.light.process" in " ".join(child.cmdline())
    ]


def test_a_light_cluster_has_exactly_the_requested_workers(cluster: LightCluster) -> None:
    for count in (5, 40, 7, 7):
        cluster.scale(count, 1)
        assert len(workers(cluster)) == count
    cluster.scale(3, 4)
    assert [worker["nthreads"] for worker in workers(cluster).values()] == [4, 4, 4]


def test_a_light_cluster_listens_on_loopback_only(cluster: LightCluster) -> None:
    cluster.scale(2, 1)
    listening = [
        connection.laddr.ip
        for process in processes()
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert set(listening) == {"127.0.0.1"}


def test_the_scheduler_of_a_light_cluster_compares_no_versions(cluster: LightCluster) -> None:
    def ask(dask_scheduler: Any) -> tuple[list[Any], str]:
        return (
            [worker.versions for worker in dask_scheduler.workers.values()],
            distributed.versions.error_message.__name__,
        )

    cluster.scale(2, 1)
    with cluster.client() as client:
        assert client.run_on_scheduler(ask) == ([{}, {}], "_no_error")
        answer = client.get_versions(check=True)  # what a user asks for is answered in full
    assert {info["packages"]["distributed"] for info in answer["workers"].values()} == {distributed.__version__}
    assert answer["scheduler"]["packages"]["distributed"] == distributed.__version__


def test_tasks_of_a_light_cluster_run_in_parallel(cluster: LightCluster, tmp_path: Path) -> None:
    go = tmp_path / "go"

    def wait(number: int) -> int:
        while not go.exists():
            time.sleep(0.01)
        return number

    cluster.scale(50, 1)
    with cluster.client() as client:
        futures = client.map(wait, range(50), pure=False)
        while sum(client.run(lambda dask_worker: len(dask_worker.active_threads)).values()) <= 10:
            time.sleep(0.01)
        go.touch()
        assert client.gather(futures) == list(range(50))


def test_workers_import_modules_from_the_search_path_of_the_driver(
    cluster: LightCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def there() -> bool:
        return str(tmp_path) in sys.path

    cluster.scale(4, 1)
    with cluster.client() as client:
        assert all(client.run(there).values())
        assert client.run_on_scheduler(there)


def test_a_light_cluster_says_how_many_workers_it_can_emulate(cluster: LightCluster) -> None:
    cluster.scale(10, 1)
    facts = cluster.facts()
    assert facts["limit"]["seconds_per_task"] > 0
    assert facts["emulation"].startswith("trustworthy up to 10")


def test_close_ends_every_process_even_one_with_a_task_that_never_ends() -> None:
    before = {process.pid for process in processes()}
    cluster = LightCluster(LightSpec(hosts=2, check_limit=False))
    cluster.open()
    cluster.scale(4, 1)
    client = cluster.client()
    future = client.submit(time.sleep, 1000)
    while not any(client.processing().values()):
        time.sleep(0.01)
    started = [process for process in processes() if process.pid not in before]
    assert len(started) == 4  # the one that forks, the scheduler, two hosts
    cluster.close()
    cluster.close()
    _, alive = psutil.wait_procs(started, timeout=15)
    assert not alive
    del future
    client.close(timeout=1)


def test_a_host_process_that_dies_raises_a_clear_error() -> None:
    cluster = LightCluster(LightSpec(hosts=1, check_limit=False))
    cluster.open()
    try:
        cluster.scale(2, 1)
        with cluster.client() as client:
            (host,) = set(client.run(os.getpid).values())
        os.kill(host, signal.SIGKILL)
        with pytest.raises(ClusterError, match="host 0 process ended"):
            cluster.scale(4, 1)
    finally:
        cluster.close()


def test_workers_that_do_not_start_in_time_raise_workers_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LightCluster(LightSpec(hosts=1, check_limit=False))
    cluster.open()
    monkeypatch.setattr(cluster, "spec", LightSpec(hosts=1, start_timeout_s=1, check_limit=False))
    for process in processes():  # no process can answer in time
        process.suspend()
    try:
        with pytest.raises(WorkersMissing, match="did not answer"):
            cluster.scale(4, 1)
    finally:
        for process in processes():
            process.resume()
        cluster.close()


def test_no_process_of_a_light_cluster_survives_its_owner() -> None:
    code = """
import sys, time
from scalescope.clusters.light.cluster import LightCluster
from scalescope.clusters.light.spec import LightSpec
cluster = LightCluster(LightSpec(hosts=2, check_limit=False))
cluster.open()
cluster.scale(8, 1)
print("ready", flush=True)
time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        children = psutil.Process(owner.pid).children(recursive=True)
        assert len(children) == 4
        os.kill(owner.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=15)
    assert not alive
