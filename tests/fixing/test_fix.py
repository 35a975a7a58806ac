"""Real scripts, patched and proven by `scalescope fix`."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import scalescope
from scalescope.cli import main as cli
from scalescope.fixing import copies, outcome, running
from scalescope.fixing.outcome import Guarded, Outcome
from scalescope.fixing.proof import Proof, prove

HEAD = """
import time
from dask.distributed import Client

def score(part):
    time.sleep(0.4)
    return part * 2

def main(client):
{body}

if __name__ == "__main__":
    with Client(n_workers=1, threads_per_worker=8, processes=False, dashboard_address=None) as client:
        main(client)
"""
LOOP = "print(sum(client.submit(score, part).result() for part in range(6)))"
GATHERED = "print(sum(client.gather(client.map(score, range(6)))))"
BUDGET_S = 600.0


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (folder / "in.txt").write_text("7")
    return folder


def written(project: Path, body: str) -> Path:
    script = project / "job.py"
    script.write_text(HEAD.format(body=textwrap.indent(textwrap.dedent(body).strip(), "    ")))
    return script


def test_run_with_fix_shows_the_proven_patch_in_the_report_and_in_json(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The recording is real; the timed pairs of runs, which would take longest, are faked."""
    script = written(project, LOOP)

    def made_up(command: Sequence[str], guarded: Guarded, **others: Any) -> Outcome:
        seconds = 3.0 if LOOP in (guarded.copy.folder / "job.py").read_text() else 1.0
        return Outcome(0, seconds, 0, ("30",), (), "", guarded.copy)

    monkeypatch.setattr(running, "run", made_up)
    report = project.parent / "report.html"
    assert cli.run(["run", "--fix", "--no-save", "--json", "--report", str(report), "job.py"]) == 0
    told = json.loads(capfd.readouterr().out)
    (proven,) = told["fix"]["proven"]
    assert (proven["code"], proven["rewrite"]) == ("results-awaited-in-loop", "awaited_in_loop")
    assert told["fix"]["times"] == pytest.approx(3.0)
    patch = Path(told["fix"]["patch_file"]).read_text()
    assert f"-    {LOOP}\n+    {GATHERED}\n" in patch
    (finding,) = (each for each in told["clusters"][0]["verdict"]["findings"] if each["code"] == proven["code"])
    assert finding["patch"]["diff"] == proven["diff"]
    assert finding["patch"]["proof"].startswith(Proof(**proven["proof"]).line)
    assert "`score` at job.py:10 main" in proven["why"]  # the two recordings are real
    assert finding["patch"]["proof"].endswith(proven["why"])
    assert f"+    {GATHERED}" in report.read_text()
    assert LOOP in script.read_text()


WORKLOAD = """
import time
import dask.bag as db

def clean(x):
    time.sleep(0.1)
    return x + 1

def run(client, items, npartitions=1):
    return sum(db.from_sequence(range(items), npartitions=npartitions).map(clean).compute())
"""


def test_fix_proves_a_larger_parameter_of_a_workload_without_changing_its_file(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recording is real; the timed pairs of runs, which would take longest, are faked."""
    (project / "job.py").write_text(WORKLOAD)

    def made_up(command: Sequence[str], guarded: Guarded, **others: Any) -> Outcome:
        reference, values = command[-2:]
        assert reference == "job.py:run"
        return Outcome(0, 6 / json.loads(values)["npartitions"], 0, ("210",), (), "", guarded.copy)

    monkeypatch.setattr(running, "run", made_up)
    axes = ["-a", "workers=1", "-a", "threads_per_worker=4", "-a", "items=20"]
    assert cli.run(["fix", "--json", "-w", "job.py:run", *axes]) == 0
    found = json.loads(capsys.readouterr().out)
    (proven,) = found["proven"]
    assert proven["code"] == "too-few-partitions"
    assert found["settings"].split() == ["-", "-a", "npartitions=1", "+", "-a", "npartitions=4"]
    assert (found["patch"], found["patch_file"], found["times"]) == ("", "", pytest.approx(4.0))
    assert (project / "job.py").read_text() == WORKLOAD


def test_real_runs_prove_that_one_of_two_scripts_is_faster(project: Path, tmp_path: Path) -> None:
    for which, seconds in (("a", 1.2), ("b", 0.0)):
        (project / f"{which}.py").write_text(f"import time\ntime.sleep({seconds})\nprint('done')\n")
    numbers = count()

    def run(which: str) -> Outcome:
        work = tmp_path / "work"
        made = copies.copy(project, work / str(next(numbers)), {})
        return outcome.run(
            [sys.executable, f"{which}.py"], Guarded(work, made, allowed=False), cwd=made.folder, limit_s=60.0
        )

    found = prove(run, run("a"), budget_s=BUDGET_S)
    assert found.proven
    assert found.low is not None
    assert found.low > 1


@pytest.mark.thorough
def test_a_loop_that_awaits_each_result_is_patched_proven_and_applied(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script also writes a file and prints a line that differs in each run."""
    script = written(project, f"{LOOP}\nopen('out.txt', 'w').write(open('in.txt').read())\nprint(time.time())")
    before = script.read_text()
    assert cli.run(["fix", "--budget", "10m", "--json", "job.py"]) == 0
    found = json.loads(capsys.readouterr().out)
    (proven,) = found["proven"]
    assert (proven["code"], proven["rewrite"]) == ("results-awaited-in-loop", "awaited_in_loop")
    assert proven["proof"]["low"] > 1
    assert len(proven["proof"]["not_compared"]) == 1
    assert script.read_text() == before
    assert {each.name for each in project.iterdir()} == {"job.py", "job.patch", "in.txt"}
    assert cli.run(["fix", "--apply", "job.py"]) == 0
    assert script.read_text() == before.replace(LOOP, GATHERED)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "body",
    [
        "print(sum(client.gather(client.map(score, range(24)))))",
        "state = 0\nfor _ in range(6):\n    state = client.submit(score, state).result()\nprint(state)",
    ],
    ids=["all at once", "each round needs the one before"],
)
def test_a_script_without_a_fault_in_its_code_gets_no_patch(project: Path, body: str) -> None:
    script = written(project, body)
    before = script.read_text()
    found = scalescope.fix("job.py", budget_s=BUDGET_S)
    assert (found.patch, found.proven, found.withdrawn) == ("", (), ())
    assert script.read_text() == before
    assert {each.name for each in project.iterdir()} == {"job.py", "in.txt"}


