"""Graphs that clients sent, and tasks sent from within tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Bools, Floats, Ints
from scalescope.diagnosis.observation import Observation, once
from scalescope.model import words
from scalescope.model.finding import Place
from scalescope.model.large_part import ALL_TASKS, LargePart
from scalescope.model.records import NESTED

HEAVY_GRAPH = 100_000  # least bytes of a graph, beyond those of its calls, for it to count as carrying data
CALL_BYTES = 200  # most bytes per task of a graph that carries no data (40 to 180 in Dask 2026.8)
# Bytes of a call, and of a graph, that cost no time to unpack: some calls only carry a random state
LIGHT_CALL, LIGHT_GRAPH = 10_000, 1_000_000
RANDOM = "`state_data`"  # argument of each call of Dask's random numbers: 2.5 kB that are copied
LEAST_CALL = 1_000  # bytes per task of a graph, below which its content cannot be the reason why tasks wait
LARGE_BYTES = 10_000_000  # bytes; Dask warns of larger graphs (`distributed.admin.large-graph-warning-threshold`)
# The list is needed: scatter makes one future of each element of a list or dict.
SCATTER = "`[future] = client.scatter([data], broadcast=True)` once and pass `future`"
BANDWIDTH = 100e6  # bytes/s that Dask expects of a connection (`distributed.scheduler.bandwidth`)
NEEDLESS = 10  # least ratio of a graph's tasks to those needed, for the graph to count as having needless tasks
MANY_TASKS = 10_000  # tasks from which a graph takes seconds (0.2 to 1 ms each, by Dask's best practices)


@dataclass(frozen=True)
class Submissions:
    """Graphs that clients outside of tasks sent, in the order of arrival, and the number that tasks sent."""

    time: Floats  # arrival of each graph at the scheduler, in seconds since the first task was known
    seconds: Floats  # seconds that the scheduler needed to take it in
    tasks: Ints  # tasks in each graph
    nbytes: Ints  # bytes of each graph as it was sent; 0 when unknown
    nested_graphs: int  # graphs from within tasks
    nested_tasks: int  # tasks in all graphs from within tasks


@once
def submissions(observation: Observation) -> Submissions:
    epoch = 0.0 if observation.attempts is None else observation.attempts.epoch
    time, seconds = observation.numbers("graphs", "time"), observation.numbers("graphs", "seconds")
    tasks, nbytes = (np.asarray(observation.column("graphs", name), np.int64) for name in ("tasks", "nbytes"))
    nested = np.array([str(name).startswith(NESTED) for name in observation.column("graphs", "client")], dtype=bool)
    order = np.argsort(time, kind="stable")
    own = order[~nested[order]]
    return Submissions(
        time[own] - epoch,
        np.maximum(seconds[own], 0.0),
        tasks[own],
        nbytes[own],
        int(nested.sum()),
        int(tasks[nested].sum()),
    )


@dataclass(frozen=True)
class Nested:
    """Tasks that sent tasks, and those that they sent; one element per attempt."""

    since: Floats  # arrival of the first graph that the attempt sent; infinite if it sent none
    until: Floats  # end of the last task that the attempt sent; minus infinity if none ended
    graphs: Ints  # number of graphs that the attempt sent
    sent: Bools  # True where a task sent it


@once
def nested(observation: Observation) -> Nested:
    """Find the sender of each graph by the task key noted with it; for coroutines, none is noted."""
    attempts, senders = observation.measured, observation.column("graphs", "task")
    parents = set(senders) - {""}
    by_key = {key: i for i, key in enumerate(attempts.key) if key in parents} if parents else {}
    sender = np.array([-1, *(by_key.get(key, -1) for key in senders)])  # sender by number of the graph, from 1
    inner = np.flatnonzero(sender >= 0)
    graph = np.where(attempts.graph < len(sender), attempts.graph, 0)
    found = Nested(
        np.full(len(graph), np.inf),
        np.full(len(graph), -np.inf),
        np.bincount(sender[inner], minlength=len(graph)),
        sender[graph] >= 0,
    )
    arrived = observation.numbers("graphs", "time") - attempts.epoch
    np.minimum.at(found.since, sender[inner], arrived[inner - 1])
    np.maximum.at(found.until, sender[graph][found.sent], attempts.stop[found.sent])
    return found


def largest_part(observation: Observation) -> str:
    """A sentence, with a leading space, on what makes the largest graph so large; empty if that is not known."""
    noted = _large_parts(observation)
    return f" {noted[0].sentence(words.size(noted[0].nbytes))}" if noted else ""


def large_at(observation: Observation) -> Place | None:
    """The line that sent the largest graph, and the name of the argument that makes it large."""
    noted = _large_parts(observation)
    return Place.of(noted[0].where, noted[0].what.removeprefix("argument ").strip("`")) if noted else None


def sent_again(observation: Observation) -> bool:
    """Whether several graphs carried the same large object."""
    return any(part.again for part in _large_parts(observation))


def sending_once_s(observation: Observation) -> float:
    """Least seconds that the client needs to send its graphs' data once, as `SCATTER` advises."""
    noted, sent = _large_parts(observation), float(submissions(observation).nbytes.sum())
    known = sum(part.graph_nbytes for part in noted)
    once = sum(part.nbytes for part in noted if not part.again) / known if known else 1.0
    return once * sent / BANDWIDTH


def _large_parts(observation: Observation) -> list[LargePart]:
    of_needless = set(submissions(observation).nbytes[needless(observation)].tolist())
    return [each for each in _noted(observation) if each.what != ALL_TASKS and each.graph_nbytes not in of_needless]


def _noted(observation: Observation) -> list[LargePart]:
    return [LargePart.from_mapping(each) for each in observation.trial.facts.get("large") or ()]


@once
def all_tasks(observation: Observation) -> Ints:
    """Tasks that the client sent with each graph of `submissions`; 0 when unknown, as for small graphs."""
    noted = {each.graph_nbytes: each.tasks for each in _noted(observation)}
    return np.array([noted.get(each, 0) for each in submissions(observation).nbytes.tolist()], np.int64)


@once
def needless(observation: Observation) -> Bools:
    """True for the graphs of `submissions` that had many more tasks than their results needed."""
    return all_tasks(observation) >= NEEDLESS * np.maximum(submissions(observation).tasks, 1)


def heaviest_graph(observation: Observation) -> float:
    """Bytes of the largest graph whose tasks carry data, as it was sent; 0 if none does."""
    nbytes, tasks = observation.numbers("graphs", "nbytes"), observation.numbers("graphs", "tasks")
    parts = [part for part in _large_parts(observation) if part.nbytes >= HEAVY_GRAPH and RANDOM not in part.what]
    in_each = any(part.calls > 1 for part in parts)  # one object, packed once and sent with each task
    light = nbytes < np.minimum(LIGHT_GRAPH, LIGHT_CALL * tasks)
    carries = bool(parts) | ((nbytes >= HEAVY_GRAPH + CALL_BYTES * tasks) & ~light)
    return float(nbytes[in_each | (carries & (nbytes >= LEAST_CALL * tasks))].max(initial=0.0))


def large(sent: Submissions) -> Bools:
    return (sent.nbytes >= LARGE_BYTES) | (sent.tasks >= MANY_TASKS)


def heavy(sent: Submissions) -> Bools:
    """The graphs whose packing costs time: they are large, or their tasks carry data."""
    return large(sent) | (sent.nbytes >= HEAVY_GRAPH * np.maximum(sent.tasks, 1))
