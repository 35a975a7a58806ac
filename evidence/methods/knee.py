"""How often the knee is right on made-up curves: `python -m evidence knee [series]`.

Each row is one curve on one grid of worker counts, with its repeats, times with a spread of 3 % or 5 %. All in percent
of the series, but for the milliseconds; nothing else depends on the machine:

- `right`: the model that made the curve was chosen;
- `k`: within 5 % of the truth;
- `holds`: the 95 % interval of the model that made the curve holds the truth, whichever was chosen;
- `covers`: that of the chosen model does;
- `false`: a cap was seen, with its interval inside the sweep, where there is none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.analysis.knee import CAPS
from scalescope.analysis.scaling import STRONG, Floats, Interval, compare, interval_of

K = 100.0
GRIDS: dict[str, tuple[Sequence[float], int]] = {
    "5 counts": ([10, 50, 90, 150, 300], 1),
    "5 counts, 2 times": ([10, 50, 90, 150, 300], 2),
    "powers of two": ([2.0**i for i in range(9)], 3),
    "steps of 20": (range(20, 201, 20), 3),
    "steps of 10": (range(10, 201, 10), 3),
    "dense at 80-125": ([10.0, 20, 40, 60, 80, 90, 95, 100, 105, 110, 125, 150, 200], 3),
}
"""Worker counts, and how often each is measured."""
CURVES: dict[str, Callable[[Floats], Floats]] = {
    "cap": lambda p: np.minimum(p, K),
    "amdahl-cap": lambda p: np.minimum(p, K) / (1 + 0.002 * (np.minimum(p, K) - 1)),
    "wave": lambda p: K / np.ceil(K / p),
    "usl": lambda p: p / (1 + 0.005 * (p - 1) + 1e-4 * p * (p - 1)),
    "linear": lambda p: p,
    "amdahl": lambda p: p / (1 + 0.01 * (p - 1)),
}
TRUE_K = {"cap": K, "amdahl-cap": K, "wave": K, "usl": float(np.sqrt(0.995 / 1e-4))}


@dataclass
class Row:
    """Counts over all series of one kind."""

    right: int = 0
    near: int = 0
    holds: int = 0
    covers: int = 0
    false: int = 0


def judge(name: str, grid: Sequence[float], repeats: int, *, spread: float, series: int) -> Row:
    row, truth = Row(), TRUE_K.get(name)
    threads = np.repeat(np.asarray(grid, float), repeats)
    for seed in range(series):
        noise = np.random.default_rng(seed).normal(0, spread, len(threads))
        throughput = CURVES[name](threads) * np.exp(noise)
        fits = compare(STRONG, threads, throughput)
        best = fits[0]
        for own in fits:
            if truth is not None and own.model.name == name and (found := interval_of(own, threads, throughput)):
                row.holds += found.low <= truth <= found.high
        row.right += best.model.name == name
        if truth is None and best.model.name not in CAPS:
            continue
        found = interval_of(best, threads, throughput)
        if found is not None:
            _count(row, found, truth, float(threads.max()))
    return row


def _count(row: Row, found: Interval, truth: float | None, last: float) -> None:
    if truth is None:
        row.false += found.high < last
        return
    row.near += abs(found.k / truth - 1) <= 0.05
    row.covers += found.low <= truth <= found.high


def main() -> None:
    series = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"{'grid':<18}{'curve':<12}{'spread':>7}{'right':>7}{'k':>5}{'holds':>7}{'covers':>8}{'false':>7}{'ms':>6}")
    for spread in (0.03, 0.05):
        for grid_name, (grid, repeats) in GRIDS.items():
            for name in CURVES:
                begin = time.perf_counter()
                row = judge(name, grid, repeats, spread=spread, series=series)
                taken = 1000 * (time.perf_counter() - begin) / series
                shares = [
                    f"{100 * count / series:.0f}" for count in (row.right, row.near, row.holds, row.covers, row.false)
                ]
                right, near, holds, covers, false = shares
                if name in TRUE_K:
                    false = "-"
                else:
                    near = holds = covers = "-"
                head = f"{grid_name:<18}{name:<12}{100 * spread:>5.0f} %"
                print(f"{head}{right:>7}{near:>5}{holds:>7}{covers:>8}{false:>7}{taken:>6.0f}", flush=True)
