"""Isolation without Prefect, with fake drivers."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.requests import finished_run

from scalescope.errors import InvalidField, StoreError, UsageError
from scalescope.isolation import running as isolation
from scalescope.isolation.reproducer import Confirmation
from scalescope.isolation.running import CONFIRM, Isolated, check, isolate
from scalescope.model.run_facts import STEP_OF
from scalescope.store.store import Store

METRIC = "workers_used >= 3"
SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [1, 8]}, "params": {"items": 8}}


@pytest.fixture
def run_id(fake: Any, address: str) -> str:
    """A finished run of two trials, in which every worker was used."""
    fake.measures = lambda planned: (planned.point.workers, 8.0 / planned.point.workers)
    return finished_run(SWEEP, address).id


@pytest.fixture
def isolated(run_id: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Isolates a symptom that shows with three workers or more; the HTML report is left out."""
    monkeypatch.setattr(isolation.html, "write", lambda place, run, read: Path(place).write_text("a report"))

    def run(believed: bool = True, run: str = run_id, **given: Any) -> Isolated:
        confirmation = Confirmation(believed, "", 0.1, "" if believed else "it ran, but no")
        monkeypatch.setattr(isolation, "CONFIRM", replace(CONFIRM, call=lambda text: confirmation))
        asked = {"metric": METRIC, "folder": str(tmp_path / "out"), "run": run, "store": address, **given}
        return isolate(asked)

    return run


# ------------------------------------------------------------------ what is fine


def test_isolation_finds_the_smallest_trial_with_the_symptom(
    isolated: Any, fake: Any, run_id: str, address: str
) -> None:
    result = isolated()
    assert result.run_id == run_id
    assert result.confirmed
    assert result.isolation.setting.point.workers == 3
    assert result.isolation.setting.point.params == {"items": 3, "seconds": 0.1, "stages": 1}
    assert result.isolation.reduction.minimal
    assert result.isolation.trial.metrics.workers_used == 3
    assert len(fake.started) == 2  # one for the sweep, and one for all steps
    assert all(driver.closed for driver in fake.started)


def test_every_step_of_an_isolation_is_a_run_of_its_own(isolated: Any, run_id: str, address: str) -> None:
    result = isolated()
    with Store.open(address) as store:
        runs = store.runs()
        steps = [run for run in runs if STEP_OF in run.facts]
        assert len(steps) == len(result.isolation.reduction.steps) == len(runs) - 1
        assert {run.state.value for run in steps} == {"complete"}
        assert len({run.facts[STEP_OF] for run in steps}) == 1
        assert store.run("latest").id == run_id


def test_the_result_folder_contains_script_report_and_notebook(isolated: Any, tmp_path: Path) -> None:
    (tmp_path / "out" / "result").mkdir(parents=True)  # the user's own
    result = isolated()
    folder = tmp_path / "out"
    (folder / "result").rmdir()
    assert set(result.files) == {"notebook.md", "bug-report.md", "isolation.json", "reproducer.py", "report.html"}
    assert {path.name for path in folder.iterdir()} == set(result.files)
    assert "ITEMS, STAGES, SECONDS = 3, 1, 0.1" in (folder / "reproducer.py").read_text()
    data = json.loads((folder / "isolation.json").read_text())
    assert data["minimal"] is True
    assert len(data["steps"]) == len(result.isolation.reduction.steps)
    assert "**kept**" in (folder / "notebook.md").read_text()


def test_the_result_can_be_written_to_a_remote_folder(isolated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        isolation.html, "write", lambda place, run, read: isolation.files.write(place, "a report", "report")
    )
    memory = fsspec.filesystem("memory")
    memory.pipe("/handed/over/unconfirmed-reproducer.py", b"of an earlier one")
    result = isolated(folder="memory://handed/over")
    assert result.folder == "memory://handed/over"
    assert {path.rpartition("/")[2] for path in memory.find("/handed")} == set(result.files)


# ------------------------------------------------------------------ budgets, interruptions


