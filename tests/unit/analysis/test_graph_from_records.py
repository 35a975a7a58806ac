"""Graphs read from records made by hand, with round numbers of seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scalescope.analysis import graph_from_records
from scalescope.analysis.graph_from_records import recorded_graph, sent_after_waiting
from scalescope.errors import CaptureError
from scalescope.model.recorded_graph import RecordedGraph, RecordedTask, Submission
from scalescope.model.records import OTHER_CLUSTER, STATUS_LOST


def tables(*rows: dict[str, Any], edges: list[tuple[int, int]] | None = None, sent: Any = ()) -> dict[str, Any]:
    """Records of tasks, one second each unless told; `sent`: time, tasks and sending task of each submission."""
    graphs = [number for number, (_, count, *_) in enumerate(sent, 1) for _ in range(count)]
    whole = [
        {"key": f"k{i}", "prefix": "inc", "group": "inc-1", "worker": "", "status": 0, "allowed": 0}
        | {"runnable": 10.0, "start": 10.0, "graph": graphs[i] if i < len(graphs) else len(sent)}
        | row
        for i, row in enumerate(rows)
    ]
    for row in whole:
        row.setdefault("stop", row["start"] + 1.0)
        row.setdefault("done", row["stop"])
        row.setdefault("span", row["stop"] - row["start"])
    found: dict[str, Any] = {"tasks": {name: [row[name] for row in whole] for name in whole[0]}}
    found["workers"] = {"worker": [""], "nthreads": [4]}
    for name in ("start", "stop", "span"):
        found["tasks"][name] = np.asarray(found["tasks"][name])
    if edges is not None:
        found["dependencies"] = {"task": [a for a, _ in edges], "needs": [b for _, b in edges]}
    if sent:
        found["graphs"] = {
            "time": [time for time, *_ in sent],
            "seconds": [0.0] * len(sent),
            "tasks": [count for _, count, *_ in sent],
            "task": [rest[0] if rest else "" for _, _, *rest in sent],
        }
    return found


def test_independent_tasks_become_one_submission_without_dependencies() -> None:
    assert recorded_graph(tables({}, {})) == RecordedGraph(
        ("inc",), (RecordedTask(0, 1.0), RecordedTask(0, 1.0)), (Submission(),)
    )


def test_tasks_submitted_twice_are_in_the_graph_twice() -> None:
    later = [{"key": "load", "runnable": 20.0, "start": 20.0, "stop": 23.0}, {"runnable": 23.0, "start": 23.0}]
    rows = [{"key": "load"}, {"runnable": 11.0, "start": 11.0}, *later]
    graph = recorded_graph(tables(*rows, edges=[(1, 0), (3, 2)], sent=[(9.0, 2), (19.0, 2)]))
    assert [task.seconds for task in graph.tasks] == [1.0, 1.0, 3.0, 1.0]
    assert [task.needs for task in graph.tasks] == [(), (0,), (), (2,)]
    assert [task.submission for task in graph.tasks] == [0, 0, 1, 1]


def test_a_task_recomputed_after_its_worker_died_is_in_the_graph_once() -> None:
    rows = [{"worker": "a"}, {"worker": "b", "start": 11.0}, {"worker": "b", "start": 20.0}, {"worker": "b"}]
    rows = [{**row, "key": key} for row, key in zip(rows, ("load", "k1", "load", "k3"), strict=True)]
    records = tables(*rows, edges=[(1, 0), (3, 2)], sent=[(9.0, 3)])
    records["workers"] = {"worker": ["a", "b"], "left": [15.0, 0.0], "joined": [0.0, 0.0]}
    graph = recorded_graph(records)
    assert [task.needs for task in graph.tasks] == [(), (0,), (0,)]


@pytest.mark.parametrize(("workers", "allowed", "spread"), [("aab", [1, 1, 1], (0,)), ("aaa", [1, 1, 0], ())])
def test_a_stage_counts_as_spread_if_its_restricted_tasks_ran_on_several_workers(
    workers: str, allowed: list[int], spread: tuple[int, ...]
) -> None:
    rows = [{"worker": worker, "allowed": int(i > 0)} for i, worker in enumerate(workers)]
    graph = recorded_graph(tables(*rows))
    assert sorted(task.allowed for task in graph.tasks) == sorted(allowed)
    assert graph.spread == spread


@pytest.mark.parametrize(("barrier", "seconds"), [("shuffle-barrier", 0.25), ("load", 0.0)])
def test_outputs_of_a_shuffle_record_the_time_of_their_cancelled_first_attempts(barrier: str, seconds: float) -> None:
    lost = {"status": STATUS_LOST, "start": 0.0, "stop": 0.0}
    own = [
        {"key": f"k{worker}", "worker": worker, "allowed": 1, "prefix": "take", "group": "take-1"} for worker in "ab"
    ]
    records = tables(*[each | lost for each in own], *own, {"prefix": barrier}, edges=[(2, 4), (3, 4)])
    records["fine_metrics"] = {
        "prefix": ["take", "take", "inc"],
        "activity": ["cancelled", "other", "cancelled"],
        "unit": ["seconds"] * 3,
        "context": ["execute"] * 3,
        "value": [0.5, 3.0, 0.2],
    }
    graph = recorded_graph(records)
    assert [(task.allowed, task.first_s) for task in graph.tasks] == [(0, 0.0), (1, seconds), (1, seconds)]


def test_the_graph_has_the_recorded_stages_dependencies_and_restrictions() -> None:
    graph = recorded_graph(
        tables(
            {"allowed": 2},
            {"prefix": "inc", "group": "inc-2", "start": 10.5},
            {"prefix": "a b", "group": "ab-1", "start": 12.0, "runnable": 12.0},
            edges=[(2, 0), (2, 1)],
        )
    )
    assert graph.stages == ("inc", "inc", "a_b")
    assert [task.needs for task in graph.tasks] == [(), (), (0, 1)]
    assert [task.allowed for task in graph.tasks] == [2, 0, 0]
    assert [task.stage for task in graph.tasks] == [0, 1, 2]


def test_tasks_of_a_submission_come_in_the_order_in_which_they_started() -> None:
    graph = recorded_graph(tables({"start": 12.0, "stop": 12.1}, {"start": 11.0}))
    assert [task.seconds for task in graph.tasks] == [1.0, 0.1]


def test_only_the_last_finished_attempt_of_a_task_counts() -> None:
    rows = ({"key": "a", "status": 2}, {"key": "a", "start": 20.0, "stop": 23.0}, {"key": "b", "start": 30.0})
    graph = recorded_graph(tables(*rows, edges=[(2, 1)]))
    assert [task.seconds for task in graph.tasks] == [3.0, 1.0]
    assert graph.tasks[1].needs == (0,)


def test_a_loop_that_awaits_each_result_becomes_submissions_that_wait() -> None:
    rows = [{"runnable": 10.0 + 2 * i, "start": 10.0 + 2 * i} for i in range(3)]
    graph = recorded_graph(tables(*rows, sent=[(9.9 + 2 * i, 1) for i in range(3)]))
    assert [task.submission for task in graph.tasks] == [0, 1, 2]
    assert graph.submissions == (Submission(), Submission(0, 0.9, after_all=True), Submission(1, 0.9, after_all=True))


def test_a_submission_may_wait_for_some_results_and_not_for_all() -> None:
    rows = [{"runnable": 9.85, "stop": 30.0}, {"runnable": 9.95}, {"runnable": 12.0, "start": 12.0}]
    graph = recorded_graph(tables(*rows, sent=[(9.8, 1), (9.9, 1), (11.9, 1)]))
    assert [(each.after, each.after_all) for each in graph.submissions] == [(-1, False), (-1, False), (1, False)]


@pytest.mark.parametrize(("lag_s", "window"), [(0.01, 3), (0.25, 0)], ids=["as completed", "after all"])
def test_a_client_that_sends_a_task_for_each_that_ends_has_a_window_and_one_that_waits_for_all_has_none(
    lag_s: float, window: int
) -> None:
    """Three tasks, which end one after the other; the next one is sent after each of them, or after all three."""
    starts = [10.0 + 1.3 * (i // 3) + 0.1 * (i % 3) for i in range(12)]
    rows = [{"runnable": start, "start": start} for start in starts]
    sent = [
        (9.9, 3),
        *((ended + 1.0 + lag_s * (1 if window else 1 - 0.4 * (i % 3)), 1) for i, ended in enumerate(starts[:9])),
    ]
    graph = recorded_graph(tables(*rows, sent=sent))
    assert graph.window == window
    assert len(graph.submissions) == (12 if window else 10)


def test_tasks_of_a_submission_without_needs_come_in_the_order_in_which_they_were_taken_in() -> None:
    graph = recorded_graph(tables({"runnable": 10.1, "start": 11.0, "stop": 11.1}, {"runnable": 10.0, "start": 12.0}))
    assert [task.seconds for task in graph.tasks] == [1.0, 0.1]


def test_a_loop_that_never_waits_becomes_submissions_with_pauses() -> None:
    rows = [{"start": 10.0 + 2 * i, "runnable": 10.0 + 2 * i} for i in range(3)]
    records = tables(*rows, sent=[(9.9 + 2 * i, 1) for i in range(3)])
    records["client"] = {"time": [9.0], "seconds": [9.0], "waits": [0]}
    assert recorded_graph(records).submissions == (Submission(), *[Submission(-1, 2.0)] * 2)
    records["client"]["waits"] = [1]
    waited = recorded_graph(records).submissions
    assert [(each.after, round(each.pause_s, 9), each.waited_s) for each in waited] == [
        (-1, 0, 0),
        (0, 0, 0.9),
        (1, 0, 0.9),
    ]


def test_waiting_for_another_cluster_becomes_a_pause_before_the_submission() -> None:
    rows = [{"start": 10.0 + 2 * i, "runnable": 10.0 + 2 * i} for i in range(2)]
    records = tables(*rows, sent=[(9.9 + 2 * i, 1) for i in range(2)])
    row = {"time": [9.0], "seconds": [9.0], "waits": [1]}
    records["client"] = {**row, "what": [OTHER_CLUSTER]}
    assert recorded_graph(records).submissions == (Submission(), Submission(-1, 2.0))
    records["client"] = {**row, "what": ["client.gather"]}
    assert recorded_graph(records).submissions[1].after == 0


def test_time_in_which_the_client_waited_is_not_part_of_its_pause() -> None:
    records = tables({}, {}, sent=[(9.8, 1), (9.9, 1)])
    records["client"] = {"time": [9.8, 9.875], "seconds": [0.075, 0.05], "waits": [1, 0]}
    [_, second] = recorded_graph(records).submissions
    assert (second.after, second.pause_s, second.waited_s) == (-1, 0.025, 0.075)


@pytest.mark.parametrize(
    ("changes", "virtual", "waited"),
    [
        ({}, False, [False, True]),  # no task was left
        ({"waits": [0]}, False, [False, False]),
        ({"left": True}, False, [False, True]),  # longer than the interval of samples of its thread
        ({"left": True, "sent": 11.04}, False, [False, False]),
        ({"left": True, "sent": 11.04}, True, [False, True]),
        ({"left": True, "sent": 11.04, "fetched": 11.02}, False, [False, True]),
        ({"left": True, "sent": 11.04, "fetched": 11.06}, False, [False, False]),
        ({"client": False}, False, [True, True]),  # no samples of the client
    ],
)
def test_the_record_tells_whether_the_client_waited_before_a_submission(
    changes: dict[str, Any], virtual: bool, waited: list[bool]
) -> None:
    """Two graphs are sent at once, and a third after the first task has ended."""
    rows = [{}, {"stop": 30.0} if changes.get("left") else {}]
    records = tables(*rows)
    if changes.get("client", True):
        records["client"] = {"time": [10.95], "seconds": [9.0], "waits": changes.get("waits", [1])}
    if "fetched" in changes:
        records["events"] = {"topic": ["all"], "time": [changes["fetched"]], "message": ['{"action": "gather"}']}
    times = np.array([9.8, 9.9, changes.get("sent", 11.5)])
    assert sent_after_waiting(records, times, virtual=virtual).tolist() == waited


@pytest.mark.parametrize(("first", "every_s", "waits"), [(10.053, 0.05, 5), (10.042, 0.003, 0)])
def test_a_submission_right_after_another_did_not_wait(first: float, every_s: float, waits: int) -> None:
    """A task ends every 50 ms. A sample shows that the client waits; then it sends five more graphs."""
    rows = [{"start": 10 + 0.05 * i, "stop": 10.05 + 0.05 * i} for i in range(20)]
    times = [9.9 + 0.001 * i for i in range(15)] + [first + every_s * i for i in range(5)]
    records = tables(*rows, sent=[(time, 1) for time in times])
    records["client"] = {"time": [9.0], "seconds": [9.0], "waits": [1]}
    assert sum(each.after >= 0 for each in recorded_graph(records).submissions) == waits


def test_a_submission_that_takes_futures_does_not_wait_for_them() -> None:
    """A second `map` over the futures of the first is sent at once; its record counts what it needs as well."""
    rows = [*({"runnable": 9.1},) * 2, *({"runnable": 11.0, "start": 11.0, "group": "dec-1"},) * 2]
    graph = recorded_graph(tables(*rows, edges=[(2, 0), (3, 1)], sent=[(9.0, 2), (9.5, 4)]))
    assert [task.submission for task in graph.tasks] == [0, 0, 1, 1]
    assert graph.submissions == (Submission(), Submission(-1, 0.5))


def test_a_task_sent_before_the_trial_belongs_to_the_first_submission() -> None:
    records = tables({"graph": 2}, {"graph": 0}, {"graph": 1}, {"graph": 2}, sent=[(9.0, 2), (9.05, 3)])
    assert [task.submission for task in recorded_graph(records).tasks] == [0, 0, 1, 1]


def test_a_record_without_the_graph_of_each_task_raises_capture_error() -> None:
    with pytest.raises(CaptureError, match="older version"):
        recorded_graph(tables({"graph": 0}, {"graph": 0}, sent=[(9.0, 1), (9.5, 1)]))


def sending_tables() -> dict[str, Any]:
    """A task sends two tasks, waits for them, sends one more, and waits; the client's next task needs its result."""
    rows = [
        {"group": "sum-1", "prefix": "sum", "start": 10.0, "stop": 15.0},
        {"runnable": 11.0, "start": 11.0},
        {"runnable": 11.0, "start": 11.5, "stop": 13.0},
        {"runnable": 13.5, "start": 13.5, "stop": 14.5},
        {"runnable": 15.0, "start": 15.0},
    ]
    found = tables(*rows, edges=[(4, 0)], sent=[(9.9, 2), (11.0, 2, "k0"), (13.4, 1, "k0")])
    found["tasks"]["graph"] = [1, 2, 2, 3, 1]
    message = json.dumps({"row": 0, "waits": [[11.0, 13.1, False], [13.4, 14.6, False]]})
    return found | {"events": {"time": [15.0], "topic": ["task-waits"], "message": [message]}}


