"""Seconds that the call would be shorter if the recorded graph were scheduled without its delays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scalescope.analysis.attempts import ordered
from scalescope.analysis.graph import Graph
from scalescope.analysis.replay import Replay
from scalescope.diagnosis.evidence.client_time import BETWEEN, client_time
from scalescope.diagnosis.observation import Observation, once
from scalescope.errors import CaptureError

MOST_TASKS = 20_000  # most attempts to schedule; more would take seconds


@once
def _replay(observation: Observation) -> Replay | None:
    attempts = observation.measured
    if len(attempts.start) > MOST_TASKS:
        return None
    try:
        return Replay.of(attempts, Graph.read(observation.tables, attempts))
    except CaptureError:  # attempts that were repeated can depend on each other in a cycle
        return None


def placed_anywhere_saves_s(observation: Observation) -> float | None:
    """Seconds saved if each free thread took the first ready task; None if the trial cannot be replayed.

    Priority: the first task that each worker ran, then the second task of each, and so on.
    """
    replay, attempts = _replay(observation), observation.measured
    if replay is None:
        return None
    worker, start = attempts.worker[attempts.useful], attempts.start[attempts.useful]
    by_worker = ordered(worker, start)
    place = np.empty(len(start), np.int64)
    place[by_worker] = np.arange(len(start)) - np.searchsorted(worker[by_worker], worker[by_worker])
    rank = np.empty(len(start), np.int64)
    rank[np.lexsort((worker, place))] = np.arange(len(start))
    return attempts.makespan - replace(replay, rank=rank).makespan(observation.threads)


def sent_at_once_saves_s(observation: Observation, *, in_tasks: bool = False) -> float | None:
    """Seconds saved if the client sent all tasks first and computed its own part afterwards, or in tasks (`in_tasks`).

    Its waits for other clusters stay as long as they were. None if the trial cannot be replayed.
    """
    replay = _replay(observation)
    if replay is None:
        return None
    found = client_time(observation)
    own_s = float(found.seconds[~(found.waits | found.sends), BETWEEN].sum()) / observation.threads
    own_s /= observation.threads if in_tasks else 1
    return observation.measured.here_s - replay.sent_at_once().makespan(observation.threads) - own_s
