"""Steps from one lock file to another, one package at a time."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis.culprits import changed_packages
from scalescope.studies.release.plan import mixtures

LOCKS = st.dictionaries(st.sampled_from(["dask", "dask-expr", "distributed", "numpy", "toolz"]), st.sampled_from("123"))


def test_each_step_between_two_lock_files_changes_one_package() -> None:
    before = {"dask": "2023.5.0", "distributed": "2023.5.0", "numpy": "1.26", "Apache_Beam": "2.47.0", "toolz": "0.12"}
    after = {"dask": "2023.9.1", "distributed": "2023.9.1", "numpy": "1.26", "apache-beam": "2.50.0", "dask-expr": "1"}
    steps = mixtures(before, after)
    assert [", ".join(map(str, changed_packages(left, right))) for left, right in pairwise(steps)] == [
        "apache-beam 2.47.0 → 2.50.0",
        "dask 2023.5.0 → 2023.9.1",
        "dask-expr absent → 1",
        "distributed 2023.5.0 → 2023.9.1",
        "toolz 0.12 → absent",
    ]
    assert steps[-1] == dict(sorted(after.items()))
    assert steps[0]["apache-beam"] == "2.47.0"


@given(LOCKS, LOCKS)
def test_steps_lead_from_the_first_lock_file_to_the_second(before: dict[str, str], after: dict[str, str]) -> None:
    steps = mixtures(before, after)
    assert (steps[0], steps[-1]) == (before, after)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert len(steps) == 1 + len(changed)
    for left, right in pairwise(steps):
        assert len(set(left.items()) ^ set(right.items())) in (1, 2)
        assert len(changed_packages(left, right)) == 1
