from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from sortedcontainers import SortedDict

from scalescope import clusters
from scalescope.clusters.base import registered
from scalescope.clusters.local.cluster import LocalCluster
from scalescope.clusters.local.spec import LocalSpec
from scalescope.errors import ClusterError, WorkersMissing


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    cluster = clusters.build(LocalSpec(memory_limit_mb=512))
    assert isinstance(cluster, LocalCluster)
    cluster.open()
    yield cluster
    cluster.close()


def workers(cluster: LocalCluster) -> dict[str, tuple[int, int]]:
    """Address -> threads and memory limit in MiB."""
    present = cluster._cluster().scheduler.workers
    return {address: (worker.nthreads, worker.memory_limit // 2**20) for address, worker in present.items()}


def pids(cluster: LocalCluster) -> list[int]:
    with cluster.client() as client:
        return sorted(client.run(os.getpid).values())


def test_a_local_cluster_scales_up_and_down_and_keeps_fitting_workers(cluster: LocalCluster) -> None:
    cluster.scale(1, 1)
    first = workers(cluster)
    assert list(first.values()) == [(1, 512)]
    cluster.scale(2, 1)
    assert len(workers(cluster)) == 2
    assert first.keys() < workers(cluster).keys()
    cluster.scale(1, 1)
    assert workers(cluster) == first
    cluster.scale(1, 2)  # other threads replace every worker
    assert list(workers(cluster).values()) == [(2, 512)]
    assert not first.keys() & workers(cluster).keys()


def test_a_worker_that_died_is_replaced_before_the_next_trial(cluster: LocalCluster) -> None:
    cluster.scale(1, 1)
    (pid,) = pids(cluster)
    psutil.Process(pid).kill()
    while workers(cluster):
        time.sleep(0.01)
    cluster.scale(1, 1)
    assert len(workers(cluster)) == 1
    assert pids(cluster) != [pid]


def test_a_local_cluster_runs_tasks_and_describes_itself(cluster: LocalCluster) -> None:
    cluster.scale(1, 1)
    with cluster.client() as client:
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
    facts = cluster.facts()
    assert (facts["kind"], facts["clock"], facts["workers"], facts["threads_per_worker"]) == ("local", "real", 1, 1)
    assert facts["oversubscribed"] is False
    assert facts["cannot_show"]


def listening(*processes: psutil.Process) -> set[tuple[str, int]]:
    return {
        (connection.laddr.ip, connection.laddr.port)
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


def test_a_local_cluster_listens_on_loopback_only() -> None:
    before = listening(psutil.Process())  # other tests may have left something in this process
    cluster = LocalCluster(LocalSpec())
    try:
        cluster.open()
        cluster.scale(1, 1)
        found = listening(psutil.Process(), *(psutil.Process(pid) for pid in pids(cluster))) - before
    finally:
        cluster.close()
    assert len(found) >= 3  # scheduler, nanny, worker
    assert {ip for ip, _ in found} == {"127.0.0.1"}


def test_workers_that_do_not_start_are_named_with_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaks_on_import.py").write_text("import os\nos._exit(41)\n")
    cluster = LocalCluster(LocalSpec(start_timeout_s=20))
    monkeypatch.setattr("scalescope.clusters.local.cluster.WORKER_PRELOAD", str(tmp_path / "breaks_on_import.py"))
    try:
        cluster.open()
        with pytest.raises(WorkersMissing) as caught:
            cluster.scale(1, 1)
    finally:
        cluster.close()
    assert "0 of 1 local workers" in caught.value.what
    assert "workers 0 on" in caught.value.where
    assert "exited with status 41" in caught.value.cause
    assert caught.value.next_step


def test_workers_that_start_too_slowly_are_ended_by_close(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr("scalescope.clusters.local.cluster.WORKER_PRELOAD", str(tmp_path / "slow.py"))
    monkeypatch.setattr("scalescope.clusters.local.cluster.CLOSE_TIMEOUT_S", 0.5)
    cluster = LocalCluster(LocalSpec(start_timeout_s=3))
    before = set(psutil.Process().children(recursive=True))
    try:
        cluster.open()
        with pytest.raises(WorkersMissing, match="0 of 1 local workers"):
            cluster.scale(1, 1)
        started = set(psutil.Process().children(recursive=True)) - before
        assert started
    finally:
        cluster.close()
    assert not [process for process in started if process.is_running() and "spawn_main" in str(process.cmdline())]


def test_a_local_cluster_can_be_closed_at_any_time_and_twice() -> None:
    cluster = LocalCluster(LocalSpec())
    cluster.close()
    cluster.open()
    cluster.close()
    cluster.close()
    with pytest.raises(ClusterError, match="not open"):
        cluster.scale(1, 1)
    with pytest.raises(ClusterError, match="not open"):
        cluster.client()


def test_listing_workers_while_one_is_being_added_raises_no_error() -> None:
    workers: Any = SortedDict({"tls://a:1": "a"})
    workers._list_add("tls://b:1")  # `workers["tls://b:1"] = ...` stands between its two statements
    scheduler: Any = SimpleNamespace(workers=workers)
    with pytest.raises(KeyError):  # as distributed itself does
        list(workers.values())
    assert registered(scheduler) == ["a"]
