"""Memory and busy workers over the time of a trial, resampled for drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalescope.analysis.attempts import Attempts, Floats, Ints
from scalescope.analysis.events import Tables
from scalescope.analysis.work_span import Steps

SCHEDULER = "scheduler"  # name of the scheduler in the table `memory`
BINS = 400
HEAT_ROWS, HEAT_COLUMNS = 300, 300


@dataclass(frozen=True)
class Memory:
    """Memory over time, in bytes; arrays of one shape."""

    time: Floats  # seconds since `Attempts.epoch`
    rss: Floats  # resident memory of all workers together
    managed: Floats  # results that workers hold in memory
    spilled: Floats  # results that workers hold on disk
    highest: Floats  # resident memory of the worker that has the most at that time
    scheduler: Floats  # resident memory of the scheduler
    processes: int  # number of worker processes that were sampled


@dataclass(frozen=True)
class Heat:
    """Busy share of workers over time."""

    share: npt.NDArray[np.uint8]  # 0 to 255 for 0 to 100 %; shape (rows, columns), busiest workers first
    workers: int  # number of workers averaged in each row
    order: Ints  # indices of workers in `Attempts.addresses`, busiest first
    busy: Floats  # busy share of each worker over the whole trial, from 0 to 1, in the order of `order`


def memory(tables: Tables, attempts: Attempts, *, bins: int = BINS) -> Memory | None:
    """Resample the table `memory`; None if nothing was sampled during the trial.

    A sample holds until its process's next one. The last one holds for one interval: the process may have ended then.
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
    """The heat map of `busy_by_worker`, busiest workers first; if there are too many, a row averages several."""
    threads = np.ones(len(attempts.addresses))
    np.maximum.at(threads, attempts.members.worker, attempts.members.nthreads)
    total = busy.sum(axis=1) / (threads * attempts.makespan)
    order = np.argsort(-total, kind="stable")
    share = busy[order] / (threads[order, None] * np.diff(edges)[None, :])
    each = -(-len(order) // most_rows)
    return Heat(_averaged(share, each), each, order, total[order])


def gpu(tables: Tables, attempts: Attempts, edges: Floats, like: Heat) -> Heat | None:
    """Utilisation of each worker's GPU over time, with the same rows as `like`; None without samples."""
    table = tables.get("gpu", {})
    if not len(table.get("time", ())):
        return None
    when = np.asarray(table["time"], np.float64) - attempts.epoch
    used, index = np.asarray(table["utilisation"], np.float64), {name: i for i, name in enumerate(attempts.addresses)}
    worker = np.fromiter((index.get(name, -1) for name in table["worker"]), np.int64, len(when))
    share, middle = np.zeros((len(index), len(edges) - 1)), (edges[:-1] + edges[1:]) / 2
    for i in np.unique(worker[worker >= 0]):
        own = np.flatnonzero(worker == i)
        own = own[np.argsort(when[own], kind="stable")]
        at, there = _held(np.unique(when[own]), middle)
        share[i] = np.where(there, used[own][np.unique(when[own], return_index=True)[1]][at], 0.0)
    return Heat(_averaged(share[like.order], like.workers), like.workers, like.order, share.mean(axis=1)[like.order])


def _averaged(share: Floats, each: int) -> npt.NDArray[np.uint8]:
    begins = np.arange(0, len(share), each)
    averaged = np.add.reduceat(share, begins, axis=0) / np.diff(np.append(begins, len(share)))[:, None]
    return np.rint(np.clip(averaged, 0, 1) * 255).astype(np.uint8)


def at(steps: Steps, times: Sequence[float] | Floats) -> Ints:
    """The level of a step function at each of these times."""
    position = np.searchsorted(steps.time, np.asarray(times, np.float64), side="right") - 1
    return np.asarray(steps.level[np.maximum(position, 0)])


def _held(samples: Floats, time: Floats) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """For each time, the index of the latest sample, and whether the process existed."""
    interval = float(np.median(np.diff(samples))) if len(samples) > 1 else float(time[-1])
    position = np.searchsorted(samples, time, side="right") - 1
    there = (time >= samples[0] - interval) & (time <= samples[-1] + interval)
    return np.maximum(position, 0), there
