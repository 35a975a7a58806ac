"""How often a search is right on made-up curves, and what it costs: `python -m evidence threshold [cv]`.

Without a coefficient of variation, trials are deterministic and none is repeated. `exact`: all jumps that are there
were named exactly; `covered`: each lies in a jump or a doubt that was named; `false`: a jump was named where none is;
`doubt`: a part of the range without a jump was left unresolved. All in percent of the searches; `points` and `trials`
are means, `most` is the most points.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

from scalescope.studies.threshold.judge import Threshold, judge
from scalescope.studies.threshold.question import ThresholdQuestion, ThresholdReading
from scalescope.studies.threshold.search import further

SEARCHES = 60
Curve = Callable[[float], float]


@dataclass(frozen=True)
class Truth:
    """A curve, its range, and the values after which it jumps."""

    curve: Curve  # metric at a value
    low: int  # of the range
    high: int  # of the range
    jumps: frozenset[int] = frozenset()  # those that must be found
    others: frozenset[int] = frozenset()  # those that may be found


def smooth(name: str, rng: random.Random) -> Curve:
    a, b, c = rng.uniform(0, 200), rng.uniform(0.1, 4), 10 ** rng.uniform(-6, -3)
    curves: dict[str, Curve] = {
        "constant": lambda x: 100.0,
        "line": lambda x: a + b * x,
        "1/x": lambda x: a / 100 + 300 / x,
        "sqrt": lambda x: 10 * math.sqrt(x),
        "usl": lambda x: x / (1 + a / 4000 * (x - 1) + c * x * (x - 1)),
        "saturating": lambda x: 1 + 20 * (1 - math.exp(-x / (20 + a))),
        "cap": lambda x: min(x, 40 + a),
    }
    return curves[name]


def step(name: str, factors: tuple[float, ...]) -> Callable[[random.Random], Truth]:
    def draw(rng: random.Random) -> Truth:
        curve, low, high = smooth(name, rng), rng.choice([1, 10, 50]), rng.choice([200, 300, 400, 500])
        tenth = (high - low) // 10
        at, factor = rng.randrange(low + tenth, high - tenth), rng.choice(factors)
        jumps = frozenset() if factors == (1.0,) else frozenset({at})
        return Truth(lambda x: curve(x) * (factor if x > at else 1.0), low, high, jumps)

    return draw


def pulse(share: float) -> Callable[[random.Random], Truth]:
    def draw(rng: random.Random) -> Truth:
        width = max(1, round(300 * share))
        at = rng.randrange(2, 298 - width)
        return Truth(lambda x: 100 if at < x <= at + width else 50, 1, 300, frozenset({at, at + width}))

    return draw


def _above(curve: Curve, low: int, high: int, least: float) -> frozenset[int]:
    changes = ((x, abs(curve(x) - curve(x + 1)) / max(curve(x), curve(x + 1))) for x in range(low, high))
    return frozenset(x for x, change in changes if change > least)


def sawtooth(rng: random.Random) -> Truth:
    pieces, low, high = rng.choice([64, 100, 128]), rng.choice([1, 50]), rng.choice([400, 500])

    def curve(x: float) -> float:
        return math.ceil(x / max(1, x // pieces))

    return Truth(curve, low, high, frozenset(x for x in _above(curve, low, high, 0.05) if x >= pieces))


def staircase(rng: random.Random) -> Truth:
    piece, extra = rng.choice([64, 100, 128, rng.randrange(60, 130)]), rng.choice([0, 1, 5])

    def curve(x: float) -> float:
        return 2 * math.ceil(x / piece) + extra

    return Truth(curve, 1, 500, _above(curve, 1, 500, 0.05))


def wave(rng: random.Random) -> Truth:
    tasks = rng.randrange(60, 200)

    def curve(x: float) -> float:
        return math.ceil(tasks / x)

    high = tasks + rng.randrange(1, 50)
    return Truth(curve, 1, high, _above(curve, tasks // 4, high, 0), _above(curve, 1, high, 0))


SMOOTH = ("constant", "line", "1/x", "sqrt", "usl", "saturating", "cap")
CASES: dict[str, Callable[[random.Random], Truth]] = {
    **{f"{name}, smooth": step(name, (1.0,)) for name in SMOOTH},
    **{f"{name}, x 2 or / 2": step(name, (0.5, 2.0)) for name in SMOOTH[:-1]},
    **{f"{name}, +25 or -20 %": step(name, (0.8, 1.25)) for name in ("constant", "line", "1/x", "usl")},
    **{f"{name}, +10 %": step(name, (1.1,)) for name in ("constant", "line")},
    **{f"pulse of {share:.0%}": pulse(share) for share in (0.05, 0.10, 0.15, 0.20)},
    "sawtooth": sawtooth,
    "staircase": staircase,
    "wave": wave,
}


def search(question: ThresholdQuestion, curve: Curve, cv: float, rng: random.Random) -> Threshold:
    readings: list[ThresholdReading] = []
    while values := further(question, readings):
        readings += [ThresholdReading(value, curve(value) * math.exp(rng.gauss(0, cv))) for value in values]
    return judge(question, readings)


def row(name: str, draw: Callable[[random.Random], Truth], cv: float) -> str:
    exact = covered = false = doubt = 0
    points, trials = [], []
    for seed in range(SEARCHES):
        rng = random.Random(seed)
        truth = draw(rng)
        found = search(ThresholdQuestion(truth.low, truth.high, noisy=cv > 0), truth.curve, cv, rng)
        named = [(jump.left, jump.right) for jump in found.jumps] + [(part.low, part.high) for part in found.unresolved]
        jumps = truth.jumps | truth.others
        exact += truth.jumps <= {jump.left for jump in found.jumps if jump.exact}
        covered += all(any(low <= at < high for low, high in named) for at in truth.jumps)
        false += any(not any(jump.left <= at < jump.right for at in jumps) for jump in found.jumps)
        doubt += any(not any(part.low <= at < part.high for at in jumps) for part in found.unresolved)
        points.append(found.points)
        trials.append(found.trials)
    shares = "  ".join(f"{100 * count / SEARCHES:7.0f}" for count in (exact, covered, false, doubt))
    return f"{name:24} {shares}  {statistics.fmean(points):6.1f}  {max(points):4}  {statistics.fmean(trials):6.1f}"


def main() -> None:
    print(f"{'':24}   exact  covered    false    doubt  points  most  trials")
    for case, truths in CASES.items():
        print(row(case, truths, float(sys.argv[1]) if len(sys.argv) > 1 else 0.0), flush=True)
