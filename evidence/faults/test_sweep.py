"""Faults at every stage of a sweep: one reap leaves nothing, no trial is lost, and the same command completes it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.faults import PATIENCE_S, STAGES, Commands, see
from support.site import Site
from support.sshd import serving

from evidence.faults.hits import FILLER, PROCESSES, behind_a_cable, fill, note, on_small_disk, signalled

pytestmark = pytest.mark.timeout(600)
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount, and make networks")
LIGHT = "--cluster=light"
NOT_YET = {  # stages at which the processes of a cluster do not exist, or cannot be hit
    "light": ("provisioning", "waiting"),  # its workers come at once
    **dict.fromkeys(("local", "ssh"), ("provisioning",)),
}
SIGNALLED = [
    (process, number, stage)
    for process, number, stage in product(PROCESSES, (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP), STAGES)
    if process in ("flow", "driver")
    # stopping or ending the others is much the same at every stage
    or (stage not in NOT_YET[PROCESSES[process][0]] and (number == signal.SIGKILL or stage == "measuring"))
]
# Folder -> its name on the page, and the stages at which it fills up
DISKS = (
    *(("tmp", "TMPDIR", stage) for stage in ("provisioning", "measuring")),
    ("store/records", "records", "measuring"),
    ("store", "store", "measuring"),
)


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path / "commands")
    yield made
    made.kill()


@pytest.mark.parametrize(("process", "number", "stage"), SIGNALLED, ids=lambda each: getattr(each, "name", each))
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


@ROOT
@pytest.mark.parametrize(("folder", "name", "stage"), DISKS)
def test_a_full_disk(folder: str, name: str, stage: str, commands: Commands) -> None:
    with on_small_disk(commands, folder) as disk:
        seen = see(commands, stage, lambda *_: fill(disk), LIGHT, mend=lambda _: (disk / FILLER).unlink())
    note("no room (ENOSPC)", name, stage, seen)


def test_a_database_that_stays_locked(commands: Commands) -> None:
    seen = see(commands, "storing", lambda _, flow: flow.wait(PATIENCE_S), LIGHT)
    note("locked for a minute", "database", "storing", seen)


def test_a_database_that_is_gone(commands: Commands) -> None:
    store = commands.store.parent
    away = store.with_name("away")

    def back(_: Commands) -> None:
        shutil.rmtree(store, ignore_errors=True)
        away.rename(store)

    note("gone", "database", "measuring", see(commands, "measuring", lambda *_: store.rename(away), LIGHT, mend=back))


@ROOT
@pytest.mark.parametrize("stage", ["scaling", "measuring"])
def test_a_network_that_is_cut(stage: str, commands: Commands, tmp_path: Path) -> None:
    with behind_a_cable(tmp_path) as (address, cable):
        options = ["--cluster=scheduler", f"--cluster-option=address={address}", "--timeout=20"]
        seen = see(commands, stage, lambda *_: cable("down"), *options, mend=lambda _: cable("up"))
    note("cut for good", "network to scheduler and workers", stage, seen)


@pytest.mark.parametrize("stage", ["provisioning", "measuring"])
def test_a_prefect_server_that_is_killed(stage: str, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    site = Site(tmp_path / "site")
    names = ("PREFECT_API_URL", "PREFECT_HOME", "DO_NOT_TRACK")
    commands = Commands(tmp_path / "commands", {name: site.environ[name] for name in names})
    try:
        site.start_server()
        again = {"mend": lambda _: site.start_server()}
        seen = see(commands, stage, lambda *_: site.close(), LIGHT, "--prefect", **again)
    finally:
        commands.kill()
        site.close()
    note("SIGKILL", "Prefect server", stage, seen)
