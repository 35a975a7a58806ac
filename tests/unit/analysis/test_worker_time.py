from __future__ import annotations

import json
from array import array
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis import ledger
from scalescope.analysis.attempts import Attempts
from scalescope.analysis.measure import measure
from scalescope.analysis.worker_time import WorkerTime, busy_by_worker, divide, over_time
from scalescope.model.metrics import WORKER_TIME
from scalescope.model.records import ACTOR_CALLS, OTHER_CLUSTER, TASK_WAITS, from_rows

EPOCH = 1_000.0  # of the fixture `records`


def worker_time(tables: Any, *, threads: int) -> WorkerTime:
    return divide(Attempts.read(tables), threads=threads)


def parts(tables: dict[str, Any], threads: int) -> dict[str, float]:
    """The parts that are not zero."""
    return {part: pytest.approx(s) for part, s in worker_time(tables, threads=threads).total().items() if s > 1e-9}


def workers(*names: str, **given: Any) -> dict[str, dict[str, Any]]:
    return {name: dict(given) for name in names}


def with_status(tables: dict[str, Any], *changes: tuple[str, float, str, str]) -> dict[str, Any]:
    """Tables with events of workers: address, time, status before, status."""
    messages = [
        json.dumps({"action": "worker-status-change", "prev-status": before, "status": now})
        for _, _, before, now in changes
    ]
    times = array("d", [EPOCH + time for _, time, _, _ in changes])
    return tables | {"events": {"time": times, "topic": [name for name, *_ in changes], "message": messages}}


def with_calls(tables: dict[str, Any], *calls: tuple[str, float, float]) -> dict[str, Any]:
    """Tables with methods of actors: address, begin and end."""
    events: dict[str, Any] = tables.get("events") or {"time": [], "topic": [], "message": []}
    rows = {
        "time": [EPOCH + end for _, _, end in calls],
        "topic": [ACTOR_CALLS] * len(calls),
        "message": [
            json.dumps({"worker": worker, "end": EPOCH + end, "seconds": end - begin, "methods": {"A.f": [1, 1.0]}})
            for worker, begin, end in calls
        ],
    }
    return tables | {"events": {name: [*events[name], *column] for name, column in rows.items()}}


def with_waits(tables: dict[str, Any], row: int, *waits: tuple[float, float, bool]) -> dict[str, Any]:
    """Tables in which the task of a row waited: begin, end, and whether it held its thread."""
    message = json.dumps({"row": row, "waits": [[EPOCH + begin, EPOCH + end, held] for begin, end, held in waits]})
    return tables | {"events": {"time": [EPOCH], "topic": [TASK_WAITS], "message": [message]}}


def run(worker: str, start: float, stop: float, **given: Any) -> dict[str, Any]:
    return {"worker": worker, "start": start, "stop": stop} | given


def in_turn(count: int) -> list[dict[str, Any]]:
    return [run("a", i, i + 1) for i in range(count)]


ONE, TWO, THREE = workers("a"), workers("a", "b"), workers("a", "b", "c")


