"""Fits the bandwidth of links by simulating the recorded transfers again over shared links.

A transfer waits while other transfers are packed, and shares links with them. The bytes of a transfer divided by its
seconds therefore give a bandwidth that is too low.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from scalescope.analysis.events import Tables
from scalescope.analysis.fitted_costs import FittedCosts
from scalescope.analysis.packing import fetches
from scalescope.clusters.simulated.links import Links
from scalescope.clusters.simulated.spec import SimulatedSpec

MOST_TRANSFERS = 500  # most transfers that are simulated: the first ones of the trial
FASTEST, HALVINGS = 30.0, 8  # largest factor on the known bandwidth; number of bisection steps to find the factor


@dataclass(frozen=True)
class _Asked:
    """Results that one worker (`target`) fetched from another (`source`) for one task."""

    time: float  # seconds since the first request
    source: str
    target: str
    nbytes: int


def bandwidth(tables: Tables, costs: FittedCosts) -> float | None:
    """The smallest bandwidth, in bytes a second, at which simulated transfers take no longer than recorded.

    Never less than the bandwidth of `costs`; equal to it if even `FASTEST` times as much is too slow, or if the time
    for packing is unknown. None if `costs` has no bandwidth.
    """
    if costs.bandwidth is None or not costs.cpu_s_per_byte:
        return costs.bandwidth
    return _fitted(*_asked(tables), costs.bandwidth, costs.cpu_s_per_byte, costs.message_s or 0.0)


@lru_cache(maxsize=8)
def _fitted(asked: tuple[_Asked, ...], recorded_s: float, known: float, packing: float, message_s: float) -> float:
    def explains(factor: float) -> bool:
        return _played_s(asked, Links(factor * known, SimulatedSpec.latency_ms / 1e3, packing, message_s)) <= recorded_s

    if explains(1.0) or not explains(FASTEST):
        return known
    low, high = 1.0, FASTEST
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if explains(middle) else (middle, high)
    return high * known


def _asked(tables: Tables) -> tuple[tuple[_Asked, ...], float]:
    """The first transfers, and the sum of their recorded seconds."""
    tasks, nbytes = tables["tasks"], defaultdict[tuple[int, str], int](int)
    for node, need in np.column_stack(fetches(tables)).tolist():
        nbytes[node, tasks["worker"][need]] += int(tasks["nbytes"][need])
    first = sorted(nbytes, key=lambda each: tasks["assigned"][each[0]])[:MOST_TRANSFERS]
    begin = min((tasks["assigned"][node] for node, _ in first), default=0.0)
    asked = tuple(
        _Asked(tasks["assigned"][node] - begin, source, tasks["worker"][node], nbytes[node, source])
        for node, source in first
    )
    return asked, sum(float(tasks["transfer"][node]) for node in {node for node, _ in first})


def _played_s(asked: Sequence[_Asked], links: Links) -> float:
    """Sum of the simulated seconds of all transfers. Between two workers they take turns; that wait does not count."""
    turns = defaultdict[tuple[str, str], asyncio.Lock](asyncio.Lock)

    async def play(each: _Asked) -> float:
        await asyncio.sleep(each.time)
        async with turns[each.source, each.target]:
            began = asyncio.get_running_loop().time()
            await links.transfer(each.source, each.target, each.nbytes)
            return asyncio.get_running_loop().time() - began

    async def every() -> list[float]:
        return await asyncio.gather(*map(play, asked))

    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return sum(runner.run(every()))


class _JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer."""

    _scheduled: list[Any]
    _ready: Any
    _now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0].when())
        super()._run_once()  # type: ignore[misc]
