"""How long threads were less busy after a fault on purpose (table `faults`)."""

from __future__ import annotations

import numpy as np

from scalescope.analysis.attempts import Attempts, Floats, Tables

BINS_S = 0.05
"""Width of the intervals over which busy threads are averaged; two tasks, where these are longer."""
AS_BEFORE = 0.9
"""Share of the earlier busy threads that counts as recovered."""


def recovery(tables: Tables, attempts: Attempts) -> float | None:
    """Seconds from the fault until threads are as busy as before; 0 where they never were less busy.

    None: no fault, or nothing ran before it, or threads were never as busy again. A worker that is stopped computes
    nothing, whatever its tasks say.
    """
    faults = tables.get("faults", {})
    if not len(faults.get("begin", ())):
        return None
    begin, end = (float(faults[name][0]) - attempts.epoch for name in ("begin", "end"))
    stopped = str(faults["worker"][0]) if faults["kind"][0] == "pause-worker" else ""
    width = max(BINS_S, 2 * float(np.median(attempts.stop - attempts.start)))
    before, after = int(begin / width), int((attempts.makespan - begin) / width)
    edges = np.arange(-before, after + 1, dtype=np.float64) * width + begin  # the fault begins with one of them
    busy = _running(attempts.start, attempts.stop, edges)
    if stopped in attempts.addresses:
        own = attempts.worker == attempts.addresses.index(stopped)
        start, stop = np.maximum(attempts.start[own], begin), np.minimum(attempts.stop[own], end)
        busy -= _running(start, np.maximum(stop, start), edges)
    computing = busy[:before][busy[:before] > 0]
    if not len(computing):
        return None
    level = AS_BEFORE * float(np.median(computing))
    less = np.flatnonzero(busy[before:] < level)
    if not len(less):
        return 0.0
    again = np.flatnonzero(busy[before + less[0] :] >= level)
    return float(width * (less[0] + again[0])) if len(again) else None


def _running(start: Floats, stop: Floats, edges: Floats) -> Floats:
    """How many of the intervals [start, stop) there are on average between two edges."""
    covered: Floats = np.array([np.clip(edge - start, 0, stop - start).sum() for edge in edges])
    return np.asarray(np.diff(covered) / np.diff(edges), np.float64)
