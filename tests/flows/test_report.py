"""The command `scalescope report`, and the report that a sweep writes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.prefect_api import by_type
from support.requests import asked, finished_run

from scalescope.cli import main as cli
from scalescope.errors import ExitStatus, StoreError
from scalescope.report import html
from scalescope.run import orchestrator_load
from scalescope.store.store import Store
from scalescope_flows import scale_sweep

SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [1, 2, 4]}, "params": {"items": 4}}


@pytest.fixture
def run_id(fake: Any, address: str) -> str:
    return finished_run(SWEEP, address).id


def artifact_text(sweep_id: str) -> str:
    return str(by_type(sweep_id)["markdown"]["data"])


# ------------------------------------------------------------------ the command


def test_report_writes_the_newest_run_into_the_working_folder(
    run_id: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["report", "--store", address]) == 0
    assert capsys.readouterr().out == "report.html\n"
    assert run_id in Path("report.html").read_text(encoding="utf-8")


def test_report_writes_the_given_run_and_trial_to_the_given_file(run_id: str, address: str, tmp_path: Path) -> None:
    with Store.open(address) as store:
        trial = store.run(run_id).trials[0]
    target = tmp_path / "a.html"
    assert cli.run(["report", run_id, "--trial", trial.key, "--output", str(target), "--store", address]) == 0
    assert "chosen by its key" in target.read_text(encoding="utf-8")


def test_report_writes_to_an_fsspec_address(run_id: str, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", "--output", "memory://bucket/a.html", "--store", address]) == 0
    assert capsys.readouterr().out == "memory://bucket/a.html\n"
    assert run_id in fsspec.filesystem("memory").cat("/bucket/a.html").decode()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "'nonsense'"),
        (["--trial", "nonsense"], "has no trial 'nonsense'"),
        (["--output", "no/such/folder.html"], "There is no folder"),
    ],
)
def test_report_refuses_an_unknown_run_trial_or_folder(
    run_id: str,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["report", *arguments, "--store", address]) == ExitStatus.USAGE
    assert says in " ".join(capsys.readouterr().err.split())
    assert not Path("report.html").exists()


# ------------------------------------------------------------------ in a sweep


@pytest.mark.usefixtures("prefect_server")
class TestReportOfSweep:
    @pytest.fixture(autouse=True)
    def no_waiting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(orchestrator_load, "wait_until_quiet", lambda processes: 0.0)

    def test_a_sweep_writes_its_report_and_names_it_in_the_artifact(
        self, fake: Any, address: str, tmp_path: Path
    ) -> None:
        target = tmp_path / "report.html"
        result = scale_sweep(**SWEEP, seed=11, store=address, report=str(target))
        assert result.run_id in target.read_text(encoding="utf-8")
        text = artifact_text(asked({**SWEEP, "seed": 11}).sweep.id).replace("\\", "")
        assert f"{target} on {socket.gethostname()}" in text
        assert f"`scalescope report {result.run_id}`" in text

    def test_a_report_that_cannot_be_written_leaves_the_run_complete(
        self, fake: Any, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*arguments: Any) -> None:
            raise StoreError("The report could not be written: No space left on device")

        monkeypatch.setattr(html, "write", full)
        with pytest.raises(StoreError, match="No space left"):
            scale_sweep(**SWEEP, seed=13, store=address, report=str(tmp_path / "report.html"))
        with Store.open(address) as store:
            run = store.run("latest")
        assert run.state.value == "complete"
        assert run.verdict is not None
        assert "Report" not in artifact_text(asked({**SWEEP, "seed": 13}).sweep.id)
