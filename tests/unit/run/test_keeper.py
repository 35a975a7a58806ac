from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from scalescope.run import keeper

KEEPER = [sys.executable, "-P", keeper.__file__, sys.executable, "-c"]
OBEDIENT = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {OBEDIENT}"
OWNER = f"""
import subprocess, time
process = subprocess.Popen({[*KEEPER, OBEDIENT]!r}, stdin=subprocess.PIPE)
time.sleep(600)
"""


@pytest.fixture
def kept() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*KEEPER, OBEDIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    yield process
    process.kill()
    process.wait(10)
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def test_it_ends_the_command_when_its_input_ends(kept: subprocess.Popen[bytes]) -> None:
    [command] = psutil.Process(kept.pid).children()
    assert kept.stdin is not None
    kept.stdin.close()
    kept.wait(10)
    assert not command.is_running()


def test_it_ends_the_command_when_its_owner_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        tree = psutil.Process(owner.pid).children(recursive=True)
        assert len(tree) == 2
        owner.kill()
    _, alive = psutil.wait_procs(tree, timeout=15)
    assert alive == []


def test_it_kills_a_command_that_does_not_end_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    monkeypatch.setattr(keeper, "GRACE_S", 0.2)
    with open("/dev/null") as ended:
        keeper._end_with_input(child, ended.fileno())
    assert child.wait(10) == -9
    child.stdout.close()


def test_it_passes_the_exit_status_on() -> None:
    with subprocess.Popen([*KEEPER, "raise SystemExit(7)"], stdin=subprocess.PIPE) as process:
        assert process.wait(10) == 7
