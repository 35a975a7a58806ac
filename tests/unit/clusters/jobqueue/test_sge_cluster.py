"""What Grid Engine says of jobs, as its `qstat` writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalescope.clusters.jobqueue.base_cluster import SubmittedJob
from scalescope.clusters.jobqueue.grid_engine import GridEngine, GridEngineJob
from scalescope.clusters.jobqueue.sge_cluster import SgeCluster
from scalescope.clusters.jobqueue.systems import SgeSpec
from scalescope.errors import ClusterError


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SgeCluster:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("verify", "reasons"):
        monkeypatch.setattr(GridEngine, name, lambda engine, *given: [])
    made = SgeCluster(SgeSpec())
    made._workers = 1
    made._jobs = [SubmittedJob("7", "1", 1, 1)]
    return made


@pytest.mark.parametrize("state", ["qw", "hqw", "Rq", "Rqw", "hRwq"])
def test_a_job_that_waits_again_after_a_reschedule_has_the_time_of_the_queue(
    cluster: SgeCluster, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GridEngine, "jobs", lambda engine, label: [GridEngineJob("7", state, "")])
    assert cluster._look(1).in_queue
    assert cluster._waiting_since is not None
    cluster._waiting_since -= cluster.spec.queue_timeout_s
    with pytest.raises(ClusterError) as caught:
        cluster._look(1)
    assert caught.value.category == "queue-timeout"


@pytest.mark.parametrize("state", ["r", "t", "Rr", "Rt"])
def test_a_job_that_has_a_host_is_not_in_the_queue(
    cluster: SgeCluster, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GridEngine, "jobs", lambda engine, label: [GridEngineJob("7", state, "all.q@node1")])
    monkeypatch.setattr(GridEngine, "unreachable", lambda engine: set())
    assert not cluster._look(1).in_queue
