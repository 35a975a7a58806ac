"""Every thread is charged to something at every instant, and to what it really waited for."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_records import EPOCH

from scalescope.diagnosis.blame import BETWEEN, INTAKE, OTHER, blame, kept
from scalescope.diagnosis.observation import Observation
from scalescope.model.metrics import WORKER_TIME
from scalescope.model.records import from_rows
from scalescope.model.trial import BLAMED


def called(observation: Observation, begin: float, *rows: tuple[float, str, str]) -> Observation:
    """The same trial with a client that did these things, each so many seconds."""
    client, time = [], EPOCH + begin
    for seconds, where, what in rows:
        client.append({"time": time, "seconds": seconds, "where": where, "what": what})
        time += seconds
    return Observation.of(observation.trial, {**observation.tables, "client": from_rows("client", client)})


def charged(observation: Observation, bins: int = 50) -> dict[tuple[str, str], Any]:
    """Thread-seconds by part and name."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for charge in blame(observation, bins).charges:
        found["held" if charge.held else charge.part, charge.name] += charge.total_s
    return {key: pytest.approx(seconds, abs=1e-6) for key, seconds in found.items() if seconds > 1e-6}


def test_threads_that_are_all_busy_wait_for_nobody(cluster, task):
    observation = cluster(4).run([task(1.0) for _ in range(8)])
    assert charged(observation) == {("busy", "work"): 8}
    assert blame(observation, 5).waited == []
    assert kept(observation) == {BLAMED: {}}


def test_a_serial_stage_is_blamed_for_all_who_wait_for_it(cluster, task):
    wide = [task(1.0, "load") for _ in range(8)]
    observation = cluster(8).run([*wide, task(9.0, "summarise", tuple(range(8)))])
    assert charged(observation) == {
        ("busy", "load"): 8,
        ("busy", "summarise"): 9,
        ("no_runnable_task", "summarise"): 63,
    }
    assert kept(observation) == {BLAMED: {"summarise": pytest.approx(63)}}


def test_tasks_that_run_at_once_share_the_blame(cluster, task):
    observation = cluster(5).run([task(3.0, "a"), task(3.0, "b"), task(3.0, "b")])
    assert charged(observation)["no_runnable_task", "a"] == 2
    assert charged(observation)["no_runnable_task", "b"] == 4


def test_the_tail_is_for_the_tasks_that_still_run(cluster, task):
    observation = cluster(2).run([task(1.0, "quick"), task(5.0, "long")])
    assert charged(observation) == {("busy", "quick"): 1, ("busy", "long"): 5, ("no_runnable_task", "long"): 4}


def test_what_is_runnable_and_not_given_out_is_nobody_s_task(cluster, task):
    observation = cluster(2).run([task(1.0, on=(0,)) for _ in range(3)])
    assert charged(observation) == {("busy", "work"): 3, ("not_assigned", ""): 2, ("no_runnable_task", "work"): 1}


def test_the_client_is_blamed_by_its_line_and_the_scheduler_for_its_intake(cluster, task, graph):
    observation = cluster(2).run(
        [task(1.0, graph=0), task(1.0, graph=0), task(1.0, graph=1)], [graph(), graph(after=0, at=4.0)]
    )
    observation = called(observation, -2, (3.0, "mine.py:7 f", "sleep"), (4.0, "", ""), (2.0, "mine.py:9 f", ""))
    assert charged(observation, 90) == {
        ("busy", "work"): 3,
        ("no_runnable_task", "work"): 1,
        ("client", "sleep at mine.py:7 f"): 4,
        ("client", ""): 8,
        ("client", "mine.py:9 f"): 2,
    }
    tables = dict(observation.tables)
    tables["graphs"] = {**tables["graphs"], "time": array("d", [EPOCH, EPOCH + 2]), "seconds": array("d", [0, 3])}
    found = charged(Observation.of(observation.trial, tables), 90)
    assert found["no_runnable_task", INTAKE] == 6
    assert found["client", ""] == 2


