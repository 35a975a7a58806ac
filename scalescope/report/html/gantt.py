"""Bars of a Gantt chart: one row per worker thread, and never more bars than a browser can draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalescope.analysis.attempts import Attempts, Floats, Ints, ordered
from scalescope.report.html.stages import Groups

MOST_BARS = 100_000  # most bars: so many are drawn by a browser without delay (1.3 MB)
PLAIN_BARS = 20_000  # most tasks for which each task has its own bar
PIXELS = 2_400  # number of time steps, twice the chart's width in pixels; short tasks within a step are merged
MOST_IDLE_ROWS = 40  # if there are more rows, workers that ran nothing get none; the heat map shows them
CLOCK_ERROR_S = 0.005
STAGES = 8  # stages with a colour of their own; the others share one
OTHER, LOST = STAGES, STAGES + 1  # codes for all other stages, and for attempts whose result was not used


@dataclass(frozen=True)
class Rows:
    """The rows of the chart: one per thread."""

    worker: Ints  # for each row, the index of its worker in `Attempts.addresses`
    of_attempt: Ints  # for each attempt, its row


@dataclass(frozen=True)
class Bars:
    """The bars, ordered by row and time; arrays have one element per bar."""

    row: npt.NDArray[np.uint32]
    left: npt.NDArray[np.float32]  # seconds since `Attempts.epoch`
    right: npt.NDArray[np.float32]
    stage: npt.NDArray[np.uint8]  # 0 to `STAGES` - 1, `OTHER` or `LOST`
    count: npt.NDArray[np.uint32]  # number of tasks in the bar
    tasks: int  # number of attempts recorded
    merged_below_s: float = 0.0  # time step in seconds: shorter tasks within a step share a bar; 0: none do
    left_out: int = 0  # number of attempts without a bar: the shortest ones, if merging left too many bars


def rows_of(attempts: Attempts, order: Ints) -> Rows:
    """Give every thread a row: each worker gets a row for each thread it has, or that ran a task, whichever are more.

    `order` lists workers from the first row on. Beyond `MOST_IDLE_ROWS` rows, workers that ran nothing get none.
    """
    count = len(attempts.addresses)
    threads = np.ones(count, np.int64)
    np.maximum.at(threads, attempts.members.worker, attempts.members.nthreads)
    pairs, pair = _pairs(attempts, threads)
    owner = attempts.worker[pairs]
    used = np.bincount(owner, minlength=count)
    height = np.maximum(threads, used)[order]
    if height.sum() > MOST_IDLE_ROWS:
        height[used[order] == 0] = 0
    first = np.empty(count, np.int64)
    first[order] = np.cumsum(height) - height
    # Pairs are ordered by worker: a pair's place within its worker is its distance from the worker's first pair.
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    return Rows(np.repeat(order, height), (first[owner] + place)[pair])


def stage_codes(attempts: Attempts, groups: Groups) -> npt.NDArray[np.uint8]:
    """The code of each attempt's colour: the number of its stage by work, largest first; or `OTHER` or `LOST`."""
    found = groups.renumbered(groups.largest(STAGES), OTHER).astype(np.uint8)
    found[~attempts.useful] = LOST
    return found


def bars(
    attempts: Attempts, row: Ints, stage: npt.NDArray[np.uint8], *, most: int = MOST_BARS, plain: int = PLAIN_BARS
) -> Bars:
    """A bar for each attempt; if there are too many, short neighbours are merged until at most `most` bars are left.

    A merged bar has the colour of the stage that fills most of it, or the colour `LOST` if it has a lost attempt.
    """
    # Rows are whole numbers, and times are divided by the makespan: one sort of the sums orders by row, then time.
    by_row = np.argsort(row + 0.999999 * attempts.start / attempts.makespan)
    row, stage = row[by_row], stage[by_row]
    start, stop = attempts.start[by_row], attempts.stop[by_row]
    step = 0.0 if len(row) <= min(plain, most) else attempts.makespan / PIXELS
    first = _begins(row, start, stop, step)
    while len(first) > most and step < attempts.makespan:
        step *= 2
        first = _begins(row, start, stop, step)
    count = np.diff(np.append(first, len(row)))
    right = np.maximum.reduceat(stop, first)
    colour = stage[first] if step == 0 else _dominant(stage, stop - start, count)
    kept = np.arange(len(first))
    if len(first) > most:
        kept = np.sort(np.argsort(start[first] - right, kind="stable")[:most])
    return Bars(
        row=row[first][kept].astype(np.uint32),
        left=start[first][kept].astype(np.float32),
        right=right[kept].astype(np.float32),
        stage=colour[kept].astype(np.uint8),
        count=count[kept].astype(np.uint32),
        tasks=len(row),
        merged_below_s=step,
        left_out=len(row) - int(count[kept].sum()),
    )


def _pairs(attempts: Attempts, threads: Ints) -> tuple[Ints, Ints]:
    """For each pair of worker and thread, its first attempt; and for each attempt, its pair.

    A worker may replace its threads. If it used more threads than it has, but never two at once, they count as one.
    """
    worker = attempts.worker
    identifiers, code = np.unique(attempts.thread, return_inverse=True)
    pair = worker * len(identifiers) + code
    used = np.bincount(np.unique(pair) // len(identifiers), minlength=len(threads))
    if bool(np.any(used > threads)):
        single = (used > threads) & ~_overlapping(attempts, len(threads))
        pair = np.where(single[worker], worker * len(identifiers), pair)
    _, first, index = np.unique(pair, return_index=True, return_inverse=True)
    return first, index


def _overlapping(attempts: Attempts, count: int) -> npt.NDArray[np.bool_]:
    """For each worker, whether two of its tasks overlapped by more than the clock error."""
    order = ordered(attempts.worker, attempts.start)
    worker = attempts.worker[order]
    both = (worker[1:] == worker[:-1]) & (attempts.start[order][1:] < attempts.stop[order][:-1] - CLOCK_ERROR_S)
    found = np.zeros(count, np.bool_)
    found[worker[1:][both]] = True
    return found


def _begins(row: Ints, start: Floats, stop: Floats, step: float) -> Ints:
    if step == 0:
        return np.arange(len(row))
    short = stop - start < step
    stretch = (start / step).astype(np.int64)
    joined = short[1:] & short[:-1] & (row[1:] == row[:-1]) & (stretch[1:] == stretch[:-1])
    return np.flatnonzero(np.append(True, ~joined))


def _dominant(stage: npt.NDArray[np.uint8], seconds: Floats, count: Ints) -> Ints:
    """The stage that fills most of each bar, or `LOST` if the bar has a lost attempt."""
    bar = np.repeat(np.arange(len(count)), count)
    codes = LOST + 1
    filled = np.bincount(bar * codes + stage, weights=seconds + 1e-12, minlength=len(count) * codes)
    table = filled.reshape(len(count), codes)
    found: Ints = table.argmax(axis=1)
    found[table[:, LOST] > 0] = LOST
    return found
