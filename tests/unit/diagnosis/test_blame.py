"""Every thread is charged at every instant, and to what it really waited for."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.findings import observed, watched
from support.small_cluster import Cluster, Graph, Task
from support.small_records import EPOCH

from scalescope.diagnosis.blame import BETWEEN, INTAKE, OTHER, blame, kept
from scalescope.diagnosis.observation import Observation
from scalescope.model.metrics import OTHER_CLUSTER, WORKER_TIME
from scalescope.model.records import OTHER_CLUSTER as ELSEWHERE
from scalescope.model.trial import BLAMED, PASSED_ON


def charged(observation: Observation, bins: int = 50) -> dict[tuple[str, str], Any]:
    """Thread-seconds by part and name."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for charge in blame(observation, bins).charges:
        part = "held" if charge.held else "passed on" if charge.passed_on else charge.part
        found[part, charge.text if charge.of_client else charge.name] += charge.total_s
    return {key: pytest.approx(seconds, abs=1e-6) for key, seconds in found.items() if seconds > 1e-6}


def loads(count, long_s, *after, transfer_s=0.0):
    """Loads, the fourth of which takes longer, or fetches for so long, and other tasks."""
    first = [Task(long_s if i == 3 else 1.0, "load", transfer=transfer_s * (i == 3)) for i in range(count)]
    return [*first, *after]


BUSY, WAITED, PASSED = "busy", "no_runnable_task", "passed on"
AFTER_EACH = [Task(1.0, "process", (i,)) for i in range(8)]
SUMMARY = Task(9.0, "summarise", tuple(range(8)))
BESIDE = [*[Task(10.0, "beside")] * 4, *[Task(10.0, "next", (0, 1, 2, 3))] * 4]
QUEUED = [Task(1.0 if i else 9.0, "first", on=(i,), pinned=False) for i in range(4)]
# What is charged: the threads, the tasks, and thread-seconds by part and name; all others are zero where they add up to
# the worker time.
CHARGED = {
    "busy threads": (4, [Task(1.0)] * 8, {(BUSY, "work"): 8}),
    "a serial stage": (
        8,
        loads(8, 1.0, SUMMARY),
        {(BUSY, "load"): 8, (BUSY, "summarise"): 9, (WAITED, "summarise"): 63},
    ),
    "tasks at once, in equal shares": (5, [Task(3.0, name) for name in "abb"], {(WAITED, "a"): 2, (WAITED, "b"): 4}),
    "the tail, to what still runs": (
        2,
        [Task(1.0, "a"), Task(5.0, "b")],
        {(BUSY, "a"): 1, (BUSY, "b"): 5, (WAITED, "b"): 4},
    ),
    "idle time beside tasks that may not run there": (
        *(2, [Task(1.0, on=(0,))] * 3),
        {(BUSY, "work"): 3, ("not_assigned", ""): 2, (WAITED, "work"): 1},
    ),
    # `process` takes as long as ever, but seven threads wait a second longer because one load is late
    "a late task, to what made it late": (
        *(8, loads(8, 5.0, *AFTER_EACH)),
        {(BUSY, "load"): 12, (BUSY, "process"): 8, (WAITED, "load"): 21, (PASSED, "load"): 7},
    ),
    # the serial stage begins late as well, but seven threads would have waited for it anyway
    "waits that happen without the delay": (
        *(8, loads(8, 5.0, *AFTER_EACH, Task(1.0, "reduce", tuple(range(8, 16))))),
        {(WAITED, "reduce"): 7, (PASSED, "load"): 7},
    ),
    # no thread waits for the tasks beside the long load; without it the next stage would have run beside them
    "tasks that only run beside a wait": (
        *(8, loads(4, 10.0, *BESIDE)),
        {(WAITED, "load"): 3 * 9, (PASSED, "load"): 4 * 9, (WAITED, "next"): 4, (WAITED, "beside"): 0},
    ),
    "a long transfer": (8, loads(8, 1.0, *AFTER_EACH, transfer_s=4.0), {(WAITED, "load"): 21, (PASSED, "load"): 7}),
    # both tasks were assigned to one worker at the start, and both were runnable
    "a queued task": (4, [*QUEUED, Task(2.0, "second", on=(0,), pinned=False)], {(PASSED, "first"): 3 * 2}),
}