def test_tasks_sent_by_a_task_form_a_graph_of_their_own() -> None:
    graph = recorded_graph(sending_tables())
    assert [(task.seconds, task.needs, task.secedes) for task in graph.tasks] == [(0.4, (), True), (1.0, (0,), False)]
    inner = graph.tasks[0].sends
    assert inner is not None
    assert [(task.seconds, task.submission) for task in inner.tasks] == [(1.0, 0), (1.5, 0), (1.0, 1)]
    assert inner.submissions == (Submission(pause_s=1.0), Submission(0, 0.3, 0.1, after_all=True))
    changed = graph.changed(lambda each: replace(each, gathered=False))
    assert [changed.gathered, changed.tasks[0].sends and changed.tasks[0].sends.gathered] == [False, False]
    assert RecordedGraph.from_mapping(json.loads(graph.to_json())) == graph


def sharing_tables(parts: int, alone: int, alone_s: float) -> dict[str, Any]:
    """A task sends `parts` of two seconds to its own worker, computes as long, sends one more to another, and waits.

    `alone` tasks ran there meanwhile.
    """
    ends = 10.0 + 2 * parts
    rows = [{"group": "sum-1", "prefix": "sum", "start": 9.0, "stop": ends + 1.0}]
    rows += [{"start": 10.0 + 2 * i, "stop": 12.0 + 2 * i} for i in range(parts)]
    rows += [{"worker": "b", "start": 10.0 + i * alone_s, "stop": 10.0 + (i + 1) * alone_s} for i in range(alone)]
    rows += [{"worker": "b", "start": ends}]
    found = tables(*rows, edges=[], sent=[(8.9, 1), (10.0, parts + alone, "k0"), (ends, 1, "k0")])
    found["workers"] = {"worker": ["", "b"], "nthreads": [1, 1]}
    message = json.dumps({"row": 0, "waits": [[ends, ends + 1.0, False]]})
    return found | {"events": {"time": [20.0], "topic": ["task-waits"], "message": [message]}}