def test_steps_measured_earlier_are_not_repeated(isolated: Any, fake: Any) -> None:
    first = isolated()
    begun = len(fake.begun)
    again = isolated()
    assert len(fake.begun) == begun
    assert again.isolation.to_mapping() == first.isolation.to_mapping()
    isolated(fresh=True)
    assert len(fake.begun) == begun + len(first.isolation.reduction.steps)


@pytest.mark.thorough
def test_a_stopped_isolation_continues(isolated: Any, fake: Any, address: str) -> None:
    fake.script[4] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        isolated()
    assert all(driver.closed for driver in fake.started)
    result = isolated()
    assert result.isolation.reduction.minimal
    assert len(fake.begun) == 2 + len(result.isolation.reduction.steps) + 1  # the interrupted one was begun twice


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        pytest.param({"max_trials": 2}, "budget of 2 trials", marks=pytest.mark.thorough),
        ({"minutes": 0.01}, "0.01 minutes"),
    ],
)
def test_the_smallest_trial_so_far_is_the_result_when_the_budget_is_spent(
    isolated: Any, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any], why: str
) -> None:
    if "minutes" in budget:
        own, ticks = threading.get_ident(), itertools.count()  # threads that other tests left keep their time

        def monotonic() -> float:
            return float(next(ticks)) if threading.get_ident() == own else real()

        real = isolation.time.monotonic
        monkeypatch.setattr(isolation.time, "monotonic", monotonic)
    result = isolated(**budget)
    assert why in result.isolation.reduction.stopped
    assert not result.isolation.reduction.minimal
    assert result.isolation.trial.metrics.workers_used >= 3
    full = isolated()
    assert full.isolation.reduction.minimal


def test_a_step_whose_cluster_is_refused_is_undone(isolated: Any, fake: Any, refusal: Exception) -> None:
    fake.refusals[:] = [refusal] * 3
    result = isolated()
    assert result.isolation.reduction.steps[0].reading.problem == "no cluster today"
    assert result.isolation.setting.point.workers == 3


@pytest.mark.thorough
def test_a_driver_that_dies_during_isolation_is_replaced(isolated: Any, fake: Any) -> None:
    fake.script[3] = "die"
    result = isolated()
    assert [step.reading.problem for step in result.isolation.reduction.steps].count("because it should die") == 1
    assert result.isolation.setting.point.workers == 3
    assert len(fake.started) == 3


def test_a_script_that_was_not_confirmed_is_named_unconfirmed(isolated: Any, tmp_path: Path) -> None:
    result = isolated(believed=False)
    assert not result.confirmed
    assert result.doubt == "it ran, but no"
    assert "unconfirmed-reproducer.py" in result.files
    assert not (tmp_path / "out" / "reproducer.py").exists()
    assert "NOT CONFIRMED" in (tmp_path / "out" / "bug-report.md").read_text()


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"metric": "workers_used <"}, "metric"),
        ({"metric": "busy < 0.5", "finding": "straggler"}, "metric"),
        ({"metric": 3}, "metric"),
        ({"max_trials": 0}, "max_trials"),
        ({"max_trials": True}, "max_trials"),
        ({"minutes": 0}, "minutes"),
        ({"minutes": float("nan")}, "minutes"),
        ({"folder": ""}, "folder"),
        ({"fresh": "yes"}, "fresh"),
    ],
)
def test_invalid_parameters_of_an_isolation_are_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as raised:
        check(given)
    assert raised.value.field == field


def test_isolating_a_run_without_the_symptom_is_refused(isolated: Any, fake: Any) -> None:
    begun = len(fake.begun)
    with pytest.raises(InvalidField, match="valid trial"):
        isolated(metric="workers_used > 100")
    with pytest.raises(InvalidField, match="this run is healthy"):
        isolated(metric="")
    with pytest.raises(InvalidField, match="of this run"):
        isolated(metric="", finding="straggler")
    with pytest.raises(UsageError, match="no run 'x'"):
        isolated(run="x")
    assert len(fake.begun) == begun


def test_a_result_folder_that_cannot_be_made_is_refused_before_any_trial(
    isolated: Any, fake: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    begun = len(fake.begun)
    with pytest.raises(StoreError, match="result"):
        isolated(folder=str(tmp_path / "file" / "out"))
    assert len(fake.begun) == begun