def test_between_two_tasks_the_scheduler_is_blamed(cluster, task):
    rows = [
        {"prefix": name, "group": name, "key": name, "worker": "tcp://10.0.0.0:4000", "runnable": at, "assigned": at}
        | {"start": at, "stop": at + 1.0, "done": at + 3.0}
        for name, at in (("a", 0.0), ("b", 3.0))
    ]
    observation = cluster(2).observe(rows)
    assert charged(observation)["no_runnable_task", BETWEEN] == 4


def test_tasks_that_hold_their_thread_and_wait_are_told_apart(cluster, task):
    waits = {"prefix": "work", "what": "Lock.acquire", "where": "mine.py:1 f", "tasks": 2, "seconds": 3.0}
    observation = cluster(2, events=[(0.0, "waits", waits)]).run([task(2.0), task(2.0), task(4.0, "other")])
    assert charged(observation)["held", "work"] == 3
    assert charged(observation)["busy", "work"] == 1
    assert [(charge.text, charge.state) for charge in blame(observation, 4).waited] == [
        ("other", "idle"),
        ("work", "held"),
    ]


def test_many_prefixes_share_what_is_left(cluster, task):
    observation = cluster(12).run([task(1.0 + i, f"p{i}") for i in range(12)])
    found = charged(observation)
    assert sum(part == "busy" for part, _ in found) == 9
    assert found["busy", OTHER] == 1 + 2 + 3 + 4


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.integers(1, 40))
def test_at_every_instant_all_threads_are_charged_and_by_part_it_is_the_worker_time(
    cluster, task, graph, data, workers, threads, bins
):
    draw = data.draw
    graphs = [graph()] + [graph(after=0, at=1.0, seconds=draw(st.sampled_from([0.0, 2.0])))] * draw(st.booleans())
    tasks = []
    for i in range(draw(st.integers(1, 15))):
        needs = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        number = max([draw(st.integers(0, len(graphs) - 1)), *(tasks[need].graph for need in needs)]) if i else 0
        seconds, transfer = draw(st.sampled_from([0.001, 0.1, 1.0, 7.0])), draw(st.sampled_from([0.0, 0.5]))
        tasks.append(task(seconds, draw(st.sampled_from("abcdefghijk")), tuple(needs), number, transfer=transfer))
    paused = {"action": "worker-status-change", "prev-status": "running", "status": "paused"}
    events = [(draw(st.sampled_from([0.5, 3.0])), "tcp://10.0.0.0:4000", paused)] * draw(st.booleans())
    events += [(0.0, "waits", {"prefix": "a", "seconds": 0.7})] * draw(st.booleans())
    joined = {workers - 1: 2.0} if workers > 1 and draw(st.booleans()) else {}
    asked = draw(st.integers(1, 6))
    made = cluster(workers, threads, joined=joined, gap_s=0.01, events=events, asked=asked)
    observation = made.run(tasks, graphs)
    if draw(st.booleans()):
        end = observation.attempts.makespan + draw(st.sampled_from([0.0, 3.0]))
        begin = -draw(st.sampled_from([0.0, 1.5]))
        observation = called(observation, begin, (1.0, "m.py:1 f", "g"), (end - begin, "", ""))
    found = blame(observation, bins)
    assert all((charge.seconds >= -1e-9).all() for charge in found.charges)
    level = sum(charge.seconds for charge in found.charges) / np.diff(found.edges)
    assert level == pytest.approx(np.full(bins, observation.threads))
    parts = dict.fromkeys(WORKER_TIME, 0.0)
    for charge in found.charges:
        parts[charge.part] += charge.total_s
    expected = observation.worker_time.total()
    expected["no_runnable_task"] += expected.pop("tail")
    assert {part: parts[part] for part in expected} == pytest.approx(expected, abs=1e-6)