def test_tasks_that_shared_a_core_get_the_time_that_they_would_take_alone() -> None:
    whole = recorded_graph(sharing_tables(3, 3, 1.0))
    (sender,) = whole.tasks
    assert whole.shares_cores
    assert sender.sends is not None
    assert sender.sends.shares_cores
    assert [task.seconds for task in sender.sends.tasks] == [1.0] * 7
    assert [each.pause_s for each in sender.sends.submissions] == [1.0, 3.0]  # alone until 10 s, then one of six


@pytest.mark.parametrize("change", ["cores for all", "threads for all", "thread held"])
def test_tasks_that_did_not_share_a_core_keep_their_recorded_time(change: str) -> None:
    records = sharing_tables(3, 3, 2.0 if change == "cores for all" else 1.0)
    if change == "threads for all":
        records["workers"]["nthreads"] = [2, 1]
    elif change == "thread held":
        records["events"]["message"] = [records["events"]["message"][0].replace("false", "true")]
    whole = recorded_graph(records)
    assert not whole.shares_cores
    inner = whole.tasks[0].sends
    assert inner is not None
    assert sorted(task.seconds for task in inner.tasks)[-3:] == [2.0] * 3
    assert inner.submissions[1].pause_s == 6.0


def test_cores_count_as_shared_when_no_task_ran_alone() -> None:
    assert recorded_graph(sharing_tables(3, 0, 1.0)).shares_cores


