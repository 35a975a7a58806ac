"""Graphs that clients sent, and tasks sent from within tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.diagnosis.observation import Observation, once

NESTED = "Client-worker-"
"""How the name of a client that runs inside a task begins (`scalescope.model.records`)."""


HEAVY_GRAPH = 100_000
"""Bytes from which on a graph carries data rather than the names of tasks."""


LARGE_BYTES = 10_000_000
"""Bytes of a graph of which Dask warns (`distributed.admin.large-graph-warning-threshold`)."""


SCATTER = "`[future] = client.scatter([data], broadcast=True)` once and pass `future`"
"""In a list: of a list or dict by itself, each element becomes a future of its own."""


MANY_TASKS = 10_000
"""Tasks from which on a graph itself takes seconds; each takes 0.2 to 1 ms (Dask's best practices)."""


@dataclass(frozen=True)
class Submissions:
    """What clients outside of tasks sent, in the order of arrival, and when tasks sent something.

    Attributes:
        time: When the scheduler received each graph, in seconds since the first task was known.
        seconds: What it needed to take it in.
        tasks: Tasks in it.
        nbytes: Its size as it was sent; 0 when unknown.
        nested_at: When graphs from within tasks arrived, rising.
        nested_tasks: Tasks in all of those.
    """

    time: Floats
    seconds: Floats
    tasks: Ints
    nbytes: Ints
    nested_at: Floats
    nested_tasks: int


@once
def submissions(observation: Observation) -> Submissions:
    """The graphs of a trial; none where they were not recorded."""
    epoch = 0.0 if observation.attempts is None else observation.attempts.epoch
    time, seconds = observation.numbers("graphs", "time"), observation.numbers("graphs", "seconds")
    tasks, nbytes = (np.asarray(observation.column("graphs", name), np.int64) for name in ("tasks", "nbytes"))
    nested = np.array([str(name).startswith(NESTED) for name in observation.column("graphs", "client")], dtype=bool)
    order = np.argsort(time, kind="stable")
    own, inside = order[~nested[order]], order[nested[order]]
    return Submissions(
        time[own] - epoch,
        np.maximum(seconds[own], 0.0),
        tasks[own],
        nbytes[own],
        time[inside] - epoch,
        int(tasks[inside].sum()),
    )


def sending(observation: Observation) -> Bools:
    """Attempts during which a graph was sent from within a task: they may wait for others, and are not just long."""
    attempts = observation.measured
    nested = submissions(observation).nested_at
    return np.searchsorted(nested, attempts.stop) > np.searchsorted(nested, attempts.start)


def large(sent: Submissions) -> Bools:
    """Which graphs are so large that this may cost time."""
    return (sent.nbytes >= LARGE_BYTES) | (sent.tasks >= MANY_TASKS)


def heavy(sent: Submissions) -> Bools:
    """Which graphs are so large, or are not, but have tasks that carry data: packing them costs time."""
    return large(sent) | (sent.nbytes >= HEAVY_GRAPH * np.maximum(sent.tasks, 1))
