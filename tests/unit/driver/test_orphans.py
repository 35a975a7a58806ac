"""Drivers whose parent died, and which cannot end by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scalescope import leases
from scalescope.clusters import reaping
from scalescope.clusters.local import reaper
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
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


def test_a_driver_is_in_the_ledger_while_it_runs(tmp_path: Path) -> None:
    with Driver.start(SimulatedSpec(), folder=tmp_path / "driver") as driver:
        (lease,) = leases.read_all()[0]
        assert (lease.backend, lease.owner.pid) == ("local", os.getpid())
        assert driver.pid in [process.pid for process in reaper.marked(lease.label)]
        assert [result.fate for result in reaping.reap()] == [Fate.OWNED]
        assert driver.alive
    assert leases.read_all()[0] == []


def test_a_ledger_that_cannot_be_written_is_no_reason_not_to_start(
    tmp_path: Path, ledger: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.write_text("a file where the folder should be")
    with Driver.start(SimulatedSpec(), folder=tmp_path / "driver") as driver:
        assert driver.alive
    assert "not in the ledger of leases" in caplog.text


def test_a_stuck_driver_of_a_dead_parent_is_reaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "TERM_S", 0.5)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "driver")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    driver = psutil.Process(int(parent.stdout.readline()))
    os.kill(driver.pid, signal.SIGSTOP)  # it cannot see that its parent is gone
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert driver.is_running()
    (result,) = reaping.reap()
    assert (result.fate, result.removed) == (Fate.REMOVED, (str(driver.pid),))
    assert not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE
    assert leases.read_all()[0] == []
    assert (tmp_path / "driver").exists()  # not ours to remove
