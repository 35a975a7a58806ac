from __future__ import annotations

import itertools
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.measure import measure, peak, stages_of
from scalescope.errors import CaptureError
from scalescope.model.metrics import Metrics, PrefixWork

TWO = {"a": {}, "b": {}}


def test_metrics_of_known_tasks_on_two_workers_are_exact(records):
    tables = records(
        [
            {"worker": "a", "start": 0, "stop": 4, "done": 9},
            {"worker": "b", "start": 0, "stop": 2},
            {"worker": "b", "runnable": 2, "start": 3, "stop": 5, "span": 4, "group": "sum-1", "prefix": "sum"},
        ],
        TWO,
    )
    metrics = measure(tables, threads=2, elapsed_s=7.5)
    assert (metrics.makespan_s, metrics.elapsed_s) == (5, 7.5)
    assert (metrics.work_s, metrics.span_s, metrics.ideal_s) == (8, 4, 4)
    assert metrics.efficiency == pytest.approx(8 / (2 * 5))
    assert metrics.schedule_quality == pytest.approx(4 / 5)
    assert metrics.parallelism == 2
    assert metrics.mean_parallelism == pytest.approx(8 / 5)
    assert (metrics.tasks, metrics.widest_stage, metrics.workers_used) == (3, 2, 2)
    assert (metrics.peak_parallelism, metrics.peak_runnable) == (2, 2)
    assert sum(metrics.worker_time_s.values()) == pytest.approx(2 * 5)
    assert metrics.worker_time_s["busy"] == pytest.approx(8)


def test_the_makespan_begins_when_the_first_task_is_known(records):
    tables = records([{"worker": "a", "assigned": 1, "runnable": 0.5, "start": 2, "stop": 3}], TWO)
    assert measure(tables, threads=2, elapsed_s=3).makespan_s == pytest.approx(2.5)


def test_the_ideal_time_of_a_chain_is_its_span(records):
    chain = [{"worker": "a", "runnable": i, "start": i, "stop": i + 1, "span": i + 1} for i in range(4)]
    metrics = measure(records(chain, TWO), threads=2, elapsed_s=4)
    assert (metrics.ideal_s, metrics.schedule_quality, metrics.parallelism) == (4, 1, 1)
    assert metrics.efficiency == 1 / 2
    assert metrics.peak_runnable == 1


def test_the_longest_path_includes_the_transfers_between_its_tasks(records):
    """The second task fetches for 2 s; the third has no dependencies and is sent once both have ended."""
    rows = [
        {"worker": "a", "start": 0, "stop": 1},
        {"worker": "b", "runnable": 1, "start": 3, "stop": 4, "transfer": 2, "span": 2},
        {"worker": "a", "runnable": 9, "start": 9, "stop": 11},
    ]
    needs = {"dependencies": {"task": np.array([1]), "needs": np.array([0])}}
    metrics = measure(records(rows, TWO) | needs, threads=2, elapsed_s=11)
    assert (metrics.span_s, metrics.path_s) == (2, 1 + 3 + 2)
    assert measure(records(rows, TWO), threads=2, elapsed_s=11).path_s is None  # what it needs was not recorded


def test_waiting_for_a_thread_does_not_lengthen_the_longest_path(records):
    tables = records([{"worker": "a", "start": i, "stop": i + 1} for i in range(3)], {"a": {}})
    assert measure(tables, threads=1, elapsed_s=3).path_s == 1


def test_waiting_tasks_count_as_runnable_but_not_as_running(records):
    tables = records([{"worker": "a", "start": i, "stop": i + 1} for i in range(3)], {"a": {}})
    metrics = measure(tables, threads=1, elapsed_s=3)
    assert (metrics.peak_parallelism, metrics.peak_runnable) == (1, 3)


def test_attempts_that_erred_or_were_lost_do_not_count_as_work(records):
    tables = records(
        [
            {"key": "x", "worker": "a", "start": 0, "stop": 1, "status": 1},
            {"key": "x", "worker": "a", "assigned": 1, "start": 1, "stop": 3, "retries": 1},
            {"key": "y", "worker": "b", "start": 0, "stop": 0, "done": 2, "status": 2},
            {"key": "y", "worker": "", "status": 2},
        ],
        TWO,
    )
    metrics = measure(tables, threads=2, elapsed_s=3)
    assert (metrics.work_s, metrics.tasks, metrics.makespan_s) == (2, 1, 3)
    assert metrics.worker_time_s["lost"] == pytest.approx(1 + 2)
    assert (metrics.erred_tasks, metrics.recomputed_tasks) == (1, 1)


