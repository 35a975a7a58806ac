"""The isolate flow with a fake driver, and the isolate command with real drivers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from support.prefect_api import artifacts

from scalescope.cli import main as cli
from scalescope.isolation import running
from scalescope.isolation.reproducer import Confirmation
from scalescope.run.progress import Progress
from scalescope_flows import isolate
from scalescope_flows.runner import listening

SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [1, 8]}, "params": {"items": 8}}


@pytest.mark.usefixtures("prefect_server")
def test_the_isolate_flow_reduces_a_sweep_and_publishes_its_files(
    fake: Any, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers the sweep, the isolation, the progress, and the artifacts in Prefect."""
    believed = Confirmation(True, "The symptom shows.", 0.1)
    monkeypatch.setattr(running, "CONFIRM", replace(running.CONFIRM, call=lambda text: believed))
    monkeypatch.setattr(running.html, "write", lambda place, run, tables: Path(place).write_text(run.id))
    heard: list[Progress] = []
    with listening(heard.append):
        result = isolate(
            sweep=SWEEP, metric="workers_used >= 3", store=address, folder=str(tmp_path / "out"), max_trials=50
        )
    assert result.confirmed
    assert len(result.isolation.seen) == 2
    assert result.isolation.setting.point.workers == 3
    assert set(result.files) == {"notebook.md", "bug-report.md", "isolation.json", "reproducer.py", "report.html"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(result.files)

    steps = [progress.done for progress in heard if progress.notable and progress.total == 50]
    assert sorted(set(steps)) == list(range(1, len(result.isolation.reduction.steps) + 1))
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(limit=200)
    sweep_id = result.isolation.sweep.id
    keys = {artifact["key"] for artifact in artifacts()}
    assert {f"notebook-of-futures-map-{sweep_id}", f"bug-report-of-futures-map-{sweep_id}"} <= keys
    states = [run.state.name for run in runs if run.state is not None]
    assert "Kept" in states
    assert "Put back" in states


@pytest.mark.thorough  # docs/tutorial.md has the same command, and tests/integration/test_pages.py runs it
@pytest.mark.timeout(200)
@pytest.mark.usefixtures("prefect_server")
def test_isolate_reduces_the_reported_beam_case_to_a_script_that_shows_it(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command leads from the workload to a script that a maintainer can run."""
    pytest.importorskip("apache_beam")
    monkeypatch.chdir(tmp_path)
    axes = ["--axis", "workers=10,100,300", "--axis", "items_per_worker=1"]
    status = cli.run(["isolate", "--workload", "beam-pardo", *axes, "--store", address])
    told = " ".join(capsys.readouterr().out.split())
    assert status == 0, told
    assert "128 items in a partition" in told
    assert "--dask_npartitions=<number of items>" in told
    assert "workers and items together 300 → 2" in told
    assert told.count("The symptom shows.") == 1

    folder = tmp_path / "isolated"
    assert {path.name for path in folder.iterdir()} == {
        "notebook.md", "bug-report.md", "isolation.json", "reproducer.py", "report.html",
    }  # fmt: skip
    script = folder / "reproducer.py"
    assert script.read_text().count("\n") <= 60
    done = subprocess.run(
        [sys.executable, "-I", script], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1, done.stderr
    header, row, last = done.stdout.splitlines()
    assert header.split()[:4] == ["items", "workers", "tasks", "workers"]
    assert row.split()[:4] == ["2", "2", "2", "1"]
    assert last == "The symptom shows."
    assert str(tmp_path) not in (folder / "bug-report.md").read_text()
