from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.opening import opening

from scalescope.clusters.custom.spec import CustomSpec
from scalescope.errors import ClusterError, UsageError, WorkersMissing

ARGUMENTS = {"n_workers": 0, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}


@pytest.fixture
def opened() -> Iterator[Any]:
    with opening(CustomSpec) as made:
        yield made


def test_a_cluster_of_any_class_is_scaled_used_and_closed(opened: Any) -> None:
    cluster = opened(cluster_class="distributed:LocalCluster", arguments=ARGUMENTS, start_timeout_s=20)
    for workers in (2, 1):
        cluster.scale(workers, 1)
        with cluster.client() as client:
            assert client.submit(sum, [1, 2]).result(timeout=30) == 3
            assert len(client.nthreads()) == workers
    assert cluster.facts()["layout"].startswith("distributed:LocalCluster")
    theirs = cluster._made
    cluster.close()
    assert theirs.status.name == "closed"
    with pytest.raises(ClusterError):
        cluster.scale(1, 1)


def test_workers_with_other_threads_than_requested_raise_workers_missing(opened: Any) -> None:
    cluster = opened(cluster_class="distributed:LocalCluster", arguments=ARGUMENTS, start_timeout_s=1)
    with pytest.raises(WorkersMissing) as caught:
        cluster.scale(1, 2)
    assert re.findall(r"\d+", caught.value.what) == [
        "1",
        "1",
        "1",
        "1",
        "2",
    ]


def test_a_class_that_cannot_be_imported_is_named(opened: Any) -> None:
    for reference in ("no_such_package:Cluster", "distributed:NoSuchCluster"):
        with pytest.raises(UsageError) as caught:
            opened(cluster_class=reference)
        assert reference in caught.value.what


def test_an_error_raised_by_the_cluster_class_is_given_as_the_cause(opened: Any) -> None:
    with pytest.raises(ClusterError) as caught:
        opened(cluster_class="distributed:LocalCluster", arguments={"no_such": 1})
    assert "no_such" in caught.value.cause


def test_secrets_come_from_the_environment_and_appear_in_no_facts(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"cluster_class": "distributed:LocalCluster", "arguments": ARGUMENTS, "secrets": {"name": "MY_SECRET"}}
    with pytest.raises(UsageError) as caught:
        opened(**given)
    assert "MY_SECRET" in caught.value.what
    monkeypatch.setenv("MY_SECRET", "hunter2")
    cluster = opened(**given)
    assert cluster._made.name == "hunter2"
    assert cluster.facts()["secrets"] == ["name"]
    assert "hunter2" not in str(cluster.facts())
