"""Actions of the client while no task was known, and the methods of actors that it waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, codes
from scalescope.analysis.ledger import integral
from scalescope.diagnosis.evidence.timeline import interval_seconds
from scalescope.diagnosis.observation import Observation, once
from scalescope.model import words
from scalescope.model.finding import Place
from scalescope.model.records import NOT_HASHED, SENDING

# Phases without a known task: before the first graph, between graphs, after the last task.
BEFORE, BETWEEN, AFTER = range(3)


@dataclass(frozen=True)
class ClientTime:
    """Actions of the client while no task was known; a row for each of the table `client`, or one if it is empty."""

    doing: Sequence[tuple[str, str]]  # columns `where` and `what` of each row
    waits: Bools  # True where the client waited for the cluster
    sends: Bools  # True where the client sent something, or waited for the cluster
    seconds: Floats  # thread-seconds of the part `client`, shape (rows, phases); for `client.restart`, of all threads


@once
def client_time(observation: Observation) -> ClientTime:
    attempts = observation.measured
    where, what = (observation.column("client", name) or [""] for name in ("where", "what"))
    begin, _ = observation.client_spans
    edges = np.append(begin if len(begin) else attempts.begin, attempts.end)
    bounds = np.array([attempts.begin, *attempts.not_client.ravel(), attempts.end])
    free = np.diff(bounds)
    free[1::2] = 0.0
    phase = np.full(len(free), BETWEEN)
    phase[bounds[1:] <= attempts.pending[0, 0]] = BEFORE
    phase[bounds[:-1] >= attempts.pending[-1, 1]] = AFTER
    until = [integral(np.where(phase == each, free, 0.0)) for each in (BEFORE, BETWEEN, AFTER)]
    passed = np.column_stack([np.diff(np.interp(edges, bounds, each)) for each in until])
    waits = observation.client_waits if len(begin) else np.array([False])
    restarts = np.array([str(each).endswith(".restart") for each in what])  # a restart takes the threads away
    idle = observation.seconds("client") / max(float(free.sum()), 1e-9)
    return ClientTime(
        list(zip(where, what, strict=True)),
        waits,
        waits | [call in SENDING for call in observation.client_calls or [""]],
        passed * np.where(restarts, observation.threads, idle)[:, None],
    )


def named_at_random(call: str) -> str:
    """Clause: the option that keeps Dask from hashing the data of a call, such as `client.scatter`."""
    return f"pass `{NOT_HASHED[call.rpartition('.')[2]]}` to `{words.cut(call)}`"


@once
def asked_at(observation: Observation) -> Place | None:
    """The line of the user's code at which the client sent tasks or waited for results for longest."""
    return _longest(observation, observation.client_waits | observation.client_sends)


@once
def held_back_at(observation: Observation) -> Place | None:
    """The line of the user's code at which the client waited for longest in a call that gets no results."""
    calls = np.array([call in ("wait", "progress") for call in observation.client_calls], dtype=bool)
    return _longest(observation, observation.client_waits & calls)


def _longest(observation: Observation, chosen: Bools) -> Place | None:
    seconds: dict[str, float] = defaultdict(float)
    rows = zip(observation.column("client", "where"), observation.numbers("client", "seconds"), chosen, strict=True)
    for where, spent, asks in rows:
        if asks and where:
            seconds[str(where)] += float(spent)
    return Place.of(max(seconds, key=lambda where: seconds[where], default=""))


@dataclass(frozen=True)
class ActorCalls:
    """Methods of actors that ran while the client waited for them, and no task was known."""

    calls: int  # number of calls in the trial
    workers: int  # number of workers that ran them
    method: str  # the method with most seconds
    at_once: float  # calls running at a time, as a mean over the time in which any ran
    lost_s: float  # thread-seconds of the part `client` while such calls ran and the client waited


@once
def actor_calls(observation: Observation) -> ActorCalls | None:
    """Calls of actors that the client waited for; None if there were none."""
    calls = observation.measured.calls
    if not len(calls.worker):
        return None
    names, method = codes(calls.method)
    edges = np.unique(np.concatenate([calls.begin, calls.end]))
    united = float(np.diff(edges)[interval_seconds(calls.begin, calls.end, edges) > 0].sum())
    found = client_time(observation)
    idle_s = united * max(observation.threads - 1, 0)
    return ActorCalls(
        int(calls.count.sum()),
        len(np.unique(calls.worker)),
        names[int(np.bincount(method, calls.end - calls.begin).argmax())],
        float((calls.end - calls.begin).sum()) / max(united, 1e-9),
        min(float(found.seconds[found.waits].sum()), idle_s),
    )
