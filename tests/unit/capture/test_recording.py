"""Trials on a real scheduler: the record is complete, or says what it lacks."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import random
import re
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array
import dask.bag
import numpy as np
import pytest
from dask.utils import key_split
from distributed import Client, LocalCluster, fire_and_forget, wait
from support.waiting import wait_for

from scalescope.capture import recorder, recording
from scalescope.capture.recorder import fused_steps
from scalescope.capture.recording import Capture
from scalescope.errors import CaptureError
from scalescope.model import spool
from scalescope.model.records import AGAIN, LONGEST, SCATTERED, STATUS_ERRED, STATUS_FINISHED, Columns

FULL_DISK = Path("/dev/full")

Rows = Callable[[Columns], list[dict[str, Any]]]


@pytest.fixture
def capture(client: Client) -> Iterator[Capture]:
    installed = Capture(client, drain_interval_s=0.05)
    yield installed
    installed.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trial.spool"


def inc(x: int) -> int:
    return x + 1


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fail(text: str) -> None:
    time.sleep(0.01)
    raise ValueError(text)


# ---------------------------------------------------------------- healthy


def test_every_task_of_a_trial_is_in_its_record(client: Client, capture: Capture, path: Path, rows: Rows) -> None:
    with capture.trial(path) as recording:
        futures = client.map(inc, range(500), pure=False)
        client.gather(futures)
    assert (recording.complete, recording.reason, recording.warnings) == (True, "", [])
    assert recording.tasks == 500
    tasks = rows(spool.read(path)["tasks"])
    assert {task["status"] for task in tasks} == {STATUS_FINISHED}
    assert sorted(task["key"] for task in tasks) == sorted(str(future.key) for future in futures)
    workers = set(client.scheduler_info()["workers"])
    assert {task["prefix"] for task in tasks} == {"inc"}
    for task in tasks:
        assert task["worker"] in workers
        assert recording.t_begin <= task["runnable"] <= task["assigned"] <= task["start"] <= task["stop"]
        assert task["stop"] <= task["done"] <= recording.t_end + 1
        assert task["thread"]
        assert task["nbytes"] > 0
    assert recording.clock_error_s == 0.0
    assert 0 < recording.received_bytes <= path.stat().st_size


def test_spans_of_real_tasks_follow_their_dependencies(
    client: Client, capture: Capture, path: Path, rows: Rows
) -> None:
    with capture.trial(path):
        first, second = client.submit(nap, 0.03, key="first"), client.submit(nap, 0.01, key="second")
        third = client.submit(max, first, second, key="third")
        fourth = client.submit(max, third, second, 0.0, key="fourth")
        assert fourth.result() == 0.03
    tasks = {task["key"]: task for task in rows(spool.read(path)["tasks"])}
    seconds = {key: task["stop"] - task["start"] for key, task in tasks.items()}
    assert tasks["first"]["span"] == pytest.approx(seconds["first"])
    joined = seconds["third"] + max(seconds["first"], seconds["second"])
    assert tasks["third"]["span"] == pytest.approx(joined)
    assert tasks["fourth"]["span"] == pytest.approx(joined + seconds["fourth"])
    assert tasks["third"]["runnable"] >= max(tasks["first"]["stop"], tasks["second"]["stop"])


def test_the_record_of_a_trial_holds_only_its_own_tasks(client: Client, capture: Capture, tmp_path: Path) -> None:
    client.gather(client.map(inc, range(10), pure=False))
    counts = []
    for number, tasks in enumerate([20, 30]):
        with capture.trial(tmp_path / f"{number}.spool") as recording:
            client.gather(client.map(inc, range(tasks), pure=False))
        client.gather(client.map(inc, range(10), pure=False))
        assert recording.complete
        counts.append(len(spool.read(tmp_path / f"{number}.spool")["tasks"]["key"]))
    assert counts == [20, 30]


def test_fetching_records_only_at_the_end_starts_no_thread(client: Client, path: Path) -> None:
    capture = Capture(client, drain_interval_s=None)
    before = set(threading.enumerate())
    with capture.trial(path) as recording:
        client.gather(client.map(inc, range(50), pure=False))
        started = {thread.name for thread in set(threading.enumerate()) - before}
    capture.close()
    assert "scalescope-drain" not in started
    assert recording.complete
    tables = spool.read(path)
    assert len(tables["tasks"]["key"]) == 50
    assert "lag" not in tables


def test_queued_tasks_are_runnable_before_they_are_assigned(
    client: Client, capture: Capture, path: Path, rows: Rows
) -> None:
    with capture.trial(path):
        wait(client.map(nap, [0.01] * 40, pure=False))
    tasks = rows(spool.read(path)["tasks"])
    assert max(task["assigned"] - task["runnable"] for task in tasks) > 0.05
    assert max(task["runnable"] for task in tasks) < min(task["stop"] for task in tasks)


def test_workers_events_and_lag_are_in_the_record(
    client: Client, cluster: LocalCluster, capture: Capture, path: Path, rows: Rows
) -> None:
    with capture.trial(path) as recording:
        client.log_event("phase", {"name": "load", "seconds": 1.5})
        cluster.scale(3)
        client.wait_for_workers(3, timeout=60)  # a worker that fails to start is never tried again
        (name,) = set(cluster.workers) - {0, 1}
        newcomer = cluster.workers[name].address
        client.retire_workers([newcomer])
        cluster.scale(2)
        client.run_on_scheduler(time.sleep, 0.2)
        client.gather(client.map(inc, range(10), pure=False))
    tables = spool.read(path)
    workers = {worker["worker"]: worker for worker in rows(tables["workers"])}
    assert len(workers) == 3
    assert {worker["nthreads"] for worker in workers.values()} == {1}
    assert recording.workers_left == [newcomer]
    assert recording.t_begin < workers[newcomer]["joined"] < workers[newcomer]["left"]
    assert workers[newcomer]["reason"]
    assert [worker["left"] for address, worker in workers.items() if address != newcomer] == [0.0, 0.0]
    phases = [json.loads(event["message"]) for event in rows(tables["events"]) if event["topic"] == "phase"]
    assert phases == [{"name": "load", "seconds": 1.5}]
    assert max(tables["lag"]["seconds"]) >= 0.15
    assert set(tables["lag"]["process"]) == {"scheduler"}


async def read_gpu(worker: Any) -> int:
    await asyncio.sleep(1)
    return 1


@pytest.mark.parametrize(
    ("trials", "metrics"),
    [
        pytest.param(1, {}, marks=pytest.mark.thorough),
        pytest.param(2, {}, marks=pytest.mark.thorough),
        (2, {"gpu": read_gpu}),
    ],
)
def test_metrics_of_the_last_tasks_are_in_the_record(
    tmp_path: Path, rows: Rows, trials: int, metrics: dict[str, Any]
) -> None:
    """The next heartbeat of the workers would come too late, and metrics of the previous trial must not count."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", metrics=metrics) as cluster,
        Client(cluster) as client,
    ):
        capture = Capture(client)
        for number in range(trials):
            with capture.trial(tmp_path / f"{number}.spool"):
                client.gather(client.map(nap, [0.01] * 20, pure=False))
        capture.close()
    metrics = rows(spool.read(tmp_path / f"{trials - 1}.spool")["fine_metrics"])
    waited = [row["value"] for row in metrics if row["activity"] == "thread-noncpu"]
    assert 0.1 <= sum(waited) < 0.4
    assert {row["prefix"] for row in metrics if row["context"] == "execute"} == {"nap"}


