"""Data that tasks needed but no task of the trial made: scattered by a client, or older than the trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalescope.analysis.attempts import Floats, Ints
from scalescope.analysis.events import Tables, told
from scalescope.model.records import SCATTERED


@dataclass(frozen=True)
class Scattered:
    """Pieces of data, and the tasks that needed them."""

    nbytes: tuple[int, ...]  # bytes of each piece
    workers: tuple[int, ...]  # for each piece, the number of workers that had it at first
    first: tuple[str, ...]  # for each piece, a worker that had it at first; empty if unknown
    row: Ints  # for each use of a piece, the row of the using task in the table `tasks`
    piece: Ints  # for each use of a piece, the number of the piece

    def moved(self, tables: Tables) -> tuple[Ints, Floats]:
        """For each copy of a piece that a worker fetched: the row of a task that needed the copy, and its bytes.

        This is the task whose `transfer` seconds include the copy, or else the first task that started.
        """
        if not len(self.row):
            return self.row, np.zeros(0)
        tasks = tables["tasks"]
        worker = np.asarray(tasks["worker"], dtype=object)[self.row].astype(str)
        # A piece that several workers had at first was sent to all workers (`broadcast`), so nothing is fetched.
        fetched = (worker != np.asarray(self.first, str)[self.piece]) & (np.asarray(self.workers)[self.piece] <= 1)
        row, piece = self.row[fetched], self.piece[fetched]
        noted = np.asarray(tasks["transfer"])[row] > 0
        first = first_uses(piece, worker[fetched], np.where(noted, -np.inf, np.asarray(tasks["start"])[row]))
        return row[first], np.asarray(self.nbytes, np.float64)[piece[first]]


def first_uses(piece: Ints, worker: npt.NDArray[Any], start: Floats) -> Ints:
    """Indices of the first use of each piece on each worker; the worker then keeps the piece for its other tasks."""
    number, order = np.unique(worker, return_inverse=True)[1].ravel(), np.argsort(start, kind="stable")
    uses = np.column_stack([piece, number])[order]
    found: Ints = order[np.unique(uses, axis=0, return_index=True)[1]]
    return found


def scattered_data(tables: Tables) -> Scattered:
    nbytes: dict[int, int] = {}
    workers, first = [], []
    row, piece = [], []
    for _, each in told(tables.get("events", {}), SCATTERED):
        number = int(each["number"])
        if number not in nbytes:
            nbytes[number] = int(each["nbytes"])
            workers.append(int(each["workers"]))
            first.append(str(next(iter(each["first"]), "")))
        row += each["rows"]
        piece += [len(nbytes) - 1] * len(each["rows"])
    return Scattered(
        tuple(nbytes.values()), tuple(workers), tuple(first), np.array(row, np.int64), np.array(piece, np.int64)
    )
