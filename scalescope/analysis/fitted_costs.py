"""What a recorded trial tells of its cluster: how fast its links are, and what a task and a byte cost its workers.

The simulated cluster charges these costs at sizes that were not run. What a trial cannot tell is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.attempts import Attempts, Floats, Tables
from scalescope.analysis.replay import overhead
from scalescope.model.records import STATUS_FINISHED

LARGE_BYTES, SMALL_BYTES = 500_000, 10_000  # transfers that tell the bandwidth, and those that tell the latency
LEAST_BYTES, LEAST_MOVED_S = 4_000_000, 0.05  # large transfers in all: fewer bytes or seconds tell nothing
LEAST_SMALL = 4  # small transfers, below which they tell nothing
# Shares of the bytes and of the transfers that were slower, or faster, than one that nothing else held back.
UNSHARED, UNDISTURBED = 0.8, 0.25
CPU_STEPS = ("serialize", "deserialize", "compress", "decompress")
GROWN = 0.1  # durations that grow by less over the measured sizes stay the same
SAME_FIT = 0.02  # relative errors that differ by less are equal: the simpler curve is taken


@dataclass(frozen=True)
class FittedCosts:
    """Costs of one cluster, in seconds and bytes."""

    bandwidth: float | None = None  # bytes a second of a worker's link, each way
    latency_s: float | None = None  # of a transfer
    cpu_s_per_byte: float | None = None  # packing on one side, or unpacking on the other
    worker_s: float | None = None  # a task costs its thread so much besides its duration

    @classmethod
    def of_sizes(cls, costs: Sequence[FittedCosts]) -> FittedCosts:
        """Combine the costs of several sizes: the trial that other work held back least tells each."""
        return cls(
            max((each.bandwidth for each in costs if each.bandwidth is not None), default=None),
            min((each.latency_s for each in costs if each.latency_s is not None), default=None),
            min((each.cpu_s_per_byte for each in costs if each.cpu_s_per_byte is not None), default=None),
            min((each.worker_s for each in costs if each.worker_s is not None), default=None),
        )


def fitted_costs(tables: Tables, attempts: Attempts) -> FittedCosts:
    moved, seconds = _moved(tables)
    large, small = moved >= LARGE_BYTES, moved <= SMALL_BYTES
    cpu_s = sum(
        value
        for context, activity, unit, value in _fine_metrics(tables)
        if context in ("gather-dep", "get-data") and activity in CPU_STEPS and unit == "seconds"
    )
    enough = float(moved[large].sum()) >= LEAST_BYTES and float(seconds[large].sum()) >= LEAST_MOVED_S
    return FittedCosts(
        bandwidth=_quantile((moved / seconds)[large], moved[large], UNSHARED) if enough else None,
        latency_s=float(np.quantile(seconds[small], UNDISTURBED)) if small.sum() >= LEAST_SMALL else None,
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
    told = (moved > 0) & (seconds > 0) & (np.asarray(tasks["status"]) == STATUS_FINISHED)
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

    It is a + b (1 - 1/n), as the share of data that lies elsewhere grows, or a + b log n, as communication in a tree
    does (Ernest: Venkataraman et al., NSDI 2016), whichever meets what was measured better; no factor is below 0.
    """

    constant: float
    remote: float = 0.0
    logarithm: float = 0.0

    @classmethod
    def fit(cls, seconds: Mapping[int, float], spread: float = 0.0) -> GrowthOfDurations:
        """Fit mean durations, in seconds by the number of workers; `spread`: the relative error of one."""
        sizes = np.array(sorted(seconds), np.float64)
        durations = np.array([seconds[int(size)] for size in sizes])
        constant = cls(float(durations[-1]))
        if durations[-1] < (1 + max(GROWN, 2 * spread)) * durations[0]:
            return constant
        fits = [
            (0.0 if error < SAME_FIT else error, place, factors)
            for place, column in enumerate((1 - 1 / sizes, np.log(sizes)))
            if (found := _line(column, durations)) is not None
            for error, factors in [found]
        ]
        if not fits:
            return constant
        _, place, (first, slope) = min(fits)
        return cls(first, slope if place == 0 else 0.0, slope if place == 1 else 0.0)

    def at(self, workers: float) -> float:
        return self.constant + self.remote * (1 - 1 / workers) + self.logarithm * math.log(workers)


def _line(column: Floats, durations: Floats) -> tuple[float, tuple[float, float]] | None:
    """Least squares of relative errors: that error, and both factors; None where one is below 0."""
    weighted = np.column_stack([np.ones_like(column), column]) / durations[:, None]
    first, slope = np.linalg.lstsq(weighted, np.ones(len(durations)), rcond=None)[0].tolist()
    if first < 0:  # through the origin
        slope = float(np.linalg.lstsq(weighted[:, 1:], np.ones(len(durations)), rcond=None)[0][0])
        first = 0.0
    if slope < 0:
        return None
    return float(np.sqrt(np.mean((weighted @ np.array([first, slope]) - 1) ** 2))), (first, slope)
