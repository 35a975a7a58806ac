from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis import replay as module
from scalescope.analysis.attempts import Attempts
from scalescope.analysis.graph import Graph
from scalescope.analysis.replay import Replay, overhead
from scalescope.errors import InvalidField


def graph_of(tasks: int, needs: list[tuple[int, int]]) -> Graph:
    pairs = np.array(needs, np.int64).reshape(-1, 2)
    return Graph.of(tasks, pairs[:, 0], pairs[:, 1])


def problem(seconds: list[float], needs: list[tuple[int, int]] = (), **given: Any) -> Replay:
    """Tasks of these durations, all of them known from the start."""
    count = len(seconds)
    arrays = {"rank": np.arange(count), "delay": np.zeros(count), "phase": np.zeros(count, np.int64)}
    arrays["sent"] = np.zeros(count, np.int64)
    return Replay(
        seconds=np.array(seconds, np.float64),
        graph=graph_of(count, needs),
        **{"overhead_s": 0.0, "pauses": np.zeros(1)} | arrays | given,
    )


def replay_of(
    records: Any, rows: list[dict[str, Any]], needs: list[tuple[int, int]] = (), *, threads: int = 9
) -> Replay:
    tables = records([{"worker": "a"} | row for row in rows], {"a": {"nthreads": threads}})
    pairs = np.array(needs, np.int64).reshape(-1, 2)
    tables["dependencies"] = {"task": pairs[:, 0], "needs": pairs[:, 1]}
    attempts = Attempts.read(tables)
    return Replay.of(attempts, Graph.read(tables, attempts))


# ------------------------------------------------------------------ schedules


@pytest.mark.parametrize(
    ("tasks", "makespans"),
    [
        (problem([1.0] * 100), {1: 100, 50: 2, 99: 2, 100: 1, 1000: 1}),  # waves
        (problem([1, 2, 3], [(1, 0), (2, 1)]), {1: 6, 2: 6, 8: 6}),  # a chain
        (problem([1, 4, 2, 3], [(3, 0), (3, 1), (3, 2)]), {1: 10, 2: 7, 3: 7}),  # a reduction
        (problem([3, 1, 1, 1, 4]), {2: 7}),  # in the order of the list: 3 + 4 | 1 + 1 + 1
        (problem([3, 1, 1, 1, 4], rank=np.array([1, 2, 3, 4, 0])), {2: 5}),
        (problem([1.0] * 10, overhead_s=0.5), {2: 7.5}),
        (problem([1.0, 1.0], [(1, 0)], overhead_s=0.5), {2: 3}),
        (problem([1, 1, 1], delay=np.array([0.0, 5, 2])), {1: 6}),
        (problem([1, 1], [(1, 0)], delay=np.array([0.0, 3])), {1: 5}),
    ],
)
def test_a_replay_schedules_tasks_on_any_number_of_threads(tasks, makespans):
    assert {threads: tasks.makespan(threads) for threads in makespans} == makespans


def test_a_replay_on_zero_threads_is_refused():
    with pytest.raises(InvalidField, match=r"threads: .* got 0"):
        problem([1]).makespan(0)


def test_a_phase_begins_after_the_previous_phase_and_the_pause():
    phases = {"phase": np.array([0, 0, 1, 1]), "pauses": np.array([0.5, 2.0])}
    tasks = problem([1, 3, 1, 1], **phases)
    assert [tasks.makespan(threads) for threads in (1, 2, 9)] == [8.5, 6.5, 6.5]
    assert problem([1, 3, 1, 1], [(2, 0)], **phases).makespan(2) == 6.5  # what it needed is there


def test_more_threads_can_make_a_replay_take_longer():
    # Graham's own example (1969): nine tasks, and an anomaly of list scheduling that must not be smoothed away.
    anomaly = problem([3, 2, 2, 2, 4, 4, 4, 4, 9], [(8, 0), *((i, 3) for i in range(4, 8))])
    assert (anomaly.makespan(3), anomaly.makespan(4)) == (12, 15)


DURATIONS = st.lists(st.integers(0, 20), min_size=1, max_size=25)


@st.composite
def problems(draw: st.DrawFn) -> Replay:
    seconds = draw(DURATIONS)
    count = len(seconds)
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=2 * count))
    needs = sorted({(max(pair), min(pair)) for pair in pairs if pair[0] != pair[1]})
    rank = np.array(draw(st.permutations(range(count))))
    return problem([float(s) for s in seconds], needs, rank=rank)


def bounds(tasks: Replay, threads: int) -> tuple[float, float]:
    work, span = tasks.seconds.sum(), (tasks.graph.earliest(tasks.seconds) + tasks.seconds).max()
    return max(work / threads, span), work / threads + span


@given(problems(), st.integers(1, 30))
def test_replayed_makespans_stay_within_grahams_bounds(tasks, threads):
    low, high = bounds(tasks, threads)
    assert low - 1e-9 <= tasks.makespan(threads) <= high + 1e-9


@given(problems())
def test_the_makespan_is_the_work_on_one_thread_and_the_span_on_unlimited_ones(tasks):
    assert tasks.makespan(1) == pytest.approx(tasks.seconds.sum())
    assert tasks.makespan(len(tasks.seconds)) == pytest.approx(
        (tasks.graph.earliest(tasks.seconds) + tasks.seconds).max()
    )


