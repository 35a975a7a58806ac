"""Some of the suite on two real workers, each result checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scalescope import workloads
from scalescope.analysis.measure import measure
from scalescope.driver.process import Driver
from scalescope.model.cluster import cluster_spec
from scalescope.model.sweep import PlannedTrial, Sweep
from scalescope.model.trial import TrialState
from scalescope.run.trials import read_records
from scalescope.workloads.suite import SUITE

ENTRIES = {entry.workload: entry for entry in SUITE}
SAMPLE = (
    pytest.param("array-rechunk", marks=pytest.mark.thorough),
    pytest.param("beam-group-by-key", marks=pytest.mark.thorough),
    pytest.param("csv-to-parquet", marks=pytest.mark.thorough),
    pytest.param("dataframe-join", marks=pytest.mark.thorough),
    pytest.param("futures-window", marks=pytest.mark.thorough),
    pytest.param("sklearn-search", marks=pytest.mark.thorough),
    "tpch-q3",
    pytest.param("xarray-climatology", marks=pytest.mark.thorough),
    pytest.param("xgboost-train", marks=pytest.mark.thorough),
    pytest.param("zarr-roundtrip", marks=pytest.mark.thorough),
    pytest.param("scale-up", marks=pytest.mark.thorough),
    "worker-retire",
    pytest.param("worker-loss", marks=pytest.mark.thorough),  # another test runs it too
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver.start(cluster_spec("local"), folder=tmp_path_factory.mktemp("driver")) as started:
        yield started


def outcome(driver: Driver, name: str, **given: Any) -> Any:
    asked = {"workload": name, "cluster": "local", "points": [{"workers": 2, **ENTRIES[name].small, **given}]}
    [point] = Sweep.from_mapping(asked).expand(workloads.load(name))
    return driver.run(PlannedTrial(0, point, 0), name, timeout_s=120)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_workload_of_the_suite_runs_at_small_size_with_a_correct_result(driver: Driver, name: str) -> None:
    found = outcome(driver, name)
    assert found.state is TrialState.VALID, found.reason
    assert found.result


@pytest.mark.thorough
def test_a_trial_that_changes_its_workers_records_the_change(driver: Driver) -> None:
    found = outcome(driver, "worker-loss")
    assert found.state is TrialState.VALID, found.reason
    assert found.facts["changed_workers"]


@pytest.mark.parametrize(
    ("kind", "proof"),
    [
        ("kill-worker", "is gone"),
        pytest.param("pause-worker", "was stopped", marks=pytest.mark.thorough),
        pytest.param("steal-cpu", "s of CPU", marks=pytest.mark.thorough),
    ],
)
def test_an_injected_fault_fires_during_a_trial_and_is_proved(driver: Driver, kind: str, proof: str) -> None:
    found = outcome(driver, "futures-map", items=80, seconds=0.05, fault=f"{kind}@0.5")
    assert found.state is TrialState.VALID, found.reason
    fault = found.facts["fault"]
    assert proof in fault["proof"]
    tables = read_records(found.spool)
    assert tables["faults"]["worker"][0] == fault["worker"]
    assert tables["client"]["time"][0] + 0.4 < tables["faults"]["begin"][0] <= tables["faults"]["end"][0]
    recomputed = measure(tables, threads=2, elapsed_s=found.elapsed_s).recomputed_tasks
    assert (recomputed or 0) > 0 if kind == "kill-worker" else recomputed == 0


def test_a_fault_that_came_too_late_makes_the_trial_invalid(driver: Driver) -> None:
    found = outcome(driver, "futures-map", items=1, seconds=0, fault="kill-worker@60")
    assert found.state is TrialState.INVALID
    assert "kill-worker@60" in found.reason


@pytest.mark.thorough
def test_the_spill_workload_fails_if_nothing_was_spilled(driver: Driver) -> None:
    found = outcome(driver, "spill", items=1, mib=1)
    assert found.state is not TrialState.VALID
    assert "spilled nothing" in str(found.error)


@pytest.mark.thorough
def test_the_spill_workload_spills_on_workers_with_little_memory(tmp_path: Path) -> None:
    with Driver.start(cluster_spec({"kind": "local", **ENTRIES["spill"].cluster}), folder=tmp_path) as limited:
        found = outcome(limited, "spill")
    assert found.state is TrialState.VALID, found.reason
    assert found.result["spilled_mib"] > 0
