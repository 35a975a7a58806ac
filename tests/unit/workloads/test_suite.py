from __future__ import annotations

import pytest

from scalescope import workloads
from scalescope.model.cluster import kinds
from scalescope.workloads.suite import SUITE, SuiteEntry

EVERY = pytest.mark.parametrize("entry", SUITE, ids=lambda entry: entry.workload)


def test_every_builtin_workload_is_in_it_once() -> None:
    names = [entry.workload for entry in SUITE]
    assert len(set(names)) == len(names)
    assert {workload.name for workload in workloads.builtin()} <= set(names)


@EVERY
def test_both_sizes_are_allowed(entry: SuiteEntry) -> None:
    workload = workloads.load(entry.workload)
    large, small = workload.bind(entry.params), workload.bind(entry.small)
    assert large["items"] > small["items"] > 0  # type: ignore[operator]


@EVERY
def test_kinds_are_known_and_the_local_one_among_them(entry: SuiteEntry) -> None:
    assert "local" in entry.kinds
    assert set(entry.kinds) <= set(kinds())
    assert workloads.load(entry.workload).modelled or not {"simulated", "light"} & set(entry.kinds)