@pytest.mark.parametrize("case", CHARGED)
def test_threads_are_charged_to_what_they_run_or_wait_for(case):
    threads, tasks, expected = CHARGED[case]
    found = charged(Cluster(threads).run(tasks))
    assert {key: found.get(key, 0) for key in expected} == expected


def test_time_lost_and_the_part_of_it_that_other_tasks_passed_on_are_kept_with_the_trial():
    healthy, late = Cluster(4).run([Task(1.0)] * 8), Cluster(8).run(loads(8, 5.0, *AFTER_EACH))
    assert blame(healthy, 5).lost == {}
    assert kept(healthy) == {BLAMED: {}, PASSED_ON: {}}
    assert kept(late) == {BLAMED: {"load": pytest.approx(28)}, PASSED_ON: {"load": pytest.approx(7)}}


def test_the_client_is_charged_by_line_and_the_scheduler_for_taking_in_graphs():
    observation = Cluster(2).run(
        [Task(1.0, graph=0), Task(1.0, graph=0), Task(1.0, graph=1)], [Graph(), Graph(after=0, at=4.0)]
    )
    observation = watched(
        observation, (3.0, ("mine.py:7 f", "sleep", 0)), (4.0, ("", "", 0)), (2.0, ("mine.py:9 f", "", 0)), begin=-2
    )
    assert charged(observation, 90) == {
        ("busy", "work"): 3,
        ("no_runnable_task", "work"): 1,
        ("client", "the client, sleep at mine.py:7 f"): 4,
        ("client", "the client"): 8,
        ("client", "the client, mine.py:9 f"): 2,
    }
    tables = dict(observation.tables)
    tables["graphs"] = {**tables["graphs"], "time": array("d", [EPOCH, EPOCH + 2]), "seconds": array("d", [0, 3])}
    found = charged(observed(observation.trial, tables), 90)
    assert found["no_runnable_task", INTAKE] == 6
    assert found["client", "the client"] == 2


@pytest.mark.parametrize("bins", [1, 90])
def test_a_graph_that_is_taken_in_before_any_task_is_known_is_charged_to_the_scheduler(bins):
    observation = watched(Cluster(2).run([Task(1.0), Task(1.5)], [Graph()]), (4.5, ("", "", 0)), begin=-3.0)
    tables = dict(observation.tables)
    tables["graphs"] = {**tables["graphs"], "time": array("d", [EPOCH - 2.0]), "seconds": array("d", [2.0])}
    found = charged(observed(observation.trial, tables), bins)
    assert found["no_runnable_task", INTAKE] == 4
    assert found["client", "the client"] == 2


