"""What a driver leaves when its parent is killed, and how it is found and removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from scalescope import driver_folders, leases
from scalescope.clusters import reaping
from scalescope.clusters.reaping import Fate
from scalescope.clusters.simulated.spec import SimulatedSpec
from scalescope.driver.process import Driver

PARENT = """
import sys, time
from pathlib import Path
from scalescope.driver.process import Driver
from scalescope.clusters.simulated.spec import SimulatedSpec

driver = Driver.start(SimulatedSpec(), folder=Path(sys.argv[1]))
print(driver.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "scalescope-driver"


def dead(folder: Path) -> Path:
    """A folder as it is after its parent was killed."""
    folder.mkdir()
    (folder / driver_folders.LOCK).touch()
    (folder / "driver.log").write_text("the end")
    return folder


def test_the_folder_of_a_living_run_is_left_alone(folder: Path) -> None:
    with Driver.start(SimulatedSpec(), folder=folder) as driver:
        assert driver.pid in [process.pid for process in driver_folders.processes(folder)]
        assert reaping.reap() == []
        assert driver.alive
    assert reaping.reap() == []  # its records may still be read
    assert folder.is_dir()


def test_the_next_driver_removes_folders_that_dead_runs_left(folder: Path) -> None:
    old, foreign = dead(folder.with_name("scalescope-old")), dead(folder.with_name("other-old"))
    unlocked = folder.with_name("scalescope-unlocked")
    unlocked.mkdir()
    (folder.with_name("scalescope-link")).symlink_to(foreign)
    Driver.start(SimulatedSpec(), folder=folder).close()
    assert not old.exists()
    assert (foreign / "driver.log").exists()
    assert unlocked.exists()


def test_a_stuck_driver_of_a_dead_parent_is_reaped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_folders, "TERM_S", 0.5)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(folder)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    driver = psutil.Process(int(parent.stdout.readline()))
    os.kill(driver.pid, signal.SIGSTOP)  # it cannot see that its parent is gone
    parent.kill()
    parent.communicate()
    driver_folders.sweep()
    assert folder.exists()  # a driver may still close its cluster: only `reap` ends it
    (told,) = reaping.reap(dry_run=True)
    assert (told.fate, told.removed) == (Fate.WOULD_REMOVE, (str(driver.pid),))
    assert driver.is_running()
    (result,) = reaping.reap()
    assert (result.label, result.fate, result.removed) == (folder.name, Fate.REMOVED, (str(driver.pid),))
    assert not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE
    assert not folder.exists()


def test_driver_processes_that_cannot_be_ended_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead(folder)
    monkeypatch.setattr(driver_folders, "TERM_S", 0.01)
    monkeypatch.setattr(driver_folders, "KILL_S", 0.01)
    for name in ("terminate", "kill"):
        monkeypatch.setattr(psutil.Process, name, lambda process: None)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, driver_folders.FOLDER: str(folder)}) as hung:
        (result,) = reaping.reap()
        assert (result.fate, str(hung.pid) in result.words) == (Fate.FAILED, True)
        assert result.next_step
        os.kill(hung.pid, signal.SIGKILL)
    assert folder.exists()
