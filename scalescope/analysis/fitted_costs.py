"""What a recorded trial tells of its cluster: how fast its links are, and what a task and a byte cost its workers.

The simulated cluster charges these costs at sizes that were not run. What a trial cannot tell is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from scalescope.analysis.attempts import Attempts, Floats, Tables
from scalescope.analysis.replay import overhead
from scalescope.model.records import STATUS_FINISHED

LEAST_BYTES = 50_000  # a smaller transfer takes latency alone
LEAST_MOVED_S = 0.05  # seconds of transfers in all, below which they tell nothing
UNSHARED = 0.8  # share of the bytes that moved slower than a link that they had for themselves
CPU_STEPS = ("serialize", "deserialize", "compress", "decompress")
GROWN = 0.1  # durations that grow by less over the measured sizes stay the same


@dataclass(frozen=True)
class FittedCosts:
    """Costs of one cluster, in seconds and bytes."""

    bandwidth: float | None = None  # bytes a second of a worker's link, each way
    cpu_s_per_byte: float | None = None  # packing on one side, or unpacking on the other
    worker_s: float | None = None  # a task costs its thread so much besides its duration


def fitted_costs(tables: Tables, attempts: Attempts) -> FittedCosts:
    moved, seconds = _moved(tables)
    cpu_s = sum(
        value
        for context, activity, unit, value in _fine_metrics(tables)
        if context in ("gather-dep", "get-data") and activity in CPU_STEPS and unit == "seconds"
    )
    enough = float(seconds.sum()) >= LEAST_MOVED_S
    return FittedCosts(
        bandwidth=_quantile(moved / seconds, moved, UNSHARED) if enough else None,
        cpu_s_per_byte=cpu_s / 2 / float(moved.sum()) if enough and cpu_s > 0 else None,
        worker_s=overhead(attempts),
    )


def _moved(tables: Tables) -> tuple[Floats, Floats]:
    """Bytes that tasks needed from other workers, and the seconds in which they came; one element per task."""
    tasks, dependencies = tables["tasks"], tables.get("dependencies", {})
    node, need = (np.asarray(dependencies.get(name, ()), np.int64) for name in ("task", "needs"))
    workers = np.unique(np.asarray(tasks["worker"], dtype=object).astype(str), return_inverse=True)[1]
    nbytes, seconds = np.asarray(tasks["nbytes"], np.float64), np.asarray(tasks["transfer"], np.float64)
    far = workers[node] != workers[need]
    moved = np.bincount(node[far], nbytes[need[far]], minlength=len(seconds))
    told = (moved >= LEAST_BYTES) & (seconds > 0) & (np.asarray(tasks["status"]) == STATUS_FINISHED)
    return moved[told], seconds[told]


def _fine_metrics(tables: Tables) -> list[tuple[str, str, str, float]]:
    table = tables.get("fine_metrics", {})
    columns = [list(table.get(name, ())) for name in ("context", "activity", "unit", "value")]
    return [(str(a), str(b), str(c), float(d)) for a, b, c, d in zip(*columns, strict=True)]


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    until = np.cumsum(weights[order])
    return float(values[order][int(np.searchsorted(until, share * until[-1]))])


@dataclass(frozen=True)
class GrowthOfDurations:
    """How the mean duration of tasks depends on the number of workers.

    The terms are those of Ernest (Venkataraman et al., NSDI 2016): a + b log n + c n, none below 0. The fewest terms
    that meet what was measured are taken.
    """

    terms: tuple[float, float, float]

    @classmethod
    def fit(cls, seconds: Mapping[int, float]) -> GrowthOfDurations:
        """Fit mean durations, in seconds by the number of workers."""
        sizes = np.array(sorted(seconds), np.float64)
        durations = np.array([seconds[int(size)] for size in sizes])
        constant = cls((float(durations[-1]), 0.0, 0.0))
        if len(sizes) < 2 or durations[-1] < (1 + GROWN) * durations[0]:
            return constant
        columns = np.column_stack([np.ones_like(sizes), np.log(sizes), sizes])
        most = min(len(sizes), 3)
        fits = [fit for count in range(1, most + 1) for fit in _subsets(columns, durations, count)]
        error, terms = min(fits, key=lambda fit: (round(fit[0], 3), sum(term > 0 for term in fit[1])))
        return cls((terms[0], terms[1], terms[2])) if error < 1 else constant

    def at(self, workers: float) -> float:
        constant, logarithm, linear = self.terms
        return float(constant + logarithm * np.log(workers) + linear * workers)


def _subsets(columns: Floats, durations: Floats, count: int) -> list[tuple[float, list[float]]]:
    """Least squares of each choice of so many columns without a factor below 0: relative errors and factors."""
    found = []
    for chosen in combinations(range(columns.shape[1]), count):
        weighted = columns[:, chosen] / durations[:, None]
        factors = np.linalg.lstsq(weighted, np.ones(len(durations)), rcond=None)[0]
        if np.all(factors >= 0):
            terms = [0.0] * columns.shape[1]
            for column, factor in zip(chosen, factors.tolist(), strict=True):
                terms[column] = factor
            found.append((float(np.sqrt(np.mean((weighted @ factors - 1) ** 2))), terms))
    return found
