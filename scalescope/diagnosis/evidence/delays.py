"""Tasks for which idle threads wait, and the origins of the delays of late tasks.

The trial is replayed twice over its dependencies, as Scalasca replays a trace (Böhme et al., 2016). Backward: how
much later a task could have ended without delaying anything; threads wait for tasks that had no such slack. Forward:
when each task would have begun if no task before it had taken longer than is typical of its batch. The origin of
a delay is found by walking back along the dependencies that arrived last. Tasks also depend on those that
held the thread for which they were queued, and on the code of the client that sent them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints, ordered
from scalescope.analysis.graph import longest
from scalescope.diagnosis.evidence.task_batches import MIN_TASKS, task_batches
from scalescope.diagnosis.evidence.task_table import task_needs
from scalescope.diagnosis.evidence.timeline import before_on_worker, occupied_from
from scalescope.diagnosis.observation import Observation, once

LONG = 1.5  # least ratio of a delayed task's time on its thread to the typical one; a healthy stage stays below
SLACK = 0.1  # share of a task's time; a shorter slack or wait in a queue counts as none, because clocks are not exact
OF_CLIENT, NONE = -2, -1  # values of `Delays.origin` besides numbers of attempts


@dataclass(frozen=True)
class Delays:
    """Delays and their origins; one element per attempt, and intervals of the client."""

    awaited: Bools  # True where another task or the client had to wait for the attempt's end
    own_s: Floats  # seconds by which it held its thread longer than is typical of its batch; 0 up to the ratio `LONG`
    late_s: Floats  # seconds by which it began later because of a delay of earlier tasks or the client
    origin: Ints  # the attempt at which that delay began, `OF_CLIENT`, or `NONE`
    client: Floats  # begin and end of the client's own code that held back what it sent next; shape (2, n)


@once
def delays(observation: Observation) -> Delays:
    attempts, begin = observation.measured, occupied_from(observation)
    task, needs = _edges(observation, begin)
    first = np.ones(len(begin), dtype=bool)
    first[task] = False
    sent = np.sort(attempts.runnable[first])
    client, releases = _client(observation, sent)
    held = begin.copy()  # for each attempt, arrival of its last dependency; its own begin without one
    held[task] = -np.inf
    np.maximum.at(held, task, attempts.stop[needs])

    # backward: the latest end of each task that would have delayed nothing
    latest, results = np.full(len(begin), attempts.makespan), np.ones(len(begin), dtype=bool)
    results[needs] = False
    latest[results] = np.minimum(_next(releases, attempts.stop[results]), attempts.makespan)
    latest = -longest(-latest, attempts.stop - held, task[::-1], needs[::-1])
    awaited = latest - attempts.stop <= SLACK * (attempts.stop - begin)

    # forward: the arrival of each last dependency, if nothing before it had been delayed
    own_s, of_client_s = _own(observation, begin), _sent_late(attempts.runnable, client)
    arrived = np.where(first, held - of_client_s, -np.inf)
    if own_s.any() or of_client_s.any():
        arrived = longest(arrived, attempts.stop - own_s - held, needs, task)
        late_s = np.maximum(held - arrived, 0.0)
    else:
        late_s = np.zeros(len(begin))
    last = np.full(len(begin), NONE)
    on_time = attempts.stop[needs] >= held[task]
    last[task[on_time]] = needs[on_time]
    return Delays(awaited, own_s, late_s, _origins(last, own_s, first & (of_client_s > 0)), client)


def _edges(observation: Observation, begin: Floats) -> tuple[Ints, Ints]:
    """Pairs of an attempt and one that it depended on, sorted so that dependencies come first."""
    attempts = observation.measured
    task, needs = task_needs(observation)
    queued = np.flatnonzero(begin - attempts.prepared_from > SLACK * (attempts.stop - begin))
    before = before_on_worker(observation)[queued]
    behind = (before >= 0) & (attempts.stop[before] > attempts.prepared_from[queued])
    task, needs = np.append(task, queued[behind]), np.append(needs, before[behind])
    possible = needs < task  # repeated attempts can need later ones; these needs are left out
    task, needs = task[possible], needs[possible]
    order = np.argsort(task, kind="stable")
    return task[order], needs[order]


def _own(observation: Observation, begin: Floats) -> Floats:
    attempts, found = observation.measured, task_batches(observation)
    task, own = found.task, np.zeros(len(begin))
    held, median = (attempts.stop - begin)[task], found.median
    if np.any(begin < attempts.start):
        median = held[ordered(found.batch, held)][found.first[:-1] + (found.size - 1) // 2]
    typical = median[found.batch]
    delayed = (held > LONG * typical) & (found.size[found.batch] >= MIN_TASKS)
    own[task[delayed]] = (held - typical)[delayed]
    return own


def _client(observation: Observation, sent: Floats) -> tuple[Floats, Floats]:
    """Intervals in which own code of the client delayed its next graph; ends of its waits, or `sent` if unrecorded."""
    (begin, end), waits = observation.client_spans, observation.client_waits
    if not len(begin):
        return np.zeros((2, 0)), sent
    until = np.append(begin[waits], np.inf)[np.searchsorted(begin[waits], begin)]
    # Arrival of the last graph sent before the client waited again
    last = np.append(-np.inf, sent)[np.searchsorted(sent, until, side="right")]
    begin, until = np.maximum(begin, 0.0), np.minimum(end, last)
    own = ~(waits | observation.client_elsewhere) & (until > begin)
    return np.array([begin[own], until[own]]), end[waits]


def _sent_late(runnable: Floats, client: Floats) -> Floats:
    """Seconds for which the client had held back each task when it became runnable."""
    if not client.size:
        return np.zeros(len(runnable))
    passed = np.cumsum(client[1] - client[0])
    until = np.column_stack([passed - (client[1] - client[0]), passed])
    late: Floats = np.interp(runnable, client.T.ravel(), until.ravel())
    return late


def _next(releases: Floats, stop: Floats) -> Floats:
    """For each end, the last end before the client next went on, which is the end that the client waited for."""
    rising = np.sort(stop)
    ended = np.searchsorted(rising, releases, side="right")
    moments = np.append(np.unique(rising[ended[ended > 0] - 1]), np.inf)
    following: Floats = moments[np.searchsorted(moments, stop)]
    return following


def _origins(last: Ints, own_s: Floats, of_client: Bools) -> Ints:
    """The nearest delayed task before each, back along dependencies that arrived last; or `OF_CLIENT`, or `NONE`."""
    delayed = own_s > 0
    nearest = np.where(delayed | (last < 0), np.arange(len(last)), last)
    while True:
        further = nearest[nearest]
        if np.array_equal(further, nearest):
            break
        nearest = further
    origin = np.where(last >= 0, nearest[last], NONE)
    origin = np.where((last < 0) & of_client, OF_CLIENT, origin)
    reached = np.maximum(origin, 0)
    unknown = (origin >= 0) & ~delayed[reached]
    return np.where(unknown, np.where(of_client[reached], OF_CLIENT, NONE), origin)
