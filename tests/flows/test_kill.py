"""SIGKILL and Ctrl-C leave no process, nor one of Prefect; `python -m evidence faults` covers every stage."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import prefect_home
from support.faults import GONE_WITHIN_S, Commands, see
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(600)
SWEEP = ("sweep", "-w", "futures-map", "-a", "workers=1,2", "-p", "items=2", "-p", "seconds=0.3")


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path)
    yield made
    made.kill()


@pytest.mark.thorough  # test_server.py covers this too
def test_the_temporary_server_of_a_killed_sweep_ends(commands: Commands, tmp_path: Path) -> None:
    commands.environ["PREFECT_HOME"] = str(prefect_home.fill(tmp_path / "prefect"))
    process = commands.start(*SWEEP, "--prefect")
    wait_for(lambda: commands.running("serving.py"), commands.text)
    process.kill()
    process.wait()
    wait_for(lambda: not commands.processes(), lambda: commands.left(), GONE_WITHIN_S)


@pytest.mark.thorough
def test_ctrl_c_stops_a_sweep_without_leaving_processes(commands: Commands, prefect_server: None) -> None:
    from prefect.settings import PREFECT_API_URL

    commands.environ["PREFECT_API_URL"] = str(PREFECT_API_URL.value())
    process = commands.start(*SWEEP, "--repeats", "9", "--cluster", "local")
    wait_for(lambda: any(run.trials for run in commands.runs()) or process.poll() is not None, commands.text)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(GONE_WITHIN_S) == 128 + signal.SIGINT, commands.text()
    assert commands.processes() == []
    assert "the same command continues" in commands.text()
    assert commands.runs()[0].state == "stopped"


def test_a_killed_sweep_leaves_no_process_and_can_be_resumed(commands: Commands) -> None:
    seen = see(commands, "flushing", lambda _, flow: flow.kill(), "--cluster=light")
    assert (seen.ended, seen.leaks, seen.lost, seen.finished) == ("killed", (), 0, True), commands.text()
