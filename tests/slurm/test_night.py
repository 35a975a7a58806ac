"""A night on a real Slurm, killed in the middle and continued."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.site import wait_for

from scalescope.nightly.night_record import nights
from scalescope.store.store import Store


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SCALESCOPE_LEASES", str(tmp_path / "leases"))


@pytest.mark.thorough  # nights on Kubernetes and on a local cluster are shown in each run
def test_a_night_that_was_killed_continues_and_publishes_its_pages(in_slurm: Any, tmp_path: Path) -> None:
    address, site = str(tmp_path / "store.db"), tmp_path / "site"
    command = [sys.executable, "-c", "from scalescope.cli.main import main; main()", "nightly", "--no-prefect"]
    command += ["--store", address, "-c", "slurm", "-a", "workers=2", "--rounds", "1", "--small"]
    command += ["-w", "futures-map", "-w", "bag-map", "--site", str(site)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: _finished(address) == 1, "the first run does not finish")
        wait_for(lambda: in_slurm.run("squeue", "-h"), "the second run has no jobs")
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not in_slurm.run("squeue", "-h"), "jobs are left of the night that was killed")
    with Store.open(address) as store:
        [killed] = nights(store)
        [kept] = [each for each in store.runs() if each.finished_at]
    assert not killed.study.finished_at
    assert not site.exists()

    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "No regression. 2 series measured" in done.stdout
    with Store.open(address) as store:
        [night] = nights(store)
        assert (night.id, len(night.study.runs)) == (killed.id, 2)
        assert store.run(kept.id) == kept
    assert [each.series.cluster["kind"] for each in night.record.measured] == ["slurm", "slurm"]
    assert night.record.problems == ()
    assert night.id in (site / "index.html").read_text()
    assert len(list(site.glob("*-map-*.html"))) == 2
    assert not in_slurm.run("squeue", "-h")


def _finished(address: str) -> int:
    if not Path(address).exists():
        return 0
    with Store.open(address) as store:
        return sum(bool(run.finished_at) for run in store.runs())
