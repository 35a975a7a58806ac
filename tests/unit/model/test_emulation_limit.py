from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.model.emulation_limit import EmulationLimit

positive = st.floats(min_value=1e-6, max_value=1e3)
counts = st.integers(min_value=1, max_value=5000)


def test_the_emulation_limit_is_exceeded_only_if_tasks_are_too_short_for_the_host() -> None:
    limit = EmulationLimit(seconds_per_task=0.001, tolerance=0.25)
    assert limit.shortest_task_s(300) == pytest.approx(1.2)
    assert limit.beyond(200, 1.0) == ""
    assert limit.beyond(2000, 10.0) == ""
    assert {"300", "0.3", "30%"} <= set(limit.beyond(300, 1.0).split())


@given(positive, counts, st.integers(1, 10), positive)
def test_several_waves_of_tasks_have_the_same_emulation_limit_as_one_wave(
    cost: float, workers: int, waves: int, task_s: float
) -> None:
    limit = EmulationLimit(cost)
    if limit.beyond(waves * workers, waves * task_s):
        assert task_s < limit.shortest_task_s(workers) * (1 + 1e-9)
    else:
        assert task_s >= limit.shortest_task_s(workers) * (1 - 1e-9)


@given(positive, counts)
def test_an_emulation_limit_survives_json(cost: float, workers: int) -> None:
    assert EmulationLimit.from_mapping(EmulationLimit(cost).to_mapping()) == EmulationLimit(cost)