def test_waits_of_the_client_for_another_cluster_are_charged_to_that_cluster():
    run = Cluster(2).run([Task(1.0, graph=i // 2) for i in range(4)], [Graph(), Graph(after=0, at=4.0)])
    away, own = ("mine.py:7 f", ELSEWHERE, 1), ("mine.py:9 f", "sleep", 0)
    observation = watched(run, (1.5, away), (1.0, own), (3.0, away), (3.0, own), begin=-2.0)
    assert charged(observation) == {
        ("busy", "work"): 4,
        (OTHER_CLUSTER, ""): 2 * (1.5 + 2.5),
        ("client", "the client, sleep at mine.py:9 f"): 2 * (0.5 + 1.5 + 0.5),
    }
    assert list(blame(observation, 1).lost) == ["another cluster", "the client, sleep at mine.py:9 f"]


def test_a_wait_for_another_cluster_while_tasks_run_is_not_charged():
    run = Cluster(4).run([Task(1.0, graph=i) for i in range(4)], [Graph(at=0.5 * i) for i in range(4)])
    found = charged(watched(run, *[(0.5, ("mine.py:3 f", ELSEWHERE, 1))] * 4, (0.5, ("", "", 1))))
    assert found == {("busy", "work"): 4, ("no_runnable_task", "work"): 6}


def test_time_between_two_tasks_is_charged_to_the_scheduler():
    rows = [
        {"prefix": name, "group": name, "key": name, "worker": "tcp://10.0.0.0:4000", "runnable": at, "assigned": at}
        | {"start": at, "stop": at + 1.0, "done": at + 3.0}
        for name, at in (("a", 0.0), ("b", 3.0))
    ]
    observation = Cluster(2).observe(rows)
    assert charged(observation)["no_runnable_task", BETWEEN] == 4


def test_waiting_inside_tasks_is_charged_apart_from_their_busy_time():
    waits = {"prefix": "work", "what": "Lock.acquire", "where": "mine.py:1 f", "tasks": 2, "seconds": 3.0}
    observation = Cluster(2, events=[(0.0, "waits", waits)]).run([Task(2.0), Task(2.0), Task(4.0, "other")])
    assert charged(observation)["held", "work"] == 3
    assert charged(observation)["busy", "work"] == 1
    assert list(blame(observation, 4).lost) == ["other", "work"]


def test_the_client_is_charged_while_it_holds_back_what_it_sends_next():
    """The client prepares each task for half a second and never waits for one, so the tasks delay no thread."""
    observation = Cluster(4).run([Task(1.0, graph=i) for i in range(10)], [Graph(at=0.5 * i) for i in range(10)])
    found = charged(watched(observation, (4.5, ("mine.py:3 f", "prepare", 0)), (1.0, ("", "", 1))))
    preparing = "the client, prepare at mine.py:3 f"
    assert found == {("busy", "work"): 10, ("no_runnable_task", preparing): 9.5, ("passed on", preparing): 2.5}


def test_a_client_that_waits_for_each_result_is_not_charged():
    observation = Cluster(4).run([Task(1.0, graph=i) for i in range(3)], [Graph(at=float(i)) for i in range(3)])
    found = charged(watched(observation, *[(1.0, ("mine.py:3 f", "result", 1))] * 3))
    assert found == {("busy", "work"): 3, ("no_runnable_task", "work"): 9}


def test_the_smallest_of_many_prefixes_are_charged_together():
    observation = Cluster(12).run([Task(1.0 + i, f"p{i}") for i in range(12)])
    found = charged(observation)
    assert sum(part == "busy" for part, _ in found) == 9
    assert found["busy", OTHER] == 1 + 2 + 3 + 4


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.integers(1, 40))
def test_every_thread_is_always_charged_and_the_parts_add_up_to_the_worker_time(data, workers, threads, bins):
    draw = data.draw
    graphs = [Graph()] + [Graph(after=0, at=1.0, seconds=draw(st.sampled_from([0.0, 2.0])))] * draw(st.booleans())
    tasks = []
    for i in range(draw(st.integers(1, 15))):
        needs = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        number = max([draw(st.integers(0, len(graphs) - 1)), *(tasks[need].graph for need in needs)]) if i else 0
        seconds, transfer = draw(st.sampled_from([0.001, 0.1, 1.0, 7.0])), draw(st.sampled_from([0.0, 0.5]))
        tasks.append(Task(seconds, draw(st.sampled_from("abcdefghijk")), tuple(needs), number, transfer=transfer))
    paused = {"action": "worker-status-change", "prev-status": "running", "status": "paused"}
    events = [(draw(st.sampled_from([0.5, 3.0])), "tcp://10.0.0.0:4000", paused)] * draw(st.booleans())
    events += [(0.0, "waits", {"prefix": "a", "seconds": 0.7})] * draw(st.booleans())
    joined = {workers - 1: 2.0} if workers > 1 and draw(st.booleans()) else {}
    asked = draw(st.integers(1, 6))
    made = Cluster(workers, threads, joined=joined, gap_s=0.01, events=events, asked=asked)
    observation = made.run(tasks, graphs)
    if draw(st.booleans()):
        end = observation.attempts.makespan + draw(st.sampled_from([0.0, 3.0]))
        begin = -draw(st.sampled_from([0.0, 1.5]))
        waits, what = draw(st.integers(0, 1)), draw(st.sampled_from(["g", ELSEWHERE]))
        rows = (1.0, ("m.py:1 f", what, what != "g")), (end - begin, ("", "", waits))
        observation = watched(observation, *rows, begin=begin)
    found = blame(observation, bins)
    assert all((charge.seconds >= -1e-9).all() for charge in found.charges)
    assert all(0 <= passed_on_s <= total_s + 1e-9 for total_s, passed_on_s in found.lost.values())
    level = sum(charge.seconds for charge in found.charges) / np.diff(found.edges)
    assert level == pytest.approx(np.full(bins, observation.threads))
    parts = dict.fromkeys(WORKER_TIME, 0.0)
    for charge in found.charges:
        parts[charge.part] += charge.total_s
    expected = dict(observation.worker_time_s)
    expected["no_runnable_task"] += expected.pop("tail")
    assert {part: parts[part] for part in expected} == pytest.approx(expected, abs=1e-6)