@pytest.mark.parametrize("change", ["sender lost", "left alone", "needs another's", "not asked for"])
def test_tasks_that_cannot_be_nested_in_the_task_that_sent_them_count_as_sent_by_the_client(change: str) -> None:
    records = sending_tables()
    if change == "sender lost":
        records["tasks"]["status"][0] = STATUS_LOST
    elif change == "left alone":
        records["tasks"]["stop"][0] = 14.0
    elif change == "needs another's":
        records["dependencies"] = {"task": [4, 4], "needs": [0, 3]}
    graph = recorded_graph(records, nested=change != "not asked for")
    assert len(graph.tasks) == 4 if change == "sender lost" else 5
    assert not any(task.sends for task in graph.tasks)


def test_the_first_tasks_of_a_graph_can_be_cut_out_with_their_dependencies() -> None:
    graph = recorded_graph(tables({}, {"start": 11.0, "runnable": 11.0}, edges=[(1, 0)]))
    assert graph.first(1) == RecordedGraph(("inc",), (RecordedTask(0, 1.0),))
    assert graph.first(5) == graph


def test_a_result_of_unknown_size_counts_as_empty() -> None:
    assert [task.nbytes for task in recorded_graph(tables({"nbytes": 5}, {"nbytes": -1})).tasks] == [5, 0]


