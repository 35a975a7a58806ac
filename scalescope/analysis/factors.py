"""The efficiency at each size of a sweep as a product of factors, as the POP project divides it.

Each factor subtracts its parts of the worker time from the time that the previous factors left; the factor is the share
that remains. Hence the product of all factors is the efficiency. `WORK` compares the work per item with that of the
smallest size. See co-design.pop-coe.eu/metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from scalescope.model.metrics import WORKER_TIME, WORKING, Metrics
from scalescope.model.sweep import Point


@dataclass(frozen=True)
class Factor:
    """A factor of the efficiency."""

    title: str
    parts: tuple[str, ...]  # parts of `WORKER_TIME` that lower it
    help: str  # condition that held during the factor's share of the time


# Factors in the order in which they divide the time. Each part of worker time outside `WORKING` belongs to one factor.
FACTORS: Mapping[str, Factor] = {
    "client": Factor("client", ("client", "other_cluster"), "the client had unfinished tasks on the cluster"),
    "present": Factor("threads there", ("late_start", "lost"), "threads were there, and nothing had to be repeated"),
    "dependency": Factor("dependency", ("no_runnable_task",), "the graph had a task for each thread"),
    "balance": Factor("load balance", ("tail",), "no thread waited for the last tasks of other threads"),
    "scheduling": Factor("scheduling", ("not_assigned",), "no runnable task waited to be assigned"),
    "transfer": Factor(
        "transfer", ("transfer", "serialisation", "spill", "paused"), "threads waited neither for inputs nor for memory"
    ),
}
WORK = "work"  # work per item at the smallest size, divided by work per item
TITLES: Mapping[str, str] = {name: factor.title for name, factor in FACTORS.items()} | {WORK: "work inflation"}
# Parts that can lie outside the makespan, in the order in which they are cut to it: efficiency refers to the makespan
OUTSIDE = ("client", "other_cluster", "late_start", "no_runnable_task", "tail")
FALLS = 0.9  # a factor is named if its value at the largest size is below this share of that at the smallest size


@dataclass(frozen=True)
class SizeFactors:
    """The factors at one size; geometric means over repeats."""

    point: Point
    factors: Mapping[str, float]  # values of `FACTORS` and `WORK`, by name; above 1 if more threads ran than requested

    @property
    def efficiency(self) -> float:
        """T1 / (P × makespan), as in the table of points: the product of `FACTORS`."""
        return math.prod(value for name, value in self.factors.items() if name != WORK)

    @property
    def speedup(self) -> float:
        """Speed-up per thread, relative to the work per item at the smallest size."""
        return math.prod(self.factors.values())

    def to_mapping(self) -> dict[str, float]:
        sums = {"efficiency": self.efficiency, "speedup_per_thread": self.speedup}
        return {"workers": self.point.workers, "threads": self.point.threads, **self.factors, **sums}


def of_metrics(metrics: Metrics, threads: int) -> dict[str, float]:
    """The factors of one trial's efficiency; empty if no task took any time."""
    parts = {part: metrics.worker_time_s.get(part, 0.0) for part in WORKER_TIME}
    left = threads * metrics.makespan_s
    beyond = max(sum(parts.values()) - left, 0.0)
    for part in OUTSIDE:
        taken = min(beyond, parts[part])
        parts[part], beyond = parts[part] - taken, beyond - taken
    worked = metrics.efficiency * left
    if not worked > 0 or not sum(parts[part] for part in WORKING) > 0:
        return {}
    # Add parts up, starting from the work: subtracting them could make a share negative by rounding.
    found: dict[str, float] = {}
    after = sum(parts[part] for part in WORKING)
    for name in reversed(tuple(FACTORS)):
        before = after + sum(parts[part] for part in FACTORS[name].parts)
        found[name], after = after / before, before
    # Correct for more tasks than threads at once, and for more threads than requested.
    found["present"] *= worked / sum(parts[part] for part in WORKING) * after / left
    return {name: found[name] for name in FACTORS}


def by_size(sizes: Sequence[tuple[Point, Sequence[Metrics]]]) -> tuple[SizeFactors, ...]:
    """The factors of points that differ in size only, smallest size first; empty if any point has no factors."""
    found: list[SizeFactors] = []
    unit = 0.0
    for point, trials in sizes:
        measured = [of_metrics(metrics, point.threads) for metrics in trials]
        if not measured or not all(measured):
            return ()
        worked = geometric_mean(m.efficiency * m.makespan_s for m in trials) * point.threads / (point.items or 1)
        unit = unit or worked
        means = {name: geometric_mean(each[name] for each in measured) for name in FACTORS}
        found.append(SizeFactors(point, means | {WORK: unit / worked}))
    return tuple(found)


def falling(sizes: Sequence[SizeFactors]) -> str:
    """The factor that falls most from the smallest to the largest size; empty if none falls much."""
    if len(sizes) < 2:
        return ""
    ratios = {name: sizes[-1].factors[name] / sizes[0].factors[name] for name in TITLES}
    name = min(ratios, key=lambda each: ratios[each])
    return name if ratios[name] < FALLS else ""
