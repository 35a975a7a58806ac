"""Faults at every stage of a sweep: one reap leaves nothing, no trial is lost, and the same command completes it.

`make faults` runs every cell of the matrix and writes docs/faults.md; else a few cells run.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.faults import (
    FILLER,
    LINES,
    PATIENCE_S,
    PROCESSES,
    STAGES,
    Commands,
    behind_a_cable,
    fill,
    note,
    see,
    signalled,
)
from support.sshd import serving

pytestmark = pytest.mark.timeout(600)
NOT_YET = {  # stages at which the processes of a cluster do not exist, or cannot be hit
    "light": ("provisioning", "waiting"),  # its workers come at once
    **dict.fromkeys(("local", "ssh"), ("provisioning",)),
}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
SIGNALLED = [
    (process, number, stage)
    for process, number, stage in product(PROCESSES, SIGNALS, STAGES)
    if process in ("flow", "driver")
    # stopping or ending the others is much the same at every stage
    or (stage not in NOT_YET[PROCESSES[process][0]] and (number == signal.SIGKILL or stage == "measuring"))
]
FEW = [
    ("flow", signal.SIGKILL, "flushing"),
    pytest.param("flow", signal.SIGTERM, "storing", marks=pytest.mark.thorough),
    pytest.param("host of workers", signal.SIGKILL, "measuring", marks=pytest.mark.thorough),
]


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path / "commands")
    yield made
    made.kill()


@pytest.mark.parametrize(
    ("process", "number", "stage"), SIGNALLED if LINES else FEW, ids=lambda each: getattr(each, "name", each)
)
def test_a_signal(
    process: str, number: signal.Signals, stage: str, commands: Commands, tmp_path: Path, missing: Any
) -> None:
    cluster = "local" if stage == "waiting" and process in ("flow", "driver") else PROCESSES[process][0]
    hit = signalled(number, process)
    if cluster != "ssh":
        note(number.name, process, stage, see(commands, stage, hit, "--cluster", cluster))
        return
    there = {name: commands.environ[name] for name in (*commands.mark, "TMPDIR")}
    (tmp_path / "sshd").mkdir()
    with serving(tmp_path / "sshd", missing, **there) as server:
        fields = {**server.fields(), "hosts": "127.0.0.1"}
        options = [f"--cluster-option={name}={value}" for name, value in fields.items()]
        note(number.name, process, stage, see(commands, stage, hit, "--cluster", cluster, *options))


DISKS = [("tmp", "provisioning"), ("tmp", "measuring"), ("store/records", "measuring"), ("store", "measuring")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.thorough  # tests/unit/run/test_trials.py fills one, too
@pytest.mark.parametrize(("folder", "stage"), DISKS if LINES else DISKS[1:2])
def test_a_full_disk(folder: str, stage: str, commands: Commands) -> None:
    with commands.on_small_disk(folder) as disk:
        seen = see(
            commands,
            stage,
            lambda commands, flow: fill(disk),
            "--cluster=light",
            mend=lambda commands: (disk / FILLER).unlink(),
        )
    note("no room (ENOSPC)", {"tmp": "TMPDIR", "store/records": "records", "store": "store"}[folder], stage, seen)


@pytest.mark.skipif(not LINES, reason="waits for a minute: `make faults`")
def test_a_database_that_stays_locked(commands: Commands) -> None:
    seen = see(commands, "storing", lambda commands, flow: flow.wait(PATIENCE_S), "--cluster=light")
    note("locked for a minute", "database", "storing", seen)


@pytest.mark.skipif(not LINES, reason="`make faults`")
def test_a_database_that_is_gone(commands: Commands) -> None:
    away = commands.store.parent.with_name("away")
    seen = see(
        commands,
        "measuring",
        lambda commands, flow: commands.store.parent.rename(away),
        "--cluster=light",
        mend=lambda commands: back(commands.store.parent, away),
    )
    note("gone", "database", "measuring", seen)


@pytest.mark.skipif(not LINES or os.geteuid() != 0, reason="only root may make networks, and it takes minutes")
@pytest.mark.parametrize("stage", [pytest.param("scaling", marks=pytest.mark.thorough), "measuring"])
def test_a_network_that_is_cut(stage: str, commands: Commands, tmp_path: Path) -> None:
    with behind_a_cable(tmp_path) as (address, cable):
        seen = see(
            commands,
            stage,
            lambda commands, flow: cable("down"),
            "--cluster=scheduler",
            f"--cluster-option=address={address}",
            "--timeout=20",
            mend=lambda commands: cable("up"),
        )
    note("cut for good", "network to scheduler and workers", stage, seen)


@pytest.mark.skipif(not LINES, reason="starts two servers: `make faults`")
@pytest.mark.parametrize("stage", [pytest.param("provisioning", marks=pytest.mark.thorough), "measuring"])
def test_a_prefect_server_that_is_killed(stage: str, tmp_path: Path) -> None:
    from support.site import Site

    (tmp_path / "site").mkdir()
    site = Site(tmp_path / "site")
    names = ("PREFECT_API_URL", "PREFECT_HOME", "DO_NOT_TRACK")
    commands = Commands(tmp_path / "commands", {name: site.environ[name] for name in names})
    try:
        site.start_server()
        seen = see(
            commands,
            stage,
            lambda commands, flow: site.close(),
            "--cluster=light",
            "--prefect",
            mend=lambda commands: site.start_server(),
        )
    finally:
        commands.kill()
        site.close()
    note("SIGKILL", "Prefect server", stage, seen)


def back(folder: Path, away: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    away.rename(folder)
