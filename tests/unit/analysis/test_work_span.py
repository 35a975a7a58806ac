from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.graph import Graph
from scalescope.analysis.work_span import critical_path, profile, work_span


def recorded(
    records: Any, rows: list[dict[str, Any]], needs: list[tuple[int, int]] = (), workers: Any = None
) -> tuple[Attempts, Graph]:
    tables = records([{"worker": "a"} | row for row in rows], {"a": {"nthreads": 9}} if workers is None else workers)
    if needs:
        pairs = np.array(needs)
        tables["dependencies"] = {"task": pairs[:, 0], "needs": pairs[:, 1]}
    attempts = Attempts.read(tables)
    return attempts, Graph.read(tables, attempts)


@pytest.fixture
def reduction(records):
    """Three loads of 1, 4 and 2 seconds, and their sum, which takes 3; recorded on one thread after another."""
    starts, seconds = [0, 1, 5, 7], [1, 4, 2, 3]
    rows = [{"start": a, "stop": a + s, "prefix": "load"} for a, s in zip(starts, seconds, strict=True)]
    rows[3] |= {"prefix": "sum", "runnable": 7, "span": 7.0}
    return recorded(records, rows, [(3, 0), (3, 1), (3, 2)])


def test_the_work_and_span_of_a_reduction_are_exact(reduction):
    result = work_span(*reduction)
    assert (result.work_s, result.span_s) == pytest.approx((10, 7))
    assert result.useful_workers == 2


def test_the_critical_path_of_a_reduction_goes_through_its_longest_task(reduction):
    path = critical_path(*reduction)
    assert path.keys == ("work-1", "work-3")
    assert path.prefixes == ("load", "sum")
    assert path.index.tolist() == [1, 3]
    assert path.seconds.tolist() == pytest.approx([4, 3])
    assert path.span_s == pytest.approx(7)
    assert path.shares() == {"load": pytest.approx(4 / 7), "sum": pytest.approx(3 / 7)}
    assert list(path.by_prefix) == ["load", "sum"]


def test_useful_workers_are_the_fewest_that_reach_95_percent_of_the_best_speed(records):
    for tasks, expected in ((1, 1), (10, 10), (100, 96), (1000, 951)):
        attempts, graph = recorded(records, [{"start": i, "stop": i + 1} for i in range(tasks)])
        result = work_span(attempts, graph)
        assert result.useful_workers == expected
        limit = result.span_s
        assert max(result.work_s / expected, limit) * 0.95 < limit
        assert expected == 1 or max(result.work_s / (expected - 1), limit) * 0.95 >= limit * (1 - 1e-9)


def test_without_dependencies_the_recorded_span_is_used(records):
    attempts, graph = recorded(records, [{"start": 0, "stop": 1}, {"start": 1, "stop": 3, "span": 3.0}])
    assert not graph.known
    assert work_span(attempts, graph).span_s == pytest.approx(3)
    assert critical_path(attempts, graph) is None


def test_a_task_repeated_after_its_worker_died_counts_once_in_work_and_span(records):
    rows = [
        {"key": "x", "start": 0, "stop": 2, "worker": "gone"},
        {"key": "y", "start": 2, "stop": 3, "worker": "gone", "status": 2, "done": 3},
        {"key": "x", "start": 3, "stop": 5, "retries": 1, "assigned": 3},
        {"key": "y", "start": 5, "stop": 6, "retries": 1, "assigned": 5, "span": 3.0},
    ]
    attempts, graph = recorded(records, rows, [(1, 0), (3, 2)], {"a": {}, "gone": {"left": 3.0}})
    result = work_span(attempts, graph)
    assert (result.work_s, result.span_s) == pytest.approx((3, 3))
    assert critical_path(attempts, graph).index.tolist() == [2, 3]


def test_a_short_profile_is_exact(records):
    rows = [
        {"start": 0, "stop": 2},
        {"start": 1, "stop": 2},
        {"start": 3, "stop": 4, "runnable": 1},
        {"start": 3, "stop": 3, "runnable": 3},
    ]
    attempts, _ = recorded(records, rows, workers={"a": {"nthreads": 2}, "b": {"joined": 1.0, "left": 3.0}})
    result = profile(attempts)
    assert (result.running.time.tolist(), result.running.level.tolist()) == ([0, 1, 2, 3, 4], [1, 2, 0, 1, 0])
    assert (result.runnable.time.tolist(), result.runnable.level.tolist()) == ([0, 1, 2, 4], [2, 3, 1, 0])
    assert (result.provisioned.time.tolist(), result.provisioned.level.tolist()) == ([0, 1, 3, 4], [2, 3, 2, 0])


LEVELS = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=200)


@given(LEVELS, st.integers(8, 60))
def test_thinning_a_profile_keeps_its_peak_and_ends_and_adds_no_levels(records, intervals, points):
    rows = [{"start": a, "stop": a + s} for a, s in intervals] + [{"start": 0, "stop": 1}]
    attempts, _ = recorded(records, rows)
    exact, drawn = profile(attempts, points=100_000).running, profile(attempts, points=points).running
    assert len(drawn.time) <= points
    assert drawn.peak == exact.peak
    assert (np.diff(drawn.time) > 0).all()
    assert (drawn.time[0], drawn.time[-1]) == (0, exact.time[-1])
    assert exact.level[np.searchsorted(exact.time, drawn.time)].tolist() == drawn.level.tolist()


NEEDS = st.lists(st.integers(0, 19), max_size=3, unique=True)


@given(st.lists(st.tuples(st.integers(0, 9), NEEDS), min_size=1, max_size=20))
def test_the_critical_path_is_a_path_and_as_long_as_the_longest_chain(records, tasks):
    needs = [(i, j) for i, (_, before) in enumerate(tasks) for j in before if j < i]
    longest: list[float] = []
    for i, (seconds, _) in enumerate(tasks):
        longest.append(seconds + max((longest[j] for node, j in needs if node == i), default=0))
    rows = [{"start": 100.0 * i, "stop": 100.0 * i + seconds} for i, (seconds, _) in enumerate(tasks)]
    rows.append({"start": 0, "stop": 1})
    attempts, graph = recorded(records, rows, needs)
    path = critical_path(attempts, graph)
    assert path.span_s == pytest.approx(max(*longest, 1))
    assert all((int(b), int(a)) in set(needs) for a, b in zip(path.index[:-1], path.index[1:], strict=True))
    assert work_span(attempts, graph).span_s == pytest.approx(path.span_s)