OVERHEADS = run("a", 9, 10, transfer=3.0, deserialize=2.0, disk_read=1.0)
NARROW = [*(run(name, 0, 1) for name in "abcd"), run("a", 1, 9, runnable=1)]
REPLACED = {"a": {}, "b": {"left": 4.0}, "c": {"joined": 6.0}}
CASES: dict[str, Any] = {
    "all busy": ([run("a", 0, 3), run("b", 0, 3)], TWO, 2, {"busy": 6}),
    "one task for three": ([run("a", 0, 3)], THREE, 3, {"busy": 3, "no_runnable_task": 6}),
    # until 2 a task waits; from then on b was idle already when the last task started
    "a task waits": (in_turn(3), TWO, 2, {"busy": 3, "not_assigned": 2, "no_runnable_task": 1}),
    "tail": ([run("a", 0, 1), run("b", 0, 5)], THREE, 3, {"busy": 6, "tail": 4, "no_runnable_task": 5}),
    "a narrow last stage": (NARROW, workers(*"abcd"), 4, {"busy": 12, "no_runnable_task": 24}),
    "overheads": ([OVERHEADS], ONE, 1, {"busy": 1, "transfer": 3, "serialisation": 2, "spill": 1, "not_assigned": 3}),
    "overheads end at the assignment": (
        [run("a", 10, 11, assigned=8, transfer=7.0, deserialize=1.0)], ONE, 1,
        {"busy": 1, "transfer": 1, "serialisation": 1, "not_assigned": 8},
    ),
    "a hidden transfer": ([run("a", 0, 5), run("a", 5, 6, transfer=4.0)], ONE, 1, {"busy": 6}),
    "spilling": ([run("a", 0, 1, disk_write=2.0), run("a", 4, 5)], ONE, 1, {"busy": 2, "spill": 2, "not_assigned": 1}),
    "a replacement ends the loss": ([run("a", 0, 10)], REPLACED, 2, {"busy": 10, "lost": 2, "no_runnable_task": 8}),
    "more tasks than threads": ([run("a", 0, 2)] * 5, workers("a", nthreads=2), 2, {"busy": 4}),
    "too many workers": ([run("a", 0, 2)], workers(*"abcd"), 2, {"busy": 1, "no_runnable_task": 3}),
    "a worker that only a task names": ([run("ghost", 0, 2)], {}, 2, {"busy": 2, "late_start": 2}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_worker_time_is_divided_into_the_expected_parts(records, case):
    tasks, present, threads, expected = case
    assert parts(records(tasks, present), threads) == expected


PAUSED, RESUMED = ("running", "paused"), ("paused", "running")
PAUSES: dict[str, Any] = {
    "while tasks wait for another worker": (in_turn(6), TWO, [("b", 1, *PAUSED), ("b", 3, *RESUMED)],
        {"busy": 6, "paused": 2, "not_assigned": 3, "no_runnable_task": 1}),
    "while its task runs": ([run("a", 0, 4)], workers("a", nthreads=2), [("a", 0, *PAUSED)], {"busy": 4, "paused": 4}),
    "after its task": ([run("a", 0, 2), run("b", 0, 10)], TWO, [("a", 2, *PAUSED)], {"busy": 12, "paused": 8}),
    "from the start to the fourth second": ([run("a", 0, 10)], TWO, [("b", 0, *PAUSED), ("b", 4, *RESUMED)],
        {"busy": 10, "paused": 4, "no_runnable_task": 6}),
}  # fmt: skip


@pytest.mark.parametrize("case", PAUSES.values(), ids=list(PAUSES))
def test_the_time_of_a_paused_worker_counts_as_paused(records, case):
    tasks, present, changes, expected = case
    assert parts(with_status(records(tasks, present), *changes), 2) == expected


def test_waiting_tasks_are_charged_evenly_to_all_idle_threads(records):
    tables = records([run("a", 0, 2), run("b", 2, 3)], workers("a", "b", "c", "d"))
    result = worker_time(tables, threads=4)
    assert result.workers == ("a", "b", "c", "d", "")
    assert result.parts["not_assigned"].tolist() == pytest.approx([0, 2 / 3, 2 / 3, 2 / 3, 0])
    assert result.parts["no_runnable_task"].tolist() == pytest.approx([1, 4 / 3, 7 / 3, 7 / 3, 0])


def test_a_worker_may_be_paused_from_the_start_or_until_the_end(records):
    tables = records([run("a", 0, 10)], workers("a", "b", "c"))
    changes = ("b", 4, "paused", "running"), ("c", 7, "running", "paused")
    result = worker_time(with_status(tables, *changes), threads=3)
    assert result.parts["paused"].tolist() == pytest.approx([0, 4, 3, 0])
    assert result.parts["no_runnable_task"].tolist() == pytest.approx([0, 6, 7, 0])


def test_unrelated_events_and_status_changes_do_not_pause_a_worker(records):
    tables = with_status(
        records([run("a", 0, 4)], TWO), ("b", 1, "running", "closing_gracefully"), ("scheduler", 1, "running", "paused")
    )
    own = {"time": EPOCH, "topic": "a", "message": json.dumps(["worker-status-change", "paused"])}
    tables["events"] = {name: [*column, own[name]] for name, column in tables["events"].items()}
    assert parts(tables, 2) == {"busy": 4, "no_runnable_task": 4}


def test_calls_of_actors_are_charged_to_threads_that_run_no_task(records):
    tables = records([run("a", 0, 4)], TWO)
    # The call on `a` finds no idle thread; after 4 s no task is known, and the client waits for `b`.
    assert parts(with_calls(tables, ("a", 1, 2), ("b", 1, 3), ("b", 4, 6)), 2) == {
        "busy": 4,
        "actors": 4,
        "no_runnable_task": 2,
        "client": 2,
    }


@pytest.mark.parametrize(
    ("held", "expected", "work_s"),
    [
        (False, {"busy": 10, "no_runnable_task": 9, "tail": 1}, 10),
        (True, {"busy": 18, "no_runnable_task": 1, "tail": 1}, 18),
    ],
)
def test_a_task_that_gave_up_its_thread_is_not_busy_while_it_waits(records, held, expected, work_s):
    tables = with_waits(records([run("a", 0, 10), run("b", 1, 9, runnable=1)], TWO), 0, (1, 9, held))
    assert parts(tables, 2) == expected
    metrics = measure(tables, threads=2, elapsed_s=10)
    assert metrics.work_s == pytest.approx(work_s)
    assert metrics.span_s == pytest.approx(10 if held else 8)
    assert metrics.efficiency == pytest.approx(work_s / 20)


def test_actor_calls_before_the_first_task_or_of_unknown_workers_are_left_out(records):
    tables = records([run("a", 0, 4)], ONE)
    attempts = Attempts.read(with_calls(tables, ("a", -2, -1), ("z", 0, 2)))
    assert not len(attempts.calls.worker)
    assert attempts.makespan == 4


def test_an_actor_call_that_outlasts_all_tasks_ends_the_makespan(records):
    tables = records([run("a", 0, 1)], ONE)
    attempts = Attempts.read(with_calls(tables, ("a", 1, 4)))
    assert attempts.makespan == attempts.end == 4


def called(tables: dict[str, Any], begin: float, end: float, *elsewhere: tuple[float, float]) -> dict[str, Any]:
    """Tables of a trial: when its workload was called and returned, and waited for another cluster."""
    rows: list[dict[str, Any]] = [{"time": EPOCH + begin}]
    rows += [{"time": EPOCH + a, "seconds": b - a, "what": OTHER_CLUSTER, "waits": 1} for a, b in elsewhere]
    return tables | {"client": from_rows("client", [*rows, {"time": EPOCH + end}])}


def test_time_before_between_and_after_graphs_is_charged_to_the_client(records):
    tasks = [run("a", 0, 2), {"worker": "b", "runnable": 5, "start": 6, "stop": 7}]
    tables = records([{"done": task["stop"], **task} for task in tasks], TWO)
    spent = {"busy": 3, "not_assigned": 1, "no_runnable_task": 4, "client": 6}
    assert parts(tables, 2) == spent
    assert parts(called(tables, -4, 10), 2) == spent | {"client": 6 + 2 * (4 + 3)}
    assert parts(called(tables, -4, 10), 3) == spent | {"client": 20, "late_start": 14}


def test_no_time_is_charged_to_another_cluster_when_there_is_none(records):
    tables = called(records([run("a", 0, 2)], ONE), -4, 10)
    assert worker_time(tables, threads=2).total()["other_cluster"] == 0


@pytest.mark.parametrize(
    ("elsewhere", "expected"),
    [
        ([(-3, -1)], {"client": 2 * (4 + 3 + 3) - 4, "other_cluster": 4}),  # before the first task
        ([(2, 5)], {"client": 2 * (4 + 3), "other_cluster": 6}),
        ([(3, 4)], {"client": 2 * (4 + 3 + 2), "other_cluster": 2}),
        ([(8, 10)], {"client": 2 * (4 + 3 + 1), "other_cluster": 4}),
        ([(0, 2), (5, 7)], {"client": 2 * (4 + 3 + 3)}),  # while a task is known
        ([(1, 3), (4, 6)], {"client": 2 * (4 + 3 + 1), "other_cluster": 4}),
        ([(-4, 10)], {"other_cluster": 2 * (4 + 3 + 3)}),
    ],
)
def test_waiting_for_another_cluster_is_a_part_of_its_own_while_no_task_is_known(records, elsewhere, expected):
    tasks = [run("a", 0, 2, done=2), {"worker": "b", "runnable": 5, "start": 6, "stop": 7, "done": 7}]
    tables = called(records(tasks, TWO), -4, 10, *elsewhere)
    assert parts(tables, 2) == {"busy": 3, "not_assigned": 1, "no_runnable_task": 4} | expected


def test_threads_of_workers_that_have_not_joined_do_not_count_as_waiting_for_another_cluster(records):
    tables = called(records([run("a", 0, 2)], {"a": {}, "b": {"joined": -3.0}}), -5, 2, (-4, -1))
    assert parts(tables, 2) == {"busy": 2, "no_runnable_task": 2, "client": 3, "other_cluster": 5, "late_start": 2}


def test_a_task_counts_as_known_until_the_scheduler_learns_of_its_end(records):
    first = {"worker": "a", "start": 0, "stop": 2, "done": 4}
    tables = records([first, {"worker": "a", "runnable": 5, "start": 5, "stop": 6, "done": 8}], ONE)
    assert parts(called(tables, 0, 9), 1) == {"busy": 3, "no_runnable_task": 2, "tail": 2, "client": 2}


def test_time_in_which_the_scheduler_takes_in_a_graph_is_not_charged_to_the_client(records):
    tables = called(records([run("a", 0, 1)], ONE), -5, 1)
    tables["graphs"] = {"time": array("d", [EPOCH - 4, EPOCH - 3]), "seconds": array("d", [3, 3])}
    assert parts(tables, 1) == {"busy": 1, "no_runnable_task": 4, "client": 1}


def test_a_task_that_no_worker_began_still_counts_as_known(records):
    waits = {"runnable": 3, "done": 8, "start": -EPOCH, "stop": -EPOCH, "status": 2}
    tables = called(records([{"worker": "a", "start": 0, "stop": 1, "done": 1}, waits], ONE), 0, 9)
    assert parts(tables, 1) == {"busy": 1, "client": 3, "tail": 5}


def test_a_worker_may_come_and_go_while_no_task_is_known(records):
    tables = records([run("a", 0, 2)], {"a": {}, "b": {"joined": -3.0, "left": 6.0}})
    assert parts(called(tables, -5, 10), 2) == {
        "busy": 2,
        "no_runnable_task": 2,
        "client": 13 + 7,
        "late_start": 2,
        "lost": 4,
    }


def test_tasks_that_outlast_the_workloads_call_count_to_their_end(records):
    tables = called(records([run("a", 0, 8)], ONE), -1, 2)
    assert parts(tables, 1) == {"busy": 8, "client": 1}


def test_a_worker_that_joins_late_or_never_counts_as_late_start(records):
    tables = records([run("a", 0, 10)], {"a": {}, "b": {"joined": 4.0}})
    result = worker_time(tables, threads=3)
    assert result.parts["late_start"].tolist() == pytest.approx([0, 4, 10])
    assert result.total()["no_runnable_task"] == pytest.approx(6)


def test_a_worker_that_leaves_is_lost_from_then_on(records):
    tables = records([run("a", 0, 10)], {"a": {}, "b": {"left": 4.0}})
    result = worker_time(tables, threads=2)
    assert result.parts["lost"].tolist() == pytest.approx([0, 6, 0])
    assert result.total()["no_runnable_task"] == pytest.approx(4)


def test_busy_by_worker_is_what_each_worker_computed_in_each_bin(records):
    tables = records(
        [run("a", 0, 3), run("a", 1, 2), run("b", 3, 4), {"worker": "b", "start": 0, "stop": 2, "status": 1}],
        workers("a", "b", "c", nthreads=2),
    )
    attempts = Attempts.read(tables)
    assert attempts.addresses == ("a", "b", "c")
    assert busy_by_worker(attempts, np.array([0.0, 2, 4])).tolist() == [
        pytest.approx([3, 1]),
        pytest.approx([0, 1]),
        pytest.approx([0, 0]),
    ]
    assert busy_by_worker(attempts, np.array([1.5, 2.5])).tolist() == [pytest.approx([1.5]), [0], [0]]


# ------------------------------------------------------------------ arbitrary records

NAMES = ["a", "b", "c", "ghost"]
SMALL = st.integers(0, 8)


@st.composite
def tasks(draw: st.DrawFn, times: st.SearchStrategy[Any]) -> dict[str, Any]:
    return {
        "key": f"k-{draw(st.integers(0, 5))}",
        "worker": draw(st.sampled_from(NAMES)),
        "runnable": draw(times),
        "assigned": draw(times),
        "start": draw(times),
        "stop": draw(times),
        "done": draw(times),
        "transfer": draw(st.sampled_from([0.0, 0.0, 1.0, 3.0])),
        "deserialize": draw(st.sampled_from([0.0, 0.0, 1.0])),
        "disk_read": draw(st.sampled_from([0.0, 0.0, 1.0])),
        "disk_write": draw(st.sampled_from([0.0, 0.0, 2.0])),
        "status": draw(st.sampled_from([0, 0, 0, 1, 2])),
        "retries": draw(st.sampled_from([0, 0, 1])),
    }


def members(times: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, dict[str, Any]]]:
    row = st.fixed_dictionaries({"nthreads": st.integers(0, 3), "joined": times, "left": times})
    return st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), row)


