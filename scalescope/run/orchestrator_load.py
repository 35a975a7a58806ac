"""Keep the orchestrator off the cores that measure, and count what it used all the same."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

WINDOW_S = 0.2
"""Length of one look, in seconds."""
QUIET_SHARE = 0.05
"""CPU seconds per second below which the orchestrator counts as quiet: half a per cent of the makespan on ten cores."""
PATIENCE_S = 10.0
"""Longest wait for quiet, in seconds: a Prefect server can work on a backlog of events for longer than that."""


@dataclass
class Load:
    """What the orchestrator did around one trial.

    Attributes:
        waited_s: Seconds waited for it to become quiet.
        cpu_s: CPU seconds that it used while the trial ran.
    """

    waited_s: float = 0.0
    cpu_s: float = 0.0


def orchestrator(drivers: Iterable[int] = ()) -> list[psutil.Process]:
    """This process and its descendants, such as a temporary Prefect server, but no driver and nothing below one."""
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
    """User and system CPU seconds of each process that still exists, by process id."""
    used: dict[int, float] = {}
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used[process.pid] = times.user + times.system
    return used


def wait_until_quiet(
    processes: list[psutil.Process],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Wait until `processes` used next to no CPU for one window, at most `PATIENCE_S`; return the seconds waited."""
    began = clock()
    while True:
        before, start = cpu_seconds(processes), clock()
        sleep(WINDOW_S)
        length = clock() - start
        if _difference(before, cpu_seconds(processes)) < QUIET_SHARE * length or clock() - began >= PATIENCE_S:
            return clock() - began


@contextmanager
def quiet(drivers: Iterable[int], *, enabled: bool) -> Iterator[Load]:
    """Hold for the length of one trial; the load is complete when the block has ended.

    Args:
        drivers: Process ids whose trees do the measuring.
        enabled: False for a virtual clock, to which it makes no difference who else uses the cores.
    """
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
    """Cores that this process may use; empty where the system cannot say (macOS)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity else []


@contextmanager
def pinned(chosen: list[int]) -> Iterator[None]:
    """Pin the calling thread, and so every process that it starts meanwhile, to these cores; none means no change."""
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
