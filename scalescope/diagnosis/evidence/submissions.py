"""Graphs that clients sent, and tasks sent from within tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.diagnosis.observation import Observation, once
from scalescope.model import words
from scalescope.model.large_part import LargePart
from scalescope.model.records import NESTED

HEAVY_GRAPH = 100_000  # bytes from which a graph carries data, not just names of tasks
LARGE_BYTES = 10_000_000  # bytes; Dask warns of larger graphs (`distributed.admin.large-graph-warning-threshold`)
# In a list, since scatter makes one future of each element of a list or dict.
SCATTER = "`[future] = client.scatter([data], broadcast=True)` once and pass `future`"
MANY_TASKS = 10_000  # tasks from which a graph takes seconds (0.2 to 1 ms each, by Dask's best practices)


@dataclass(frozen=True)
class Submissions:
    """What clients outside of tasks sent, in the order of arrival, and when tasks sent something."""

    time: Floats  # when the scheduler received each graph, in seconds since the first task was known
    seconds: Floats  # what it needed to take it in
    tasks: Ints  # tasks in it
    nbytes: Ints  # its size as it was sent; 0 when unknown
    nested_at: Floats  # when graphs from within tasks arrived, rising
    nested_tasks: int  # tasks in all of those


@once
def submissions(observation: Observation) -> Submissions:
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


def largest_part(observation: Observation) -> str:
    """A sentence about what makes the largest graph so large, after a space; empty where that is not known."""
    noted = [LargePart.from_mapping(each) for each in observation.trial.facts.get("large") or ()]
    return f" {noted[0].sentence(words.size(noted[0].nbytes))}" if noted else ""


def large(sent: Submissions) -> Bools:
    return (sent.nbytes >= LARGE_BYTES) | (sent.tasks >= MANY_TASKS)


def heavy(sent: Submissions) -> Bools:
    """The graphs whose packing costs time: they are large, or their tasks carry data."""
    return large(sent) | (sent.nbytes >= HEAVY_GRAPH * np.maximum(sent.tasks, 1))
