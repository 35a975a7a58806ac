"""Waits of tasks, recorded on real clusters whose workers are threads or processes."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import pytest
from distributed import (
    Client,
    Event,
    LocalCluster,
    Lock,
    Queue,
    Semaphore,
    Variable,
    as_completed,
    get_client,
    get_task_stream,
    performance_report,
    secede,
    utils,
    worker_client,
)
from support.waiting import wait_for

from scalescope.capture.partition_calls import noted
from scalescope.capture.recording import Capture
from scalescope.model import spool

Wait = dict[str, Any]


class Counter:
    def add(self) -> int:
        time.sleep(0.05)
        return 1


def work(_: int) -> None:
    time.sleep(0.02)


def seceding(_: int) -> None:
    secede()
    with Semaphore(max_leases=1, name="seceded"):
        time.sleep(0.05)


def semaphore(_: int) -> None:
    with Semaphore(max_leases=1, name="one"):
        time.sleep(0.05)


def locks(_: int) -> None:
    with Lock("file"):
        time.sleep(0.05)


def queue(_: int) -> None:
    Queue("items").get()


def variable(_: int) -> None:
    Variable("setting").get()


def event(_: int) -> None:
    Event("go").wait()


def actors(counter: Any) -> None:
    counter.add().result()


def futures(_: int) -> None:
    get_client().submit(time.sleep, 0.1, pure=False).result()


def nested(_: int) -> None:
    with worker_client() as inner:
        first = inner.submit(time.sleep, 0.1, pure=False)
        time.sleep(0.05)
        list(as_completed([first, *inner.map(time.sleep, [0.1] * 2, pure=False)]))


def executing(dask_worker: Any) -> int:
    return len(dask_worker.state.executing)


@pytest.fixture
def told(client: Client, tmp_path: Path) -> Callable[..., list[Wait]]:
    """Runs tasks in a trial and `then` in the middle of it; returns the recorded waits, longest first."""
    return lambda *given, **options: _told(client, tmp_path, *given, **options)


def _told(
    client: Client, folder: Path, function: Any, items: Any = range(2), then: Callable[[], None] | None = None
) -> list[Wait]:
    capture = Capture(client, drain_interval_s=0.05)
    try:
        with capture.trial(folder / "spool") as recording:
            workers = sorted(client.nthreads())  # one after the other: tasks that never end are not stolen
            sent = [
                client.submit(function, item, pure=False, workers=None if then is None else [workers[i % len(workers)]])
                for i, item in enumerate(items)
            ]
            if then is not None:
                wait_for(lambda: sum(client.run(executing).values()) == len(sent), "not all tasks run", look_s=0.01)
                time.sleep(0.2)
                then()
            distributed.wait(sent, timeout=60)
            client.gather(sent)
        assert (recording.complete, recording.reason) == (True, "")
    finally:
        capture.close()
    return sorted(_events(folder, "waits"), key=lambda wait: -float(wait["seconds"]))


def _events(folder: Path, topic: str) -> list[Any]:
    events = spool.read(folder / "spool")["events"]
    return [json.loads(text) for name, text in zip(events["topic"], events["message"], strict=True) if name == topic]


# ------------------------------------------------------------------ healthy


def test_tasks_that_never_wait_are_not_recorded_as_waiting(told: Any) -> None:
    assert told(work, range(20)) == []


def test_waits_of_tasks_that_seceded_are_not_recorded(told: Any) -> None:
    assert told(seceding, range(6)) == []


def test_closing_the_capture_restores_the_functions_that_wait(client: Client, tmp_path: Path) -> None:
    before = utils.SyncMethodMixin.sync.__code__, distributed.actor.sync.__code__
    capture = Capture(client, drain_interval_s=0.05)
    assert utils.SyncMethodMixin.sync.__code__ is not before[0]
    capture.close()
    assert (utils.SyncMethodMixin.sync.__code__, distributed.actor.sync.__code__) == before


def test_dasks_task_stream_and_report_show_no_steps_of_ours(told: Any, client: Client, tmp_path: Path) -> None:
    with performance_report(str(tmp_path / "report.html")), get_task_stream(client) as stream:
        assert told(semaphore, range(6))[0]["what"] == "Semaphore.__enter__"
    actions = {step["action"] for task in stream.data for step in task["startstops"]}
    assert "compute" in actions
    assert not [action for action in actions if action.startswith("scalescope")]
    assert (tmp_path / "report.html").stat().st_size > 1_000


# ------------------------------------------------------------------ what is waited for


def line(function: Any, text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    return f"test_waits.py:{first + next(n for n, each in enumerate(lines) if text in each)} in {function.__name__}"


@pytest.mark.parametrize(("function", "what", "text"), [(semaphore, "Semaphore", "with "), (locks, "Lock", "with ")])
def test_waits_for_semaphores_and_locks_are_recorded_with_their_line(
    told: Any, function: Any, what: str, text: str
) -> None:
    began = time.monotonic()
    found = told(function, range(6))[0]
    both_threads_s = 2 * (time.monotonic() - began)
    assert found["what"] == f"{what}.__enter__"
    assert (found["prefix"], found["where"]) == (function.__name__, line(function, text))
    assert 2 <= found["tasks"] <= 6
    assert 0.1 <= found["seconds"] <= both_threads_s  # six tasks on two threads: one always waits for the other


@pytest.mark.parametrize(
    ("function", "what", "then"),
    [
        (queue, "Queue.get", lambda: [Queue("items").put(i) for i in range(2)]),
        (variable, "Variable.get", lambda: Variable("setting").set(1)),
        (event, "Event.wait", lambda: Event("go").set()),
    ],
)
def test_waits_for_queues_variables_and_events_are_recorded(told: Any, function: Any, what: str, then: Any) -> None:
    found = told(function, range(2), then)[0]
    assert (found["prefix"], found["what"], found["tasks"]) == (function.__name__, what, 2)
    assert found["seconds"] >= 0.2


def test_waits_for_an_actor_are_recorded_with_their_line(told: Any, client: Client) -> None:
    counter = client.submit(Counter, actor=True, workers=[next(iter(client.scheduler_info()["workers"]))]).result()
    found = told(actors, [counter] * 4)[0]
    assert (found["what"], found["where"]) == ("ActorFuture.result", line(actors, "result"))


def test_waits_for_results_of_other_tasks_are_recorded_with_their_line(told: Any) -> None:
    found = told(futures, range(1))[0]
    assert (found["what"], found["where"]) == ("Future.result", line(futures, "result"))
    assert found["seconds"] >= 0.1


@pytest.mark.parametrize(("function", "held", "graphs"), [(nested, False, 2), (futures, True, 1)])
def test_the_record_tells_when_a_task_sent_tasks_and_when_it_waited(
    told: Any, tmp_path: Path, function: Any, held: bool, graphs: int
) -> None:
    told(function, range(1))
    (found,) = _events(tmp_path, "task-waits")
    tasks = spool.read(tmp_path / "spool")["tasks"]
    assert tasks["prefix"][found["row"]] == function.__name__
    assert {each for *_, each in found["waits"]} == {held}
    begin, end = found["waits"][0][0], found["waits"][-1][1]
    start, stop = tasks["start"][found["row"]], tasks["stop"][found["row"]] + 0.01
    assert 0.1 <= sum(end - begin for begin, end, _ in found["waits"]) <= stop - start
    assert start <= begin <= end <= stop
    sent = spool.read(tmp_path / "spool")["graphs"]
    own = [i for i, key in enumerate(sent["task"], 1) if key]
    assert {sent["task"][i - 1] for i in own} == {tasks["key"][found["row"]]}
    assert [list(tasks["graph"]).count(i) for i in own] == ([1, 2] if graphs == 2 else [1])
    assert all(sent["time"][i - 1] <= end for i in own)


def test_waits_of_tasks_that_send_tasks_are_recorded_while_partition_calls_are_recorded_too(
    told: Any, tmp_path: Path
) -> None:
    told(futures, range(1))
    with noted(()):
        told(futures, range(1))
        assert len(_events(tmp_path, "task-waits")) == 1


def test_waits_are_recorded_on_workers_that_are_processes(tmp_path: Path) -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        found = _told(client, tmp_path, semaphore, range(6))[0]
    assert (found["prefix"], found["what"]) == ("semaphore", "Semaphore.__enter__")
