"""The account of a trial: charges of `diagnosis.blame`, in the form that `analysis.difference` compares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from scalescope.analysis.attempts import Ints, codes
from scalescope.analysis.difference import Account, Overhead, PartKind, PrefixAccount
from scalescope.analysis.inside_tasks import called_by_user, inside_tasks
from scalescope.diagnosis.blame import BETWEEN, CLIENT, IDLE, INTAKE, OTHER, Charge, blame
from scalescope.diagnosis.evidence.host_cpu import host
from scalescope.diagnosis.evidence.submissions import submissions
from scalescope.diagnosis.evidence.timeline import occupied_from
from scalescope.diagnosis.observation import Observation
from scalescope.model.records import IMPORT, SENDING

MOST = 40  # most prefixes, and most client lines, charged by name; large, since the costliest differ between runs
MOST_FRAMES = 20  # most stacks read per prefix, the most sampled first

_KINDS = {
    "transfer": PartKind.TRANSFER,
    "serialisation": PartKind.SERIALISATION,
    "spill": PartKind.SPILL,
    "paused": PartKind.PAUSED,
    "actors": PartKind.ACTORS,
    "lost": PartKind.LOST,
    "not_assigned": PartKind.PLACEMENT,
    "late_start": PartKind.START_UP,
    "other_cluster": PartKind.OTHER_CLUSTER,
    IDLE: PartKind.SCHEDULER,
    CLIENT: PartKind.CLIENT,
}


def account(observation: Observation) -> Account:
    """Divide the worker time of a trial that has attempts among prefixes and overheads."""
    busy, idle = defaultdict[str, float](float), defaultdict[str, float](float)
    overheads = defaultdict[Overhead, float](float)
    for charge in blame(observation, 1, most_prefixes=MOST, most_lines=MOST).charges:
        if charge.of_tasks:
            (busy if charge.part == "busy" else idle)[charge.name] += charge.total_s
        else:
            overheads[_overhead(charge)] += charge.total_s
    for name, kind, share in list(_before_running(observation)):
        if waited := idle.get(name, 0.0) * share:
            overheads[Overhead(kind)] += waited
            idle[name] -= waited
    sent_bytes = float(submissions(observation).nbytes.sum())
    prefixes = _prefixes(observation, busy, idle)
    return Account(observation.threads, prefixes, dict(overheads), _free(observation), sent_bytes)


def _free(observation: Observation) -> float | None:
    """Share of the host's CPU time that other processes left to the tasks; None if the records do not tell it."""
    here, metrics = host(observation), observation.metrics
    if here is None or metrics is None or not metrics.busy_time_s:
        return None
    waited = metrics.busy_time_s["for_core"] / max(sum(metrics.busy_time_s.values()), 1e-9)
    return 1 - min(here.foreign, waited)  # `waited` includes waits for cores that other threads of the workers use


def _before_running(observation: Observation) -> Iterator[tuple[str, PartKind, float]]:
    """Yield prefix, kind, and share of the prefix's idle time in which inputs were fetched, unpacked or read.

    Shares apply one after the other: each refers to the time that the kinds before it left.
    """
    attempts = observation.measured
    names, place = codes(attempts.prefix)
    left = np.bincount(place, attempts.stop - occupied_from(observation), len(names))
    before = {
        PartKind.TRANSFER: attempts.transfer,
        PartKind.SERIALISATION: attempts.deserialize,
        PartKind.SPILL: attempts.disk_read,
    }
    for kind, seconds in before.items():
        own = np.minimum(np.bincount(place, seconds, len(names)), left)
        yield from ((name, kind, float(part)) for name, part in zip(names, own / np.maximum(left, 1e-12), strict=True))
        left = left - own


def _overhead(charge: Charge) -> Overhead:
    what = charge.name.partition(" at ")[0]
    if not charge.of_client:
        name = charge.name if charge.name in (INTAKE, BETWEEN) else ""
        return Overhead(_KINDS[charge.part], name, of_graphs=name == INTAKE)
    if what == IMPORT:
        return Overhead(PartKind.IMPORTS)
    return Overhead(PartKind.CLIENT, charge.name, of_graphs=what.rpartition(".")[2] in SENDING)


def _prefixes(
    observation: Observation, busy: defaultdict[str, float], idle: defaultdict[str, float]
) -> dict[str, PrefixAccount]:
    attempts = observation.measured
    names, place = codes(attempts.prefix)
    counts = np.bincount(place, attempts.useful, len(names))
    first = np.full(len(names), np.inf)
    np.minimum.at(first, place, attempts.start)
    lines = _lines(observation, place)
    inside = inside_tasks(observation.tables, attempts, observation.seconds("busy")) or {}
    found, others = {}, 0
    for i, name in enumerate(names):
        if name not in busy and name not in idle and OTHER in (*busy, *idle):
            others += int(counts[i])
            continue
        frames: dict[str, float] = {}
        own = inside.get(name)
        for stack in own.stacks[:MOST_FRAMES] if own else ():
            text = " at ".join(filter(None, (called_by_user(stack), stack.user)))
            if own and text:
                frames[text] = frames.get(text, 0.0) + own.share([stack]) * busy[name]
        found[name] = PrefixAccount(int(counts[i]), busy[name], idle[name], float(first[i]), lines[i], frames)
    if others:
        found[OTHER] = PrefixAccount(others, busy[OTHER], idle[OTHER], attempts.makespan)
    return found


def _lines(observation: Observation, place: Ints) -> list[str]:
    """Line of the client that sent the first task of each prefix; empty when unknown."""
    _, row = np.unique(place, return_index=True)
    graphs = observation.measured.graph[row] - 1
    sent, when = observation.numbers("graphs", "time"), observation.numbers("client", "time")
    where = observation.column("client", "where")
    found = []
    for graph in graphs.tolist():
        known = 0 <= graph < len(sent) and len(when) > 0
        at = int(np.searchsorted(when, sent[graph], side="right")) - 1 if known else -1
        found.append(str(where[at]) if at >= 0 else "")
    return found