# ---------------------------------------------------------------- workloads that fail


def test_errors_and_retries_become_rows_and_events(client: Client, capture: Capture, path: Path, rows: Rows) -> None:
    with capture.trial(path) as recording:
        failing = client.submit(fail, "no such file", retries=2, pure=False)
        dependent = client.submit(inc, failing, pure=False)
        wait(dependent)
    assert (recording.complete, recording.reason) == (True, "")
    assert recording.tasks == 3
    tables = spool.read(path)
    attempts = sorted(rows(tables["tasks"]), key=lambda task: task["assigned"])
    assert [(task["status"], task["retries"]) for task in attempts] == [(STATUS_ERRED, n) for n in range(3)]
    assert all(task["stop"] - task["start"] > 0.005 for task in attempts)
    errors = [json.loads(event["message"]) for event in rows(tables["events"]) if event["topic"] == "task-erred"]
    assert [error["exception"] for error in errors] == ["ValueError('no such file')"] * 3
    assert {error["key"] for error in errors} == {failing.key}


def test_the_longest_task_of_a_prefix_is_recorded_with_its_call_and_arguments(
    client: Client, capture: Capture, path: Path, rows: Rows
) -> None:
    def load(number: int, again: object = None, *, unit: str = "s") -> None:
        time.sleep(0.06 if number < 7 else 0.8)

    with capture.trial(path):
        futures = [client.submit(load, number, unit="s", pure=False) for number in (1, 7, 2)]
        client.gather(futures)
        key = futures[1].key
        del futures  # the scheduler forgets them, as it does after `dask.compute`
        client.gather(client.submit(time.sleep, 0.01))
    events = [event for event in rows(spool.read(path)["events"]) if event["topic"] == LONGEST]
    assert [json.loads(event["message"]) for event in events] == [{"key": key, "call": "load(7, unit='s')"}]


