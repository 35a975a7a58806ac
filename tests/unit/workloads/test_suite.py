from __future__ import annotations

import pytest

from scalescope import workloads
from scalescope.model.cluster import kinds
from scalescope.workloads.suite import SUITE, SuiteEntry

EVERY = pytest.mark.parametrize("entry", SUITE, ids=lambda entry: entry.workload)


def test_every_built_in_workload_is_in_the_suite_once() -> None:
    names = [entry.workload for entry in SUITE]
    assert len(set(names)) == len(names)
    assert {workload.name for workload in workloads.builtin()} <= set(names)


@EVERY
def test_the_large_and_small_parameters_of_a_suite_entry_are_valid(entry: SuiteEntry) -> None:
    workload = workloads.load(entry.workload)
    large, small = workload.bind(entry.params), workload.bind(entry.small)
    assert large["items"] > small["items"] > 0  # type: ignore[operator]


@EVERY
def test_a_suite_entry_runs_on_known_cluster_kinds_and_on_local(entry: SuiteEntry) -> None:
    assert "local" in entry.kinds
    assert set(entry.kinds) <= set(kinds())
    assert workloads.load(entry.workload).modelled or not {"simulated", "light"} & set(entry.kinds)
