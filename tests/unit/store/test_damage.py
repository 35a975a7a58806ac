"""Damaged rows are left out with one warning; all others are read."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from scalescope.errors import StoreError
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial
from scalescope.store import Store


@pytest.fixture
def path(tmp_path: Path, sweep: Sweep, make_trial: Callable[[int], Trial]) -> Path:
    """A store with two runs, the first with two trials, and a study."""
    with Store.open(str(tmp_path / "a.db")) as store:
        for trials in (2, 0):
            run = store.begin(sweep, [], workload_version=1, fresh=True)
            for number in range(trials):
                store.save(run.id, make_trial(number))
        store.studies.begin("threshold", {})
    return tmp_path / "a.db"


def change(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as database:
        assert database.execute(statement).rowcount == 1
    database.close()


@pytest.mark.parametrize(
    "damage",
    ["facts = '{\"pack'", "metrics = '{}'", "metrics = '[1]'", "state = 'unheard-of'", "findings = '[{\"code\": 1}]'"],
)
def test_a_damaged_trial_is_named_in_a_warning_and_run_again(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(str(path)) as store:
        run = store.runs()[-1]
    first, second = run.trials
    change(path, f"UPDATE trials SET {damage} WHERE key = '{first.key}'")
    with Store.open(str(path)) as store, caplog.at_level(logging.WARNING):
        assert store.run(run.id).trials == (second,)
        assert caplog.records[0].getMessage().startswith(f"Could not read trial {first.key} of run {run.id}")
        assert first.key not in store.finished(run.id)
        store.save(run.id, first)
        assert store.finished(run.id)[first.key] == first


def test_a_damaged_point_run_or_study_is_left_out_with_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    change(path, "UPDATE studies SET result = 'x'")
    change(path, "UPDATE points SET spec = 'x' WHERE workers = 1")
    change(path, "UPDATE sweep_runs SET spec = 'x' WHERE id NOT IN (SELECT run_id FROM trials)")
    with Store.open(str(path)) as store:
        assert ([len(run.trials) for run in store.runs()], store.studies.newest()) == ([1], [])
        with pytest.raises(StoreError, match="study threshold-"):
            store.studies.get("threshold")
        with pytest.raises(StoreError, match="Could not read run"):
            store.run("latest")
    assert len(caplog.records) == 3


def test_several_damaged_runs_give_one_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE sweep_runs SET spec = 'x'")
    database.close()
    with Store.open(str(path)) as store:
        assert store.runs() == []
    (warning,) = caplog.records
    assert warning.getMessage().endswith("1 more.")
