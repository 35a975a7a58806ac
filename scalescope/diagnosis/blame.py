"""Blame: at every instant of a trial, each of the P threads is charged to what it ran, or to whom it waited for.

| part of the worker time | charged to |
| --- | --- |
| `busy` | the prefix of the task |
| `no_runnable_task`, `tail` | the prefixes of the tasks that run then, in equal shares; or the scheduler |
| `client` | the line at which the client was (table `client`) |
| all others | the part itself |

Where no task runs, none is runnable and some is known, the scheduler has to go on. How long tasks held their thread and
waited is known of each prefix (events with topic `waits`), not when: it is spread evenly over its time. The idea is
that of idleness blame in HPCToolkit (Tallent and Mellor-Crummey, 2009).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Floats, Ints, codes
from scalescope.analysis.ledger import unoccupied
from scalescope.analysis.worker_time import over_time
from scalescope.diagnosis.evidence.client_time import client_time
from scalescope.diagnosis.evidence.task_table import task_prefixes
from scalescope.diagnosis.evidence.timeline import interval_seconds, occupied_from, timeline
from scalescope.diagnosis.observation import Observation
from scalescope.model.metrics import PARTS, WORKER_TIME, WORKING
from scalescope.model.trial import BLAMED

MOST_PREFIXES, MOST_LINES = 8, 3  # prefixes, and lines of the client, charged by name; the rest share one charge
ROUNDING = 1e-9  # share of worker time; smaller charges are rounding errors
OTHER = "other tasks"
INTAKE, BETWEEN = "the scheduler, taking in a graph", "the scheduler, between two tasks"
IDLE, CLIENT = "no_runnable_task", "client"


@dataclass(frozen=True)
class Charge:
    """Threads that are charged to one thing."""

    part: str  # of `WORKER_TIME`; the part `tail` counts as `no_runnable_task`
    name: str  # the prefix that ran or is waited for, or what the client does; empty where the part says all
    seconds: Floats  # thread-seconds in each bin; shape (bins,)
    held: bool = False  # whether these are tasks that held their thread and waited

    @property
    def total_s(self) -> float:
        return float(self.seconds.sum())

    @property
    def of_tasks(self) -> bool:
        return self.part == "busy" or (self.part == IDLE and self.name not in (INTAKE, BETWEEN))

    @property
    def state(self) -> str:
        """What the threads were: `ran` a task, `held` by one that waited, `wasted`, `absent`, or `idle`."""
        if self.part in WORKING:
            return "held" if self.held else "ran"
        return {"lost": "wasted", "late_start": "absent"}.get(self.part, "idle")

    @property
    def text(self) -> str:
        if self.part == CLIENT:
            return f"the client, {self.name}" if self.name else "the client"
        return self.name or PARTS[self.part].title


@dataclass(frozen=True)
class Blame:
    """The charges of a trial: what ran, then whom idle threads waited for."""

    edges: Floats  # of the bins, from the call of the workload to its end, in seconds; shape (bins + 1,)
    charges: tuple[Charge, ...]  # those that are not zero up to `ROUNDING`. Their sum is P × the length of each bin

    @property
    def waited(self) -> list[Charge]:
        return sorted((each for each in self.charges if each.state != "ran"), key=lambda each: -each.total_s)


def blame(observation: Observation, bins: int) -> Blame:
    """Charge the worker time of a trial that has attempts, in so many equal bins."""
    attempts = observation.measured
    edges = np.linspace(attempts.begin, attempts.end, bins + 1)
    parts = _parts(observation, edges)
    names, ran, waited_for = _prefixes(observation, edges)
    busy = _shared(parts["busy"], ran)
    waits = _waits(observation, names, busy)
    found = []
    for name, seconds, share in zip([*names, OTHER], busy, waits, strict=True):
        found.append(Charge("busy", name, seconds * (1 - share)))
        found.append(Charge("busy", name, seconds * share, held=True))
    idle = _shared(parts[IDLE] + parts["tail"], waited_for)
    found += [Charge(IDLE, *each) for each in zip([*names, OTHER, INTAKE, BETWEEN], idle, strict=True)]
    lines, doing = _lines(observation, edges)
    found += [Charge(CLIENT, *each) for each in zip([*lines, ""], _shared(parts[CLIENT], doing), strict=True)]
    rest = [part for part in WORKER_TIME if part not in ("busy", IDLE, "tail", CLIENT)]
    found += [Charge(part, "", parts[part]) for part in rest]
    least = ROUNDING * observation.threads * attempts.elapsed
    return Blame(edges, tuple(charge for charge in found if charge.total_s > least))


def kept(observation: Observation) -> dict[str, dict[str, float]]:
    """The fact `BLAMED` of a trial; none where it has no attempts."""
    if observation.attempts is None or observation.standstill:  # what stands still has no row
        return {}
    found: Counter[str] = Counter()
    for charge in blame(observation, 1).waited:
        found[charge.text] += charge.total_s  # type: ignore[assignment]
    return {BLAMED: dict(found.most_common(5))}  # charges kept of a trial, as its fact `BLAMED`


def _parts(observation: Observation, edges: Floats) -> dict[str, Floats]:
    if len(edges) > 2 or observation.worker_time is None:
        return over_time(observation.measured, edges, threads=observation.threads)
    return {part: np.array([seconds]) for part, seconds in observation.worker_time.total().items()}


def _shared(whole: Floats, weights: Floats) -> Floats:
    """Each bin, divided in proportion to the weights of shape (charges, bins); without weights, to the last charge."""
    total = weights.sum(axis=0)
    weights[-1, total <= 0] = 1.0
    shared: Floats = weights / np.where(total > 0, total, 1.0) * whole
    return shared


def _prefixes(observation: Observation, edges: Floats) -> tuple[list[str], Floats, Floats]:
    """Prefixes with a charge; per bin, seconds each ran and was waited for (rows: prefixes, others, scheduler)."""
    attempts, line = observation.measured, timeline(observation)
    begin, useful = occupied_from(observation), attempts.useful
    rate = line.unwanted / np.maximum(line.occupied, 1.0)  # the same for each task that runs
    of_attempt = (attempts.stop - attempts.start) * useful + line.between(rate, begin, attempts.stop)
    names, prefix = task_prefixes(observation)
    order = np.argsort(-np.bincount(prefix, of_attempt, len(names)), kind="stable")[:MOST_PREFIXES]
    place = np.full(len(names), len(order))
    place[order] = np.arange(len(order))
    place = place[prefix]
    ran, waited_for = [], []
    for i in range(len(order) + 1):
        own = place == i
        used = own & useful
        ran.append(interval_seconds(attempts.start[used], attempts.stop[used], edges))
        waited_for.append(rate * line.level(begin[own], attempts.stop[own]))
    graphs = observation.numbers("graphs", "time") - attempts.epoch
    taken_in = line.level(graphs, graphs + observation.numbers("graphs", "seconds"))
    none = np.maximum(line.level(*attempts.pending.T) - np.minimum(line.occupied, 1.0), 0.0)
    taken_in = np.minimum(taken_in, none)
    waited_for += [line.unwanted * taken_in, line.unwanted * (none - taken_in)]
    return (
        [names[i] for i in order],
        np.array(ran),
        np.array([line.between(level, edges[:-1], edges[1:]) for level in waited_for]),
    )


def _waits(observation: Observation, names: Sequence[str], busy: Floats) -> Floats:
    waited = dict.fromkeys([*names, OTHER], 0.0)
    for _, wait in observation.events("waits"):
        waited[wait["prefix"] if wait["prefix"] in waited else OTHER] += float(wait["seconds"])
    shares: Floats = np.minimum(np.array(list(waited.values())) / np.maximum(busy.sum(axis=1), 1e-9), 1.0)
    return shares


def _lines(observation: Observation, edges: Floats) -> tuple[list[str], Floats]:
    """What the client did most without a known task; seconds per bin of each, the last row for all else."""
    attempts, found = observation.measured, client_time(observation)
    names, line = codes([" at ".join(filter(None, (what, where))) for where, what in found.doing])
    order = np.argsort(-np.bincount(line, found.seconds.sum(axis=1)), kind="stable")
    order = np.array([i for i in order if names[i]][:MOST_LINES], np.int64)
    place = np.full(len(names), len(order))
    place[order] = np.arange(len(order))
    begins = observation.numbers("client", "time") - attempts.epoch
    seconds = np.zeros((len(order) + 1, len(edges) - 1))
    if not len(begins):
        return [], seconds
    moments = np.unique(np.clip(np.concatenate([edges, begins]), edges[0], edges[-1]))
    free = np.diff(unoccupied(attempts.pending, lambda time: time)(moments))
    row: Ints = np.maximum(np.searchsorted(begins, moments[:-1], side="right") - 1, 0)
    np.add.at(seconds, (place[line[row]], np.searchsorted(edges, moments[:-1], side="right") - 1), free)
    return [names[i] for i in order], seconds
