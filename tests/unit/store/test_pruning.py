from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update
from typer.testing import CliRunner

from scalescope import leases
from scalescope.cli.main import app
from scalescope.errors import UsageError
from scalescope.model.sweep import Sweep
from scalescope.store import Store, pruning
from scalescope.store.schema import EnvironmentRow, PointRow, RunRow, TrialRow

Make = Callable[..., Any]


@pytest.fixture
def kept(tmp_path: Path, sweep: Sweep, make_trial: Make, make_tables: Make) -> tuple[str, dict[str, str]]:
    """A store with an old run, an old study with a run, a new run, and an old one that this process runs."""
    address, ids = str(tmp_path / "results.db"), {}
    with Store.open(address) as store:
        study = store.studies.begin("threshold", {"what": 1})
        for number, (name, of) in enumerate([("old", ""), ("of study", study.id), ("new", ""), ("running", "")]):
            facts = {"packages": {"name": name}}
            run = store.begin(sweep, (), workload_version=number, facts=facts, study=of)
            store.save(run.id, make_trial(number, facts=facts), make_tables())
            if name != "running":
                store.finish(run.id, "complete")
            ids[name] = run.id
        ids["study"] = study.id
        with store.writing("make them old") as session:
            long_ago = datetime.now(UTC) - timedelta(days=100)
            session.execute(update(RunRow).where(RunRow.id != ids["new"]).values(started_at=long_ago))
    return address, ids


def test_old_runs_and_studies_are_found_but_running_ones_are_not(kept: tuple[str, dict[str, str]]) -> None:
    address, ids = kept
    with Store.open(address) as store:
        found = pruning.find(store, older_than_days=99)
        assert [each.id for each in found] == [ids["old"]]  # the study was begun today
        assert found[0].size > 1000
        assert {each.id for each in pruning.find(store, older_than_days=0)} == {ids["old"], ids["study"], ids["new"]}
        assert pruning.find(store, older_than_days=101) == []


def test_the_oldest_runs_are_found_if_the_store_exceeds_keep_bytes(kept: tuple[str, dict[str, str]]) -> None:
    address, ids = kept
    with Store.open(address) as store:
        size = pruning.find(store, older_than_days=99)[0].size
        found = pruning.find(store, older_than_days=1000, keep_bytes=2.5 * size)
        assert [each.id for each in found] == [ids["old"]]


def test_removed_runs_leave_no_rows_or_files_and_other_runs_stay_readable(kept: tuple[str, dict[str, str]]) -> None:
    address, ids = kept
    with Store.open(address) as store:
        pruning.remove(store, pruning.find(store, older_than_days=0))
        assert [run.id for run in store.runs()] == [ids["running"]]
        assert store.tables(store.run(ids["running"]).trials[0], "tasks")["tasks"]["key"]
        assert store.studies.newest() == []
        with pytest.raises(UsageError, match="no run"):
            store.run(ids["old"])
        assert os.listdir(store.records) == [ids["running"]]
        with store.reading("count") as session:
            counts = [
                session.scalar(select(func.count()).select_from(row)) for row in (TrialRow, PointRow, EnvironmentRow)
            ]
        assert counts == [1, 1, 1]


def test_prune_removes_only_with_yes_and_otherwise_lists(
    kept: tuple[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, ids = kept
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SCALESCOPE_ENVIRONMENTS", str(tmp_path / "environments"))
    logs = tmp_path / "state" / "scalescope" / "jobs" / leases.new_label() / "logs"
    logs.mkdir(parents=True)
    os.utime(logs.parent, (1, 1))
    shown = []
    for further in ([], ["--yes"], []):
        result = CliRunner().invoke(app(), ["prune", "--store", address, "--json", *further])
        assert result.exit_code == 0, result.output
        shown.append(json.loads(result.stdout))
    assert [each["what"] for each in shown[0]["found"]] == ["run", "logs"]
    assert shown[0]["found"][0]["name"] == ids["old"]
    assert (shown[1]["found"], shown[1]["removed"], shown[2]["found"]) == (shown[0]["found"], True, [])
    assert not logs.exists()
