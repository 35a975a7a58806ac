"""Models of throughput against threads, fitted and compared.

| model | throughput on P threads, up to a factor `rate` |
| --- | --- |
| `linear` | P |
| `amdahl` | P / (1 + s (P - 1)), Amdahl (1967) |
| `usl` | P / (1 + s (P - 1) + c P (P - 1)), the universal scalability law of Gunther (1993) |
| `cap` | min(P, k) |
| `amdahl-cap` | `amdahl` of min(P, k) |
| `retrograde` | P up to k, then k (k / P)^b: it falls beyond k |
| `wave` | k / ceil(k / P): k equal tasks run in waves; for a load that grows with P: P / ceil(P / k), with k slots |
| `merge` | P / max(1, floor(P / b)), k = 2 b - 1: a load that grows with P, in pieces that double at 2 b |
| `batch` | max(1, P / b): a load that grows with P, in pieces of b, each on one thread |

Errors of times are relative, so logarithms are fitted by least squares. Models are compared by AICc (Hurvich and Tsai,
1989). The interval of k comes from a parametric bootstrap (Efron and Tibshirani, 1993, section 6.5). Its noise is
scaled by the ratio of Student's t to the normal quantile: otherwise few measurements would give too narrow intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from scalescope.analysis.distributions import NORMAL, t_quantile

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Relative errors below this count as exact; otherwise overheads of microseconds would decide on a virtual clock.
RESOLUTION = 0.005
SAMPLES, SEED, LEVEL = 400, 20_260_101, 0.95  # samples of the bootstrap, seed of its generator, level of the interval
# Among models whose AICc differs from the least by less than this, the simplest is taken (Burnham and Anderson, 2002,
# section 2.6). Otherwise one knee in six would come from noise.
PARSIMONY = 2.0
# Added to the AICc of models that jump: choosing one whole number among hundreds fits noise as well as two smooth
# parameters (python -m evidence knee).
WAVE_PENALTY = 4.0
_ROUNDS, _SHRINK, _SIDE = 60, 0.7, 9
_SAME = 1e-9
_KNEES = 100
_BLOCK = 2_000_000


@dataclass(frozen=True)
class Model:
    """A family of curves."""

    name: str
    # for each shape parameter, a function that gives the values to try first for the measured thread counts
    parameters: Mapping[str, Callable[[Floats], Floats]] = field(compare=False)
    curve: Callable[..., Floats]  # throughput for threads and shape parameters, without the factor `rate`; broadcasts
    knee: Callable[..., Floats] | None = None  # threads at which throughput stops growing, for shape parameters
    whole: bool = False  # True if the parameter is a whole number; then only the first values are tried

    def candidates(self, threads: Floats) -> list[Floats]:
        return [values(threads) for values in self.parameters.values()]


@dataclass(frozen=True)
class Fit:
    """A model fitted to a series."""

    model: Model
    rate: float  # throughput per thread while nothing limits it
    shape: Mapping[str, float]  # shape parameters by name
    k: float | None  # threads at which throughput stops growing; None: throughput grows without end
    error: float  # root mean square of the relative error
    aicc: float  # the smaller, the better; comparable within a series
    weight: float = 0.0  # Akaike weight: the probability that this model is the best of those compared

    def curve(self, threads: Sequence[float] | Floats) -> Floats:
        return self.rate * self.model.curve(np.asarray(threads, dtype=np.float64), *self.shape.values())


@dataclass(frozen=True)
class Interval:
    """A number of threads and its 95 % interval, given that the model is right."""

    k: float
    low: float
    high: float


def _serial(threads: Floats) -> Floats:
    return np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 49)])


def _crosstalk(threads: Floats) -> Floats:
    return np.concatenate([[0.0], np.geomspace(1e-8, 0.1, 43)])


def _slopes(threads: Floats) -> Floats:
    return np.geomspace(0.1, 4.0, 25)


def _knees(threads: Floats) -> Floats:
    # The measured thread counts and values between them, some hundreds in all.
    distinct = np.unique(threads)
    if len(distinct) > _KNEES:
        distinct = distinct[np.linspace(0, len(distinct) - 1, _KNEES).astype(int)]
    between = max(2, min(10, 2 * _KNEES // len(distinct)))
    steps = np.arange(between) / between
    return np.append((distinct[:-1, None] + np.diff(distinct)[:, None] * steps).ravel(), distinct[-1])


def _wholes(threads: Floats) -> Floats:
    # Up to twice the most threads: with more tasks, waves are too small to see.
    return np.arange(max(2, int(threads.min())), 2 * int(threads.max()) + 1, dtype=np.float64)


def _amdahl(threads: Floats, s: Floats) -> Floats:
    return threads / (1 + s * (threads - 1))


def _usl_peak(s: Floats, c: Floats) -> Floats:
    return np.sqrt(np.divide(1 - s, c, out=np.full_like(s, np.inf), where=c > 0))


LINEAR = Model("linear", {}, lambda p: p)
AMDAHL = Model("amdahl", {"s": _serial}, _amdahl)
USL = Model(
    "usl", {"s": _serial, "c": _crosstalk}, lambda p, s, c: p / (1 + s * (p - 1) + c * p * (p - 1)), knee=_usl_peak
)
CAP = Model("cap", {"k": _knees}, np.minimum, knee=lambda k: k)
AMDAHL_CAP = Model(
    "amdahl-cap", {"s": _serial, "k": _knees}, lambda p, s, k: _amdahl(np.minimum(p, k), s), knee=lambda s, k: k
)
RETROGRADE = Model(
    "retrograde",
    {"k": _knees, "b": _slopes},
    lambda p, k, b: np.minimum(p, k) * np.minimum(1.0, k / p) ** b,
    knee=lambda k, b: k,
)
WAVE = Model("wave", {"k": _wholes}, lambda p, k: k / np.ceil(k / p), knee=lambda k: k, whole=True)
SLOTS = Model("wave", {"k": _wholes}, lambda p, k: p / np.ceil(p / k), knee=lambda k: k, whole=True)
MERGE = Model(
    "merge", {"b": _wholes}, lambda p, b: p / np.maximum(1.0, np.floor(p / b)), knee=lambda b: 2 * b - 1, whole=True
)
BATCH = Model("batch", {"b": _wholes}, lambda p, b: np.maximum(1.0, p / b), whole=True)

SMOOTH = (LINEAR, CAP, AMDAHL, USL, AMDAHL_CAP, RETROGRADE)
STRONG = (*SMOOTH, WAVE)  # models of a load that stays the same
WEAK = (*SMOOTH, SLOTS, MERGE, BATCH)  # models of a load that grows with the threads


def in_waves(counts: Iterable[int]) -> tuple[Model, ...]:
    """`STRONG`, with `wave` limited to these numbers of equal tasks."""
    known = np.array(sorted(set(counts)), dtype=np.float64)
    return (*SMOOTH, replace(WAVE, parameters={"k": lambda threads: known}))


def compare(models: Sequence[Model], threads: Floats, throughput: Floats) -> tuple[Fit, ...]:
    """Fit all models for which there are enough points, best first.

    `throughput` is in units of one busy thread: among equal fits of a model that jumps, the rate nearest to 1 decides.
    """
    distinct, logs = len(np.unique(threads)), np.log(throughput)
    fits = [
        _fit(model, threads, logs)
        for model in models
        if distinct > len(model.parameters) + 1 and len(throughput) > _estimated(model) + 1
    ]
    if not fits:
        return ()
    least = min(fit.aicc for fit in fits)
    odds = [math.exp((least - fit.aicc) / 2) for fit in fits]
    fits = [replace(fit, weight=share / sum(odds)) for fit, share in zip(fits, odds, strict=True)]
    rest = sorted(fits, key=lambda fit: fit.aicc)
    best = min((fit for fit in fits if fit.aicc - least < PARSIMONY), key=lambda fit: (len(fit.shape), fit.aicc))
    return (best, *(fit for fit in rest if fit is not best))


def interval_of(fit: Fit, threads: Floats, throughput: Floats) -> Interval | None:
    """The knee and its interval, from refits of the model to its curve plus noise; None without a knee."""
    if fit.k is None or fit.model.knee is None:
        return None
    logs, fitted = np.log(throughput), np.log(fit.curve(threads))
    freedom, tail = max(len(logs) - len(fit.shape) - 1, 1), (1 - LEVEL) / 2
    spread = math.sqrt(float(((logs - fitted) ** 2).sum()) / freedom) * t_quantile(tail, freedom) / NORMAL.inv_cdf(tail)
    samples = fitted + np.random.default_rng(SEED).normal(0.0, spread, (SAMPLES, len(logs)))
    grid = _around(fit, threads, logs)
    knees = fit.model.knee(*grid.T)
    first, last = _best_of(fit.model, grid, threads, samples)
    low = float(np.quantile(knees[first], tail, method="lower"))
    high = float(np.quantile(knees[last], 1 - tail, method="higher"))
    return Interval(fit.k, min(low, fit.k), max(high, fit.k))


def _fit(model: Model, threads: Floats, logs: Floats) -> Fit:
    shape = _search(model, threads, logs)
    curve = np.log(model.curve(threads, *shape))
    rate = float(np.mean(logs - curve))
    error = math.sqrt(float(np.mean((logs - curve - rate) ** 2)))
    count, estimated = len(logs), _estimated(model)
    aicc = 2 * count * math.log(max(error, RESOLUTION)) + 2 * estimated
    aicc += 2 * estimated * (estimated + 1) / (count - estimated - 1) + WAVE_PENALTY * model.whole
    k = float(model.knee(*(np.array([value]) for value in shape))[0]) if model.knee else math.inf
    return Fit(
        model,
        math.exp(rate),
        dict(zip(model.parameters, map(float, shape), strict=True)),
        k if math.isfinite(k) else None,
        error=error,
        aicc=aicc,
    )


def _estimated(model: Model) -> int:
    return len(model.parameters) + 2  # plus the rate and the size of the error


def _search(model: Model, threads: Floats, logs: Floats) -> Floats:
    # Start with the best candidate, then search ever finer grids around the best so far.
    candidates = model.candidates(threads)
    grid = _product(candidates)
    squares = _squares(model, grid, threads, logs)
    best: Floats = grid[int(squares.argmin())]
    if model.whole:
        equal = grid[squares <= squares.min() + _SAME]
        best = equal[int(np.abs((logs - _logs(model, equal, threads)).mean(axis=1)).argmin())]
    if model.whole or not model.parameters:
        return best
    low = np.array([values[0] for values in candidates])
    high = np.array([values[-1] for values in candidates])
    reach = np.array([_gap(values, value) for values, value in zip(candidates, best, strict=True)])
    for _ in range(_ROUNDS):
        finer = [
            np.append(np.linspace(max(a, value - width), min(z, value + width), _SIDE), value)
            for a, z, value, width in zip(low, high, best, reach, strict=True)
        ]
        grid = _product(finer)
        best = grid[int(_squares(model, grid, threads, logs).argmin())]
        reach = reach * _SHRINK
    return best


def _around(fit: Fit, threads: Floats, logs: Floats) -> Floats:
    # A dense grid that covers all shapes that refits to noise may give, and the fitted shape.
    candidates = fit.model.candidates(threads)
    shape = np.array(list(fit.shape.values()))
    if fit.model.whole:
        return _product(candidates)
    coarse = _product(candidates)
    least = max(fit.error, RESOLUTION / 10) ** 2 * len(logs)
    likely = _squares(fit.model, coarse, threads, logs) <= least * (1 + 30 / max(len(logs) - _estimated(fit.model), 1))
    box = np.vstack([coarse[likely], shape])
    size = 2000 if len(shape) == 1 else 90
    finer = []
    for values, value, column in zip(candidates, shape, box.T, strict=True):
        gap = _gap(values, value)
        low, high = max(values[0], column.min() - gap), min(values[-1], column.max() + gap)
        finer.append(np.unique(np.append(np.linspace(low, high, size), value)))
    return _product(finer)


def _best_of(model: Model, grid: Floats, threads: Floats, samples: Floats) -> tuple[Ints, Ints]:
    # For each sample, the first and the last row of the grid among those that fit it best. They differ for models that
    # jump, because many whole numbers between two measured jumps fit equally well.
    curves = _logs(model, grid, threads)
    curves = curves - curves.mean(axis=1, keepdims=True)
    same = np.concatenate([[False], np.abs(np.diff(curves, axis=0)).max(axis=1) < _SAME])
    starts = np.flatnonzero(~same)
    ends = np.append(starts[1:], len(grid)) - 1
    centred = samples - samples.mean(axis=1, keepdims=True)
    # |sample - curve|² without the term that all curves share
    best = ((curves[starts] ** 2).sum(axis=1) - 2 * centred @ curves[starts].T).argmin(axis=1)
    return starts[best], ends[best]


def _squares(model: Model, grid: Floats, threads: Floats, logs: Floats) -> Floats:
    size = max(1, _BLOCK // len(logs))  # rows at a time, because all rows at once can take gigabytes
    found = []
    for start in range(0, len(grid), size):
        errors = logs - _logs(model, grid[start : start + size], threads)
        found.append(((errors - errors.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
    return np.concatenate(found)


def _logs(model: Model, grid: Floats, threads: Floats) -> Floats:
    columns = [grid[:, i, None] for i in range(grid.shape[1])]
    return np.log(np.broadcast_to(model.curve(threads[None, :], *columns), (len(grid), len(threads))))


def _product(values: Sequence[Floats]) -> Floats:
    if not values:
        return np.empty((1, 0))
    return np.stack([axis.ravel() for axis in np.meshgrid(*values, indexing="ij")], axis=1)


def _gap(values: Floats, value: float) -> float:
    at = int(np.abs(values - value).argmin())
    return float(max([abs(values[at] - values[i]) for i in (at - 1, at + 1) if 0 <= i < len(values)], default=1.0))
