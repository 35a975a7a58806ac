from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_cluster import Cluster, Graph, Task, find

from scalescope.diagnosis.evidence.task_batches import task_batches
from scalescope.diagnosis.evidence.timeline import timeline


@settings(deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(1, 3))
def test_the_timeline_agrees_with_the_worker_time(data, workers, threads):
    """On any small workload; the fixture `find` also checks what every finding must have."""
    tasks = []
    for i in range(data.draw(st.integers(1, 25))):
        needs = data.draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        on = data.draw(st.sampled_from([(), (), (0,)]))
        seconds = data.draw(st.sampled_from([0.001, 0.1, 1.0, 1.1, 30.0]))
        tasks.append(
            Task(seconds, data.draw(st.sampled_from("ab")), tuple(needs), on=on, pinned=data.draw(st.booleans()))
        )
    observation = Cluster(workers, threads, gap_s=0.01).run(tasks)
    line = timeline(observation)
    idle = observation.seconds("no_runnable_task", "not_assigned", "tail")
    assert line.integral(line.idle) == pytest.approx(idle, abs=1e-6)
    assert line.integral(np.minimum(line.idle, line.waiting)) == pytest.approx(
        observation.seconds("not_assigned"), abs=1e-6
    )
    find(observation)


def test_a_long_trial_is_divided_into_a_limited_number_of_cells_without_losing_time(monkeypatch):
    monkeypatch.setattr("scalescope.diagnosis.evidence.timeline.MAX_CELLS", 40)
    observation = Cluster(3).run([Task(1.0 + i % 3) for i in range(200)])
    line = timeline(observation)
    assert len(line.edges) <= 60
    assert line.integral(line.occupied) == pytest.approx(observation.seconds("busy"))
    assert line.integral(line.capacity) == pytest.approx(3 * observation.attempts.makespan)


def test_rounds_of_one_function_are_separate_batches():
    tasks = [Task(1.0 + round_, graph=round_) for round_ in range(3) for _ in range(7)]
    observation = Cluster(4).run(tasks, [Graph(), Graph(after=0, at=0.1), Graph(after=1, at=0.1)])
    found = task_batches(observation)
    assert found.size.tolist() == [7, 7, 7]
    assert found.median.tolist() == pytest.approx([1.0, 2.0, 3.0])
