"""Finds where throughput stops growing with the workers: the knee of a sweep.

Points that differ only in workers form a series: strong scaling if items stay the same, weak scaling if they grow with
the workers. The speed-up is the throughput divided by that of one thread that is always busy: ideally P on P threads.

A curve alone cannot tell a cause. A series counts as capped at k only if a model with a cap fits best, the interval of
k lies inside the sweep, no point above k ran more than about k tasks at once, and the widest stage has k tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from statistics import median, median_low
from typing import Any

import numpy as np

from scalescope.analysis.factors import TITLES, SizeFactors, by_size, falling
from scalescope.analysis.scaling import WEAK, Fit, Floats, Interval, compare, in_waves, interval_of
from scalescope.analysis.summary import settings, varied
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import ITEMS, ITEMS_PER_WORKER, Point, Sweep
from scalescope.model.trial import Trial
from scalescope.model.words import number, percent, plural

FEWEST = 5  # worker counts needed to fit a curve: a cap has two parameters and needs points on both sides
# Largest error of a model: 5 % or twice the spread of repeats; 10 % without repeats.
MISFIT, MISFIT_ONCE, MISFIT_NOISE = 0.05, 0.10, 2.0
GROWTH = 1.05  # least ratio of the highest throughput to that of the fewest threads, for throughput to count as growing
ABOUT = 0.05  # largest distance of the peak number of tasks from k, as a share of k
ROUND = 3  # most points to add at once, since each result changes the next choice
# Added to the line if no model with two shape parameters could be fitted
SHARP = (
    " With so few measurements, only sharp bends can be fitted, and the interval may miss a gradual one: repeat each "
    "measurement."
)
CAPS = ("cap", "amdahl-cap", "wave")
_DRAWN = 120


class Scaling(StrEnum):
    """Quantity that a sweep keeps fixed while workers are added."""

    STRONG = "strong"
    WEAK = "weak"


@dataclass(frozen=True)
class ScalingSeries:
    """Points that differ only in workers (and items in proportion), and what their trials measured."""

    scaling: Scaling
    items: int | None  # items at every point; None for weak scaling, or without items
    items_per_worker: float | None  # items of each worker, for weak scaling
    points: tuple[Point, ...]  # points by rising number of workers
    threads: tuple[int, ...]  # P of each valid trial
    speedup: tuple[float, ...]  # throughput of each valid trial over that of one busy thread at the smallest point
    metrics: tuple[Metrics, ...]  # one per valid trial

    @property
    def unit(self) -> str:
        return "worker" if self.points[0].threads_per_worker == 1 else "thread"

    @property
    def fixed(self) -> str:
        if self.scaling is Scaling.WEAK:
            plural_s = "" if self.items_per_worker == 1 else "s"
            return f"weak scaling, {self.items_per_worker:g} item{plural_s} per worker"
        return "strong scaling" + ("" if self.items is None else f", {plural(self.items, 'item')}")

    @cached_property
    def factors(self) -> tuple[SizeFactors, ...]:
        """The factors of the efficiency at each size; empty if they are unknown."""
        by_threads = _by_threads(self)
        return by_size([(point, by_threads[point.threads]) for point in self.points])

    def at(self, workers: int) -> Point:
        first = self.points[0]
        params = dict(first.params)
        if self.items_per_worker is not None:
            params[ITEMS] = round(self.items_per_worker * workers)
        return replace(first, workers=workers, params=params)


@dataclass(frozen=True)
class Knee:
    """The size at which a series stops scaling."""

    series: ScalingSeries
    where: str  # settings of this series that other series do not share, as text
    line: str  # one sentence for people
    fits: tuple[Fit, ...] = ()  # all models compared, best first; empty with too few points
    fit: Fit | None = None  # the chosen model; None if none fits
    k: float | None = None  # workers (or threads, see `unit`) at which throughput stops growing
    low: float | None = None  # ends of the 95 % interval of k, given that the model is right
    high: float | None = None
    capped: bool = False  # True if the number of tasks is the cause
    refine: tuple[int, ...] = ()  # worker counts to measure next, most useful first

    @property
    def title(self) -> str:
        return ", ".join(part for part in (self.series.fixed, self.where) if part)

    @property
    def falls(self) -> str:
        """A sentence, with a leading space, on the factor that falls most with the size; empty if none falls much."""
        name = falling(self.series.factors)
        if not name:
            return ""
        first, last = (
            f"{size.factors[name]:.2f} on {plural(size.point.workers, 'worker')}"
            for size in (self.series.factors[0], self.series.factors[-1])
        )
        return f" The factor that falls most is {TITLES[name]}: {first}, {last}."

    def curve(self) -> tuple[tuple[float, float], ...]:
        """Threads and speed-up of the chosen model over the measured range; empty without one."""
        if self.fit is None:
            return ()
        first, last = min(self.series.threads), max(self.series.threads)
        own = [k for k in (self.k,) if k is not None and first <= k <= last]
        threads = np.unique([*np.linspace(first, last, _DRAWN), *self.series.threads, *own])
        return tuple(zip(threads.tolist(), self.fit.curve(threads).tolist(), strict=True))

    def ideal(self) -> tuple[tuple[float, float], ...]:
        return tuple(
            (float(threads), float(threads)) for threads in (min(self.series.threads), max(self.series.threads))
        )

    def to_mapping(self) -> dict[str, Any]:
        fit = self.fit
        return {
            "scaling": self.series.scaling.value,
            "items": self.series.items,
            "items_per_worker": self.series.items_per_worker,
            "where": self.where,
            "line": self.line,
            "capped": self.capped,
            "k": self.k,
            "k_low": self.low,
            "k_high": self.high,
            "unit": f"{self.series.unit}s",
            "model": fit.model.name if fit else None,
            "parameters": {"rate": fit.rate, **fit.shape} if fit else {},
            "models": [
                {"model": each.model.name, "aicc": each.aicc, "weight": each.weight, "error": each.error}
                for each in self.fits
            ],
            "points": [point.id for point in self.series.points],
            "measured": [list(pair) for pair in zip(self.series.threads, self.series.speedup, strict=True)],
            "curve": [list(pair) for pair in self.curve()],
            "ideal": [list(pair) for pair in self.ideal()],
            "refine_workers": list(self.refine),
            "factors": [size.to_mapping() for size in self.series.factors],
            "falls_most": falling(self.series.factors),
        }


def of_sweep(sweep: Sweep, trials: Iterable[Trial]) -> tuple[Knee, ...]:
    found = series_of(sweep, trials)
    names = varied(series.points[0] for series in found)
    knees = []
    for series in found:
        values = settings(series.points[0])
        knees.append(_judged(series, ", ".join(f"{name}={values[name]}" for name in names if name in values)))
    return tuple(knees)


def further(sweep: Sweep, trials: Iterable[Trial]) -> tuple[Point, ...]:
    """Points to add to a sweep to narrow down its knees, most useful first."""
    knees = of_sweep(sweep, trials)
    turns = range(max((len(knee.refine) for knee in knees), default=0))
    points = [knee.series.at(knee.refine[turn]) for turn in turns for knee in knees if turn < len(knee.refine)]
    return tuple({point.id: point for point in points}.values())


# ------------------------------------------------------------------ series


def series_of(sweep: Sweep, trials: Iterable[Trial]) -> tuple[ScalingSeries, ...]:
    """All series with at least two worker counts among the valid trials.

    Points with equal items are grouped first, then the rest by equal items per worker. With the axis
    `items_per_worker`, the order is reversed.
    """
    valid = [trial for trial in trials if trial.counts and trial.metrics is not None]
    groups: dict[str, list[Trial]] = {}
    for trial in valid:
        groups.setdefault(repr(sorted(settings(trial.point).items())), []).append(trial)
    weak_first = ITEMS_PER_WORKER in sweep.axes or any(ITEMS_PER_WORKER in point for point in sweep.points)
    found = []
    for group in groups.values():
        rest = group
        for split in (_weak, _strong) if weak_first else (_strong, _weak):
            series, rest = split(rest)
            found += series
    return tuple(found)


# `_strong` and `_weak` return series, and the trials that fit into none of them.
def _strong(trials: Sequence[Trial]) -> tuple[list[ScalingSeries], list[Trial]]:
    by_items: dict[int | None, list[Trial]] = {}
    for trial in trials:
        by_items.setdefault(trial.point.items, []).append(trial)
    found, rest = [], []
    for items, members in by_items.items():
        if _several(members):
            found.append(_series(Scaling.STRONG, members, items, None))
        else:
            rest += members
    return found, rest


def _weak(trials: Sequence[Trial]) -> tuple[list[ScalingSeries], list[Trial]]:
    found, lonely = [], []
    # Most workers first, because rounding to whole items distorts their ratio least.
    rest: dict[int, dict[int, list[Trial]]] = {}
    for trial in sorted(trials, key=lambda trial: -trial.point.workers):
        if trial.point.items:
            rest.setdefault(trial.point.workers, {}).setdefault(trial.point.items, []).append(trial)
    others = [trial for trial in trials if not trial.point.items]
    for workers, items in [(workers, items) for workers, by_items in rest.items() for items in by_items]:
        if items not in rest[workers]:  # already in a series with a point with more workers
            continue
        ratio = items / workers
        members = [each for count, found in rest.items() for each in found.pop(round(ratio * count), ())]
        if _several(members):
            found.append(_series(Scaling.WEAK, members, None, ratio))
        else:
            lonely += members
    return found, lonely + others


def _several(trials: Sequence[Trial]) -> bool:
    return len({trial.point.workers for trial in trials}) > 1


def _series(scaling: Scaling, trials: Sequence[Trial], items: int | None, per_worker: float | None) -> ScalingSeries:
    ordered = sorted(trials, key=lambda trial: (trial.point.workers, trial.repeat))
    measured = [(trial.point, trial.metrics) for trial in ordered if trial.metrics is not None]
    smallest = [(point, metrics) for point, metrics in measured if point.workers == measured[0][0].workers]
    work = median(metrics.work_s for _, metrics in smallest) / (smallest[0][0].items or 1)
    if not work > 0:  # tasks took no time: relate throughput to that of the smallest point instead
        work = median(metrics.makespan_s for _, metrics in smallest) * smallest[0][0].threads
        work /= smallest[0][0].items or 1
    return ScalingSeries(
        scaling,
        items,
        per_worker,
        points=tuple({point.id: point for point, _ in measured}.values()),
        threads=tuple(point.threads for point, _ in measured),
        speedup=tuple((point.items or 1) * work / metrics.makespan_s for point, metrics in measured),
        metrics=tuple(metrics for _, metrics in measured),
    )


# ------------------------------------------------------------------ judgement


def _judged(series: ScalingSeries, where: str) -> Knee:
    counts = sorted(set(series.threads))
    if len(counts) < FEWEST:
        line = f"Too few worker counts to fit a curve: {len(counts)} measured, at least {FEWEST} are needed."
        return Knee(series, where, line, refine=_between(series, FEWEST - len(counts)))
    threads, speedup = _data(series)
    # Noise can look like waves, so waves are fitted only with the task counts of the measured widest stages.
    models = WEAK if series.scaling is Scaling.WEAK else in_waves(metrics.widest_stage for metrics in series.metrics)
    fits = compare(models, threads, speedup)
    best = fits[0]
    if best.error > _tolerated(series):
        line = (
            f"No model fits the {len(counts)} worker counts "
            f"(`{best.model.name}` comes nearest, with an error of {percent(best.error)})."
        )
        return Knee(series, where, line, fits, refine=_where_off(series, best))
    curve = best.curve(counts)
    if curve.max() < GROWTH * curve[0]:
        line = (
            f"Throughput does not grow from {plural(counts[0], series.unit)} on, the fewest measured: "
            "the knee is at this number or below."
        )
        return Knee(series, where, line, fits, best)
    at = interval_of(best, threads, speedup)
    if at is None or at.k >= counts[-1]:
        return Knee(series, where, _no_knee(series, best), fits, best)
    return _with_knee(series, where, fits, at)


def _data(series: ScalingSeries) -> tuple[Floats, Floats]:
    threads, speedup = np.asarray(series.threads, dtype=np.float64), np.asarray(series.speedup)
    if _spread(series) == 0:  # repeats that agree exactly add no evidence: keep one of each
        _, first = np.unique(threads, return_index=True)
        return threads[first], speedup[first]
    return threads, speedup


def _spread(series: ScalingSeries) -> float | None:
    # Standard deviation of repeats on the log scale, pooled over points; None without repeats.
    by_threads: dict[int, list[float]] = {}
    for threads, speedup in zip(series.threads, series.speedup, strict=True):
        by_threads.setdefault(threads, []).append(math.log(speedup))
    freedom = sum(len(values) - 1 for values in by_threads.values())
    if freedom == 0:
        return None
    deviation = math.sqrt(sum(float(np.var(values)) * len(values) for values in by_threads.values()) / freedom)
    return 0.0 if deviation < 1e-9 else deviation


def _tolerated(series: ScalingSeries) -> float:
    spread = _spread(series)
    return MISFIT_ONCE if spread is None else max(MISFIT, MISFIT_NOISE * spread)


def _no_knee(series: ScalingSeries, fit: Fit) -> str:
    last = max(series.threads)
    upto = f"No knee up to {plural(last, series.unit)}: throughput"
    if fit.model.name == "linear":
        return f"{upto} grows in proportion, at {percent(fit.rate)} of the ideal."
    if fit.model.name == "amdahl" and fit.shape["s"] > 0:
        most = fit.rate / fit.shape["s"]
        return f"{upto} still grows, ever slower (Amdahl's law: at most {number(most, 2)} times one busy thread)."
    if fit.model.name == "wave" and fit.k is not None:
        return f"{upto} grows in steps, as {plural(round(fit.k), 'equal task')} in waves would."
    if fit.model.name == "batch":
        return (
            f"No knee up to {plural(last, series.unit)}: every batch of {plural(round(fit.shape['b']), 'item')} runs "
            f"on one {series.unit}, so more {series.unit}s alone change nothing."
        )
    return f"{upto} still grows, ever slower."


def _with_knee(series: ScalingSeries, where: str, fits: tuple[Fit, ...], at: Interval) -> Knee:
    fit = fits[0]
    first, last = min(series.threads), max(series.threads)
    count = _structural(series, at) if first < at.low and at.high < last and fit.model.name in CAPS else None
    if count is not None:
        peak = median_low(metrics.peak_parallelism for metrics in _by_threads(series)[last])
        line = (
            f"Capped at {plural(count, series.unit)}: the widest stage has {plural(count, 'task')}, {peak:,} ran at "
            f"once on {plural(last, series.unit)}, and {last - peak:,} were idle."
        )
        return Knee(series, where, line, fits, fit, float(count), at.low, at.high, capped=True)
    if at.high >= last or _is_slight(series, at):
        line = (
            f"No knee is certain up to {plural(last, series.unit)}: throughput may saturate from {number(at.k, 2)} on; "
            f"measure more {series.unit}s."
        )
        return Knee(series, where, line, fits, fit, refine=_near(series, at))
    line = _saturates(series, fit, at) + ("" if any(len(each.shape) > 1 for each in fits) else SHARP)
    return Knee(series, where, line, fits, fit, at.k, at.low, at.high, refine=_near(series, at))


def _is_slight(series: ScalingSeries, at: Interval) -> bool:
    # True if only the last point lies beyond the knee, by no more than the error of a trial.
    beyond = {threads for threads in series.threads if threads > at.k}
    return len(beyond) == 1 and 1 - at.k / max(beyond) <= _tolerated(series)


def _structural(series: ScalingSeries, at: Interval) -> int | None:
    # The number of tasks in the widest stage, if that and the peak of running tasks are about k at all points above k.
    widths = set()
    for threads, found in _by_threads(series).items():
        if threads <= at.high:
            continue
        widths.add(median_low(metrics.widest_stage for metrics in found))
        peak = median_low(metrics.peak_parallelism for metrics in found)
        if abs(peak - at.k) > max(1.0, ABOUT * at.k, at.high - at.k, at.k - at.low) or peak >= threads:
            return None
    if len(widths) != 1:
        return None
    count = widths.pop()
    return count if math.floor(at.low) <= count <= math.ceil(at.high) else None


def _by_threads(series: ScalingSeries) -> Mapping[int, list[Metrics]]:
    found: dict[int, list[Metrics]] = {}
    for threads, metrics in zip(series.threads, series.metrics, strict=True):
        found.setdefault(threads, []).append(metrics)
    return found


def _saturates(series: ScalingSeries, fit: Fit, at: Interval) -> str:
    k, low, high = (number(value, 2) for value in (at.k, at.low, at.high))
    around = f"{k} {series.unit}s" + ("" if low == high else f" (95 % interval {low}–{high})")
    beyond = min(threads for threads in series.threads if threads > at.k)
    width = median_low(metrics.widest_stage for metrics in _by_threads(series)[beyond])
    if fit.model.name == "merge" and width < beyond:
        return (
            f"Throughput falls beyond {around}: on {plural(beyond, series.unit)} the widest stage has only "
            f"{plural(width, 'task')}."
        )
    if fit.model.name in ("usl", "retrograde", "merge"):
        return f"Throughput peaks near {around} and falls beyond, cause unknown from the curve."
    return f"Throughput saturates near {around}, cause unknown from the curve."


# ------------------------------------------------------------------ what to measure next


def _near(series: ScalingSeries, at: Interval) -> tuple[int, ...]:
    step = series.points[0].threads_per_worker
    if at.high - at.low <= step:
        return ()
    wanted = [(at.low + at.high) / 2, at.low, at.high, 0.9 * at.k, 1.1 * at.k, 0.8 * at.k, 1.25 * at.k]
    return _inside(series, [value / step for value in wanted])


def _between(series: ScalingSeries, number: int) -> tuple[int, ...]:
    counts = sorted({point.workers for point in series.points})
    added: list[float] = []
    for _ in range(number):
        gaps = [(high / low, low, high) for low, high in pairwise(counts) if high - low > 1]
        if not gaps:
            break
        _, low, high = max(gaps)
        middle = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
        added.append(middle)
        counts = sorted([*counts, middle])
    return _inside(series, added)


def _where_off(series: ScalingSeries, fit: Fit) -> tuple[int, ...]:
    step = series.points[0].threads_per_worker
    errors = np.abs(np.log(np.asarray(series.speedup) / fit.curve(series.threads)))
    worst = series.threads[int(errors.argmax())] // step
    counts = sorted({point.workers for point in series.points})
    at = counts.index(worst)
    sides = [counts[i] for i in (at - 1, at + 1) if 0 <= i < len(counts)]
    return _inside(series, [(worst + side) / 2 for side in sides])


def _inside(series: ScalingSeries, workers: Iterable[float]) -> tuple[int, ...]:
    measured = {point.workers for point in series.points}
    wanted = dict.fromkeys(round(value) for value in workers)
    inside = [value for value in wanted if min(measured) < value < max(measured) and value not in measured]
    return tuple(inside[:ROUND])
