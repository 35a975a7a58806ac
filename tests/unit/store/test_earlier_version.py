"""A store that revision c59218a wrote (tests/data/store-c59218a) is read, shown and continued."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from scalescope.analysis.measure import measure
from scalescope.capture import host
from scalescope.errors import StoreError
from scalescope.model.metrics import numbers
from scalescope.model.records import TABLES
from scalescope.model.trial import Trial, TrialState
from scalescope.report import export, terminal
from scalescope.report.html import render
from scalescope.run.drivers import Drivers
from scalescope.run.request import check
from scalescope.run.sweep import analyse, begin
from scalescope.run.trials import run_trials
from scalescope.store import RunState, Store
from scalescope.store import records as record_files
from scalescope.studies.report.html import render_study
from scalescope.studies.report.terminal import render as show_study

BEFORE = Path(__file__).parents[2] / "data" / "store-c59218a"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy, which may be changed."""
    shutil.copytree(BEFORE, tmp_path / "before")
    return tmp_path / "before" / "results.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(str(path)) as opened:
        yield opened


def test_all_runs_and_their_states(store: Store) -> None:
    found = {run.sweep.workload + ("*" if run.study else ""): run for run in store.runs()}
    assert {name: (run.state, len(run.trials), run.planned) for name, run in found.items()} == {
        "bag-map": (RunState.STOPPED, 3, 8),
        "beam-pardo*": (RunState.COMPLETE, 10, 10),
        "unsteady.py:main": (RunState.COMPLETE, 3, 3),
        "beam-pardo": (RunState.COMPLETE, 4, 4),
    }
    assert {trial.state for trial in found["unsteady.py:main"].trials} == set(TrialState)


def test_the_efficiency_of_before_is_the_quality_of_the_schedule(store: Store, path: Path) -> None:
    with sqlite3.connect(BEFORE / "results.db") as before:
        old = {(run, key): value for run, key, value in before.execute("SELECT run_id, key, efficiency FROM trials")}
    columns = "run_id, key, efficiency, schedule_quality"
    with sqlite3.connect(path) as database:
        new = {(run, key): rest for run, key, *rest in database.execute(f"SELECT {columns} FROM trials")}
    measured = [(run.id, trial) for run in store.runs() for trial in run.trials if trial.metrics is not None]
    assert len(measured) == 18
    for run, trial in measured:
        metrics = trial.metrics
        assert metrics is not None
        assert metrics.schedule_quality == old[run, trial.key]
        assert metrics.efficiency == pytest.approx(metrics.work_s / trial.point.threads / metrics.makespan_s)
        assert new[run, trial.key] == [metrics.efficiency, metrics.schedule_quality]
        again = measure(store.tables(trial), threads=trial.point.threads, elapsed_s=metrics.elapsed_s)
        known = {name: value for name, value in numbers(metrics).items() if value is not None}
        assert len(known) >= 14
        assert {name: numbers(again)[name] for name in known} == pytest.approx(known)
        spent = dict(again.worker_time_s)
        spent["no_runnable_task"] += spent.pop("client") + spent.pop("actors")  # which were part of it
        assert spent == pytest.approx(metrics.worker_time_s)


def test_its_runs_are_shown(store: Store, printed: Callable[..., str]) -> None:
    for run in store.runs():
        assert "efficiency" in printed(terminal.render(run.sweep, run.trials, terminal.diagnose(run.sweep, run.trials)))
        assert "efficiency" in render(run, store.tables)
    few = next(run for run in store.runs() if run.sweep.workload == "beam-pardo" and not run.study)
    assert few.verdict is not None
    assert export.to_json(few.sweep, few.trials, few.verdict)["points"][-1]["efficiency"] < 0.02


def test_its_study_is_shown(store: Store, printed: Callable[..., str]) -> None:
    (study,) = store.studies.newest()
    runs = [store.run(run) for run in study.runs]
    assert study.line.startswith("tasks rises from 2 to 5 between items 128 and 129")
    assert "2 → 5" in printed(show_study(study, runs))
    assert "tasks rises from 2 to 5" in render_study(study, runs)


