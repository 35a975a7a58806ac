from __future__ import annotations

from dataclasses import replace

import pytest
from support.findings import only
from support.small_cluster import Cluster, Graph, Task, find, standing

from scalescope.model.finding import Severity
from scalescope.model.standstill import StandingTasks, Standstill


def wait(what, seconds, tasks=20, prefix="load", where="mine.py:7 in load"):
    message = {"prefix": prefix, "what": what, "where": where, "tasks": tasks, "seconds": seconds}
    return (1_100.0, "waits", message)


def test_a_little_waiting_is_healthy():
    assert not find(Cluster(8, events=[wait("Lock.__enter__", 7.0)]).run([Task(1.0)] * 80))


@pytest.mark.parametrize(("workers", "threads"), [(4, 1), (8, 4), (100, 2)])
@pytest.mark.parametrize("share", [0.11, 0.2, 0.5, 0.95])
def test_tasks_that_wait_for_a_semaphore_are_found_as_waiting_tasks(workers, threads, share, golden_once):
    count = 10 * workers * threads
    found = find(
        Cluster(workers, threads, events=[wait("Semaphore.__enter__", share * count)]).run([Task(1.0)] * count)
    )
    assert list(found) == ["waiting-tasks"]
    finding = golden_once(found["waiting-tasks"])
    assert finding.lost_s == pytest.approx(share * count)
    assert finding.severity is (Severity.HIGH if share >= 0.3 else Severity.MEDIUM)


def test_the_line_with_most_waiting_is_named(golden):
    events = [wait("Queue.get", 10.0), wait("Event.wait", 40.0, 1, "go", ""), wait("Queue.get", 9.0, 3, "other")]
    assert golden(find(Cluster(8, events=events).run([Task(1.0)] * 80))["waiting-tasks"]).lost_s == pytest.approx(59.0)


def test_waits_that_vary_are_not_found_as_skew_nor_waits_for_own_tasks_as_waiting_tasks():
    tasks = [Task(0.2 * (1 + i % 8)) for i in range(40)]
    assert list(find(Cluster(8, events=[wait("Lock.__enter__", 20.0)]).run(tasks))) == ["waiting-tasks"]
    tasks = [*[Task(10.0, "outer")] * 8, *[Task(0.5, "inner", graph=1)] * 8]
    nested = Cluster(9, events=[wait("Future.result", 70.0, 8, "outer")])
    assert "waiting-tasks" not in find(nested.run(tasks, [Graph(), Graph(1.0, client="Client-worker-1")]))


@pytest.mark.parametrize(
    ("what", "where"),
    [
        pytest.param("Lock.acquire", "core.py:4814 in load_store_chunk", id="the lock of store"),
        pytest.param("Newcomer.join", "mine.py:7 in load", id="an unknown kind"),
    ],
)
def test_the_lock_of_dask_array_store_and_a_wait_of_unknown_kind_have_remedies_of_their_own(what, where, golden):
    run = Cluster(8, events=[wait(what, 40.0, where=where)]).run([Task(1.0)] * 80)
    golden(find(run)["waiting-tasks"])


# ------------------------------------------------------------------ trials that were stopped

LOCKED = StandingTasks("load", 3, True, "mine.py:7 in load", "__enter__ (semaphore.py)", "Semaphore", "", 3)
HOLDER = StandingTasks("write", 1, True, "mine.py:9 in write", "write (h5py.py)", "", "", 0)
STOPPED = Standstill(52.0, 4, 4, 9, 5, 0, (LOCKED, HOLDER))


def test_a_standstill_at_a_lock_is_found_as_waiting_tasks(golden):
    golden(only(find(standing(Cluster(4), STOPPED)), "waiting-tasks"))


@pytest.mark.parametrize(
    "stopped",
    [
        replace(STOPPED, still_s=1.0),
        replace(STOPPED, computing=1),
        replace(STOPPED, groups=(HOLDER,)),
        replace(STOPPED, groups=(replace(LOCKED, tasks=1), replace(HOLDER, tasks=3))),  # most do something else
    ],
)
def test_a_stopped_trial_whose_tasks_do_not_wait_is_not_found_as_waiting_tasks(stopped):
    assert not find(standing(Cluster(4), stopped))