@pytest.mark.thorough
def test_fix_leaves_a_failing_script_and_its_folder_unchanged(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(project, f"open('out.txt', 'w').write('half')\n{LOOP}\nraise ValueError(3)")
    assert cli.run(["fix", "--json", "job.py"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["proven"] + found["withdrawn"]
    assert len(found["notes"]) == 1
    assert {each.name for each in project.iterdir()} == {"job.py", "in.txt"}


@pytest.mark.thorough
def test_a_patch_that_changes_results_is_withdrawn(project: Path) -> None:
    """Each task reads the file that the previous task wrote, a dependency that the code does not show."""
    body = """
        def step(i):
            import os
            time.sleep(0.4)
            done = os.path.exists("state") and open("state").read() or ""
            open("state", "w").write(done + str(i))
            return len(done)

        sizes = [client.submit(step, i).result() for i in range(6)]  # neither printed nor written
    """
    written(project, body)
    found = scalescope.fix("job.py", budget_s=BUDGET_S)
    assert found.proven == ()
    assert [each.proof.changed for each in found.withdrawn] == [True]


@pytest.mark.thorough
def test_a_script_that_writes_outside_its_folder_is_stopped(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = project.parent / "outside.txt"
    written(project, f"open({str(outside)!r}, 'w').write('x')\n{LOOP}")
    assert cli.run(["fix", "job.py"]) == 2
    assert "--allow-side-effects" in capsys.readouterr().err
    assert not outside.exists()


def test_fix_refuses_arguments_that_name_no_script_or_workload_of_the_folder(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = (
        ["missing.py"],
        ["in.txt"],
        ["latest"],
        ["--budget", "soon", "job.py"],
        ["-m", "json"],
        ["-w", "futures-map"],
        ["-w", "missing.py:run"],
        ["-a", "workers=2"],
    )
    for arguments in refused:
        assert cli.run(["fix", *arguments]) == 2
        assert "error:" in capsys.readouterr().err
    assert {each.name for each in project.iterdir()} == {"in.txt"}


WINDOW = """
import time
from itertools import islice
from distributed import as_completed

def work(x):
    time.sleep(1)
    return x

def run(client, window=2):
    rest = iter(range(12))
    running = as_completed([client.submit(work, x) for x in islice(rest, window)])
    for future in running:
        for x in islice(rest, 1):
            running.add(client.submit(work, x))

globals()["run"].modelled = True  # no time that its tasks compute is charged
"""


def test_fix_proves_a_workload_on_the_virtual_clock_of_the_simulated_cluster(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "job.py").write_text(WINDOW)
    axes = ["-a", "workers=4", "-a", "threads_per_worker=1"]
    assert cli.run(["fix", "--brief", "--json", "-w", "job.py:run", "-c", "simulated", *axes]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["next"] == [
        "scalescope sweep -w job.py:run -c simulated -a workers=4 -a threads_per_worker=1 -a window=8"
    ]
    assert "on a virtual clock" in told["notes"][2]
