"""Causes on real processes with nannies, through the whole chain: run, record, look, judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.requests import asked

from scalescope.model.finding import Finding, Severity, Verdict
from scalescope.model.trial import Trial
from scalescope.run.drivers import Drivers
from scalescope.run.sweep import analyse, begin
from scalescope.run.trials import run_trials

pytestmark = [pytest.mark.timeout(120), pytest.mark.quiet, pytest.mark.thorough]

SCRIPT = """
import os
import signal
import time


def work(item, bad, how):
    if item == bad:
        os._exit(3) if how == "exit" else os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return item


def worker_killing(client, items: int = 12, bad: int = 7, how: str = "exit"):
    client.gather(client.map(work, range(items), bad=bad, how=how, pure=False))


def nap(item, seconds):
    time.sleep(seconds)
    return item


def killed(client, items: int = 16, seconds: float = 0.2):
    futures = client.map(nap, range(items), seconds=seconds, pure=False)
    time.sleep(0.5)
    worker = sorted(client.scheduler_info()["workers"])[0]
    os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)
    client.gather(futures)


def count(item, seconds):
    begin, number = time.thread_time(), 0
    while time.thread_time() - begin < seconds:
        number += 1
    return item


def counting(client, items: int = 8, seconds: float = 0.4):
    client.gather(client.map(count, range(items), seconds=seconds, pure=False))
"""


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Carry out a sweep of one point of a user's own script on local processes; its only trial, and the verdict."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)

    def carry_out(function: str, **point: Any) -> tuple[Trial, Verdict]:
        sweep = {"workload": f"{path}:{function}", "cluster": "local", "points": [point], "trial_timeout_s": 60}
        request = asked(sweep, store=str(tmp_path / "results.db"))
        finished: list[Trial] = []
        with request.open_store() as store:
            begun, waiting = begin(request, store)
            run_trials(Drivers(request, begun.id, store), waiting, finished=finished.append)
            verdict = analyse(store, begun.id)
        return finished[0], verdict

    return carry_out


def keys_of(finding: Finding) -> list[str]:
    return [str(item.value) for item in finding.evidence if item.what == "key of the task"]


@pytest.mark.parametrize(("how", "word", "allowed"), [("exit", "exit code 3", 3), ("kill", "SIGKILL", 1)])
def test_a_worker_killing_task_comes_first(run: Any, how: str, word: str, allowed: int) -> None:
    trial, verdict = run("worker_killing", workers=2, how=how, **{"distributed.scheduler.allowed-failures": allowed})
    first = verdict.findings[0]
    assert first.code == "worker-killing-task", verdict.line
    assert first.severity is Severity.HIGH
    assert word in first.summary
    assert "KilledWorker" in first.summary
    assert "run `work` on the item of `work-" in first.remedy
    assert verdict.line.endswith(f"Fix: {first.remedy}.")
    keys = keys_of(first)
    assert any(key.endswith("-7") for key in keys)
    if allowed == 3:  # after four deaths, at most the one that waited behind it each time is suspected as well
        assert len(keys) <= 2
    assert "worker-died" not in [finding.code for finding in trial.findings]


def test_a_worker_that_was_killed(run: Any) -> None:
    trial, _ = run("killed", workers=2)
    findings = {finding.code: finding for finding in trial.findings}
    assert "worker-killing-task" not in findings
    finding = findings["worker-died"]
    assert finding.summary.startswith("1 worker died")
    assert "SIGKILL" in finding.summary
    assert any(item.what == "exit code of worker" for item in finding.evidence)
    assert finding.lost_s > 0


def test_python_loops_on_four_threads_take_turns(run: Any) -> None:
    for _ in range(2):
        trial, _ = run("counting", workers=1, threads_per_worker=4)
        assert trial.counts, trial.reason
        load = trial.facts["host"]["load"]
        if load and load["idle"] * load["cpus"] > 0.3:
            break
    else:
        pytest.skip(f"this host has no idle core, so that nothing can be said of locks: {load}")
    findings = {finding.code: finding for finding in trial.findings}
    assert "gil-bound" in findings, findings
    assert findings["gil-bound"].severity is Severity.HIGH
    assert "`count`" in findings["gil-bound"].summary
