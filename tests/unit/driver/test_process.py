"""The parent's side, against misbehaving drivers: scripts in place of the interpreter."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from scalescope.clusters.local.spec import LocalSpec
from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.driver import process
from scalescope.driver.process import Driver
from scalescope.errors import ClusterError, DriverError, ScalescopeError, UsageError, WorkersMissing
from scalescope.model.cluster import ClusterSpec
from scalescope.model.sweep import PlannedTrial, Point
from scalescope.model.trial import TrialState

READY = """
import json, os, signal, subprocess, sys, time
def say(kind, **fields):
    print(json.dumps({"kind": kind, **fields}), flush=True)
def progress(phase, limit_s):
    say("progress", phase=phase, text=f"now {phase}", limit_s=limit_s)
def trial(key, **fields):
    say("trial", **{**dict(key=key, state="valid", reason="", error=None, started_at="t", real_s=1, elapsed_s=0.5,
        warnings=[], facts={}), **fields})
say("ready", pid=os.getpid(), python="3.0", versions={"dask": "1"}, host={"cores": 2}, packages={"dask": "1"})
"""
OPENED = READY + 'sys.stdin.readline(); say("opened", facts={"kind": "local"})\n'
ASKED = OPENED + 'key = json.loads(sys.stdin.readline())["key"]\n'
TRIAL = PlannedTrial(0, Point(1), 0)

Fake = Callable[[str], str]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Makes an interpreter that always runs the given script, whatever module it is told to run."""

    def make(source: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(source))
        path = tmp_path / "python"
        path.write_text(f'''#!/bin/sh
            [ "$1" = -c ] && exec "{sys.executable}" "$@"
            exec "{sys.executable}" -SE "{script}"
        ''')
        path.chmod(0o755)
        return str(path)

    return make


def start(python: str, tmp_path: Path, **options: object) -> Driver:
    return Driver.start(LocalSpec(), folder=tmp_path / "run", python=python, **options)  # type: ignore[arg-type]


def test_a_well_behaved_driver_returns_facts_progress_and_outcomes(fake: Fake, tmp_path: Path) -> None:
    said: list[str] = []
    source = ASKED + 'progress("running", 5); trial(key, warnings=["one"], result=3); trial(key); sys.stdin.read()'
    with start(fake(source), tmp_path, on_progress=said.append) as driver:
        assert driver.facts == {"kind": "local"}
        assert driver.host == {"cores": 2}
        assert driver.packages == {"dask": "1"}
        assert driver.versions == {"python": "3.0", "dask": "1"}
        outcome, second = (driver.run(TRIAL, "w", timeout_s=5) for _ in range(2))
        assert driver.alive
    assert (outcome.state, outcome.elapsed_s, outcome.warnings, outcome.result) == (TrialState.VALID, 0.5, ("one",), 3)
    assert outcome.spool.is_dir()
    assert second.spool != outcome.spool
    assert said == ["now running"]
    assert not driver.alive


@pytest.mark.parametrize("name", ["missing/python", "not-executable"])
def test_an_interpreter_that_cannot_be_run_raises_driver_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "not-executable").write_text("")
    with pytest.raises(DriverError, match="could not be started") as caught:
        start(str(tmp_path / name), tmp_path)
    assert name in caught.value.where
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("source", "what", "cause"),
    [
        ('print("No module dask", file=sys.stderr); sys.exit(3)', "ended with exit status 3", "No module dask"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL", "memory"),
    ],
)
def test_a_driver_that_dies_at_once_shows_why(source: str, what: str, cause: str, fake: Fake, tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=what) as caught:
        start(fake(f"import os, signal, sys; {source}"), tmp_path)
    assert cause in caught.value.cause
    assert str(tmp_path / "run" / "driver.log") in caught.value.where


@pytest.mark.thorough
def test_an_error_shows_only_the_last_log_lines_of_its_own_driver(fake: Fake, tmp_path: Path) -> None:
    for number in (1, 2):
        python = fake(f'import sys; [print("line", {number}, i, file=sys.stderr) for i in range(1000)]; sys.exit(3)')
        with pytest.raises(DriverError) as caught:
            start(python, tmp_path)
        assert f"line {number} 999" in caught.value.cause
        assert len(caught.value.cause.splitlines()) < 30
    assert "line 1" not in caught.value.cause


@pytest.mark.parametrize("line", ["Segmentation fault", '{"kind": "nonsense"}'])
def test_a_driver_that_writes_no_valid_message_raises_driver_error(line: str, fake: Fake, tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="its parent"):
        start(fake(f"print({line!r}, flush=True); import time; time.sleep(60)"), tmp_path)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("WorkersMissing", WorkersMissing),
        ("ClusterError", ClusterError),
        ("InvalidField", UsageError),
        ("SomethingOfTheFuture", DriverError),
    ],
)
def test_a_cluster_that_does_not_open_raises_the_error_that_the_driver_names(
    kind: str, expected: type[ScalescopeError], fake: Fake, tmp_path: Path
) -> None:
    source = READY + f'say("failed", type="{kind}", what="none", where="here", cause="that", next_step="this")\n'
    with pytest.raises(expected, match="none") as caught:
        start(fake(source + "sys.stdin.read()"), tmp_path)
    assert (caught.value.where, caught.value.cause, caught.value.next_step) == ("here", "that", "this")


def test_a_driver_that_never_becomes_ready_raises_driver_error(fake: Fake, tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="went silent: no message 'Ready'"):
        start(fake("import time; time.sleep(60)"), tmp_path, start_timeout_s=0.5)


