"""Counters of real schedulers and workers."""

from __future__ import annotations

from pathlib import Path

import distributed
import pytest

from scalescope.clusters.kubernetes import counters
from scalescope.clusters.kubernetes.counters import THROTTLED, grown, read


def test_counters_of_a_real_scheduler_and_worker_are_read() -> None:
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        assert "dask_scheduler_gc_collection_seconds_total" in client.run_on_scheduler(read)
        [found] = client.run(read).values()
    assert {"dask_worker_gc_collection_seconds_total", "dask_worker_transfer_outgoing_bytes_total"} <= found.keys()
    known = [name.partition("{")[0] for name in found if name.startswith("dask_")]
    assert all(name.endswith(counters.NAMES) for name in known)


@pytest.mark.parametrize(
    ("name", "text"),
    [("cpu.stat", "nr_throttled 3\nthrottled_usec 1500000\n"), ("cpu/cpu.stat", "throttled_time 1500000000")],
)
def test_cpu_throttling_is_read_from_both_versions_of_control_groups(tmp_path: Path, name: str, text: str) -> None:
    assert counters._of_container(tmp_path) == {}
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert counters._of_container(tmp_path) == {THROTTLED: 1.5}


def test_growth_of_counters_is_taken_only_from_processes_that_stayed() -> None:
    before = {"scheduler": {"a": 1.0}, "w1": {"a": 5.0}, "w2": {"a": 1.0}, "w3": {"a": 9.0}}
    after = {"scheduler": {"a": 4.0}, "w1": {"a": 6.0, "new": 2.0}, "w2": {"a": 3.0}, "w4": {"a": 99.0}}
    assert grown(before, after) == {
        "scheduler": {"a": 3.0},
        "workers": {"a": {"sum": 3.0, "most": 2.0}, "new": {"sum": 2.0, "most": 2.0}},
    }
