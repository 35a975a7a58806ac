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


def test_busy_threads_are_charged_to_their_tasks_and_nothing_is_lost():
    observation = Cluster(4).run([Task(1.0) for _ in range(8)])
    assert charged(observation) == {("busy", "work"): 8}
    assert blame(observation, 5).lost == {}
    assert kept(observation) == {BLAMED: {}, PASSED_ON: {}}


def test_a_serial_stage_is_charged_with_all_threads_that_wait_for_it():
    wide = [Task(1.0, "load") for _ in range(8)]
    observation = Cluster(8).run([*wide, Task(9.0, "summarise", tuple(range(8)))])
    assert charged(observation) == {
        ("busy", "load"): 8,
        ("busy", "summarise"): 9,
        ("no_runnable_task", "summarise"): 63,
    }
    assert kept(observation) == {BLAMED: {"summarise": pytest.approx(63)}, PASSED_ON: {}}


def test_tasks_that_run_at_once_share_the_charge_for_idle_threads():
    observation = Cluster(5).run([Task(3.0, "a"), Task(3.0, "b"), Task(3.0, "b")])
    assert charged(observation)["no_runnable_task", "a"] == 2
    assert charged(observation)["no_runnable_task", "b"] == 4


def test_the_tail_is_charged_to_the_tasks_that_still_run():
    observation = Cluster(2).run([Task(1.0, "quick"), Task(5.0, "long")])
    assert charged(observation) == {("busy", "quick"): 1, ("busy", "long"): 5, ("no_runnable_task", "long"): 4}


def test_idle_time_beside_unassigned_runnable_tasks_is_charged_to_no_task():
    observation = Cluster(2).run([Task(1.0, on=(0,)) for _ in range(3)])
    assert charged(observation) == {("busy", "work"): 3, ("not_assigned", ""): 2, ("no_runnable_task", "work"): 1}


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


def straggling(*after):
    """Eight loads, one of which takes 5 s instead of 1, and a task for each of them."""
    loads = [Task(5.0 if i == 3 else 1.0, "load") for i in range(8)]
    return [*loads, *(Task(1.0, "process", (i,)) for i in range(8)), *after]


def test_waiting_for_a_late_task_is_charged_to_the_delay_that_made_it_late():
    """`process` takes as long as ever, but seven threads wait a second longer because one load is late."""
    observation = Cluster(8).run(straggling())
    assert charged(observation) == {
        ("busy", "load"): 12,
        ("busy", "process"): 8,
        ("no_runnable_task", "load"): 21,
        ("passed on", "load"): 7,
    }
    assert kept(observation) == {BLAMED: {"load": pytest.approx(28)}, PASSED_ON: {"load": pytest.approx(7)}}


def test_a_delay_is_not_charged_with_waits_that_happen_without_it_too():
    """The serial stage begins late as well, but seven threads would have waited for it anyway."""
    found = charged(Cluster(8).run(straggling(Task(1.0, "reduce", tuple(range(8, 16))))))
    assert found["no_runnable_task", "reduce"] == 7
    assert found["passed on", "load"] == 7


def test_tasks_that_only_run_beside_a_wait_are_not_charged():
    """No thread waits for the tasks beside the long load; without it the next stage would have run beside them."""
    loads = [Task(10.0 if i == 3 else 1.0, "load") for i in range(4)]
    beside = [Task(10.0, "beside") for _ in range(4)]
    found = charged(Cluster(8).run([*loads, *beside, *(Task(10.0, "next", (0, 1, 2, 3)) for _ in range(4))]))
    assert found["no_runnable_task", "load"] == 3 * 9
    assert found["passed on", "load"] == 4 * 9
    assert found["no_runnable_task", "next"] == 4
    assert ("no_runnable_task", "beside") not in found


def test_a_long_transfer_is_charged_to_its_task():
    loads = [Task(1.0, "load", transfer=4.0 * (i == 3)) for i in range(8)]
    found = charged(Cluster(8).run([*loads, *(Task(1.0, "process", (i,)) for i in range(8))]))
    assert found["no_runnable_task", "load"] == 3 * 7
    assert found["passed on", "load"] == 7


def test_the_delay_of_a_queued_task_is_charged_to_the_long_task_before_it():
    """Both tasks were assigned to one worker at the start, and both were runnable."""
    first = [Task(9.0 if i == 0 else 1.0, "first", on=(i,), pinned=False) for i in range(4)]
    found = charged(Cluster(4).run([*first, Task(2.0, "second", on=(0,), pinned=False)]))
    assert found["passed on", "first"] == 3 * 2


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
