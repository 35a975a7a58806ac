"""Methods of actors that ran while the client waited for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import codes
from scalescope.diagnosis.evidence.client_time import client_time
from scalescope.diagnosis.evidence.timeline import interval_seconds
from scalescope.diagnosis.observation import Observation, once


@dataclass(frozen=True)
class ActorCalls:
    """Methods of actors that ran while the client waited for them, and no task was known."""

    calls: int  # how many there were in the trial
    workers: int  # on how many workers
    method: str  # that which took longest
    at_once: float  # how many ran at a time, as a mean over the time in which any did
    lost_s: float  # thread-seconds of the part `client` while they ran and the client waited


@once
def actor_calls(observation: Observation) -> ActorCalls | None:
    """What the client waited for from actors; None where there were no calls."""
    calls = observation.measured.calls
    if not len(calls.worker):
        return None
    names, method = codes(calls.method)
    edges = np.unique(np.concatenate([calls.begin, calls.end]))
    running = interval_seconds(calls.begin, calls.end, edges) > 0
    united = float(np.diff(edges)[running].sum())
    found = client_time(observation)
    idle_s = united * max(observation.threads - 1, 0)
    return ActorCalls(
        int(calls.count.sum()),
        len(np.unique(calls.worker)),
        names[int(np.bincount(method, calls.end - calls.begin).argmax())],
        float((calls.end - calls.begin).sum()) / max(united, 1e-9),
        min(float(found.seconds[found.waits].sum()), idle_s),
    )
