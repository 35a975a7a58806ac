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
from scalescope.fixing.proof import prove

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


def test_fix_patches_a_recorded_finding_and_shows_its_proof(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording is real; the timed pairs are made up, since they take longest."""
    script = written(project, LOOP)

    def made_up(command: Sequence[str], guarded: Guarded, **others: Any) -> Outcome:
        seconds = 3.0 if LOOP in (guarded.copy.folder / "job.py").read_text() else 1.0
        return Outcome(0, seconds, 0, ("30",), (), "", guarded.copy)

    monkeypatch.setattr(running, "run", made_up)
    found = scalescope.fix("job.py")
    (proven,) = found.proven
    assert (proven.code, proven.rewrite) == ("results-awaited-in-loop", "awaited_in_loop")
    assert found.times == pytest.approx(3.0)
    assert found.after[Path("job.py")].decode() == script.read_text().replace(LOOP, GATHERED)


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

        print([client.submit(step, i).result() for i in range(6)])
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


def test_fix_refuses_a_file_that_is_no_script(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["missing.py"], ["in.txt"], ["latest"], ["--budget", "soon", "job.py"]):
        assert cli.run(["fix", *arguments]) == 2
        assert "error:" in capsys.readouterr().err
    assert {each.name for each in project.iterdir()} == {"in.txt"}