def test_memory_spilling_and_scheduler_load_come_from_the_memory_samples(records):
    tables = records([{"worker": "a", "start": 0, "stop": 1}], TWO)
    rows = [("a", 100, 0, 1), ("a", 300, 7, 1), ("b", 200, 5, 1), ("b", 200, 4, 1), ("scheduler", 900, 0, 0.25)]
    names = ("worker", "rss", "spilled", "cpu")
    tables["memory"] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    metrics = measure(tables, threads=2, elapsed_s=1)
    assert (metrics.peak_memory_bytes, metrics.mean_memory_bytes) == (300, 200)
    assert (metrics.spilled_bytes, metrics.scheduler_cpu, metrics.scheduler_memory_bytes) == (7 + 5, 0.25, 900)
    del tables["memory"]
    assert measure(tables, threads=2, elapsed_s=1).peak_memory_bytes is None


def test_a_result_travels_once_to_every_worker_that_needs_it(records):
    run = {"start": 0, "stop": 1, "nbytes": 10}
    tables = records([{"worker": worker, **run} for worker in "abbba"], TWO)
    tables["dependencies"] = {"task": [1, 2, 3, 4], "needs": [0, 0, 2, 0]}
    assert measure(tables, threads=2, elapsed_s=1).transferred_bytes == 10


def _with_fault(records, kind, begin, end, gap):
    """Tasks of 0.1 s back to back on two workers for 6 s, of which `b` has none from `gap` to `gap` + 2."""
    runs = [(worker, i / 10) for worker in "ab" for i in range(60) if worker == "a" or not gap <= i / 10 < gap + 2]
    tables = records([{"worker": worker, "start": at, "stop": at + 0.1} for worker, at in runs], TWO)
    epoch = min(tables["tasks"]["start"])
    tables["faults"] = {"kind": [kind], "worker": ["b"], "begin": [epoch + begin], "end": [epoch + end]}
    return measure(tables, threads=2, elapsed_s=6)


def test_recovery_ends_when_threads_are_as_busy_as_before_the_fault(records):
    assert _with_fault(records, "kill-worker", 2, 2, gap=2.2).recovery_s == pytest.approx(2.2, abs=0.2)
    assert _with_fault(records, "kill-worker", 2, 2, gap=4).recovery_s is None
    assert _with_fault(records, "steal-cpu", 2, 5, gap=9).recovery_s == 0
    assert _with_fault(records, "pause-worker", 2, 5, gap=9).recovery_s == pytest.approx(3, abs=0.2)
    tables = records([{"worker": "a", "start": 0, "stop": 1}], TWO)
    assert measure(tables, threads=2, elapsed_s=1).recovery_s is None


def test_a_task_computed_again_because_its_worker_died_is_counted_once(records):
    tables = records(
        [
            {"key": "x", "worker": "a", "start": 0, "stop": 2},
            {"key": "x", "worker": "b", "runnable": 3, "start": 3, "stop": 5},
        ],
        {"a": {"left": 3.0}, "b": {}},
    )
    metrics = measure(tables, threads=2, elapsed_s=5)
    assert (metrics.tasks, metrics.work_s) == (1, 2)
    assert metrics.worker_time_s["lost"] == pytest.approx(2 + 2)


def test_a_key_computed_twice_on_purpose_counts_as_two_tasks(records):
    tables = records([{"key": "x", "worker": "a", "start": 2 * i, "stop": 2 * i + 1} for i in range(2)], {"a": {}})
    assert measure(tables, threads=1, elapsed_s=3).tasks == 2


def test_numpy_columns_and_lists_give_the_same_metrics_as_arrays(records):
    tables = records([{"worker": "a", "start": 0, "stop": 4}], TWO)
    other = {
        "tasks": {name: np.asarray(values) for name, values in tables["tasks"].items()},
        "workers": {name: list(values) for name, values in tables["workers"].items()},
    }
    assert measure(other, threads=2, elapsed_s=1) == measure(tables, threads=2, elapsed_s=1)


def test_tasks_that_take_no_time_have_no_parallelism(records):
    metrics = measure(records([{"worker": "a", "start": 1, "stop": 1}], TWO), threads=2, elapsed_s=1)
    assert (metrics.work_s, metrics.parallelism, metrics.efficiency, metrics.makespan_s) == (0, 0, 0, 1)
    assert metrics.schedule_quality == 0


@pytest.mark.parametrize(
    "tasks",
    [
        [],
        [{"worker": "", "status": 2}],
        [{"worker": "a", "start": 0, "stop": 1, "status": 1}],
        [{"worker": "a", "start": 0, "stop": 0}],
    ],
    ids=["no task", "none began", "none finished", "no time passed"],
)
def test_records_without_measured_work_raise_capture_error(records, tasks):
    with pytest.raises(CaptureError):
        measure(records(tasks, TWO), threads=2, elapsed_s=1)


