from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.graph import Graph, longest
from scalescope.errors import CaptureError


def chain(start: float, seconds: float, **given):
    return {"worker": "a", "start": start, "stop": start + seconds} | given


def edges(*pairs: tuple[int, int]) -> dict[str, np.ndarray]:
    """The table `dependencies` from (task, needs)."""
    columns = np.array(pairs, np.int32).reshape(-1, 2)
    return {"dependencies": {"task": columns[:, 0], "needs": columns[:, 1]}}


def needs_of(graph: Graph) -> list[list[int]]:
    return [graph.needs[graph.first[i] : graph.first[i + 1]].tolist() for i in range(len(graph))]


def test_a_diamond_of_tasks_is_read_with_its_dependencies(records):
    tables = records([chain(i, 1) for i in range(4)], {"a": {}}) | edges((3, 2), (1, 0), (2, 0), (3, 1))
    graph = Graph.read(tables, Attempts.read(tables))
    assert graph.known
    assert needs_of(graph) == [[], [0], [0], [2, 1]]
    assert graph.earliest(np.array([1.0, 5, 2, 7])).tolist() == [0, 1, 1, 6]


def test_tasks_that_never_began_are_left_out_of_the_graph(records):
    tables = records([chain(0, 1), {"worker": "a", "status": 2}, chain(1, 1), chain(2, 1)], {"a": {}})
    tables |= edges((1, 0), (2, 0), (3, 1), (3, 2))
    attempts = Attempts.read(tables)
    assert attempts.row.tolist() == [0, 2, 3]
    assert attempts.key == ["work-0", "work-2", "work-3"]
    assert needs_of(Graph.read(tables, attempts)) == [[], [0], [1]]


def test_without_a_dependency_table_the_graph_is_known_only_if_tasks_are_independent(records):
    alone = records([chain(0, 1), chain(0, 2)], {"a": {}})
    assert Graph.read(alone, Attempts.read(alone)).known
    chained = records([chain(0, 1), chain(1, 2, span=3.0)], {"a": {}})
    graph = Graph.read(chained, Attempts.read(chained))
    assert not graph.known
    assert len(graph) == 2
    assert not len(graph.needs)


def test_a_restricted_graph_keeps_the_edges_between_its_tasks():
    graph = Graph.of(4, np.array([1, 2, 3]), np.array([0, 1, 0]))
    assert needs_of(graph.restricted(np.array([True, False, True, True]))) == [[], [], [0]]


def test_a_dependency_table_of_another_trial_is_refused(records):
    tables = records([chain(0, 1), chain(1, 1)], {"a": {}})
    attempts = Attempts.read(tables)
    with pytest.raises(CaptureError, match="rows 0 to 2"):
        Graph.read(tables | edges((2, 0)), attempts)
    with pytest.raises(CaptureError, match="ended later"):
        Graph.read(tables | edges((0, 1)), attempts)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=150), st.booleans())
def test_the_longest_path_to_each_node_is_found(pairs, deep):
    """Also in graphs that are too deep to be followed level by level."""
    found = {(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]}
    found |= {(i, i + 1) for i in range(60)} if deep else set()
    begin, end = np.array(sorted(found, key=lambda pair: pair[1]), np.int64).reshape(-1, 2).T
    step, expected = np.arange(61.0) % 7, np.arange(61.0) % 3
    value = expected.copy()
    for here, there in zip(begin, end, strict=True):
        expected[there] = max(expected[there], expected[here] + step[here])
    assert longest(value, step, begin, end).tolist() == expected.tolist()
