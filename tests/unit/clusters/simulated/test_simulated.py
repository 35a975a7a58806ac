"""The simulated cluster, in scenarios that run in other processes: a process installs its clock only once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scalescope.clusters.simulated.calibration import Calibration, calibration_file
from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.errors import ClusterError, UsageError

SCENARIOS = Path(__file__).with_name("scenarios.py")
EXPECTED_S: dict[str, float] = {
    "sleeps": 30.0,  # 12 tasks of 10 s on 4 workers
    "sleep_imported_by_name": 20.0,
    "chained": 5.0,
    "worker_cost": 5.0,  # 4 × (1 s + 0.25 s) on one worker
    "threads_per_worker": 20.0,  # 12 tasks of 10 s on 6 threads
    "computing_is_free_when_modelled": 0.0,
    "recorded": 20.0,  # 8 tasks of 5 s on 2 workers
    "async_tasks": 7.0,
    "event_loop_inside_task": 60.0,
    "threads_inside_task": 10.0,
    "thread_join_and_queue": 8.0,
    "wait_with_timeout": 30.0,
    "contended_lock": 15.0,
    "worker_client": 20.0,  # 4 tasks of 10 s on 2 workers, one of them seceded
    "client_of_its_own": 20.0,
    "result_timeout": 10.0,
    "as_completed": 30.0,
    "worker_ttl": 800.0,
    "task_that_fails": 0.0,
    "retries": 6.0,
    "many_workers": 20.0,
}
OTHERS = (
    "scheduler_cost",
    "computing_is_charged",
    "client_computing_is_charged",
    "locks_of_the_client",
    "work_stealing",
    "work_stealing_of_draws",
    "outside_process",
    "zero_length_tasks",
    "bystanders_see_real_time",
    "transfers",
    "asked_by_many",
)
MESSAGES_S = 0.05
"""Dask sends in batches, milliseconds apart, on the virtual clock too."""


def run(*names: str, hash_seed: str = "0") -> dict[str, Any]:
    answer = subprocess.run(
        [sys.executable, str(SCENARIOS), *names],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return {line["name"]: line for line in map(json.loads, answer.stdout.splitlines())}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return run(*EXPECTED_S, *OTHERS)


@pytest.mark.parametrize("name", EXPECTED_S)
def test_each_scenario_takes_its_expected_virtual_time(results: dict[str, Any], name: str) -> None:
    assert EXPECTED_S[name] <= results[name]["elapsed"] <= EXPECTED_S[name] + MESSAGES_S


def test_tasks_measure_exactly_their_own_sleep(results: dict[str, Any]) -> None:
    assert results["sleeps"]["result"] == [10.0] * 12
    assert results["sleep_imported_by_name"]["result"] == [10.0, 20.0]
    assert results["async_tasks"]["result"] == [7.0] * 4
    assert results["event_loop_inside_task"]["result"] == 60.0
    assert results["threads_inside_task"]["result"] == [5.0] * 4
    assert results["thread_join_and_queue"]["result"] == [4.0, 8.0]
    assert results["wait_with_timeout"]["result"] == [False, 30.0]


def test_each_transition_of_the_simulated_scheduler_takes_virtual_time(results: dict[str, Any]) -> None:
    """100 tasks of one second at once: at least three transitions of 1 ms each lie on the way of the last of them."""
    free, charged = results["scheduler_cost"]["free"], results["scheduler_cost"]["charged"]
    assert 0.2 <= charged - free <= 1.0


def test_computing_tasks_are_charged_their_cpu_time_and_run_in_parallel(results: dict[str, Any]) -> None:
    """Four tasks of 0.3 CPU seconds on four workers take 0.3 s, although this process has one interpreter lock."""
    assert 0.29 <= results["computing_is_charged"]["elapsed"] <= 0.5


def test_zero_length_tasks_return_their_results_and_take_no_time(results: dict[str, Any]) -> None:
    """Tasks that poll until a point in time take no time either."""
    found = results["zero_length_tasks"]
    squares, asked = found["result"]
    assert squares == [0, 1, 4, 9]
    assert asked > 1_000
    # 1 s of the client, and twice 1 s for which four tasks on two workers poll every 0.1 ms.
    assert found["elapsed"] == pytest.approx(3.0, abs=0.2)


def test_computing_on_the_client_takes_virtual_time(results: dict[str, Any]) -> None:
    assert 1.19 <= results["client_computing_is_charged"]["elapsed"] <= 1.5


def test_clients_get_results_timeouts_and_errors_as_on_a_real_cluster(results: dict[str, Any]) -> None:
    assert results["result_timeout"]["result"] == "timed out"
    assert results["as_completed"]["result"] == [10, 20, 30]
    assert "ZeroDivisionError" in results["task_that_fails"]["result"]
    assert results["retries"]["result"] == 3


def test_locks_that_clients_share_with_the_event_loop_cause_no_standstill(results: dict[str, Any]) -> None:
    assert results["locks_of_the_client"]["result"] == [20, 300]
    assert (
        results["locks_of_the_client"]["elapsed"] < 20
    )  # 15 s of tasks at most; a missed wake-up is noticed after 60 s


def test_work_stealing_balances_the_load(results: dict[str, Any]) -> None:
    """40 s of work prefer one of four workers; the first look of work stealing comes after 0.5 s on average."""
    assert results["work_stealing"]["elapsed"] < 25
    assert results["work_stealing"]["result"] == pytest.approx(0.5, abs=0.01)
    looks = results["work_stealing_of_draws"]
    assert looks["first looks"] == pytest.approx([0.5, 0.118, 0.736], abs=0.01)
    assert looks["of another seed"] == pytest.approx(0.118, abs=0.01)
    between_s = looks["between looks"]  # whole intervals
    assert between_s == pytest.approx(round(between_s), abs=0.01)


def test_a_silent_worker_is_removed_after_its_time_limit(results: dict[str, Any]) -> None:
    before, still_there = results["worker_ttl"]["result"]
    assert before == 3
    assert not still_there


def test_processes_started_by_tasks_take_their_real_time(results: dict[str, Any]) -> None:
    assert results["outside_process"]["result"] == 0
    assert 1.0 <= results["outside_process"]["elapsed"] < 5.0


def test_tasks_that_block_outside_the_virtual_clock_are_counted(results: dict[str, Any]) -> None:
    assert results["contended_lock"]["blocked_outside_clock"] >= 1
    assert results["sleeps"]["blocked_outside_clock"] == 0


def test_threads_outside_the_simulation_see_real_time(results: dict[str, Any]) -> None:
    (slept,) = results["bystanders_see_real_time"]["result"]
    assert 0.2 <= slept < 20


def test_transfers_take_the_time_of_their_links(results: dict[str, Any]) -> None:
    """50 MB at 100 MB/s: 0.5 s, with 10 ms of latency and 0.1 s of CPU on each side."""
    linked, free = results["transfers"]["linked"], results["transfers"]["free"]
    one_s, message_s = 0.71, 0.01
    assert linked["taken"] - linked["made"] == pytest.approx(message_s + one_s, abs=MESSAGES_S)
    assert linked["slowed"] - linked["made"] == pytest.approx(message_s + 2.0 + 0.5 * 0.1, abs=MESSAGES_S / 3)
    for later, earlier in (("gathered", "slowed"), ("scattered", "gathered")):  # through the scheduler
        assert linked[later] - linked[earlier] == pytest.approx(2 * one_s, abs=MESSAGES_S)
    assert linked["graph"] - linked["scattered"] == pytest.approx(one_s + 2 * message_s, abs=MESSAGES_S)
    assert free["taken"] - free["made"] < MESSAGES_S
    assert free["slowed"] - free["made"] == pytest.approx(2.0, abs=MESSAGES_S)
    assert free["graph"] - free["slowed"] < MESSAGES_S


def test_workers_pass_results_to_each_other_without_connections(results: dict[str, Any]) -> None:
    found = results["asked_by_many"]
    assert found["sizes"] == [10_000_000] * 3
    assert found["busy"] > 0
    assert found["answers"] == 6  # three copies, and three results for the client
    assert found["connections"] == 0


def test_a_long_wait_in_virtual_time_takes_less_real_time(results: dict[str, Any]) -> None:
    assert results["worker_ttl"]["real"] < 400


def test_two_simulated_runs_are_the_same_to_the_last_bit() -> None:
    """Compares the times of every task of an irregular graph, within one process and between two."""
    first, second = run("fingerprint")["fingerprint"], run("fingerprint")["fingerprint"]
    assert first["rows"] > 200
    assert first["first"] == first["again"] == second["first"] == second["again"]


def test_a_process_without_the_virtual_clock_is_refused() -> None:
    code = """
from scalescope.clusters.simulated.cluster import SimulatedCluster
from scalescope.clusters.simulated.spec import SimulatedSpec
SimulatedCluster(SimulatedSpec()).open()
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode != 0
    assert ClusterError.__name__ in answer.stderr
    assert "virtual clock was not installed" in answer.stderr


class TestCalibration:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def test_the_reference_calibration_is_used_when_none_was_measured(self) -> None:
        assert Calibration.choose(SimulatedSpec()).source == "reference"

    def test_a_calibration_measured_on_this_host_is_used(self) -> None:
        Calibration(1.0, 2.0, "host").save()
        assert Calibration.choose(SimulatedSpec()) == Calibration(1.0, 2.0, "host")

    def test_costs_given_in_the_specification_override_a_measured_calibration(self) -> None:
        Calibration(1.0, 2.0, "host").save()
        assert Calibration.choose(SimulatedSpec(worker_us=0.0)) == Calibration(1.0, 0.0, "given")

    def test_a_damaged_calibration_file_is_named(self) -> None:
        calibration_file().parent.mkdir(parents=True)
        calibration_file().write_text("{")
        with pytest.raises(UsageError, match="calibration cannot be read"):
            Calibration.load()