def test_a_short_column_and_a_missing_table_are_named(records):
    tables = records([{"worker": "a", "start": 0, "stop": 1}], TWO)
    short = {**tables, "tasks": {**tables["tasks"], "key": []}}
    with pytest.raises(CaptureError, match="differ in length"):
        measure(short, threads=2, elapsed_s=1)
    with pytest.raises(CaptureError, match="workers"):
        measure({"tasks": tables["tasks"]}, threads=2, elapsed_s=1)


def test_stages_are_task_groups_in_the_order_in_which_they_begin(records):
    group = {"group": "read-1", "prefix": "read"}
    tables = records(
        [
            {"worker": "b", "start": 3, "stop": 6, "group": "sum-1", "prefix": "sum"},
            {"worker": "a", "start": 0, "stop": 1, **group},
            {"worker": "b", "start": 1, "stop": 3, **group},
            {"worker": "b", "start": 0, "stop": 1, "status": 1, **group},
        ],
        TWO,
    )
    first, second = stages_of(Attempts.read(tables))
    assert (first.group, first.prefix, first.tasks, first.workers) == ("read-1", "read", 2, 2)
    assert (first.work_s, first.longest_s, first.begin_s, first.end_s) == (3, 2, 0, 3)
    assert (second.group, second.tasks, second.work_s) == ("sum-1", 1, 3)


INTERVALS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted), min_size=1)


@given(INTERVALS)
def test_peak_counts_half_open_intervals(intervals):
    start, stop = (np.array(column, dtype=float) for column in zip(*intervals, strict=True))
    assert peak(start, stop) == max(sum(a <= t < b for a, b in intervals) for t in range(10))


@given(INTERVALS, st.integers(1, 4))
def test_a_peak_shorter_than_the_least_duration_does_not_count(intervals, least):
    start, stop = (np.array(column, dtype=float) for column in zip(*intervals, strict=True))
    levels = sorted((sum(a <= t < b for a, b in intervals) for t in range(10)), reverse=True)
    assert peak(start, stop, least) == levels[least - 1]


@given(INTERVALS)
def test_the_order_of_the_rows_does_not_matter(records, intervals):
    rows = [{"worker": "a", "start": a + 1, "stop": b + 1} for a, b in intervals]
    both = [measure(records(order, TWO), threads=2, elapsed_s=1) for order in (rows, rows[::-1])]
    for name, value in both[0].to_mapping().items():
        if name != "work_by_prefix":
            assert both[1].to_mapping()[name] == pytest.approx(value)
    (first,), (second,) = (each.work_by_prefix.values() for each in both)
    assert asdict(first) == pytest.approx(asdict(second))


def test_work_is_summed_by_prefix_and_only_the_ten_largest_are_kept(records):
    tasks = [("read", 1), ("read", 5), ("read", 2), ("sum", 3)]
    rows = [{"worker": "a", "prefix": name, "start": 10 * i, "stop": 10 * i + s} for i, (name, s) in enumerate(tasks)]
    metrics = measure(records(rows, TWO), threads=2, elapsed_s=1)
    assert metrics.work_by_prefix == {"read": PrefixWork(3, 8, 2), "sum": PrefixWork(1, 3, 3)}
    assert Metrics.from_mapping(json.loads(json.dumps(metrics.to_mapping()))) == metrics
    older = {name: value for name, value in metrics.to_mapping().items() if name != "work_by_prefix"}
    assert Metrics.from_mapping(older) == replace(metrics, work_by_prefix=None)
    many = [{"worker": "a", "prefix": f"p{i}", "start": i, "stop": i + 1 + i} for i in range(30)]
    kept = measure(records(many, TWO), threads=2, elapsed_s=1).work_by_prefix
    assert list(kept) == [f"p{i}" for i in range(29, 19, -1)]


def test_the_makespan_of_a_greedy_schedule_stays_within_grahams_bound(records):
    # Graham (1969): a greedy schedule ends within T1/P + T∞.
    for durations in itertools.product([1, 2, 5], repeat=4):
        free = [0.0, 0.0]
        rows = []
        for seconds in durations:
            worker = free.index(min(free))
            rows.append({"worker": "ab"[worker], "start": free[worker], "stop": free[worker] + seconds})
            free[worker] += seconds
        metrics = measure(records(rows, TWO), threads=2, elapsed_s=1)
        assert metrics.ideal_s <= metrics.makespan_s <= metrics.work_s / 2 + metrics.span_s
        assert metrics.worker_time_s["busy"] == pytest.approx(metrics.work_s)
