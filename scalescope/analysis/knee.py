"""Where throughput stops growing with the workers: the knee of a sweep.

Points that differ only in workers form a series: strong scaling where items stay the same, weak scaling where they grow
with the workers. Throughput (items per second) is divided by that of one thread that is always busy with the tasks of
the smallest point: a speed-up, ideally P on P threads.

A curve alone cannot name a cause. A series is called capped at k only where a model with a cap fits best, the interval
of k lies inside the sweep, no point above k ran more than about k tasks at once, and the widest stage has k tasks.
`Knee.refine` says which points to add.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from statistics import median, median_low
from typing import Any

import numpy as np

from scalescope.analysis.scaling import WEAK, Fit, Floats, Interval, Model, compare, in_waves, interval_of
from scalescope.analysis.summary import settings, varied
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import ITEMS, ITEMS_PER_WORKER, Point, Sweep
from scalescope.model.trial import Trial
from scalescope.model.words import percent, plural

FEWEST = 5
"""Worker counts needed to fit a curve: a cap has two parameters, and needs points on both sides."""
MISFIT, MISFIT_ONCE, MISFIT_NOISE = 0.05, 0.10, 2.0
"""Largest error of a model: 5 % or twice the spread of repeats, 10 % without repeats. Trials of one point spread by
2-5 % on a good machine."""
GROWTH = 1.05
"""Growth of throughput over the whole sweep below which it counts as none."""
ABOUT = 0.05
"""How far the most tasks at once may be from k, as a share of k."""
ROUND = 3
"""Points to add at once: few, since each answer changes the question."""
SHARP = (
    " Only sharp bends can be compared with so few measurements: repeat them, or the interval may miss a gradual one."
)
"""Added where no model with two shape parameters could be fitted."""
CAPS = ("cap", "amdahl-cap", "wave")
_DRAWN = 120


class Scaling(StrEnum):
    """What a sweep keeps fixed while workers are added."""

    STRONG = "strong"
    WEAK = "weak"


@dataclass(frozen=True)
class ScalingSeries:
    """Points that differ only in workers (and in items, in proportion to workers), and what their trials measured."""

    scaling: Scaling
    items: int | None  # of every point; None for weak scaling, or where the workload has none
    items_per_worker: float | None  # for weak scaling
    points: tuple[Point, ...]  # by workers
    threads: tuple[int, ...]  # P of each valid trial
    speedup: tuple[float, ...]  # throughput of each, in the unit of one busy thread of the smallest point
    metrics: tuple[Metrics, ...]  # of each

    @property
    def unit(self) -> str:
        """What k counts: workers, or threads where workers have several."""
        return "worker" if self.points[0].threads_per_worker == 1 else "thread"

    @property
    def fixed(self) -> str:
        """What stays fixed while workers are added, in words."""
        if self.scaling is Scaling.WEAK:
            plural_s = "" if self.items_per_worker == 1 else "s"
            return f"weak scaling, {self.items_per_worker:g} item{plural_s} per worker"
        return "strong scaling" + ("" if self.items is None else f", {plural(self.items, 'item')}")

    def at(self, workers: int) -> Point:
        """The point with so many workers."""
        first = self.points[0]
        params = dict(first.params)
        if self.items_per_worker is not None:
            params[ITEMS] = round(self.items_per_worker * workers)
        return replace(first, workers=workers, params=params)


@dataclass(frozen=True)
class Knee:
    """What a series says about where it stops scaling."""

    series: ScalingSeries
    where: str  # settings of this series that differ between series
    line: str  # one sentence for people
    fits: tuple[Fit, ...] = ()  # all models compared, the chosen one first; empty where there are too few points
    fit: Fit | None = None  # the chosen model; None where there are too few points or none fits
    k: float | None = None  # workers (threads, where a worker has several) at which throughput stops growing
    low: float | None = None  # ends of the 95 % interval of k, if the model holds
    high: float | None = None
    capped: bool = False  # whether the number of tasks is the cause
    refine: tuple[int, ...] = ()  # worker counts that would tell more, most useful first

    @property
    def title(self) -> str:
        """The subject of `line`."""
        return ", ".join(part for part in (self.series.fixed, self.where) if part)

    def curve(self) -> tuple[tuple[float, float], ...]:
        """Threads and speed-up of the chosen model over what was measured; empty without one."""
        if self.fit is None:
            return ()
        first, last = min(self.series.threads), max(self.series.threads)
        own = [k for k in (self.k,) if k is not None and first <= k <= last]
        threads = np.unique([*np.linspace(first, last, _DRAWN), *self.series.threads, *own])
        return tuple(zip(threads.tolist(), self.fit.curve(threads).tolist(), strict=True))

    def ideal(self) -> tuple[tuple[float, float], ...]:
        """Both ends of the ideal line: every thread always busy."""
        ends = min(self.series.threads), max(self.series.threads)
        return tuple((float(threads), float(threads)) for threads in ends)

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
        }


def of_sweep(sweep: Sweep, trials: Iterable[Trial]) -> tuple[Knee, ...]:
    """The knee of every series of a sweep; warm-ups and trials that are not valid are left out."""
    found = series_of(sweep, trials)
    names = varied(series.points[0] for series in found)
    return tuple(of_series(series, where=_where(series, names)) for series in found)


def further(sweep: Sweep, trials: Iterable[Trial]) -> tuple[Point, ...]:
    """Points to add to a sweep to know its knees better, most useful first."""
    knees = of_sweep(sweep, trials)
    turns = range(max((len(knee.refine) for knee in knees), default=0))
    points = [knee.series.at(knee.refine[turn]) for turn in turns for knee in knees if turn < len(knee.refine)]
    return tuple({point.id: point for point in points}.values())


# ------------------------------------------------------------------ series


def series_of(sweep: Sweep, trials: Iterable[Trial]) -> tuple[ScalingSeries, ...]:
    """The series of at least two worker counts in what was measured.

    Points of equal items belong together first (strong scaling), then those of equal items per worker (weak scaling).
    In a sweep with the axis `items_per_worker` it is the other way round.
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


