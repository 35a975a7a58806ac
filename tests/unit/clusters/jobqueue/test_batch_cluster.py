"""Two shell scripts stand for a real batch system; nothing was ever run on most real ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import http_servers

from scalescope import clusters, leases
from scalescope.clusters.jobqueue.batch_cluster import BatchCluster
from scalescope.errors import ClusterError
from scalescope.model.cluster import cluster_spec

QSUB = """#!/bin/sh
cp "$1" "$0.$$"
setsid sh "$0.$$" > /dev/null 2>&1 < /dev/null &
echo "$!.server"
"""
QDEL = """#!/bin/bash
for job; do kill -TERM -- "-$job"; done
"""
SPEC = {"kind": "pbs", "memory_mb": 2000, "workers_per_job": 2, "tls": False, "start_timeout_s": 60}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchCluster]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    cluster = clusters.build(cluster_spec({**SPEC, "interface": "lo"}))
    assert isinstance(cluster, BatchCluster)
    yield cluster
    cluster.close()


def test_scaling_submits_jobs_and_keeps_those_still_needed_and_close_cancels_all(
    cluster: BatchCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("qsub", QSUB), ("qdel", QDEL)):
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(text)
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    before = set(http_servers.ports([psutil.Process()]))  # ports of clusters that other tests keep
    cluster.open()
    cluster.scale(3, 1)
    jobs = [int(job["id"]) for job in cluster.facts()["jobs"]]
    assert [job["workers"] for job in cluster.facts()["jobs"]] == [2, 1]
    with cluster.client() as client:
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
    listening = {*http_servers.ports([psutil.Process(), *map(psutil.Process, jobs)])} - before
    assert len(listening) >= 4  # of the scheduler and three workers
    assert http_servers.answered(listening) == []
    cluster.scale(2, 1)
    assert [int(job["id"]) for job in cluster.facts()["jobs"]] == jobs[:1]
    cluster.close()
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in jobs if psutil.pid_exists(pid)], timeout=10)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    assert leases.read_all() == ([], [])


def test_a_batch_system_without_its_commands_is_refused_before_any_lease(
    cluster: BatchCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError) as caught:
        cluster.open()
    assert caught.value.category == "batch-system-missing"
    assert leases.read_all() == ([], [])
