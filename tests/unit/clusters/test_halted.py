"""Stopped processes are distinguished from slow ones."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from scalescope.clusters import trial_watch
from scalescope.clusters.trial_watch import HaltWatch

WATCHES = """
from scalescope.clusters import trial_watch
trial_watch.LEAST_S = 0.5
with trial_watch.HaltWatch() as watched:
    print("begun", flush=True)
    input()
print(watched.reason)
"""
STOPPED_S = 1.0


@pytest.fixture
def below() -> Iterator[psutil.Popen]:
    with psutil.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def stop(process: psutil.Popen, watched: HaltWatch, least_s: float) -> None:
    """Stop a process until the watch has seen it stand still for so long."""
    process.suspend()
    while sum(watched._seconds.values()) < least_s:
        time.sleep(0.01)
    process.resume()


def seconds(reason: str, sentence: str) -> float:
    match = re.fullmatch(sentence.replace("SECONDS", r"([\d.]+)"), reason)
    assert match, reason
    return float(match[1])


# ------------------------------------------------------------------ what is fine


def test_code_that_holds_the_interpreter_lock_does_not_count_as_a_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    """It uses no CPU, as when a library is loaded from a slow disk."""
    monkeypatch.setattr(trial_watch, "LEAST_S", 0.5)
    with HaltWatch() as watched:
        ctypes.PyDLL(None).usleep(950_000)
    assert watched.reason == ""


def test_a_short_standstill_does_not_count(below: psutil.Popen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_watch, "LEAST_S", 60.0)
    with HaltWatch() as watched:
        stop(below, watched, 0.1)
    assert watched.reason == ""


@pytest.mark.thorough
def test_a_busy_host_does_not_count_as_a_standstill() -> None:
    """Eight times as many processes as cores, each a session of its own, as those of other users are."""
    spin = [sys.executable, "-Sc", "while True: pass"]
    thieves = [subprocess.Popen(spin, start_new_session=True) for _ in range(8 * (os.cpu_count() or 1))]
    try:
        with HaltWatch() as watched:
            end = time.monotonic() + 6
            while time.monotonic() < end:
                pass
    finally:
        for thief in thieves:
            thief.kill()
            thief.wait()
    assert watched.reason == ""


# ------------------------------------------------------------------ what is not


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel must count how often a thread sleeps")
def test_a_process_that_was_stopped_notices_it_itself() -> None:
    command, pipe = [sys.executable, "-c", WATCHES], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        process.send_signal(signal.SIGCONT)
        reason = process.communicate("\n")[0].strip()
    assert seconds(reason, "the driver stood still for SECONDS s: it was stopped, or got no CPU") >= STOPPED_S - 0.3


def test_a_stopped_child_process_is_noticed(below: psutil.Popen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_watch, "LEAST_S", 0.2)
    with HaltWatch() as watched:
        stop(below, watched, 0.3)
    sentence = f"process {below.pid} of the cluster stood still for SECONDS s: it was stopped"
    assert seconds(watched.reason, sentence) >= 0.3


def test_a_standstill_during_a_small_part_of_a_trial_does_not_count(
    below: psutil.Popen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_watch, "LEAST_S", 0.2)
    monkeypatch.setattr(trial_watch, "PART", 0.9)
    with HaltWatch() as watched:
        began = time.monotonic()
        stop(below, watched, 0.3)
        stopped_s = time.monotonic() - began
        while time.monotonic() < began + 2 * stopped_s:
            time.sleep(0.01)
    assert watched.reason == ""
