from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.requests import finished_run

from scalescope import workloads
from scalescope.cli import main as cli
from scalescope.cli.carrying import without_password
from scalescope.cli.host_checks import Check
from scalescope.errors import ExitStatus, InfrastructureError, StoreError
from scalescope.model.extras import install_command
from scalescope.model.finding import Finding, Severity, Verdict
from scalescope.store.store import Store

SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [1, 2, 4]}, "params": {"items": 4}}


@pytest.fixture
def run_of(fake: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Severity], str]:
    """Makes a finished run whose worst finding has a severity; returns its id."""
    monkeypatch.setenv("SCALESCOPE_STORE", address)

    def make(severity: Severity) -> str:
        finding = Finding("idle", severity, "Half of the workers are idle.", "ask for fewer")
        verdict = Verdict(finding.summary, (finding,))
        return finished_run(SWEEP, address, verdict=verdict, fresh=True).id

    return make


# ------------------------------------------------------------------ what is fine


def test_commands_print_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.strip()
    for command in ([], ["sweep"], ["show"], ["trace"], ["workloads"], ["doctor"]):
        assert cli.run([*command, "--help"]) == 0
        assert "Exit status: 0" in " ".join(capsys.readouterr().out.split())


def test_workloads_lists_all_workloads_and_their_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["workloads"]) == 0
    shown = capsys.readouterr().out
    assert all(workload.name in shown for workload in workloads.builtin())

    assert cli.run(["workloads", "beam-pardo"]) == 0
    shown = capsys.readouterr().out
    assert all(parameter.name in shown for parameter in workloads.load("beam-pardo").parameters)

    assert cli.run(["workloads", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [workload["name"] for workload in found] == [workload.name for workload in workloads.builtin()]
    assert found[0]["parameters"][0]["name"] == "items"


LIGHT = """
import sys
sys.modules.update(dict.fromkeys(("prefect", "prefect_dask", "scipy", "uv", "apache_beam")))  # none can be imported
from scalescope.cli.main import run
sweep = ["sweep", "-w", "futures-map", "-a", "workers=2", "-p", "items=4"]
sys.exit(run(sweep) or 10 + run([*sweep, "--prefect"]))
"""


def test_a_sweep_runs_without_the_packages_of_the_extras(address: str) -> None:
    environ = {**os.environ, "SCALESCOPE_STORE": address, "PREFECT_API_URL": "http://127.0.0.1:1/api"}
    done = subprocess.run([sys.executable, "-c", LIGHT], env=environ, capture_output=True, text=True)
    assert done.returncode == 10 + ExitStatus.USAGE, done.stderr
    assert install_command("prefect") in done.stderr


@pytest.mark.parametrize(("severity", "status"), [(Severity.HIGH, 1), (Severity.MEDIUM, 0), (Severity.INFO, 0)])
def test_show_exits_with_1_only_for_a_severe_finding(
    run_of: Any, capsys: pytest.CaptureFixture[str], severity: Severity, status: int
) -> None:
    run_id = run_of(severity)
    assert cli.run(["show", run_id]) == status
    output = capsys.readouterr()
    assert "Half of the workers are idle." in output.out
    assert run_id in output.err
    assert cli.run(["show", "list"]) == 0
    assert f"{severity.word}: idle" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("condition", "status", "said"),
    [
        ("efficiency >= 0.01 at workers=4", 0, "met: efficiency >= 0.01 at workers=4 (efficiency is "),
        ("tasks > 4", 1, "not met: tasks > 4 (tasks is "),
        ("tasks > 1 at workers=3", 2, "the points are: 1 worker, 4 items"),
        ("task > 1", 2, "did you mean 'tasks'?"),
    ],
)
def test_the_exit_status_follows_the_requirements_when_there_are_any(
    run_of: Any, address: str, capsys: pytest.CaptureFixture[str], condition: str, status: int, said: str
) -> None:
    run_of(Severity.HIGH)
    assert cli.run(["show", "--store", address, "--require", condition]) == status
    output = capsys.readouterr()
    assert said.replace("the points are", "no measured point matches; the points are") in " ".join(
        (output.out + output.err).split()
    )
    command = ["show", "--store", address, "--require", condition]
    assert cli.run([*command, "--json", "--require", "efficiency < 2"]) == status
    if output.out:
        answers = json.loads(capsys.readouterr().out)["requirements"]
        assert [answer["status"] for answer in answers] == [status, 0]
        assert cli.run([*command, "--list"]) == ExitStatus.USAGE
    sweep = ["sweep", "-w", "futures-map", "-a", "workers=1,2,4", "-p", "items=4", "--store", address]
    if status == ExitStatus.USAGE:  # before anything is run
        assert cli.run([*sweep, "--require", condition]) == status
        assert said in " ".join(capsys.readouterr().err.split())


def test_show_says_why_a_run_ended_early_until_it_is_continued(
    fake: Any, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*args: object, **options: object) -> None:
        raise StoreError("the disk is full", next_step="make room")

    sweep = ["sweep", "-w", "futures-map", "-a", "workers=1", "-p", "items=4", "--store", address, "--no-prefect"]
    with monkeypatch.context() as patch:
        patch.setattr("scalescope.run.sweep.run_trials", lost)
        assert cli.run(sweep) == ExitStatus.INFRASTRUCTURE
    capsys.readouterr()
    cli.run(["show", "--store", address])
    assert "This run ended early: the disk is full" in capsys.readouterr().out
    assert cli.run(sweep) == 0  # the run is continued, and its early end is no longer mentioned
    assert "ended before its time" not in capsys.readouterr().out


def test_show_prints_a_run_as_json(run_of: Any, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_id = run_of(Severity.HIGH)
    assert cli.run(["show", "--json", "--store", address]) == 1
    output = capsys.readouterr()
    shown = json.loads(output.out)
    assert output.err == ""
    assert shown["run"] == run_id
    assert shown["state"] == "complete"
    assert shown["verdict"]["severity"] == "high"
    assert [point["workers"] for point in shown["points"]] == [1, 2, 4]


def test_show_compares_two_runs_side_by_side(run_of: Any, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = run_of(Severity.HIGH), run_of(Severity.INFO)
    assert cli.run(["show", "compare", first, second, "--store", address]) == 0
    shown = capsys.readouterr().out
    assert first in shown
    assert second in shown
    assert "speed-up" in shown


def test_trace_writes_the_tasks_of_a_point_as_a_trace_file(
    run_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = run_of(Severity.HIGH)
    path = tmp_path / "t.json.gz"
    assert cli.run(["trace", run_id, "--point", "workers=4", "--output", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    with gzip.open(path, "rt") as stream:
        events = json.load(stream)["traceEvents"]
    assert (shown["run"], shown["file"], shown["events"]) == (run_id, str(path), len(events))
    assert sum(event["ph"] == "X" for event in events) == 4

    monkeypatch.chdir(tmp_path)  # by default it is of the worst point, and in this folder
    assert cli.run(["trace"]) == 0
    [path] = tmp_path.glob("trace-*-items-1.json.gz")
    output = capsys.readouterr()
    assert path.name in output.out
    assert "perfetto" in output.err


@pytest.mark.usefixtures("prefect_server")
def test_a_sweep_prints_its_progress_and_its_result(
    fake: Any, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["sweep", "-w", "futures-map", "-a", "workers=1,2,4", "-p", "items=4", "--store", address]
    status = cli.run(arguments)
    output = capsys.readouterr()
    with Store.open(address) as store:
        run = store.run("latest")
    assert run.verdict is not None
    assert status == (1 if run.verdict.severity is Severity.HIGH else 0)
    assert "makespan" in output.err
    assert "3/3" in output.err
    assert "workers" in output.out

    assert cli.run([*arguments, "--json"]) == status
    assert json.loads(capsys.readouterr().out)["store"] == address


@pytest.mark.usefixtures("prefect_server")
def test_options_override_the_sweep_file(
    fake: Any, tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(f"workload: futures-map\naxes: {{workers: [1, 2]}}\nparams: {{items: 4}}\nstore: {address}\n")
    cli.run(["sweep", str(path), "-a", "workers=4", "--repeats", "2", "--cluster-option", "task_cost=none", "--json"])
    sweep = json.loads(capsys.readouterr().out)["sweep"]
    assert sweep["axes"] == {"workers": [4]}
    assert sweep["params"] == {"items": 4}
    assert sweep["repeats"] == 2
    assert sweep["cluster"]["task_cost"] == "none"


@pytest.mark.usefixtures("prefect_server")
def test_a_sweep_stopped_by_its_budget_exits_with_4(
    fake: Any, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", "-w", "futures-map", "-a", "workers=1,2,4", "-p", "items=4", "--store", address]
    assert cli.run([*command, "--budget", "hours=0.01"]) == 4
    output = capsys.readouterr()
    assert "the budget ends" in output.err
    assert "larger budget continues" in output.err
    assert "Nothing was measured" in output.out
    assert cli.run(command) in (0, 1)


def test_an_estimate_starts_no_driver(fake: Any, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", "-w", "futures-map", "-a", "workers=1,2,4", "-c", "slurm", "--timeout", "360"]
    command += ["--store", address]
    assert cli.run([*command, "--estimate"]) == 0
    assert capsys.readouterr().out.startswith("at most 1.4 core-hours")
    assert fake.started == []
    cli.run(command)
    capsys.readouterr()
    assert cli.run([*command, "--estimate"]) == 0
    assert capsys.readouterr().out.startswith("about 0.0 core-hours")


@pytest.mark.parametrize("budget", ["hours", "weeks=1", "hours=-1", "money=1"])
def test_an_invalid_budget_is_refused(budget: str, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", "-w", "futures-map", "-a", "workers=1", "-c", "slurm", "--store", address, "--budget", budget]
    assert cli.run(command) == 2
    assert "budget" in capsys.readouterr().err


def test_ctrl_c_says_that_the_same_command_continues(
    fake: Any, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.script = {1: KeyboardInterrupt()}
    arguments = ["sweep", "-w", "futures-map", "-a", "workers=1,2,4", "-p", "items=4", "--store", address]
    assert cli.run(arguments) == 130
    assert "the same command continues" in capsys.readouterr().err
    assert fake.started[0].closed
    assert cli.run([*arguments, "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["finished"] == 3
    assert len(fake.begun) == 4


def test_the_password_of_a_store_is_not_given_to_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALESCOPE_STORE", "")
    assert without_password({"store": "postgresql://me:secret@host/db"}) == {"store": ""}
    assert os.environ["SCALESCOPE_STORE"] == "postgresql://me:secret@host/db"
    assert without_password({"store": "results.db"}) == {"store": "results.db"}


# ------------------------------------------------------------------ what breaks


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "nonsense"),
        (["sweep", "--repeats", "many"], "--repeats"),
        (["sweep", "--nonsense"], "--nonsense"),
        (["workloads", "futures-mop"], "did you mean 'futures-map'?"),
        (["show", "2099"], "no run '2099'"),
        (["show", "--store", "mysql://me:secret@host/db"], "got 'mysql://me:***@host/db'"),
    ],
)
def test_invalid_arguments_exit_with_2_and_show_no_secret(
    run_of: Any, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    run_of(Severity.INFO)
    assert cli.run(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert says in output.err
    assert "secret" not in output.err


@pytest.mark.parametrize(
    "error", [StoreError("the disk is full"), InfrastructureError("no cluster"), KeyError("defect")]
)
def test_infrastructure_and_internal_errors_exit_with_3_and_hide_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def broken(address: str) -> None:
        raise error

    monkeypatch.setattr("scalescope.cli.commands.show.read_store", broken)
    assert cli.run(["show"]) == 3
    quiet = capsys.readouterr().err
    assert str(error) in quiet
    assert quiet.startswith("error: ")
    assert "Traceback" not in quiet
    assert cli.run(["--debug", "show"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_debug_may_follow_an_option_with_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["fix", "--workload", "/nowhere/job.py:run", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_command_ended_by_sigterm_exits_with_143(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import signal

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("scalescope.cli.commands.show.read_store", lambda address: signal.raise_signal(signal.SIGTERM))
    assert cli.run(["show"]) == 143
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("essential", "status"), [(True, 3), (False, 0)])
def test_doctor_exits_with_3_only_if_an_essential_check_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], essential: bool, status: int
) -> None:
    found = [Check("wheel", "driving", True, "round"), Check("brake", "stopping", False, "not there", essential)]
    monkeypatch.setattr("scalescope.cli.host_checks.all_checks", lambda: found)
    assert cli.run(["doctor"]) == status
    shown = capsys.readouterr().out
    assert "stopping: not there" in shown
    assert ("BROKEN" in shown) is essential
    assert cli.run(["doctor", "--json"]) == status
    assert [check["works"] for check in json.loads(capsys.readouterr().out)] == [True, False]
