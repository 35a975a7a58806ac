"""Scattered data, which no task made: which worker fetched it, and its place in the recorded graph."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.fitted_costs import _of_both, fitted_costs
from scalescope.analysis.graph_from_records import recorded_graph
from scalescope.analysis.measure import measure
from scalescope.analysis.scattered import scattered_data
from scalescope.model.recorded_graph import ScatteredData
from scalescope.model.records import SCATTERED, from_rows

MB = 1_000_000


@pytest.fixture
def trial(records: Any) -> Any:
    """Eight tasks in turn on two workers; each needs data that lay on `a`, the last two also broadcast data."""

    def made(transfer: float = 0.0, at: int = 1) -> Any:
        rows = [
            {"worker": "ab"[i % 2], "start": float(i), "stop": i + 1.0, "transfer": transfer * (i == at)}
            for i in range(8)
        ]
        tables = records(rows, {"a": {}, "b": {}})
        told = [
            {"number": 0, "nbytes": 10 * MB, "workers": 1, "first": ["a"], "rows": [5, 4, 3, 2, 1, 0]},
            {"number": 0, "nbytes": 10 * MB, "workers": 1, "first": ["a"], "rows": [6, 7]},
            {"number": 3, "nbytes": 5, "workers": 2, "first": ["a"], "rows": [6, 7]},
        ]
        events = {"time": [9.0] * 3, "topic": [SCATTERED] * 3, "message": [json.dumps(each) for each in told]}
        return {**tables, "events": events}

    return made


def test_each_worker_fetches_scattered_data_once(trial: Any) -> None:
    row, nbytes = scattered_data(trial()).moved(trial())
    assert (row.tolist(), nbytes.tolist()) == ([1], [10 * MB])
    assert measure(trial(), threads=2, elapsed_s=8.0).transferred_bytes == 10 * MB


@pytest.mark.parametrize("at", [1, 5])
def test_the_bandwidth_is_fitted_to_fetches_of_scattered_data_whichever_task_noted_them(trial: Any, at: int) -> None:
    tables = trial(0.5, at)
    assert fitted_costs(tables, Attempts.read(tables)).bandwidth == pytest.approx(20 * MB)


def test_the_recorded_graph_includes_scattered_data(trial: Any) -> None:
    graph = recorded_graph(trial())
    assert graph.scattered == (ScatteredData(10 * MB), ScatteredData(5, everywhere=True))
    assert [task.scattered for task in graph.tasks] == [(0,)] * 6 + [(0, 1)] * 2


def test_a_record_without_scattered_data_yields_none(records: Any) -> None:
    tables = records([{"worker": "a", "start": 0.0, "stop": 1.0}], {"a": {}})
    assert len(scattered_data(tables).moved(tables)[0]) == 0
    assert recorded_graph(tables).scattered == ()


@pytest.mark.parametrize(
    ("seconds", "workers", "rate"),
    [
        (1.0, 1e9, 20e6),  # over two links of the client's kind, one after the other
        (0.3, 20e6, 1e7 / 0.05),  # the workers' links take a quarter of a second of it
        (0.2, 20e6, 400e6),  # faster than these links: the client's link did not limit it
    ],
)
def test_the_time_on_the_workers_links_is_left_out_of_the_clients_bandwidth(
    seconds: float, workers: float, rate: float
) -> None:
    assert _of_both(1e7, seconds, 2 * workers) == pytest.approx(rate)


def test_the_clients_bandwidth_is_fitted_to_the_data_that_it_scattered(trial: Any) -> None:
    tables = trial()
    message = json.loads(tables["events"]["message"][0])
    tables["events"]["message"] = [json.dumps({**message, "rows": list(range(8))})]
    tables["events"] |= {"time": [9.0], "topic": [SCATTERED]}
    rows = [{"time": 0.0, "seconds": 1.0, "where": "job.py:3 run", "what": "client.scatter", "waits": 1}]
    tables["client"] = from_rows("client", rows)
    assert fitted_costs(tables, Attempts.read(tables)).client_bandwidth == pytest.approx(20 * MB)