def _strong(trials: Sequence[Trial]) -> tuple[list[ScalingSeries], list[Trial]]:
    """Series of equal items, and the trials that are in none."""
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
    """Series of equal items per worker up to rounding, and the trials that are in none."""
    found, taken = [], []
    # The most workers first: there rounding to whole items blurs the ratio least.
    rest: dict[int, dict[int, list[Trial]]] = {}
    for trial in sorted(trials, key=lambda trial: -trial.point.workers):
        if trial.point.items:
            rest.setdefault(trial.point.workers, {}).setdefault(trial.point.items, []).append(trial)
    others = [trial for trial in trials if not trial.point.items]
    for workers, items in [(workers, items) for workers, by_items in rest.items() for items in by_items]:
        if items not in rest[workers]:  # it fitted to one of more workers
            continue
        ratio = items / workers
        members = [each for count, found in rest.items() for each in found.pop(round(ratio * count), ())]
        if _several(members):
            found.append(_series(Scaling.WEAK, members, None, ratio))
        else:
            taken += members
    return found, taken + others


def _several(trials: Sequence[Trial]) -> bool:
    return len({trial.point.workers for trial in trials}) > 1


def _series(scaling: Scaling, trials: Sequence[Trial], items: int | None, per_worker: float | None) -> ScalingSeries:
    ordered = sorted(trials, key=lambda trial: (trial.point.workers, trial.repeat))
    measured = [(trial.point, trial.metrics) for trial in ordered if trial.metrics is not None]
    smallest = [(point, metrics) for point, metrics in measured if point.workers == measured[0][0].workers]
    work = median(metrics.work_s for _, metrics in smallest) / (smallest[0][0].items or 1)
    if not work > 0:  # tasks of no length: relative to the smallest point instead
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


def _where(series: ScalingSeries, names: Sequence[str]) -> str:
    values = settings(series.points[0])
    return ", ".join(f"{name}={values[name]}" for name in names if name in values)


# ------------------------------------------------------------------ judgement


def of_series(series: ScalingSeries, *, where: str = "") -> Knee:
    counts = sorted(set(series.threads))
    if len(counts) < FEWEST:
        line = f"Too few worker counts to fit a curve: {len(counts)} measured, at least {FEWEST} are needed."
        return Knee(series, where, line, refine=_between(series, FEWEST - len(counts)))
    threads, speedup = _data(series)
    fits = compare(_models(series), threads, speedup)
    best = fits[0]
    limit = _tolerated(series)
    if best.error > limit:
        line = (
            f"No model fits the {len(counts)} worker counts "
            f"(`{best.model.name}` comes nearest, off by {percent(best.error)})."
        )
        return Knee(series, where, line, fits, refine=_where_off(series, best))
    if _gain(best, counts) < GROWTH:
        line = (
            f"Throughput does not grow from {plural(counts[0], series.unit)} on, the fewest measured: "
            "the knee is there or below."
        )
        return Knee(series, where, line, fits, best)
    at = interval_of(best, threads, speedup)
    if at is None or at.k >= counts[-1]:
        return Knee(series, where, _no_knee(series, best), fits, best)
    return _with_knee(series, where, fits, at)


def _models(series: ScalingSeries) -> tuple[Model, ...]:
    """Models for this load; waves only of as many tasks as a stage really has, for noise looks like waves."""
    if series.scaling is Scaling.WEAK:
        return WEAK
    return in_waves(metrics.widest_stage for metrics in series.metrics)


def _gain(fit: Fit, counts: Sequence[int]) -> float:
    curve = fit.curve(counts)
    return float(curve.max() / curve[0])


