"""Code named by another user's run is not run without confirmation."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from support.requests import finished_run

from scalescope.cli import main as cli
from scalescope.errors import OthersCode
from scalescope.owner import user
from scalescope.store.store import Store
from scalescope.studies import others_code

WORKLOAD = (
    "from pathlib import Path\nPath(__file__).with_suffix('.seen').touch()\ndef run(client, items: int = 4): pass\n"
)


@pytest.mark.parametrize(
    ("command", "more"), [("isolate", ["--folder", "isolated"]), ("compare", ["--a", "items=1", "--b", "items=2"])]
)
def test_code_of_another_user_is_not_run_without_confirmation(
    fake: Any,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    more: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path, seen = tmp_path / "theirs.py", tmp_path / "theirs.seen"
    path.write_text(WORKLOAD)
    run = finished_run({"workload": f"{path}:run", "axes": {"workers": [1, 2]}}, address)
    assert run.facts["user"] == user()
    others_code.check(run, others_code=False)
    with sqlite3.connect(address) as database:
        database.execute("UPDATE sweep_runs SET facts = ?", (json.dumps({**run.facts, "user": "mallory"}),))
    database.close()
    seen.unlink()
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    answers = iter([False])
    monkeypatch.setattr("typer.confirm", lambda text, err: next(answers))
    assert cli.run([command, "latest", "--store", address, "--no-prefect", *more]) == 2
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert cli.run([command, "latest", "--store", address, "--no-prefect", *more]) == 2
    said = capsys.readouterr().err
    assert f"was stored by mallory; its code would run with your rights: {path}:run" in said
    assert "--others-code" in said
    assert not seen.exists()
    with Store.open(address) as store, pytest.raises(OthersCode):
        others_code.check(store.run(run.id), others_code=False)
    with Store.open(address) as store:
        others_code.check(store.run(run.id), others_code=True)


@pytest.mark.parametrize(
    ("command", "more"),
    [("isolate", ["--folder", "isolated"]), ("isolate", []), ("compare", ["--b", "items=2"])],
)
def test_a_recorded_script_is_refused_as_workload_before_a_folder_is_made(
    fake: Any,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    more: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run = finished_run({"workload": "bag-map", "axes": {"workers": [1]}}, address)
    monkeypatch.setattr(others_code, "ran_what", lambda trials: "script")
    before = {path for path in tmp_path.rglob("*") if path.is_dir()}
    assert cli.run([command, "latest", "--store", address, "--no-prefect", *more]) == 2
    assert {path for path in tmp_path.rglob("*") if path.is_dir()} == before
    said = capsys.readouterr().err
    assert f"scalescope predict {run.id}" in said
    assert "FILE.py:FUNCTION" in said