def test_the_cpu_share_of_a_stage_comes_from_dasks_own_metrics() -> None:
    records = tables({}, {"prefix": "dec", "group": "dec-1", "start": 11.0})
    assert recorded_graph(records).cpu == ()
    names = {"context": ["execute"] * 3, "prefix": ["inc", "inc", "inc"], "unit": ["seconds"] * 3}
    records["fine_metrics"] = {**names, "activity": ["thread-cpu", "thread-noncpu", "other"], "value": [1.0, 4.0, 9.0]}
    assert recorded_graph(records).cpu == (0.2, 1.0)


def test_results_count_as_gathered_unless_the_events_show_no_gather() -> None:
    records = tables({})
    assert recorded_graph(records).gathered
    records["events"] = {"topic": ["all"] * 2, "time": [0.0] * 2, "message": ['{"action": "other"}', "{}"]}
    assert not recorded_graph(records).gathered
    records["events"]["message"][1] = '{"action": "gather", "count": 3}'
    assert recorded_graph(records).gathered


# ------------------------------------------------------------------ what cannot be replayed


def test_more_tasks_than_the_limit_raise_capture_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_from_records, "MOST_TASKS", 1)
    with pytest.raises(CaptureError, match="2 tasks are too many"):
        recorded_graph(tables({}, {}))


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (tables({}, {"span": 2.0}), "not recorded"),
        (tables({"status": 1}), "no task finished"),
        ({}, "no task finished"),
        (tables({}, {}, edges=[(0, 1), (1, 0)]), "circle"),
    ],
)
def test_records_that_cannot_be_replayed_raise_capture_error(records: dict[str, Any], says: str) -> None:
    with pytest.raises(CaptureError, match=says):
        recorded_graph(records)
