from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import psutil
import pytest

from scalescope.run import orchestrator_load

SLEEP = "import sys; sys.stdin.read()"
SPIN = (
    "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint('spun', flush=True)\n"
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps, with a child that sleeps."""
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE) as process:
        while not psutil.Process(process.pid).children():
            pass
        yield process
        assert process.stdin is not None
        process.stdin.close()


def pids(processes: list[psutil.Process]) -> set[int]:
    return {process.pid for process in processes}


def test_the_orchestrator_is_this_process_and_its_children_except_drivers(child: subprocess.Popen[bytes]) -> None:
    [grandchild] = psutil.Process(child.pid).children()
    assert {os.getpid(), child.pid, grandchild.pid} <= pids(orchestrator_load.orchestrator())
    found = pids(orchestrator_load.orchestrator([child.pid]))  # a driver
    assert os.getpid() in found
    assert not {child.pid, grandchild.pid} & found


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Requested pauses; the clock advances only in them."""
    asked: list[float] = []
    monkeypatch.setattr(
        orchestrator_load, "time", SimpleNamespace(sleep=asked.append, monotonic=lambda: sum(asked, 0.0))
    )
    return asked


def test_a_sleeping_process_is_quiet_after_one_window(child: subprocess.Popen[bytes], pauses: list[float]) -> None:
    orchestrator_load.wait_until_quiet([psutil.Process(child.pid)])
    assert pauses == [orchestrator_load.WINDOW_S]


@pytest.mark.parametrize(
    ("used", "windows"),
    [([0.0, 0.2, 0.2, 0.4, 0.4, 0.401], 3), (range(1000), orchestrator_load.PATIENCE_S / orchestrator_load.WINDOW_S)],
    ids=["until it is done", "but not for ever"],
)
def test_waiting_for_a_busy_process_ends_when_it_is_quiet_or_patience_is_over(
    used: Iterable[float], windows: float, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter(used)
    monkeypatch.setattr(orchestrator_load, "cpu_seconds", lambda processes: {1: next(readings)})
    assert orchestrator_load.wait_until_quiet([]) == sum(pauses)
    assert len(pauses) == pytest.approx(windows, rel=0.05)


def test_the_load_counts_cpu_seconds_of_the_orchestrator_without_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestrator_load, "wait_until_quiet", lambda processes: 0.5)
    with subprocess.Popen([sys.executable, "-c", f"input()\n{SPIN}input()"], stdin=-1, stdout=-1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with orchestrator_load.quiet([], enabled=True) as counted:
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"spun\n"
        with orchestrator_load.quiet([process.pid], enabled=True) as spared:
            pass
        process.stdin.write(b"\n")
    assert counted.waited_s == 0.5
    assert counted.cpu_s > 0.25  # it is counted in hundredths
    assert spared.cpu_s < 0.3


def test_the_load_is_not_measured_on_a_virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestrator_load, "wait_until_quiet", lambda processes: pytest.fail("it waited"))
    with orchestrator_load.quiet([], enabled=False) as load:
        pass
    assert load == orchestrator_load.Load()


@pytest.mark.skipif(not orchestrator_load.cores(), reason="this system cannot pin processes")
def test_a_process_started_while_pinned_stays_on_its_core() -> None:
    before = os.sched_getaffinity(0)
    [core] = orchestrator_load.cores()[-1:]
    with orchestrator_load.pinned([core]):
        process = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert process.stdout.strip() == str({core})
    assert os.sched_getaffinity(0) == before
