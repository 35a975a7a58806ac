"""Simulated clusters in parallel on Dask workers: parts of a sweep run in other processes."""

from __future__ import annotations

import pytest

from scalescope.run import orchestrator_load
from scalescope.store.store import Store
from scalescope_flows import scale_sweep

prefect_dask = pytest.importorskip("prefect_dask")


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.skipif(len(orchestrator_load.cores()) < 2, reason="needs two cores")
@pytest.mark.thorough
def test_parts_of_a_sweep_run_on_dask_workers(address: str) -> None:
    runner = prefect_dask.DaskTaskRunner(
        cluster_kwargs={"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    )
    result = scale_sweep.with_options(task_runner=runner)(
        workload="futures-map", axes={"workers": [1, 2, 4]}, params={"items": 4}, store=address, parallel_clusters=2
    )
    assert result.valid == 3
    with Store.open(address) as store:
        assert {trial.point.workers for trial in store.run(result.run_id).trials} == {1, 2, 4}
