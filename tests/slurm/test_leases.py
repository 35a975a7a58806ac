"""Jobs left on a real Slurm when processes die, and how `reap` removes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_for as until

from scalescope import leases
from scalescope.cli import main as cli
from scalescope.clusters import reaping
from scalescope.clusters.reaping import Fate
from scalescope.errors import ExitStatus
from scalescope.slurm import commands as slurm_commands

OWNER = """
import subprocess, sys, time
from scalescope import leases
from scalescope.slurm import commands as slurm_commands
from scalescope.slurm import jobs as slurm_jobs
from scalescope.slurm import submission

run = slurm_commands.commands()
lease = leases.intend("slurm", leases.new_label(), slurm_jobs.lease_details(run=run), limit_s=3600)
for options in sys.argv[1:]:
    script = f"#!/bin/bash\\n#SBATCH -J {lease.label} --comment={lease.label} -o /dev/null {options}\\nsleep 600\\n"
    print(submission.submit(script, run=run), flush=True)
print(lease.label, flush=True)
time.sleep(600)
"""

Start = Callable[..., tuple["subprocess.Popen[str]", str, list[str]]]


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


@pytest.fixture
def start(in_slurm: Any) -> Iterator[Start]:
    """Starts a process that holds a lease and jobs with these options; returns it, the label and the jobs."""
    started = []

    def begin(*options: str) -> tuple[subprocess.Popen[str], str, list[str]]:
        process = subprocess.Popen([sys.executable, "-c", OWNER, *options], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        jobs = [process.stdout.readline().strip() for _ in options]
        label = process.stdout.readline().strip()
        assert all(jobs)
        assert label
        return process, label, jobs

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()  # SIGKILL: the process cannot clean up
    process.wait()


def states(slurm: Any, *jobs: str) -> dict[str, str]:
    queue = dict(row.split() for row in slurm.run("squeue", "-h", "-o", "%i %T").splitlines())
    return {job: queue.get(job, "gone") for job in jobs}


def ours(slurm: Any, label: str) -> str:
    return str(slurm.run("squeue", "-h", "-n", label))


def test_reap_leaves_the_jobs_of_a_living_owner(in_slurm: Any, start: Start) -> None:
    _, label, jobs = start("", "--hold")
    (result,) = reaping.reap()
    assert (result.label, result.fate, result.removed) == (label, Fate.OWNED, ())
    assert "gone" not in states(in_slurm, *jobs).values()


def test_reap_removes_the_jobs_of_a_killed_owner_and_no_foreign_job(in_slurm: Any, start: Start) -> None:
    process, label, jobs = start("", "-N2", "--hold", "--begin=now+1hour", "-N16 --exclusive --nice=1000")
    foreign = [
        in_slurm.submit("-J", name, f"--comment={comment}")
        for name, comment in (
            (label + "0", label + "0"),
            (label[:-1], label[:-1]),
            (label.upper(), label.upper()),
            ("scalescope-000000000000", "scalescope-000000000000"),
            (label, "scalescope-000000000000"),  # the name is ours, the comment is not
            (label, label + " "),
            ("somebody-else", label),
        )
    ]
    until(lambda: states(in_slurm, *foreign) == dict.fromkeys(foreign, "RUNNING"))
    assert sorted(states(in_slurm, *jobs).values()) == ["PENDING", "PENDING", "PENDING", "RUNNING", "RUNNING"]
    kill(process)

    (told,) = reaping.reap(dry_run=True)
    assert (told.fate, sorted(told.removed)) == (Fate.FAILED, sorted(jobs))  # another job only looks like ours
    assert "gone" not in states(in_slurm, *jobs).values()

    (result,) = reaping.reap()
    assert (result.fate, sorted(result.removed)) == (Fate.FAILED, sorted(jobs))
    assert set(states(in_slurm, *jobs).values()) == {"gone"}
    assert states(in_slurm, *foreign) == dict.fromkeys(foreign, "RUNNING")
    assert foreign[4] in result.words
    assert "not cancelled" in result.words
    assert [lease.label for lease in leases.read_all()[0]] == [label]  # kept while such a job exists
    in_slurm.run("scancel", *foreign[4:6])
    until(lambda: set(states(in_slurm, *foreign[4:6]).values()) == {"gone"})
    (result,) = reaping.reap()
    assert result.fate is Fate.REMOVED
    assert leases.read_all()[0] == []
    assert reaping.reap() == []


def test_reap_finds_a_job_submitted_while_its_owner_died(in_slurm: Any, start: Start) -> None:
    """The owner's sbatch outlives it: the job appears a moment after the reaper's first look."""
    process, label, jobs = start("")
    kill(process)
    late = f"sleep 1; sbatch -J {label} --comment={label} -o /dev/null --hold --wrap 'sleep 600'"
    with subprocess.Popen(["sh", "-c", late], env={**os.environ}, stdout=subprocess.DEVNULL) as submitting:
        (result,) = reaping.reap()
        assert submitting.wait() == 0
    assert len(result.removed) == 2
    assert set(jobs) < set(result.removed)
    assert ours(in_slurm, label) == ""


def test_reap_leaves_leases_of_another_slurm_cluster(in_slurm: Any, start: Start, ledger: Path) -> None:
    process, label, jobs = start("")
    kill(process)
    path = ledger / f"{label}.json"
    lease = json.loads(path.read_text())
    lease["details"]["cluster"] = "another"
    path.write_text(json.dumps(lease))
    (result,) = reaping.reap()
    assert (result.fate, result.removed) == (Fate.ELSEWHERE, ())
    assert "another" in result.next_step
    assert "gone" not in states(in_slurm, *jobs).values()
    assert path.exists()


def test_reap_keeps_the_lease_if_slurm_does_not_answer(
    in_slurm: Any, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, label, _ = start("")
    kill(process)
    nowhere = tmp_path / "slurm.conf"
    text = in_slurm.conf.read_text().replace("SlurmctldPort=", "SlurmctldPort=1 #")
    nowhere.write_text(text + "MessageTimeout=1\n")
    away = slurm_commands.commands({"SLURM_CONF": str(nowhere)}, timeout_s=3)
    monkeypatch.setattr(reaping, "commands", lambda lease: away)
    (result,) = reaping.reap()
    assert result.fate is Fate.FAILED
    assert "Slurm does not answer" in result.words
    assert [lease.label for lease in leases.read_all()[0]] == [label]


def test_the_commands_leases_and_reap_show_and_remove_jobs_without_an_owner(
    in_slurm: Any, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    process, label, jobs = start("")
    assert cli.run(["leases", "--json"]) == ExitStatus.OK
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["label"], told["owned"], told["backend"]) == (label, True, "slurm")
    kill(process)
    assert cli.run(["leases"]) == ExitStatus.OK
    shown = capsys.readouterr()
    assert "is dead" in shown.out
    assert "1 whose run is gone" in shown.err
    assert cli.run(["reap", "--dry-run"]) == ExitStatus.OK
    assert "would remove" in capsys.readouterr().out
    assert cli.run(["reap", "--json"]) == ExitStatus.OK
    (done,) = json.loads(capsys.readouterr().out)
    assert (done["fate"], done["removed"]) == ("removed", jobs)
    assert cli.run(["reap"]) == ExitStatus.OK
    assert "no lease" in capsys.readouterr().err
