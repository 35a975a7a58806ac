"""Blame: at every instant of a trial, each of the P threads is charged to what it ran, or to what it waited for.

| part of the worker time | charged to |
| --- | --- |
| `busy` | the prefix of the task |
| `no_runnable_task`, `tail` | the prefixes of the tasks that are waited for, in equal shares; or the scheduler |
| `client` | the line at which the client was (table `client`) |
| all others | the part itself |

Idle threads wait for a running task if its end held something up (`scalescope.diagnosis.evidence.delays`), and for the
client while the client's own code delays its next graph. Where neither is known, they wait for all running tasks. If a
task is late, waiting for it is passed on to the delay that made it late. No delay is charged with more than it cost:
P - 1 threads for as long as it lasted.

If no task runs or is runnable, but some are known, threads wait for the scheduler. For each prefix it is known how long
its tasks held their threads and waited (events with topic `waits`), but not when: this time is spread evenly over the
prefix's busy time. The idea is that of idleness blame in HPCToolkit (Tallent and Mellor-Crummey, 2009), and of delay
costs in Scalasca (Böhme et al., 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Floats, Ints, codes
from scalescope.analysis.ledger import unoccupied
from scalescope.analysis.worker_time import over_time
from scalescope.diagnosis.evidence.client_time import client_time
from scalescope.diagnosis.evidence.delays import NONE, delays
from scalescope.diagnosis.evidence.task_table import task_prefixes
from scalescope.diagnosis.evidence.timeline import interval_seconds, occupied_from, timeline
from scalescope.diagnosis.observation import Observation
from scalescope.model.metrics import PARTS, WORKER_TIME, WORKING
from scalescope.model.trial import BLAMED, PASSED_ON

MOST_PREFIXES, MOST_LINES = 8, 3  # prefixes, and lines of the client, charged by name; the rest share one charge
MOST_KEPT = 5  # largest losses kept in the facts of a trial
ROUNDING = 1e-9  # share of worker time; smaller charges are rounding errors
OTHER = "other tasks"
INTAKE, BETWEEN = "the scheduler, taking in a graph", "the scheduler, between two tasks"
IDLE, CLIENT = "no_runnable_task", "client"


@dataclass(frozen=True)
class Charge:
    """Threads that are charged to one thing."""

    part: str  # a part of `WORKER_TIME`; `tail` counts as `no_runnable_task`
    name: str  # prefix that ran or is waited for, or what the client does; empty if `part` says enough
    seconds: Floats  # thread-seconds in each bin; shape (bins,)
    held: bool = False  # True if tasks spent the seconds waiting and kept their threads
    of_client: bool = False  # True if threads wait for the client
    passed_on: bool = False  # True if threads waited for other tasks, which were late because of `name`

    @property
    def total_s(self) -> float:
        return float(self.seconds.sum())

    @property
    def of_tasks(self) -> bool:
        idle = self.part == IDLE and not self.of_client and self.name not in (INTAKE, BETWEEN)
        return self.part == "busy" or idle

    @property
    def state(self) -> str:
        """State of the threads: `ran`, `held` (by a waiting task), `wasted`, `absent`, `idle` or `idle, passed on`."""
        if self.part in WORKING:
            return "held" if self.held else "ran"
        if self.passed_on:
            return "idle, passed on"
        return {"lost": "wasted", "late_start": "absent"}.get(self.part, "idle")

    @property
    def text(self) -> str:
        if self.of_client:
            return f"the client, {self.name}" if self.name else "the client"
        return self.name or PARTS[self.part].title


@dataclass(frozen=True)
class Blame:
    """The charges of a trial: first for what ran, then for what idle threads waited for."""

    edges: Floats  # edges of the bins in seconds, from the call of the workload to its end; shape (bins + 1,)
    charges: tuple[Charge, ...]  # charges above `ROUNDING`; their sum is P × the length of each bin

    @property
    def lost(self) -> dict[str, tuple[float, float]]:
        """Thread-seconds lost, and how many of them were passed on, by text of the charge; largest first."""
        found: dict[str, tuple[float, float]] = {}
        for each in self.charges:
            if each.state != "ran":
                total_s, passed_on_s = found.get(each.text, (0.0, 0.0))
                found[each.text] = total_s + each.total_s, passed_on_s + each.total_s * each.passed_on
        return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def blame(
    observation: Observation, bins: int, *, most_prefixes: int = MOST_PREFIXES, most_lines: int = MOST_LINES
) -> Blame:
    """Charge the worker time of a trial that has attempts, in equal bins of time."""
    attempts = observation.measured
    edges = np.linspace(attempts.begin, attempts.end, bins + 1)
    parts = _parts(observation, edges)
    names, ran, waited_for = _prefixes(observation, edges, most_prefixes)
    busy = _shared(parts["busy"], ran)
    waits = _waits(observation, names, busy)
    found = []
    for name, seconds, share in zip([*names, OTHER], busy, waits, strict=True):
        found.append(Charge("busy", name, seconds * (1 - share)))
        found.append(Charge("busy", name, seconds * share, held=True))
    idle = _shared(parts[IDLE] + parts["tail"], waited_for)
    of_tasks, holding = [*names, OTHER], _holding(observation)
    passed, direct = idle[: len(of_tasks) + 1], idle[len(of_tasks) + 1 :]
    found += [Charge(IDLE, *each) for each in zip([*of_tasks, INTAKE, BETWEEN], direct[1:], strict=True)]
    found += [Charge(IDLE, *each, passed_on=True) for each in zip(of_tasks, passed[1:], strict=True)]
    found.append(Charge(IDLE, holding, direct[0], of_client=True))
    found.append(Charge(IDLE, holding, passed[0], of_client=True, passed_on=True))
    lines, doing = _lines(observation, edges, most_lines)
    of_lines = zip([*lines, ""], _shared(parts[CLIENT], doing), strict=True)
    found += [Charge(CLIENT, *each, of_client=True) for each in of_lines]
    rest = [part for part in WORKER_TIME if part not in ("busy", IDLE, "tail", CLIENT)]
    found += [Charge(part, "", parts[part]) for part in rest]
    least = ROUNDING * observation.threads * attempts.elapsed
    return Blame(edges, tuple(charge for charge in found if charge.total_s > least))


def kept(observation: Observation) -> dict[str, dict[str, float]]:
    """The facts `BLAMED` and `PASSED_ON` of a trial; empty if it has no attempts or stood still."""
    if observation.attempts is None or observation.standstill:  # at a standstill, a task that never ended has no row
        return {}
    found = list(blame(observation, 1).lost.items())[:MOST_KEPT]
    return {
        BLAMED: {text: total_s for text, (total_s, _) in found},
        PASSED_ON: {text: passed_on_s for text, (_, passed_on_s) in found if passed_on_s},
    }


def _parts(observation: Observation, edges: Floats) -> dict[str, Floats]:
    if len(edges) > 2:
        return over_time(observation.measured, edges, threads=observation.threads)
    return {part: np.array([seconds]) for part, seconds in observation.worker_time_s.items()}


def _shared(whole: Floats, weights: Floats) -> Floats:
    """Divide each bin of `whole` in proportion to `weights` of shape (charges, bins); if all are 0, to the last."""
    total = weights.sum(axis=0)
    weights[-1, total <= 0] = 1.0
    shared: Floats = weights / np.where(total > 0, total, 1.0) * whole
    return shared


def _prefixes(observation: Observation, edges: Floats, most: int) -> tuple[list[str], Floats, Floats]:
    """Prefixes charged by name; per bin, the seconds that each ran and the thread-seconds waited for each.

    Rows of the last array: waits passed on to the client, to each prefix, to other tasks; then direct waits for
    these, for the scheduler while it takes in a graph, and for the scheduler between two tasks.
    """
    attempts, line, found = observation.measured, timeline(observation), delays(observation)
    begin, stop, useful = occupied_from(observation), attempts.stop, attempts.useful
    names, prefix = task_prefixes(observation)
    client = line.level(*found.client) * np.minimum(line.occupied, 1.0)
    awaited = line.level(begin[found.awaited], stop[found.awaited]) + client
    rate = line.unwanted / np.maximum(awaited, 1.0)  # idle threads per awaited task or client
    running = np.minimum(line.occupied, 1.0)
    for_nobody = line.unwanted * np.maximum(running - awaited, 0.0) / np.maximum(line.occupied, 1e-9)
    could = observation.threads * np.minimum(line.unwanted, 1.0)  # most idle threads to charge; 0 while all are busy
    moved, low, high = _passed_on(observation, rate, line.integral(client * (could - rate)))
    to, moved_s = found.origin[moved], line.between(rate, low, high)

    of_attempt = (stop - attempts.start) * useful + line.between(for_nobody, begin, stop)
    of_attempt[found.awaited] += line.between(rate, begin[found.awaited], stop[found.awaited])
    of_attempt[moved] -= moved_s
    of_attempt += np.bincount(np.maximum(to, 0), moved_s * (to >= 0), len(begin))
    order = np.argsort(-np.bincount(prefix, of_attempt, len(names)), kind="stable")[:most]
    place = np.full(len(names), len(order))
    place[order] = np.arange(len(order))
    place = place[prefix]
    place_to = np.where(to >= 0, place[to], -1)
    ran, direct, passed = [], [rate * client], [rate * line.level(low[to < 0], high[to < 0])]
    for i in range(len(order) + 1):
        own = place == i
        used, for_it, here = own & useful, own & found.awaited, own[moved]
        ran.append(interval_seconds(attempts.start[used], stop[used], edges))
        level = line.level(begin[for_it], stop[for_it]) - line.level(low[here], high[here])
        direct.append(rate * np.maximum(level, 0.0) + for_nobody * line.level(begin[own], stop[own]))
        passed.append(rate * line.level(low[place_to == i], high[place_to == i]))
    graphs = observation.numbers("graphs", "time") - attempts.epoch
    until = graphs + observation.numbers("graphs", "seconds")
    taken_in = line.level(graphs, until)
    none = np.maximum(line.level(*attempts.pending.T) - running, 0.0)
    taken_in = np.minimum(taken_in, none)
    direct += [line.unwanted * taken_in, line.unwanted * (none - taken_in)]
    waited_for = np.array([line.between(level, edges[:-1], edges[1:]) for level in (*passed, *direct)])
    waited_for[-2] += observation.threads * interval_seconds(graphs, np.minimum(until, 0.0), edges)  # no task is known
    return [names[i] for i in order], np.array(ran), waited_for


def _passed_on(observation: Observation, rate: Floats, of_client_s: float) -> tuple[Ints, Floats, Floats]:
    """Late tasks that threads waited for; begin and end of the part of the wait that is passed on.

    `of_client_s`: most thread-seconds that may be passed on to the client.
    """
    attempts, line, found = observation.measured, timeline(observation), delays(observation)
    begin, stop = occupied_from(observation), attempts.stop
    moved = np.flatnonzero(found.awaited & (found.late_s > 0) & (found.origin != NONE))
    high = np.maximum(stop - found.own_s, begin)[moved]
    low = np.maximum(high - found.late_s[moved], begin[moved])
    order = np.lexsort((low, found.origin[moved]))
    moved, low, high = moved[order], low[order], high[order]
    origin, seconds = found.origin[moved], line.between(rate, low, high)
    task = np.maximum(origin, 0)
    direct = line.between(rate, np.maximum(stop - found.own_s, begin)[task], stop[task]) * found.awaited[task]
    most = np.where(origin >= 0, (observation.threads - 1) * found.own_s[task] - direct, of_client_s)
    until = np.cumsum(seconds)
    first = np.searchsorted(origin, origin)
    before = until - seconds - (until - seconds)[first]
    share = np.clip((most - before) / np.maximum(seconds, ROUNDING), 0.0, 1.0)
    return moved, low, low + (high - low) * share


def _waits(observation: Observation, names: Sequence[str], busy: Floats) -> Floats:
    waited = dict.fromkeys([*names, OTHER], 0.0)
    for _, wait in observation.events("waits"):
        waited[wait["prefix"] if wait["prefix"] in waited else OTHER] += float(wait["seconds"])
    shares: Floats = np.minimum(np.array(list(waited.values())) / np.maximum(busy.sum(axis=1), 1e-9), 1.0)
    return shares


def _doing(observation: Observation) -> tuple[tuple[str, ...], Ints]:
    """Actions of the client in words; and for each row of the table `client`, the index of its action."""
    return codes([" at ".join(filter(None, (what, where))) for where, what in client_time(observation).doing])


def _holding(observation: Observation) -> str:
    """Main action of the client while it delayed what it sent next; empty if it delayed nothing."""
    begin, end = delays(observation).client
    if not len(begin):
        return ""
    names, line = _doing(observation)
    row = np.searchsorted(observation.client_spans[0], begin, side="right") - 1
    return names[int(np.bincount(line[np.maximum(row, 0)], end - begin).argmax())]


def _lines(observation: Observation, edges: Floats, most: int) -> tuple[list[str], Floats]:
    """Main actions of the client while no task was known, and seconds of each per bin; others share the last row."""
    attempts, found = observation.measured, client_time(observation)
    names, line = _doing(observation)
    order = np.argsort(-np.bincount(line, found.seconds.sum(axis=1)), kind="stable")
    order = np.array([i for i in order if names[i]][:most], np.int64)
    place = np.full(len(names), len(order))
    place[order] = np.arange(len(order))
    begins, _ = observation.client_spans
    seconds = np.zeros((len(order) + 1, len(edges) - 1))
    if not len(begins):
        return [], seconds
    moments = np.unique(np.clip(np.concatenate([edges, begins]), edges[0], edges[-1]))
    free = np.diff(unoccupied(attempts.not_client, lambda time: time)(moments))
    row: Ints = np.maximum(np.searchsorted(begins, moments[:-1], side="right") - 1, 0)
    np.add.at(seconds, (place[line[row]], np.searchsorted(edges, moments[:-1], side="right") - 1), free)
    return [names[i] for i in order], seconds