def test_the_sweep_that_was_killed_is_resumed(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines differ, and a run is only resumed with the packages with which it began."""
    (stopped,) = (run for run in store.runs() if run.state is RunState.STOPPED)
    monkeypatch.setattr(host, "packages", lambda: stopped.facts["packages"])
    request = check({**stopped.sweep.to_mapping(), "store": str(path)})
    run, waiting = begin(request, store)
    assert (run.id, len(waiting)) == (stopped.id, 5)
    measured: list[Trial] = []
    run_trials(Drivers(request, run.id, store), waiting, finished=measured.append)
    analyse(store, run.id)
    finished = store.run(run.id)
    assert finished.state is RunState.COMPLETE
    assert finished.trials == (*stopped.trials, *measured)
    used = {trial.point.workers: trial.metrics.workers_used for trial in finished.trials if trial.metrics is not None}
    assert used == {workers: workers for workers in range(1, 9)}


# ------------------------------------------------------------------ damage


def change(path: Path, statement: str) -> None:
    Store.open(str(path)).close()
    with sqlite3.connect(path) as database:
        assert database.execute(statement).rowcount == 1
    database.close()


ONE_TRIAL = "WHERE (run_id, key) = (SELECT run_id, key FROM trials WHERE state = 'valid' LIMIT 1)"


@pytest.mark.parametrize(
    "damage",
    ["facts = '{\"pack'", "metrics = '{}'", "metrics = '[1]'", "state = 'unheard-of'", "findings = '[{\"code\": 1}]'"],
)
def test_a_trial_that_cannot_be_read_is_named_and_left_out(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    change(path, f"UPDATE trials SET {damage} {ONE_TRIAL}")
    with Store.open(str(path)) as store, caplog.at_level(logging.WARNING):
        assert sum(len(run.trials) for run in store.runs()) == 19
    (record,) = caplog.records
    assert record.getMessage().startswith("Could not read trial ")
    assert "damaged" in record.getMessage()


def test_a_point_run_or_study_that_cannot_be_read(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    change(path, "UPDATE studies SET result = 'x'")
    change(path, "UPDATE points SET spec = 'x' WHERE workers = 300")
    change(path, "UPDATE sweep_runs SET spec = 'x' WHERE workload = 'bag-map'")
    with Store.open(str(path)) as store:
        assert (len(store.runs()), len(store.studies.newest())) == (3, 0)
        with pytest.raises(StoreError, match="Could not read study threshold-"):
            store.studies.get("threshold")
        with pytest.raises(StoreError, match="Could not read run"):
            store.run("latest")
    assert len(caplog.records) == 3


def test_a_trial_that_cannot_be_read_is_run_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(str(path)) as store:
        (stopped,) = (run for run in store.runs() if run.state is RunState.STOPPED)
        first = stopped.trials[0]
    change(path, f"UPDATE trials SET facts = '?' WHERE run_id = '{stopped.id}' AND key = '{first.key}'")
    with Store.open(str(path)) as store:
        assert first.key not in store.finished(stopped.id)
        store.save(stopped.id, first)
        assert store.finished(stopped.id)[first.key] == first


def test_keys_of_another_version_do_no_harm(path: Path) -> None:
    change(path, f"UPDATE trials SET metrics = json_set(metrics, '$.newer', 7) {ONE_TRIAL}")
    with Store.open(str(path)) as store:
        assert sum(len(run.trials) for run in store.runs()) == 20


def test_columns_that_were_not_recorded_are_empty(store: Store) -> None:
    trial = next(trial for run in store.runs() for trial in run.trials if trial.metrics is not None)
    file = Path(trial.records) / "tasks.parquet"
    content = pq.read_table(file)
    pq.write_table(content.drop_columns(["allowed", "prefix"]), file)
    found = store.tables(trial)["tasks"]
    assert list(found) == list(TABLES["tasks"])
    assert not found["allowed"].any()
    assert set(found["prefix"]) == {""}
    assert measure({**store.tables(trial), "tasks": found}, threads=1, elapsed_s=1).tasks == trial.metrics.tasks
    pq.write_table(content.drop_columns(["start"]), file)
    with pytest.raises(StoreError, match="no column start"):
        record_files.read(trial.records, "tasks")
