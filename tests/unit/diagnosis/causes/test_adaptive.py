"""Adaptive clusters: workers are retired, and come back when tasks have already waited for them."""

from __future__ import annotations

import pytest
from support.findings import only
from support.small_cluster import Cluster, Graph, Task, address, find

from scalescope.diagnosis.causes import by_code

ADAPTIVE = {"cluster": {"adaptive": {"minimum": 1, "maximum": 4, "interval": 1.0, "wait_count": 3}}}


def retired(when):
    """Three workers leave by request."""
    message = {"action": "remove-worker", "expected": True}
    events = [(when, "all", message | {"worker": address(worker)}) for worker in (1, 2, 3)]
    return {"left": dict.fromkeys((1, 2, 3), when), "events": events}


def two_stages(back=4.0, facts=ADAPTIVE):
    """Eight tasks on 4 workers, a gap of 5 s in which 3 are retired, and 16 tasks; 3 others come `back` s after it."""
    joined = {} if back is None else dict.fromkeys((4, 5, 6), 7.0 + back)
    tasks = [Task(1.0, "crunch", graph=1, on=(0, *joined), pinned=False) for _ in range(16)]
    run = Cluster(7 if joined else 4, joined=joined, asked=4, **retired(4.5))
    return run.run([*[Task(1.0, "look")] * 8, *tasks], [Graph(), Graph(5.0, after=0)], facts=facts)


def test_workers_that_stay_or_leave_while_nobody_needs_them_are_healthy():
    assert not find(Cluster(4).run([Task(1.0)] * 40, facts=ADAPTIVE))
    run = Cluster(4, **retired(6.0)).run([Task(1.0)] * 20 + [Task(1.0, needs=(0,))], facts=ADAPTIVE)
    assert "adaptive-scaling" not in find(run)


@pytest.mark.parametrize("back", [2.0, 4.0, 10.0])
def test_workers_retired_before_the_heavy_stage_are_found_as_adaptive_scaling(back, golden_once):
    golden_once(by_code()["adaptive-scaling"].find(two_stages(back=back)))


def test_adaptive_scaling_rules_out_late_missing_and_died_workers():
    found = find(two_stages())
    assert not {"late-workers", "workers-missing", "worker-died"} & set(found)
    told = {each.what: each.value for each in found["adaptive-scaling"].evidence}
    assert (told["times that workers came back"], told["workers retired"]) == (1, 3)


def test_workers_that_left_by_request_without_replacement_are_missing():
    run = two_stages(back=None, facts={})
    assert by_code()["adaptive-scaling"].find(run) is None
    assert by_code()["workers-missing"].find(run) is not None


def test_an_adaptive_cluster_that_begins_small_is_found_as_adaptive_scaling(golden):
    run = Cluster(4, joined=dict.fromkeys((1, 2, 3), 5.0)).run([Task(1.0)] * 20, facts=ADAPTIVE)
    golden(only(find(run), "adaptive-scaling"))


@pytest.mark.parametrize(("tasks", "found"), [(40, True), (2, False), (4, False)])
def test_an_adaptive_cluster_that_stays_small_while_tasks_wait_is_found(tasks, found, golden):
    """Not where too few tasks wait for all workers that it may have, or for a short time."""
    named = find(Cluster(1).run([Task(1.0)] * tasks, facts=ADAPTIVE)).get("adaptive-scaling")
    assert (named is not None) is found
    golden(*filter(None, [named]))
