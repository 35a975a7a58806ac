"""Workers that are processes of their own, some of which die."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, KilledWorker, LocalCluster
from support.waiting import wait_for

from scalescope.capture.recording import Capture
from scalescope.model import spool
from scalescope.model.records import STATUS_ERRED, STATUS_FINISHED, STATUS_LOST, Columns

Rows = Callable[[Columns], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def processes() -> Iterator[Client]:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=False) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def capture(processes: Client, tmp_path: Path) -> Iterator[Capture]:
    installed = Capture(processes, drain_interval_s=0.1, log_folder=tmp_path / "logs")
    yield installed
    installed.close()


def work(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def die_unless(marker: str) -> str:
    """Die at the first call, return at the second."""
    logging.getLogger("user.code").warning("about to allocate %d GiB", 400)
    if not os.path.exists(marker):
        Path(marker).touch()
        os._exit(7)
    return "survived"


def test_memory_of_every_process_is_sampled_during_the_trial(
    processes: Client, capture: Capture, tmp_path: Path, rows: Rows
) -> None:
    with capture.trial(tmp_path / "x") as recording:
        processes.gather(processes.map(work, [0.4] * 4, pure=False))
    assert (recording.complete, recording.warnings, recording.notes) == (True, [], [])
    memory = rows(spool.read(tmp_path / "x")["memory"])
    assert {row["worker"] for row in memory} == {"scheduler", *processes.scheduler_info()["workers"]}
    for row in memory:
        assert row["time"] >= recording.t_begin
        assert row["rss"] > 10_000_000


def test_clocks_of_one_host_agree_exactly(processes: Client, capture: Capture, tmp_path: Path, rows: Rows) -> None:
    with capture.trial(tmp_path / "x") as recording:
        processes.gather(processes.map(work, [0.0] * 200, pure=False))
    assert set(processes.run(lambda dask_worker: dask_worker.scheduler_delay).values()) == {0.0}
    assert recording.clock_error_s == 0.0


def test_the_record_of_a_died_worker_has_its_lost_attempt_log_and_exit_code(
    processes: Client, capture: Capture, tmp_path: Path, rows: Rows
) -> None:
    with capture.trial(tmp_path / "x") as recording:
        future = processes.submit(die_unless, str(tmp_path / "marker"), pure=False)
        assert future.result(timeout=60) == "survived"
        wait_for_exits(processes, 1)
    assert (recording.complete, recording.reason) == (True, "")
    tables = spool.read(tmp_path / "x")
    lost, finished = sorted(rows(tables["tasks"]), key=lambda task: task["assigned"])
    assert (lost["key"], lost["status"], lost["retries"], lost["start"]) == (future.key, STATUS_LOST, 0, 0.0)
    assert (finished["key"], finished["status"], finished["retries"]) == (future.key, STATUS_FINISHED, 1)
    assert recording.workers_left == [lost["worker"]]
    (died,) = [worker for worker in rows(tables["workers"]) if worker["left"]]
    assert died["worker"] == lost["worker"]
    assert died["left"] == pytest.approx(lost["done"], abs=1.0)
    logs = rows(tables["logs"])
    assert {row["worker"] for row in logs} == {lost["worker"]}
    assert ("WARNING", "user.code about to allocate 400 GiB") in {(row["level"], row["text"]) for row in logs}
    (exit_code,) = [json.loads(event["message"]) for event in rows(tables["events"]) if event["topic"] == "worker-exit"]
    assert (exit_code["worker"], exit_code["exitcode"]) == (lost["worker"], 7)


def test_a_task_that_kills_its_workers_is_recorded_as_erred(
    processes: Client, capture: Capture, tmp_path: Path, rows: Rows
) -> None:
    processes.wait_for_workers(2, timeout=200)
    with capture.trial(tmp_path / "x") as recording:
        with pytest.raises(KilledWorker):
            processes.submit(os._exit, 9, pure=False).result(timeout=60)
        processes.wait_for_workers(2, timeout=200)
    assert recording.complete
    tables = spool.read(tmp_path / "x")
    attempts = sorted(rows(tables["tasks"]), key=lambda task: task["assigned"])
    assert [(task["status"], task["retries"]) for task in attempts] == [(STATUS_LOST, 0), (STATUS_ERRED, 1)]
    (error,) = [json.loads(event["message"]) for event in rows(tables["events"]) if event["topic"] == "task-erred"]
    assert error["key"] == attempts[0]["key"]
    assert error["exception"].startswith("KilledWorker")
    joined_later = [worker for worker in rows(tables["workers"]) if worker["joined"] > recording.t_begin]
    assert len(joined_later) == 2


def wait_for_exits(client: Client, count: int) -> None:
    told = "the nanny did not tell how its worker ended"
    wait_for(lambda: len(client.get_events("worker-exit")) >= count, told, 20, 0.02)
