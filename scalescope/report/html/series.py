"""Memory and busy workers over the time of a trial, resampled so that they can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalescope.analysis.attempts import Attempts, Floats, Ints, Tables
from scalescope.analysis.work_span import Steps

SCHEDULER = "scheduler"
"""Name of the scheduler in the table `memory`."""
BINS = 400
HEAT_ROWS, HEAT_COLUMNS = 300, 300


@dataclass(frozen=True)
class Memory:
    """Memory over time, in bytes.

    Attributes:
        time: Seconds since `Attempts.epoch`; shape (n,).
        rss: Resident memory of all workers together.
        managed: Results that they hold, together.
        spilled: Results that they hold on disk, together.
        highest: Resident memory of the worker that has the most at that time.
        scheduler: Resident memory of the scheduler.
        processes: Worker processes sampled.
    """

    time: Floats
    rss: Floats
    managed: Floats
    spilled: Floats
    highest: Floats
    scheduler: Floats
    processes: int


@dataclass(frozen=True)
class Heat:
    """Busy share of workers over time.

    Attributes:
        share: 0 to 255 for 0 to 100 %; shape (rows, columns), the first row at the top of the list.
        workers: Workers averaged in each row; one where there are few enough.
        order: Workers (indices into `Attempts.addresses`), the busiest first.
        busy: Busy share of each worker over its whole trial, in that order, from 0 to 1.
    """

    share: npt.NDArray[np.uint8]
    workers: int
    order: Ints
    busy: Floats


def memory(tables: Tables, attempts: Attempts, *, bins: int = BINS) -> Memory | None:
    """Resample the table `memory`; None where nothing was sampled during the trial.

    Between two samples of a process the older holds; before its first and after its last it does not count, but for one
    interval, so that a worker that died does not go on using memory.
    """
    table = tables.get("memory", {})
    if not len(table.get("time", ())):
        return None
    when = np.asarray(table["time"], np.float64) - attempts.epoch
    index: dict[str, int] = {}
    code = np.fromiter((index.setdefault(name, len(index)) for name in table["worker"]), np.int64, len(when))
    order = np.lexsort((when, code))
    begins = np.searchsorted(code[order], np.arange(len(index) + 1))
    columns = {name: np.asarray(table[name], np.float64) for name in ("rss", "managed", "spilled")}
    time = np.linspace(0.0, attempts.makespan, bins)
    sums = {name: np.zeros(bins) for name in columns}
    highest, scheduler, processes = np.zeros(bins), np.zeros(bins), 0
    for name, i in index.items():
        own = order[begins[i] : begins[i + 1]]
        at, there = _held(when[own], time)
        if name == SCHEDULER:
            scheduler = np.where(there, columns["rss"][own][at], 0.0)
            continue
        processes += bool(there.any())
        for column, values in columns.items():
            sums[column] += np.where(there, values[own][at], 0.0)
        highest = np.maximum(highest, np.where(there, columns["rss"][own][at], 0.0))
    if not processes and not scheduler.any():
        return None
    return Memory(time, sums["rss"], sums["managed"], sums["spilled"], highest, scheduler, processes)


def heat(attempts: Attempts, busy: Floats, edges: Floats, *, most_rows: int = HEAT_ROWS) -> Heat:
    """The heat map of `busy_by_worker`: the busiest worker first, workers averaged where there are too many for rows.

    Args:
        attempts: What was recorded.
        busy: Busy thread-seconds; shape (workers, bins).
        edges: Of the bins; shape (bins + 1,).
        most_rows: Rows drawn at most.
    """
    threads = np.ones(len(attempts.addresses))
    np.maximum.at(threads, attempts.members.worker, attempts.members.nthreads)
    total = busy.sum(axis=1) / (threads * attempts.makespan)
    order = np.argsort(-total, kind="stable")
    share = busy[order] / (threads[order, None] * np.diff(edges)[None, :])
    each = -(-len(order) // most_rows)
    begins = np.arange(0, len(order), each)
    averaged = np.add.reduceat(share, begins, axis=0) / np.diff(np.append(begins, len(order)))[:, None]
    return Heat(np.rint(np.clip(averaged, 0, 1) * 255).astype(np.uint8), each, order, total[order])


def at(steps: Steps, times: Sequence[float] | Floats) -> Ints:
    """The level of a step function at some times."""
    position = np.searchsorted(steps.time, np.asarray(times, np.float64), side="right") - 1
    return np.asarray(steps.level[np.maximum(position, 0)])


def _held(samples: Floats, time: Floats) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The sample that holds at each time, and whether the process was there."""
    interval = float(np.median(np.diff(samples))) if len(samples) > 1 else float(time[-1])
    position = np.searchsorted(samples, time, side="right") - 1
    there = (time >= samples[0] - interval) & (time <= samples[-1] + interval)
    return np.maximum(position, 0), there