@given(DURATIONS, st.integers(1, 10))
def test_without_dependencies_more_threads_never_take_longer(seconds, threads):
    # True of independent tasks in a fixed order only: see the anomaly above.
    tasks = problem(seconds)
    assert tasks.makespan(threads + 1) <= tasks.makespan(threads)


@given(DURATIONS, st.data(), st.integers(1, 6))
def test_the_fast_path_for_independent_tasks_agrees_with_the_event_simulation(seconds, data, threads):
    count = len(seconds)
    delay = np.sort(np.array(data.draw(st.lists(st.integers(0, 30), min_size=count, max_size=count)), np.float64))
    none = np.zeros(0, np.int64)
    durations = np.array(seconds, np.float64)
    schedule = module._Schedule.of(durations, delay, none, none, np.zeros(count, np.int64), np.zeros(1))
    by_events = schedule.makespan(threads)
    assert module._independent(durations, delay, threads) == by_events
    assert problem(seconds, delay=delay).makespan(threads) == by_events


# ------------------------------------------------------------------ from the record


def bag(threads: int, seconds: list[float], gap: float = 0.0) -> list[dict[str, Any]]:
    """Rows of independent tasks, as threads of one worker would run them."""
    free = [0.0] * threads
    rows = []
    for duration in seconds:
        slot = free.index(min(free))
        begin = free[slot] + gap
        free[slot] = begin + duration
        rows.append({"start": begin, "stop": free[slot]})
    return rows


def test_a_replay_on_the_recorded_threads_reproduces_the_recorded_makespan(records):
    rows = bag(3, [2, 1, 4, 1, 1, 3, 2], gap=0.125)
    tasks = replay_of(records, rows, threads=3)
    assert tasks.overhead_s == pytest.approx(0.125)
    assert tasks.makespan(3) == pytest.approx(max(row["stop"] for row in rows))
    assert tasks.makespan(7) == pytest.approx(4.125)


def test_a_replay_keeps_the_delay_of_the_scheduler(records):
    rows = [{"start": 0, "stop": 1}, {"runnable": 1.25, "start": 1.5, "stop": 2.5, "span": 2.0}]
    tasks = replay_of(records, rows, [(1, 0)])
    assert tasks.delay.tolist() == pytest.approx([0, 0.25])
    assert len(tasks.pauses) == 1


def test_a_client_that_waits_for_each_result_stays_sequential(records):
    rows = [{"runnable": 2.0 * i, "start": 2.0 * i, "stop": 2.0 * i + 1} for i in range(5)]
    tasks = replay_of(records, rows)
    assert tasks.phase.tolist() == [0, 1, 2, 3, 4]
    assert tasks.pauses.tolist() == pytest.approx([0, 1, 1, 1, 1])
    assert [tasks.makespan(threads) for threads in (1, 50)] == pytest.approx([9, 9])


def test_a_client_that_sends_while_tasks_run_does_not_wait(records):
    rows = [{"runnable": i, "start": 2.0 * i, "stop": 2.0 * i + 2} for i in range(5)]
    tasks = replay_of(records, rows, threads=1)
    assert tasks.phase.tolist() == [0] * 5
    assert [tasks.makespan(threads) for threads in (1, 2, 5)] == pytest.approx([10, 6, 6])


def test_dependent_stages_that_end_together_stay_in_one_phase(records):
    rows = [{"start": 0, "stop": 1}, {"start": 0, "stop": 1}]
    rows += [{"runnable": 1.5, "start": 1.5, "stop": 2.5, "span": 2.0} for _ in range(2)]
    assert replay_of(records, rows, [(2, 0), (3, 1)]).phase.tolist() == [0] * 4


def test_the_overhead_is_the_median_gap_while_tasks_were_runnable(records):
    rows = [
        {"start": 1, "stop": 5},  # 1 from the first
        {"start": 2, "stop": 3},  # 2, on the other thread
        {"start": 3.25, "stop": 4, "status": 1},  # a failed attempt
        {"start": 4.25, "stop": 9},  # 0.25 since a thread was free
        {"runnable": 6, "start": 6.5, "stop": 9},  # 0.5 since it was runnable
        {"worker": "late", "start": 8.75, "stop": 9},  # 0.75 since its worker joined
    ]
    tables = records([{"worker": "a"} | row for row in rows], {"a": {"nthreads": 2}, "late": {"joined": 8.0}})
    assert overhead(Attempts.read(tables)) == pytest.approx(0.75)


def test_without_a_known_graph_nothing_is_replayed(records):
    tables = records([{"worker": "a", "start": 1, "stop": 2, "span": 9.0}], {"a": {}})
    attempts = Attempts.read(tables)
    assert Replay.of(attempts, Graph.read(tables, attempts)) is None


def test_failed_attempts_are_left_out_of_a_replay(records):
    rows = [{"start": 0, "stop": 5, "status": 1}, {"start": 5, "stop": 6, "retries": 1, "assigned": 5}]
    assert replay_of(records, rows).seconds.tolist() == pytest.approx([1])