def statuses(times: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[str, float, str, str]]]:
    status = st.sampled_from(["running", "paused"])
    changes = st.lists(st.tuples(st.sampled_from(["a", "b"]), times, status, status), max_size=4)
    return changes.map(lambda found: sorted(found, key=lambda change: change[1]))


def actors_calls(times: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[str, float, float]]]:
    call = st.tuples(st.sampled_from(["a", "b"]), times, times).map(lambda call: (call[0], *sorted(call[1:])))
    return st.lists(call, max_size=3)


def trials(times: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    # The last task makes sure that there is something to measure.
    anchor = {"worker": "a", "runnable": 0, "start": 0, "stop": 1}
    rows = st.lists(tasks(times), max_size=12).map(lambda rows: [*rows, anchor])
    events = st.tuples(statuses(times), actors_calls(times))
    window = st.tuples(times, times, st.lists(st.tuples(times, times).map(sorted), max_size=3))
    return st.tuples(rows, members(times), events, st.integers(1, 8), window)


def read(records: Any, rows: Any, present: Any, events: Any, window: Any) -> Attempts:
    """The attempts of a trial that was called and returned so long before the first task and after the last.

    It waited for another cluster at the third of `window`, in seconds since the call.
    """
    (before, after, elsewhere), (changes, calls) = window, events
    tables = with_calls(with_status(records(rows, present), *changes), *calls)
    waits = [(begin - before, end - before) for begin, end in elsewhere]
    return Attempts.read(called(tables, -before, Attempts.read(tables).makespan + after, *waits))


@given(trials(st.floats(0, 1e4, allow_subnormal=False)))
def test_the_parts_are_never_negative_and_add_up_to_the_time_of_all_threads(records, trial):
    rows, present, events, threads, window = trial
    attempts = read(records, rows, present, events, window)
    assert attempts.elapsed == pytest.approx(attempts.makespan + sum(window[:2]))
    result = divide(attempts, threads=threads)
    assert tuple(result.parts) == WORKER_TIME
    assert all((seconds >= 0).all() for seconds in result.parts.values())
    assert sum(result.total().values()) == pytest.approx(threads * attempts.elapsed, rel=1e-9)
    in_bins = over_time(attempts, np.linspace(attempts.begin, attempts.end, 4), threads=threads)
    for part, seconds in result.total().items():
        assert in_bins[part].sum() == pytest.approx(seconds, abs=1e-9 * threads * attempts.elapsed)


@given(trials(SMALL))
def test_the_time_of_a_worker_never_exceeds_that_of_its_threads(records, trial):
    rows, present, events, _, window = trial
    attempts = read(records, rows, present, events, window)
    held = np.bincount(
        attempts.members.worker,
        weights=attempts.members.nthreads * np.maximum(attempts.members.left - attempts.members.joined, 0),
        minlength=len(attempts.addresses),
    )
    result = divide(attempts, threads=1000)  # more than there ever are: nothing is scaled down
    there = sum(result.parts[part] for part in WORKER_TIME if part not in ("late_start", "lost"))
    assert (there[:-1] <= held + 1e-9).all()
    edges = np.linspace(0, attempts.makespan, 5)
    assert busy_by_worker(attempts, edges).sum(axis=1) == pytest.approx(result.parts["busy"][:-1], abs=1e-9)


@given(trials(SMALL))
def test_every_part_agrees_with_the_definition_second_by_second(records, trial):
    rows, present, events, threads, window = trial
    attempts = read(records, rows, present, events, window)
    before, _, elsewhere = window
    expected = by_the_second(attempts, threads, [(begin - before, end - before) for begin, end in elsewhere])
    assert divide(attempts, threads=threads).total() == pytest.approx(expected, abs=1e-9)


def by_the_second(attempts: Attempts, threads: int, elsewhere: list[tuple[float, float]]) -> dict[str, float]:
    """The definition, written down for whole seconds: slow, and nothing like the real thing."""
    total: dict[str, float] = dict.fromkeys(WORKER_TIME, 0.0)
    rows = attempts.members
    last_start = int(attempts.start.max())
    base: dict[int, int] = {}
    for second in range(round(attempts.begin), round(attempts.end)):
        capacity: dict[int, int] = defaultdict(int)
        gone = coming = 0
        for worker, nthreads, joined, left in zip(rows.worker, rows.nthreads, rows.joined, rows.left, strict=True):
            if joined > second:
                coming += nthreads
            elif max(left, joined) <= second:
                gone += nthreads
            else:
                capacity[worker] += nthreads
        present = sum(capacity.values())
        missing = max(threads - present, 0)
        total["lost"] += min(missing, gone)
        total["late_start"] += missing - min(missing, gone)

        wanted: dict[int, dict[str, int]] = {worker: dict.fromkeys(WORKER_TIME, 0) for worker in range(len(NAMES) + 1)}
        waiting = 0
        for i in range(len(attempts.start)):
            state = state_at(attempts, i, second)
            waiting += state == "waiting"
            if state in WORKER_TIME:
                wanted[attempts.worker[i]][state] += 1
        for worker, begin, end in zip(attempts.calls.worker, attempts.calls.begin, attempts.calls.end, strict=True):
            wanted[worker]["actors"] += begin <= second < end
        scale = min(1.0, threads / present) if present else 1.0
        idle: dict[int, int] = {}
        for worker, room in capacity.items():
            for part in ("busy", "lost", "actors", "serialisation", "spill", "transfer"):
                taken = min(wanted[worker][part], room)
                total[part] += scale * taken
                room -= taken
            idle[worker] = room
        used = {worker: capacity[worker] - count for worker, count in idle.items()}
        base = dict(used) if second == last_start else base
        for worker in idle:
            if is_paused(attempts, worker, second):
                total["paused"] += scale * idle[worker]
                idle[worker] = 0
        if not any(begin <= second < end for begin, end in attempts.pending):
            waits = any(begin <= second < end for begin, end in elsewhere)
            total["other_cluster" if waits else "client"] += scale * sum(idle.values())
            continue
        assigned = min(waiting, sum(idle.values()))
        share = assigned / sum(idle.values()) if any(idle.values()) else 0.0
        for worker, count in idle.items():
            freed = base.get(worker, 0) - used[worker]
            tail = min(max(freed, 0), count) if second >= last_start else 0
            total["not_assigned"] += scale * share * count
            total["tail"] += scale * (1 - share) * tail
            total["no_runnable_task"] += scale * (1 - share) * (count - tail)
    return total


def is_paused(attempts: Attempts, worker: int, second: int) -> bool:
    pauses = attempts.pauses
    rows = zip(pauses.worker, pauses.begin, pauses.end, strict=True)
    return any(which == worker and begin <= second < end for which, begin, end in rows)


def state_at(attempts: Attempts, i: int, second: int) -> str:
    start, stop = attempts.start[i], attempts.stop[i]
    floor = attempts.prepared_from[i]
    read = max(start - attempts.disk_read[i], floor)
    deserialize = max(read - attempts.deserialize[i], floor)
    transfer = max(deserialize - attempts.transfer[i], floor)
    if start <= second < stop:
        return "busy" if attempts.useful[i] else "lost"
    if read <= second < start or stop <= second < stop + attempts.disk_write[i]:
        return "spill"
    if deserialize <= second < read:
        return "serialisation"
    if transfer <= second < deserialize:
        return "transfer"
    return "waiting" if attempts.runnable[i] <= second < transfer else ""


def test_hundreds_of_workers_keep_their_order(records):
    # More workers than fit into 16 bits would sort another way; 300 do not fit into 8.
    names = [f"w{i}" for i in range(300)]
    tables = records(
        [{"worker": name, "start": i % 7, "stop": i % 7 + 1} for i, name in enumerate(names)], workers(*names)
    )
    result = worker_time(tables, threads=300)
    assert result.parts["busy"].tolist() == pytest.approx([1.0] * 300 + [0.0])
    assert np.sum([seconds.sum() for seconds in result.parts.values()]) == pytest.approx(300 * 7)


def test_worker_time_does_not_depend_on_how_many_events_are_processed_at_once(records, monkeypatch):
    rows = [{"worker": f"w{i % 7}", "start": i % 5, "stop": i % 5 + 1 + i % 3, "transfer": 0.5} for i in range(40)]
    present = {f"w{i}": {"joined": i - 3.0, "left": 6.0 if i == 2 else 0.0} for i in range(7)}
    attempts = Attempts.read(records(rows, present))
    at_once = divide(attempts, threads=6)
    monkeypatch.setattr(ledger, "_PIECE", 1)
    one_by_one = divide(attempts, threads=6)
    for part in WORKER_TIME:
        assert one_by_one.parts[part].tolist() == at_once.parts[part].tolist()
