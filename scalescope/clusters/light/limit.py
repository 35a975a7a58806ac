"""Measures what this host can emulate."""

from __future__ import annotations

import time

import distributed

from scalescope.model.emulation_limit import EmulationLimit

TASKS, ROUNDS = 150, 3  # tasks in a burst, and bursts after the warm-up


def measure(client: distributed.Client) -> EmulationLimit:
    """The median time of bursts of empty tasks on the present workers, after a warm-up."""
    seconds = [_burst(client) for _ in range(ROUNDS + 1)][1:]
    return EmulationLimit(seconds_per_task=sorted(seconds)[ROUNDS // 2] / TASKS)


def _burst(client: distributed.Client) -> float:
    futures = client.map(abs, range(TASKS), pure=False)
    began = time.perf_counter()
    distributed.wait(futures)
    return time.perf_counter() - began
