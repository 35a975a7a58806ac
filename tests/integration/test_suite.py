"""Some of the suite on two real workers, each result checked; `tests/benchmarks/bench_suite.py` runs all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scalescope import workloads
from scalescope.driver.process import Driver
from scalescope.model.cluster import cluster_spec
from scalescope.model.sweep import PlannedTrial, Sweep
from scalescope.model.trial import TrialState
from scalescope.workloads.suite import SUITE

ENTRIES = {entry.workload: entry for entry in SUITE}
SAMPLE = (
    "array-rechunk",
    "beam-group-by-key",
    "csv-to-parquet",
    "dataframe-join",
    "futures-window",
    "sklearn-search",
    "tpch-q3",
    "xarray-climatology",
    "xgboost-train",
    "zarr-roundtrip",
    "scale-up",
    "worker-retire",
    "worker-loss",
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver.start(cluster_spec("local"), folder=tmp_path_factory.mktemp("driver")) as started:
        yield started


def outcome(driver: Driver, name: str, **given: Any) -> Any:
    asked = {"workload": name, "points": [{"workers": 2, **ENTRIES[name].small, **given}]}
    [point] = Sweep.from_mapping(asked).expand(workloads.load(name))
    return driver.run(PlannedTrial(0, point, 0), name, timeout_s=120)


@pytest.mark.parametrize("name", SAMPLE)
def test_it_runs_at_small_size_and_its_result_is_right(driver: Driver, name: str) -> None:
    found = outcome(driver, name)
    assert found.state is TrialState.VALID, found.reason
    assert found.result


def test_a_trial_of_a_workload_that_changes_workers_says_what_changed(driver: Driver) -> None:
    found = outcome(driver, "worker-loss")
    assert found.state is TrialState.VALID, found.reason
    assert found.facts["changed_workers"]


def test_one_that_cannot_spill_says_what_it_needs(driver: Driver) -> None:
    found = outcome(driver, "spill", items=1, mib=1)
    assert found.state is not TrialState.VALID
    assert "spilled nothing" in str(found.error)


def test_one_that_spills(tmp_path: Path) -> None:
    with Driver.start(cluster_spec({"kind": "local", **ENTRIES["spill"].cluster}), folder=tmp_path) as limited:
        found = outcome(limited, "spill")
    assert found.state is TrialState.VALID, found.reason
    assert found.result["spilled_mib"] > 0
