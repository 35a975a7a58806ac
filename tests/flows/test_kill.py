"""SIGKILL at any moment leaves no process behind, loses no finished trial, and the same command finishes the sweep."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import prefect_home

from scalescope.errors import UsageError
from scalescope.store.store import Store

MARK = "SCALESCOPE_TEST_MARK"
GONE_WITHIN_S = 15.0
PATIENCE_S = 100.0
"""For the next thing to happen; on a busy machine a process that imports Prefect takes its time."""

COMMAND = "from scalescope.cli.main import main; main()"
SWEEP = ("sweep", "-w", "futures-map", "-a", "workers=1,2", "-p", "items=2", "-p", "seconds=0.3")


class Marked:
    """Starts command lines whose processes, all of them, carry a mark in their environment."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        self.log = folder / "log"
        self._environ = {**os.environ, **environ, MARK: self.mark}

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments],
                stdout=log,
                stderr=log,
                env=self._environ,
                start_new_session=True,
            )

    def processes(self) -> list[psutil.Process]:
        """All that carry the mark and live."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def drivers(self) -> list[psutil.Process]:
        return [process for process in self.processes() if "scalescope.driver" in _command(process)]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture
def marked(tmp_path: Path, prefect_server: None) -> Iterator[Callable[..., Marked]]:
    from prefect.settings import PREFECT_API_URL

    made: list[Marked] = []

    def make(**environ: str) -> Marked:
        made.append(Marked(tmp_path, {"PREFECT_API_URL": str(PREFECT_API_URL.value()), **environ}))
        return made[-1]

    yield make
    for one in made:
        for process in one.processes():
            process.kill()


def wait_for(condition: Callable[[], Any], seconds: float, what: Callable[[], object]) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)
    return found


def finished(address: str) -> dict[str, str]:
    """When each trial that is in the store was started, by key."""
    if not Path(address).exists():
        return {}
    with Store.open(address) as store:
        try:
            return {trial.key: trial.started_at for trial in store.run("latest").trials}
        except UsageError:
            return {}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("cluster", "repeats", "kills"),
    [
        pytest.param("local", 6, 3, marks=pytest.mark.thorough),  # tests/faults kills flows, too
        pytest.param("simulated", 20, 2, marks=pytest.mark.thorough),
    ],
)
def test_kill(marked: Callable[..., Marked], address: str, cluster: str, repeats: int, kills: int) -> None:
    moments = random.Random(20)
    command = marked()
    arguments = (*SWEEP, "--repeats", str(repeats), "--cluster", cluster, "--prefect", "--store", address)
    for _ in range(kills):
        before = finished(address)
        wanted = len(before) + moments.choice([0, 0, 1, 2])
        process = command.start(*arguments)
        wait_for(
            lambda: (command.drivers() and len(finished(address)) >= wanted) or process.poll() is not None,  # noqa: B023
            PATIENCE_S,
            command.log.read_text,
        )
        time.sleep(moments.uniform(0, 1.5))
        assert process.poll() is None, command.log.read_text()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_for(lambda: not command.processes(), GONE_WITHIN_S, lambda: list(map(_command, command.processes())))
        assert before.items() <= finished(address).items()

    before = finished(address)
    assert command.start(*arguments).wait(PATIENCE_S) in (0, 1), command.log.read_text()
    assert before.items() <= finished(address).items()
    assert len(finished(address)) == 2 * repeats
    with Store.open(address) as store:
        assert len(store.runs()) == 1


@pytest.mark.timeout(600)
def test_a_temporary_server_is_not_left_either(marked: Callable[..., Marked], address: str, tmp_path: Path) -> None:
    command = marked(PREFECT_HOME=str(prefect_home.fill(tmp_path / "prefect")))
    del command._environ["PREFECT_API_URL"]
    process = command.start(*SWEEP, "--prefect", "--store", address)
    wait_for(
        lambda: any("serving.py" in _command(one) for one in command.processes()), PATIENCE_S, command.log.read_text
    )
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not command.processes(), GONE_WITHIN_S, lambda: list(map(_command, command.processes())))


def test_ctrl_c_ends_it_in_order(marked: Callable[..., Marked], address: str) -> None:
    command = marked()
    process = command.start(*SWEEP, "--repeats", "9", "--cluster", "local", "--store", address)
    wait_for(lambda: finished(address) or process.poll() is not None, PATIENCE_S, command.log.read_text)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(GONE_WITHIN_S) == 128 + signal.SIGINT, command.log.read_text()
    assert command.processes() == []
    assert "the same command continues" in command.log.read_text()
    with Store.open(address) as store:
        assert store.run("latest").state == "stopped"