def test_a_step_that_dask_fused_into_another_task_is_recognised_when_it_runs_again(
    client: Client, capture: Capture, path: Path, rows: Rows
) -> None:
    def load(part: Any) -> Any:
        time.sleep(0.06)
        return part

    with capture.trial(path):
        data = dask.array.ones(400, chunks=100).map_blocks(load, meta=np.ones(0))
        data.min().compute(scheduler=client)
        data[:100].min().compute(scheduler=client)
        dask.array.ones(400, chunks=200).map_blocks(load, meta=np.ones(0)).min().compute(scheduler=client)
    told = [json.loads(each["message"]) for each in rows(spool.read(path)["events"]) if each["topic"] == AGAIN]
    ((step, tasks),) = [(each["step"], each["tasks"]) for each in told]
    assert (step, tasks) == ("load", 1)
    assert 0.05 < told[0]["seconds"] < 10


def sampled(size: int) -> float:
    time.sleep(0.06)
    return random.random() * size


def replica(size: int) -> float:
    return sampled(size)


@pytest.mark.parametrize(("function", "equal"), [(nap, 4), (replica, 0)])
def test_equal_calls_under_random_keys_are_recorded_unless_the_function_name_suggests_randomness(
    client: Client, capture: Capture, path: Path, rows: Rows, function: Any, equal: int
) -> None:
    with capture.trial(path):
        dask.compute(*(dask.delayed(function)(size) for size in (0.06, 0.07) for _ in range(3)), scheduler=client)
        client.gather([client.submit(function, 0.08, key=f"mine-{number}") for number in range(2)])
    told = [json.loads(each["message"]) for each in rows(spool.read(path)["events"]) if each["topic"] == AGAIN]
    assert [(each["prefix"], each["tasks"], each["calls"]) for each in told] == [(function.__name__, equal, 2)] * bool(
        equal
    )


def test_fused_steps_are_named_last_step_first_in_whatever_order_dask_keeps_them() -> None:
    bag = dask.bag.from_sequence(range(4), npartitions=2).map(str).map(len)
    array = dask.array.ones(4, chunks=2).map_blocks(abs).map_blocks(np.sqrt).min()
    for collection in (bag.count(), array):
        (graph,) = dask.optimize(collection)
        steps = [fused_steps(key, task) for key, task in dict(graph.__dask_graph__()).items()]
        last, *_, first = next(map(key_split, names) for names in steps if names)
        assert (last, first) in (("count-part", "from_sequence"), ("sqrt", "ones_like"))


