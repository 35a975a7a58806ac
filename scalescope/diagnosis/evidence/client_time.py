"""What the client did while no task was known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats
from scalescope.diagnosis.observation import Observation, once

# Phases without a known task: before the first graph, between graphs, after the last task.
BEFORE, BETWEEN, AFTER = range(3)
SENDING = ("compute", "map", "persist", "submit")  # calls that pack a graph and send it


@dataclass(frozen=True)
class ClientTime:
    """What the client did while no task was known; a row for each of the table `client`, or one if there is none."""

    doing: Sequence[tuple[str, str]]  # columns `where` and `what`
    waits: Bools  # whether it waited for the cluster
    sends: Bools  # whether it sent something, or waited for the cluster, perhaps since that was under way
    seconds: Floats  # thread-seconds of the part `client`, of shape (rows, phases)


@once
def client_time(observation: Observation) -> ClientTime:
    """Whatever the client did in a trial that has attempts, while no task was known."""
    attempts = observation.measured
    where, what = (observation.column("client", name) or [""] for name in ("where", "what"))
    begin = observation.numbers("client", "time") - attempts.epoch
    edges = np.append(begin if len(begin) else attempts.begin, attempts.end)
    bounds = np.array([attempts.begin, *attempts.pending.ravel(), attempts.end])
    free = np.diff(bounds)
    free[1::2] = 0.0
    phase = np.full(len(free), BETWEEN)
    phase[[0, -1]] = BEFORE, AFTER
    until = [np.append(0.0, np.cumsum(np.where(phase == each, free, 0.0))) for each in (BEFORE, BETWEEN, AFTER)]
    passed = np.column_stack([np.diff(np.interp(edges, bounds, each)) for each in until])
    waits = observation.numbers("client", "waits") > 0 if len(begin) else np.array([False])
    return ClientTime(
        list(zip(where, what, strict=True)),
        waits,
        waits | [call.rpartition(".")[2] in SENDING for call in what],
        passed * observation.seconds("client") / max(float(free.sum()), 1e-9),
    )
