"""Keeps the orchestrator off the cores that measure, and counts the CPU seconds that it used."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

WINDOW_S = 0.2  # seconds over which CPU use is measured
QUIET_SHARE = 0.05  # CPU seconds per second (5 % of one core) below which the orchestrator counts as quiet
PATIENCE_S = 10.0  # longest wait for quiet, in seconds; a Prefect server with a backlog of events can take longer


@dataclass
class Load:
    """Load of the orchestrator around one trial."""

    waited_s: float = 0.0  # seconds until the orchestrator was quiet
    cpu_s: float = 0.0  # CPU seconds of the orchestrator while the trial ran


def orchestrator(drivers: Iterable[int] = ()) -> list[psutil.Process]:
    """This process and its descendants, such as a temporary Prefect server, without drivers and their descendants."""
    drivers = set(drivers)
    found: list[psutil.Process] = []
    waiting = [psutil.Process()]
    while waiting:
        process = waiting.pop()
        if process.pid in drivers:
            continue
        found.append(process)
        try:
            waiting += process.children()
        except psutil.NoSuchProcess:
            continue
    return found


def cpu_seconds(processes: Iterable[psutil.Process]) -> dict[int, float]:
    """User and system CPU seconds by process id, without processes that have ended."""
    used: dict[int, float] = {}
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used[process.pid] = times.user + times.system
    return used


def wait_until_quiet(processes: list[psutil.Process]) -> float:
    """Wait for one quiet window, at most `PATIENCE_S`; return the seconds waited."""
    began = time.monotonic()
    while True:
        before, start = cpu_seconds(processes), time.monotonic()
        time.sleep(WINDOW_S)
        used, now = _difference(before, cpu_seconds(processes)), time.monotonic()
        if used < QUIET_SHARE * (now - start) or now - began >= PATIENCE_S:
            return now - began


@contextmanager
def quiet(drivers: Iterable[int], *, enabled: bool) -> Iterator[Load]:
    """Wait for a quiet orchestrator, then count its CPU seconds during the block. Disabled for a virtual clock."""
    load = Load()
    if not enabled:
        yield load
        return
    processes = orchestrator(drivers)
    load.waited_s = wait_until_quiet(processes)
    before = cpu_seconds(processes)
    try:
        yield load
    finally:
        load.cpu_s = _difference(before, cpu_seconds(processes))


def cores() -> list[int]:
    """Cores that this process may use; empty where the system does not tell (macOS)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity else []


@contextmanager
def pinned(chosen: list[int]) -> Iterator[None]:
    """Pin the calling thread and the processes that it starts to these cores; empty: no change."""
    if not chosen:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _difference(before: dict[int, float], after: dict[int, float]) -> float:
    return sum(max(0.0, used - before[pid]) for pid, used in after.items() if pid in before)