def test_progress_messages_do_not_extend_the_time_limit_of_opening(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SILENCE_MARGIN_S", 0.2)
    monkeypatch.setattr(ClusterSpec, "open_limit_s", 0.6)
    source = READY + 'while True: progress("opening", 60); time.sleep(0.05)'
    with pytest.raises(DriverError, match="went silent: no message 'Opened'"):
        start(fake(source), tmp_path)


def test_a_driver_that_dies_in_a_trial_makes_it_invalid(fake: Fake, tmp_path: Path) -> None:
    source = ASKED + 'progress("loading", 9); print("out of luck", file=sys.stderr); os._exit(7)'
    with start(fake(source), tmp_path) as driver:
        outcome = driver.run(TRIAL, "w", timeout_s=5)
        assert not driver.alive
        assert outcome.state is TrialState.INVALID
        assert "exit status 7" in outcome.reason
        assert "out of luck" in outcome.reason
        assert outcome.error is not None
        assert outcome.error["type"] == "DriverError"
        with pytest.raises(DriverError, match="cannot run another trial"):
            driver.run(TRIAL, "w", timeout_s=5)


def test_if_a_task_ends_the_shared_process_a_local_cluster_is_advised(fake: Fake, tmp_path: Path) -> None:
    source = fake(ASKED + 'progress("running", 9); os._exit(3)')
    with Driver.start(SimulatedSpec(), folder=tmp_path / "run", python=source) as driver:
        reason = driver.run(TRIAL, "w", timeout_s=5).reason
    assert "exit status 3" in reason
    assert "-c local" in reason


def test_a_driver_that_dies_before_the_trial_begins_raises_driver_error(fake: Fake, tmp_path: Path) -> None:
    with start(fake(ASKED + 'progress("clearing", 9); os._exit(7)'), tmp_path) as driver:
        with pytest.raises(DriverError, match="exit status 7"):
            driver.run(TRIAL, "w", timeout_s=5)
        assert not driver.alive


def test_a_driver_that_goes_silent_in_a_trial_is_killed(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SILENCE_MARGIN_S", 0.2)
    monkeypatch.setattr(process, "TERMINATE_TIMEOUT_S", 0.2)
    source = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ASKED
    with start(fake(source + 'progress("running", 0.1); time.sleep(60)'), tmp_path) as driver:
        outcome = driver.run(TRIAL, "w", timeout_s=5)
        assert outcome.state is TrialState.INVALID
        assert "went silent" in outcome.reason
        assert not psutil.pid_exists(driver.pid)


def test_messages_sent_while_the_parent_was_busy_do_not_count_as_silence(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SILENCE_MARGIN_S", 0.2)
    python = fake(ASKED + 'progress("running", 0.1); trial(key); time.sleep(60)')
    with start(python, tmp_path, on_progress=lambda text: time.sleep(0.8)) as driver:
        assert driver.run(TRIAL, "w", timeout_s=5).state is TrialState.VALID
        driver.close(timeout_s=0)


def test_a_driver_that_announces_its_end_counts_as_dead(fake: Fake, tmp_path: Path) -> None:
    source = ASKED + 'trial(key, state="invalid", reason="timed out", ending=True); time.sleep(60)'
    with start(fake(source), tmp_path) as driver:
        assert driver.run(TRIAL, "w", timeout_s=5).reason == "timed out"
        assert not driver.alive
        driver.close(timeout_s=0)


def test_an_answer_for_another_trial_is_refused(fake: Fake, tmp_path: Path) -> None:
    with start(fake(ASKED + 'progress("loading", 9); trial("other"); time.sleep(60)'), tmp_path) as driver:
        assert "answered for trial other" in driver.run(TRIAL, "w", timeout_s=5).reason


def test_closing_ends_everything_the_driver_started(fake: Fake, tmp_path: Path) -> None:
    source = (
        'child = subprocess.Popen(["sleep", "60"]); sys.stdin.readline(); say("opened", facts={"child": child.pid})'
    )
    driver = start(fake(f"{READY}{source}\nsys.stdin.read()"), tmp_path)
    child = psutil.Process(driver.facts["child"])
    assert os.getpgid(driver.pid) == driver.pid != os.getpgrp()
    driver.close()
    driver.close()
    psutil.wait_procs([child], timeout=5)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert not psutil.pid_exists(driver.pid)


def test_closing_kills_a_driver_that_ignores_sigterm(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TERMINATE_TIMEOUT_S", 0.2)
    source = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + OPENED + "time.sleep(60)"
    driver = start(fake(source), tmp_path)
    driver.close(timeout_s=0.2)
    assert not psutil.pid_exists(driver.pid)


def test_a_driver_gets_the_environment_variables_of_its_own_cluster(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALESCOPE_CLOCK", "virtual")  # as in a driver that starts another one
    monkeypatch.setenv("SCALESCOPE_CLUSTER", "light")
    python = fake(READY + "sys.stdin.readline(); say('opened', facts=dict(os.environ)); sys.stdin.read()")
    with start(python, tmp_path) as driver:
        importable = Path(driver.facts["PYTHONPATH"].split(os.pathsep)[0])
        assert [path.name for path in importable.iterdir()] == ["scalescope"]
        assert (importable / "scalescope" / "driver" / "process.py").samefile(process.__file__)
        assert driver.facts["SCALESCOPE_CLUSTER"] == "local"
        assert "SCALESCOPE_CLOCK" not in driver.facts
    with Driver.start(SimulatedSpec(), folder=tmp_path / "run", python=python) as driver:
        assert (driver.facts["SCALESCOPE_CLOCK"], driver.facts["PYTHONHASHSEED"]) == ("virtual", "0")
