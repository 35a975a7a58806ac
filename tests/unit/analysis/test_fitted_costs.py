"""Costs of links fitted to a trial, and the growth of durations with the number of workers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.fitted_costs import Fetched, FittedCosts, GrowthOfDurations, ResultLinks, fitted_costs
from scalescope.model.records import from_rows

MB = 1_000_000


def costs(
    records: Any,
    transfers: list[tuple[float, float]],
    fine: list[tuple[str, str, float]] = (),
    packing: float | None = None,
) -> FittedCosts:
    """From tasks on `a` that each fetch one result from `b`: (bytes, seconds)."""
    made = [{"worker": "b", "start": 0.0, "stop": 1.0, "nbytes": int(nbytes)} for nbytes, _ in transfers]
    used = [{"worker": "a", "runnable": 1.0, "start": 9.0, "stop": 10.0, "transfer": took} for _, took in transfers]
    tables = records(made + used, {"a": {}, "b": {}})
    count = len(transfers)
    tables["dependencies"] = {"task": list(range(count, 2 * count)), "needs": list(range(count))}
    tables["fine_metrics"] = {
        "context": [context for context, _, _ in fine],
        "prefix": [""] * len(fine),
        "activity": [activity for _, activity, _ in fine],
        "unit": ["seconds"] * len(fine),
        "value": [value for *_, value in fine],
    }
    return fitted_costs(tables, Attempts.read(tables), packing)


def test_the_bandwidth_is_fitted_to_transfers_that_shared_no_link(records: Any) -> None:
    shared = [(10 * MB, 0.4)] * 3
    assert costs(records, [*shared, (10 * MB, 0.1), (10 * MB, 0.1)]).bandwidth == pytest.approx(100 * MB)


def test_a_result_that_several_tasks_of_a_worker_need_counts_as_one_transfer(records: Any) -> None:
    """Two of four tasks find the result already there, and one starts when most of it has arrived."""
    made = [{"worker": "b", "start": 0.0, "stop": 1.0, "nbytes": 50 * MB}]
    took = [0.0, 0.5, 0.0, 0.01]
    used = [{"worker": "a", "start": 2.0 + i, "stop": 3.0 + i, "transfer": each} for i, each in enumerate(took)]
    tables = records(made + used, {"a": {}, "b": {}})
    tables["dependencies"] = {"task": [1, 2, 3, 4], "needs": [0] * 4}
    assert fitted_costs(tables, Attempts.read(tables)).bandwidth == pytest.approx(100 * MB)


def test_no_link_costs_are_fitted_when_little_data_moved(records: Any) -> None:
    assert costs(records, [(10 * MB, 0.001)] * 5).bandwidth is None
    assert costs(records, [(1 * MB, 1.0)]).bandwidth is None
    few = costs(records, [(1000, 5.0)] * 3)
    assert (few.bandwidth, few.latency_s, few.cpu_s_per_byte) == (None, None, None)


def test_the_cpu_cost_per_byte_is_the_mean_of_packing_and_unpacking(records: Any) -> None:
    fine = [("get-data", "serialize", 0.3), ("gather-dep", "deserialize", 0.1), ("execute", "deserialize", 7.0)]
    assert costs(records, [(5 * MB, 0.5)] * 4, fine).cpu_s_per_byte == pytest.approx(0.2 / (20 * MB))


def test_a_bandwidth_without_recorded_packing_includes_the_packing(records: Any) -> None:
    found = costs(records, [(10 * MB, 0.1)] * 4)
    assert (found.bandwidth, found.cpu_s_per_byte) == (pytest.approx(100 * MB), 0.0)
    found = costs(records, [(10 * MB, 0.1)] * 4, packing=4e-9)
    assert (found.bandwidth, found.cpu_s_per_byte) == (pytest.approx(500 * MB), 4e-9)


def test_the_latency_is_fitted_to_small_transfers(records: Any) -> None:
    assert costs(records, [(100, 0.01)] * 3 + [(100, 0.5)] * 3).latency_s == pytest.approx(0.01)


def test_the_latency_is_fitted_to_larger_transfers_when_there_are_no_small_ones(records: Any) -> None:
    found = costs(records, [(50 * MB, 0.5), *[(1 * MB, 0.02)] * 5])
    assert (found.bandwidth, found.latency_s) == (pytest.approx(100 * MB), pytest.approx(0.01))


def fetched(records: Any, seconds: float, *, needed: bool = False, gathers: bool = True) -> FittedCosts:
    """Two rounds of two tasks; after each round the client fetches their results of 10 MB in `seconds`."""
    every = 1.0 + seconds
    ran = [
        {"worker": worker, "runnable": begin, "start": begin, "stop": begin + 1, "done": begin + 1, "nbytes": 10 * MB}
        for begin in (0.0, every)
        for worker in "ab"
    ]
    tables = records(ran, {"a": {}, "b": {}})
    epoch = Attempts.read(tables).epoch
    tables["graphs"] = {"time": [epoch, epoch + every], "task": ["", ""], "seconds": [0.0, 0.0]}
    rows = [{"time": epoch, "seconds": 2 * every, "where": "job.py:3 run", "what": "client.gather", "waits": 1}]
    tables["client"] = from_rows("client", rows)
    tables["dependencies"] = {"task": [2, 3], "needs": [0, 1]} if needed else {"task": [], "needs": []}
    action = "gather" if gathers else "add-worker"
    tables["events"] = {"time": [9.0], "topic": ["all"], "message": [json.dumps({"action": action})]}
    packing = {"context": "get-data", "prefix": "", "activity": "serialize", "unit": "seconds", "value": 0.4}
    tables["fine_metrics"] = {name: [value] for name, value in packing.items()}
    return fitted_costs(tables, Attempts.read(tables))


def test_the_clients_bandwidth_is_fitted_to_the_results_that_it_fetched(records: Any) -> None:
    """The results pass two links; two workers spend 0.1 s packing 10 MB each."""
    found = fetched(records, 0.5)
    assert found.cpu_s_per_byte == pytest.approx(0.4 / (40 * MB))
    assert found.client_bandwidth == pytest.approx(2 * 20 * MB / (0.5 - 0.1))
    assert fetched(records, 0.5, gathers=False).cpu_s_per_byte is None


def test_results_that_other_tasks_need_do_not_count_as_fetched_by_the_client(records: Any) -> None:
    assert fetched(records, 0.5, needed=True).cpu_s_per_byte == pytest.approx(0.4 / (20 * MB))


def test_of_link_costs_fitted_at_several_sizes_the_cheapest_of_each_kind_counts() -> None:
    few, many = FittedCosts(20e6, 0.01, 2e-9, 0.5), FittedCosts(10e6, 0.02, 1e-9, 0.7)
    assert FittedCosts.of_sizes([few, many]) == FittedCosts(20e6, 0.01, 1e-9, 0.5)
    assert FittedCosts.of_sizes([FittedCosts(), FittedCosts()]) == FittedCosts()


@pytest.mark.parametrize("machine", [10e6, 40e6, 1e9])
@pytest.mark.parametrize("client", [60e6, 240e6])
def test_the_time_to_fetch_results_at_more_workers_is_predicted_from_several_measured_sizes(
    machine: float, client: float
) -> None:
    def seconds(workers: int) -> float:
        return 1e8 / min(client, workers * machine) + 1e8 / client

    found = ResultLinks.of_sizes([Fetched(1e8, seconds(workers), workers) for workers in (1, 2, 4, 8)], None)
    least_s, expected_s, most_s = found.seconds(16)
    assert least_s <= seconds(16) <= most_s
    assert expected_s == pytest.approx(seconds(16), rel=0.25)


def test_with_one_measured_size_the_time_to_fetch_results_stays_uncertain() -> None:
    least_s, expected_s, most_s = ResultLinks.of_sizes([Fetched(1e8, 4.0, 2)], None).seconds(8)
    assert expected_s == pytest.approx(4.0, rel=0.1)
    assert least_s < 1.5
    assert most_s > 3.5
    least_s, _, most_s = ResultLinks.of_sizes([Fetched(1e8, 4.0, 2), Fetched(1e8, 4.0, 4)], None).seconds(8)
    assert least_s > 3.0


def test_nearly_equal_fetch_times_at_two_sizes_mean_that_the_clients_link_was_the_limit() -> None:
    _, expected_s, most_s = ResultLinks.of_sizes([Fetched(1e8, 4.0, 4), Fetched(1e8, 3.7, 8)], None).seconds(2)
    assert expected_s == pytest.approx(4.0, rel=0.1)
    assert most_s > 6.0


@given(
    st.sampled_from([GrowthOfDurations(1), GrowthOfDurations(1, remote=2), GrowthOfDurations(1, logarithm=0.5)]),
    st.sampled_from([(1, 2, 4), (1, 2, 4, 8), (2, 8, 32)]),
)
def test_a_growth_curve_of_durations_is_recovered_and_extrapolated(
    growth: GrowthOfDurations, sizes: tuple[int, ...]
) -> None:
    found = GrowthOfDurations.fit({workers: growth.at(workers) for workers in sizes})
    assert found.at(4 * max(sizes)) == pytest.approx(growth.at(4 * max(sizes)), rel=0.02)


@given(st.dictionaries(st.integers(1, 100), st.floats(0.001, 100), min_size=1, max_size=6))
def test_predicted_durations_never_fall_below_those_at_the_most_workers_measured(seconds: dict[int, float]) -> None:
    growth = GrowthOfDurations.fit(seconds)
    assert min(growth.constant, growth.remote, growth.logarithm) >= 0
    assert growth.at(2 * max(seconds)) >= growth.at(max(seconds)) > 0


def test_durations_that_hardly_grow_are_predicted_to_stay_constant() -> None:
    assert GrowthOfDurations.fit({1: 1.0, 2: 1.02, 4: 1.05}).at(64) == 1.05


@pytest.mark.parametrize(
    ("latency_s", "worker_s", "message_s"),
    [(0.02, 0.03, 0.01), (0.08, 0.03, 0.03), (None, 0.03, 0.03), (0.02, None, 0.01), (None, None, None)],
)
def test_a_message_is_charged_half_the_latency_but_at_most_the_event_loop_time_of_a_task(
    latency_s: float | None, worker_s: float | None, message_s: float | None
) -> None:
    assert FittedCosts(latency_s=latency_s, worker_s=worker_s).message_s == message_s