def _data(series: ScalingSeries) -> tuple[Floats, Floats]:
    """P and speed-up of all trials, or of one per point where repeats agree exactly: they are no new evidence."""
    threads, speedup = np.asarray(series.threads, dtype=np.float64), np.asarray(series.speedup)
    if _spread(series) == 0:
        _, first = np.unique(threads, return_index=True)
        return threads[first], speedup[first]
    return threads, speedup


def _spread(series: ScalingSeries) -> float | None:
    """Standard deviation of repeats on the log scale, pooled over points; None without repeats."""
    by_threads: dict[int, list[float]] = {}
    for threads, speedup in zip(series.threads, series.speedup, strict=True):
        by_threads.setdefault(threads, []).append(math.log(speedup))
    freedom = sum(len(values) - 1 for values in by_threads.values())
    if freedom == 0:
        return None
    squares = sum(float(np.var(values)) * len(values) for values in by_threads.values())
    deviation = math.sqrt(squares / freedom)
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
        return f"{upto} still grows, ever slower (Amdahl's law: at most {_number(most)} times one busy thread)."
    if fit.model.name == "wave" and fit.k is not None:
        return f"{upto} grows in steps, as {plural(round(fit.k), 'equal task')} in waves would."
    if fit.model.name == "batch":
        batch = f"every batch of {plural(round(fit.shape['b']), 'item')} runs on one {series.unit}"
        return f"No knee up to {plural(last, series.unit)}: {batch}, so more {series.unit}s alone change nothing."
    return f"{upto} still grows, ever slower."


def _with_knee(series: ScalingSeries, where: str, fits: tuple[Fit, ...], at: Interval) -> Knee:
    fit = fits[0]
    first, last = min(series.threads), max(series.threads)
    inside = first < at.low and at.high < last
    count = _structural(series, at) if inside and fit.model.name in CAPS else None
    if count is not None:
        line = _capped_line(series, count)
        return Knee(series, where, line, fits, fit, float(count), at.low, at.high, capped=True)
    if at.high >= last or _is_slight(series, at):
        line = (
            f"No knee is certain up to {plural(last, series.unit)}: throughput may saturate from {_number(at.k)} on; "
            f"measure more {series.unit}s."
        )
        return Knee(series, where, line, fits, fit, refine=_near(series, at))
    line = _saturates(series, fit, at) + ("" if any(len(each.shape) > 1 for each in fits) else SHARP)
    return Knee(series, where, line, fits, fit, at.k, at.low, at.high, refine=_near(series, at))


def _is_slight(series: ScalingSeries, at: Interval) -> bool:
    """Whether a knee rests on the last point alone, which is lower by no more than a trial may be off."""
    beyond = {threads for threads in series.threads if threads > at.k}
    return len(beyond) == 1 and 1 - at.k / max(beyond) <= _tolerated(series)


def _structural(series: ScalingSeries, at: Interval) -> int | None:
    """The tasks of the widest stage, where they are k and all that ran at once at every point above k."""
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


def _capped_line(series: ScalingSeries, count: int) -> str:
    last = max(series.threads)
    peak = median_low(metrics.peak_parallelism for metrics in _by_threads(series)[last])
    return (
        f"Capped at {plural(count, series.unit)}: the widest stage has {plural(count, 'task')}, {peak:,} ran at once "
        f"on {plural(last, series.unit)}, and {last - peak:,} were idle."
    )


def _saturates(series: ScalingSeries, fit: Fit, at: Interval) -> str:
    k, low, high = (_number(value) for value in (at.k, at.low, at.high))
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


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


# ------------------------------------------------------------------ what to measure next


def _near(series: ScalingSeries, at: Interval) -> tuple[int, ...]:
    """Workers around k that were not measured, while the interval is wider than one step."""
    step = series.points[0].threads_per_worker
    if at.high - at.low <= step:
        return ()
    wanted = [(at.low + at.high) / 2, at.low, at.high, 0.9 * at.k, 1.1 * at.k, 0.8 * at.k, 1.25 * at.k]
    return _inside(series, [value / step for value in wanted])


def _between(series: ScalingSeries, number: int) -> tuple[int, ...]:
    """Workers in the middle of the widest gaps, by ratio."""
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
    """Workers on both sides of the point that is farthest off the model."""
    step = series.points[0].threads_per_worker
    errors = np.abs(np.log(np.asarray(series.speedup) / fit.curve(series.threads)))
    worst = series.threads[int(errors.argmax())] // step
    counts = sorted({point.workers for point in series.points})
    at = counts.index(worst)
    sides = [counts[i] for i in (at - 1, at + 1) if 0 <= i < len(counts)]
    return _inside(series, [(worst + side) / 2 for side in sides])


def _inside(series: ScalingSeries, workers: Iterable[float]) -> tuple[int, ...]:
    """At most `ROUND` whole worker counts inside the sweep that were not measured."""
    measured = {point.workers for point in series.points}
    wanted = dict.fromkeys(round(value) for value in workers)
    inside = [value for value in wanted if min(measured) < value < max(measured) and value not in measured]
    return tuple(inside[:ROUND])
