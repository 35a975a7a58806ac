from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError

import distributed
import pytest

from scalescope.clusters import trial_watch
from scalescope.clusters.trial_watch import WorkerWatch, cancel_everything
from scalescope.errors import ClusterError, JobsEnded


@pytest.fixture
def cluster() -> Iterator[distributed.LocalCluster]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, host="127.0.0.1", protocol="tcp", dashboard_address=":0"
    ) as cluster:
        yield cluster


def supervise(cluster: distributed.LocalCluster, explain: Callable[[int], object], where: str = "") -> WorkerWatch:
    return WorkerWatch(
        2,
        arrived=lambda: len(cluster.scheduler.workers),
        explain=explain,
        missing=lambda: where,
        cancel=lambda: cluster.sync(cancel_everything, cluster.scheduler),
    )


def close_one(client: distributed.Client) -> None:
    address = next(iter(client.nthreads()))
    client.retire_workers([address], close_workers=True, remove=True)
    while len(client.nthreads()) > 1:
        time.sleep(0.01)


def test_no_reason_is_asked_for_while_all_workers_are_there(cluster: distributed.LocalCluster) -> None:
    asked: list[int] = []
    with (
        distributed.Client(cluster, set_as_default=False) as client,
        supervise(cluster, asked.append, "job 7 on n1") as watching,
    ):
        assert client.submit(sum, [1, 2]).result(timeout=10) == 3
    assert watching.lost == ""
    assert asked == []


def test_a_lost_worker_ends_the_trial_with_the_reason(cluster: distributed.LocalCluster) -> None:
    def explain(arrived: int) -> None:
        raise JobsEnded(f"Slurm job 7 was cancelled, {arrived} is left")

    with distributed.Client(cluster, set_as_default=False) as client, supervise(cluster, explain) as watching:
        never = client.submit(time.sleep, 3.0, key="never")
        close_one(client)
        with pytest.raises(CancelledError):
            never.result(timeout=20)
    assert "job 7 was cancelled" in watching.lost
    assert re.findall(r"\d", watching.lost) == ["1", "2", "7", "1"]  # lost, of all, the job, left


def test_the_reason_of_a_lost_worker_is_waited_for_within_limits(
    cluster: distributed.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_watch, "REASON_TIMEOUT_S", 0.3)
    asked: list[int] = []
    with (
        distributed.Client(cluster, set_as_default=False) as client,
        supervise(cluster, asked.append, "job 7 on n1") as watching,
    ):
        close_one(client)
        while not watching.lost:
            time.sleep(0.01)
    assert "job 7 on n1" in watching.lost
    assert set(asked) == {1}


def test_workers_that_go_missing_while_a_loss_is_examined_count_as_lost_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections to the workers of a dead host break one after the other."""
    monkeypatch.setattr(trial_watch, "LOOK_INTERVAL_S", 0.01)
    left = iter([8, 7, 6, 5])

    def explain(present: int) -> None:
        if present == 4:
            raise ClusterError("node n1 is down")

    watching = WorkerWatch(
        8, arrived=lambda: next(left, 4), explain=explain, missing=lambda: "job 7", cancel=lambda: None
    )
    with watching:
        while not watching.lost:
            time.sleep(0.01)
    assert re.findall(r"\d+", watching.lost)[:2] == ["4", "8"]