@pytest.mark.parametrize("direct", [False, True])
def test_scattered_data_is_recorded_with_the_tasks_that_needed_it(
    client: Client, capture: Capture, path: Path, rows: Rows, direct: bool
) -> None:
    before = client.scatter(b"1" * 3_000, hash=False)
    with capture.trial(path):
        piece = client.scatter(b"2" * 100_000, hash=False, direct=direct)
        spread = client.scatter(b"3" * 5_000, hash=False, broadcast=True)
        futures = [client.submit(lambda *parts: len(parts), piece, i, pure=False) for i in range(500)]
        futures.append(client.submit(lambda *parts: len(parts), before, spread, pure=False))
        client.gather(futures)
    assert {"scatter", "update_data"} <= set(client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.handlers))
    tables = spool.read(path)
    told = [json.loads(each["message"]) for each in rows(tables["events"]) if each["topic"] == SCATTERED]
    needed: dict[int, int] = Counter()
    for each in told:
        needed[each["nbytes"] // 1000] += len(each["rows"])
    assert needed == {100: 500, 5: 1, 3: 1}
    workers = {each["nbytes"] // 1000: each["workers"] for each in told}
    assert workers == {100: 1, 5: len(client.nthreads()), 3: 0}
    last = [row for each in told if each["nbytes"] < 90_000 for row in each["rows"]]
    assert {tables["tasks"]["key"][row] for row in last} == {futures[-1].key}


def test_closing_the_capture_restores_the_handlers_of_the_scheduler(client: Client) -> None:
    def handlers(dask_scheduler: Any) -> dict[str, str]:
        every = {**dask_scheduler.handlers, **dask_scheduler.stream_handlers}
        return {name: repr(handler) for name, handler in every.items()}

    before = client.run_on_scheduler(handlers)
    installed = Capture(client)
    changed = client.run_on_scheduler(handlers)
    installed.close()
    assert {"scatter", "update_data", "task-erred", "update-graph"} <= {n for n in before if before[n] != changed[n]}
    assert client.run_on_scheduler(handlers) == before


def test_time_of_full_garbage_collections_of_the_scheduler_is_recorded(
    client: Client, capture: Capture, path: Path, rows: Rows
) -> None:
    callbacks = list(gc.callbacks)
    with capture.trial(path):
        began = time.monotonic()
        while time.monotonic() < began + 1.2:  # its monitor takes a sample each half second
            client.run_on_scheduler(gc.collect)
    memory = rows(spool.read(path)["memory"])
    assert sum(each["collecting"] for each in memory if each["worker"] == "scheduler") > 0
    assert gc.callbacks == callbacks


def test_tasks_of_a_failed_workload_are_kept_in_the_record(client: Client, capture: Capture, path: Path) -> None:
    recordings = []

    def workload() -> None:
        with capture.trial(path) as recording:
            recordings.append(recording)
            client.gather(client.map(inc, range(20), pure=False))
            raise RuntimeError("workload")

    with pytest.raises(RuntimeError, match="workload"):
        workload()
    (recording,) = recordings
    assert recording.complete
    assert len(spool.read(path)["tasks"]["key"]) == 20


def test_an_interrupted_trial_does_not_wait_for_its_tasks(client: Client, capture: Capture, path: Path) -> None:
    recordings = []

    def workload() -> None:
        with capture.trial(path) as recording:
            recordings.append(recording)
            fire_and_forget(client.submit(nap, 1.0, pure=False))
            wait_until_running(client)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workload()
    (recording,) = recordings
    assert recording.warnings[0].startswith("1 task still ran")
    assert recording.complete


def test_a_task_that_outlives_its_trial_warns_in_both_trials(client: Client, capture: Capture, tmp_path: Path) -> None:
    capture.settle_s = 0.05
    with capture.trial(tmp_path / "first") as first:
        fire_and_forget(client.submit(nap, 0.6, key="straggler"))
        wait_until_running(client)
    capture.settle_s = 5.0
    with capture.trial(tmp_path / "second") as second:
        client.submit(inc, 1, pure=False).result()
        while client.run_on_scheduler(lambda dask_scheduler: "straggler" in dask_scheduler.tasks):
            time.sleep(0.02)
    assert [each.rpartition(" ")[2] for each in first.warnings] == ["straggler"]
    assert [each.partition(" ended")[0] for each in second.warnings] == ["1 earlier task"]
    assert (first.tasks, second.tasks) == (0, 1)
    assert first.complete
    assert second.complete


# ---------------------------------------------------------------- captures that fail


def test_answers_lost_on_the_way_lose_no_task(
    client: Client, capture: Capture, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, count = capture._call, Counter[str]()

    def unreliable(command: str, **arguments: Any) -> Any:
        count[command] += 1
        if command == "drain" and count[command] % 2:
            call(command, **arguments)  # the scheduler answered, the answer was lost
            raise OSError("connection reset")
        return call(command, **arguments)

    monkeypatch.setattr(capture, "_call", unreliable)
    with capture.trial(path) as recording:
        for _ in range(5):
            client.gather(client.map(inc, range(20), pure=False))
            time.sleep(0.06)
    assert (recording.complete, recording.tasks) == (True, 100)
    assert count["drain"] >= 4
    assert len(set(spool.read(path)["tasks"]["key"])) == 100


def test_a_lost_chunk_makes_the_record_incomplete(
    client: Client, capture: Capture, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalescope.capture.recording._Run._store", lambda run, chunk: None)
    with capture.trial(path) as recording:
        client.gather(client.map(inc, range(20), pure=False))
    assert not recording.complete
    assert recording.reason.startswith("20 of 20 task")


def test_an_attempt_that_the_recorder_missed_makes_the_record_incomplete(
    client: Client, capture: Capture, path: Path
) -> None:
    def lose_one(dask_scheduler: Any) -> None:
        recorder = dask_scheduler.plugins["scalescope-recorder"]
        recorder.attempts.pack()
        recorder.attempts.running.popitem()

    with capture.trial(path) as recording:
        future = client.submit(nap, 0.3, pure=False)
        wait_until_running(client)
        client.run_on_scheduler(lose_one)
        future.result()
    assert not recording.complete
    assert re.findall(r"\d+", recording.reason) == ["1", "0"]  # assigned, recorded


def test_a_second_recorder_makes_the_record_of_the_first_incomplete(
    client: Client, capture: Capture, path: Path, tmp_path: Path
) -> None:
    with capture.trial(path) as recording:
        client.gather(client.map(inc, range(5), pure=False))
        other = Capture(client, drain_interval_s=None)
        with other.trial(tmp_path / "other") as undisturbed:
            client.gather(client.map(inc, range(5), pure=False))
            time.sleep(0.1)
        assert undisturbed.complete
    other.close()
    assert not recording.complete
    assert "another client" in recording.reason


@pytest.mark.skipif(not FULL_DISK.exists(), reason="this platform has no device that is always full")
@pytest.mark.parametrize("tasks", [5, 800], ids=["noticed when closed", "noticed when written"])
def test_a_full_disk_makes_the_record_incomplete(client: Client, capture: Capture, tasks: int) -> None:
    with capture.trial(FULL_DISK) as recording:
        client.gather(client.map(inc, range(tasks), pure=False))
    assert not recording.complete
    assert os.strerror(errno.ENOSPC) in recording.reason


def test_a_call_that_the_scheduler_no_longer_answers_is_named(path: Path) -> None:
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
        Capture(client, drain_interval_s=0.05).trial(path) as recording,
    ):
        client.gather(client.map(inc, range(5), pure=False))
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.handlers.pop("scalescope_finish"))
    assert not recording.complete
    assert "'finish'" in recording.reason


def test_a_missing_folder_is_refused_before_the_trial(capture: Capture, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="could not be written"), capture.trial(tmp_path / "no" / "x"):
        pytest.fail("the trial must not begin")


def test_a_recorder_that_was_removed_is_refused_before_the_trial(capture: Capture, path: Path) -> None:
    capture.close()
    with pytest.raises(CaptureError, match="'begin'"), capture.trial(path):
        pytest.fail("the trial must not begin")


def test_a_failed_installation_of_the_recorder_is_undone(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_to_register(*args: Any, **kwargs: Any) -> None:
        raise ValueError("pickle is not allowed")

    monkeypatch.setattr(Capture, "_install", fail_to_register)
    with pytest.raises(CaptureError, match="could not be installed") as caught:
        Capture(client)
    assert "pickle is not allowed" in caught.value.cause
    assert not client.run_on_scheduler(lambda dask_scheduler: "scalescope-recorder" in dask_scheduler.plugins)


def test_closing_the_capture_leaves_nothing_on_the_cluster(client: Client) -> None:
    def state(dask_scheduler: Any) -> tuple[list[str], list[str], str]:
        handler = dask_scheduler.stream_handlers["task-erred"]
        return sorted(dask_scheduler.plugins), sorted(dask_scheduler.handlers), handler.__qualname__

    def plugins(dask_worker: Any) -> tuple[list[str], str]:
        return sorted(dask_worker.plugins), type(dask_worker).__module__

    before = client.run_on_scheduler(state), client.run(plugins)
    capture = Capture(client)
    assert (client.run_on_scheduler(state), client.run(plugins)) != before
    capture.close()
    assert (client.run_on_scheduler(state), client.run(plugins)) == before


def test_a_recorder_that_no_client_drains_removes_itself(
    client: Client, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plugins(dask_scheduler: Any) -> list[str]:
        return [name for each in (dask_scheduler.plugins, dask_scheduler.worker_plugins) for name in each]

    monkeypatch.setattr(recorder, "UNDRAINED_S", 0.3)
    before = client.run_on_scheduler(plugins)
    capture = Capture(client, drain_interval_s=60.0)
    with capture.trial(path) as recording:
        assert client.run_on_scheduler(plugins) != before
        wait_for(lambda: client.run_on_scheduler(plugins) == before, "it is still there", 10, 0.02)
    assert "nobody fetched records" in recording.reason
    capture.close()


# ---------------------------------------------------------------- judgement, as pure functions


def summary(**changes: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("unassigned", "dropped", "foreign", "unfinished", "edges_dropped"), 0) | {"rows": 10}
    return {**counts, "full": {}, "unfinished_keys": [], "restarted": False, "assigned": 10, **changes}


@pytest.mark.parametrize(
    ("changes", "received", "says"),
    [
        ({}, 10, ""),
        ({"assigned": 12, "unfinished": 2}, 10, ""),
        ({"assigned": 9, "unassigned": 1}, 10, ""),
        ({"assigned": None}, 10, ""),
        ({"dropped": 3}, 10, "3 task attempts were lost"),
        ({}, 7, "3 of 10 task attempts did not arrive"),
        ({"assigned": 11}, 10, "the scheduler assigned 11 task attempts, but 10 are in the record"),
        ({"restarted": True, "assigned": None}, 10, "the scheduler was restarted"),
    ],
)
def test_a_record_is_complete_when_its_counts_add_up(changes: dict[str, Any], received: int, says: str) -> None:
    reason = recording._why_incomplete(summary(**changes), received)
    assert reason.startswith(says)
    assert bool(reason) == bool(says)


@pytest.mark.parametrize(
    ("changes", "clock_error_s", "says"),
    [
        ({"unfinished": 1, "unfinished_keys": ["x"]}, 0.0, "1 task still ran when the trial was closed, such as x"),
        ({"foreign": 2}, 0.0, "2 earlier tasks ended during the trial"),
        ({"assigned": None}, 0.0, "does not count tasks"),
        ({"full": {"members": 4}}, 0.0, "4 rows of the table of members were lost"),
        ({}, 0.066, "disagree by at least 66 ms"),
    ],
)
def test_doubts_about_a_record_are_reported(changes: dict[str, Any], clock_error_s: float, says: str) -> None:
    (doubt,) = recording._doubts(summary(**changes), clock_error_s)
    assert says in doubt
    assert recording._doubts(summary(), 0.01) == []


def test_a_worker_that_leaves_and_rejoins_has_two_rows(rows: Rows) -> None:
    members = [
        (1.0, "joined", "a", "0", "host", 2, 1000),
        (2.0, "left", "a", "died"),
        (2.5, "left", "unknown", "never seen"),
        (3.0, "joined", "a", "0", "host", 2, 1000),
    ]
    found = [(row["joined"], row["left"], row["reason"]) for row in rows(recording.worker_rows(members))]
    assert found == [(1.0, 2.0, "died"), (3.0, 0.0, "")]


def wait_until_running(client: Client) -> None:
    wait_for(lambda: any(client.processing().values()), look_s=0.01)


def test_the_clock_error_is_the_longest_impossible_interval() -> None:
    tasks = {"assigned": [10.0, 20.0, 30.0], "start": [11.0, 19.5, 0.0], "stop": [12.0, 21.0, 0.0]}
    errors = [
        recording._clock_error(spool.pack("tasks", {name: array("d", values) for name, values in columns.items()}))
        for columns in (tasks | {"done": [12.1, 20.8, 31.0]}, tasks | {"done": [12.1, 20.0, 31.0]})
    ]
    assert errors == pytest.approx([0.5, 1.0])
