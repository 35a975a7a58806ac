"""How often a comparison is right on made-up pairs: `python -m evidence comparison [series]`.

Each row is one kind of noise; B is slower by so much. `slower`, `faster`, `same` and `undecided` are in percent of the
series, `pairs` is the mean number of pairs that it took, `covers` how often the interval holds the truth. A false alarm
is a `slower` or `faster` at 0 %; a false calm is a `same` at 3 % or more.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np

from scalescope.studies.comparison.judge import ComparisonDecision, ComparisonQuestion, further, judge, order

SHARED = 0.045  # spread of what both trials of a pair have in common


@dataclass(frozen=True)
class Noise:
    """What happens to a trial."""

    name: str  # of the row
    own: float = 0.022  # spread of each trial by itself
    # Correlation of what is shared from one trial to the next; 1: both trials of a pair have the same.
    drift: float = 1.0
    outliers: str = ""  # on which arms some trials take longer: ``, `a`, `b` or `ab`
    share: float = 0.05  # of these trials
    later: float = 0.30  # by how much


NOISES = (
    Noise("shared 4.5 %, own 2.2 %"),
    Noise("the same, AR(0.9) drift", drift=0.9),
    Noise("the same, outliers on A", outliers="a"),
    Noise("the same, outliers on B", outliers="b"),
    Noise("the same, outliers on both", outliers="ab"),
    Noise("15 % of B 1.5 times as long", outliers="b", share=0.15, later=0.5),
    Noise("own 0.5 %, 15 % of B 1.5", own=0.005, outliers="b", share=0.15, later=0.5),
    Noise("own 1 %", own=0.01),
    Noise("own 3 %", own=0.03),
    Noise("own 0.2 %", own=0.002),
)


def series(noise: Noise, slower: float, seed: int, most: int) -> list[tuple[float, float]]:
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, SHARED, 2 * most)
    if noise.drift == 1.0:
        shared[1::2] = shared[::2]
    else:
        for i in range(1, len(shared)):
            shared[i] = noise.drift * shared[i - 1] + np.sqrt(1 - noise.drift**2) * shared[i]
    pairs = []
    for i in range(most):
        time = {}
        for place, arm in enumerate(order(seed, i)):
            late = 1 + noise.later * (arm in noise.outliers and rng.random() < noise.share)
            time[arm] = late * float(np.exp(shared[2 * i + place] + rng.normal(0, noise.own)))
        pairs.append((time["a"], time["b"] * (1 + slower)))
    return pairs


def rates(
    noise: Noise, slower: float, count: int, question: ComparisonQuestion
) -> tuple[Counter[ComparisonDecision], float, float]:
    found: Counter[ComparisonDecision] = Counter()
    pairs = covers = 0
    for seed in range(count):
        every, have = series(noise, slower, seed, question.max_pairs), 0
        while more := further(question, every[:have]):
            have += more
        answer = judge(question, every[:have])
        assert answer.low is not None
        assert answer.high is not None
        found[answer.decision] += 1
        pairs += have
        covers += answer.low <= 1 + slower <= answer.high
    return found, pairs / count, covers / count


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    heads = "".join(f"{decision:>11}" for decision in ComparisonDecision)
    print(f"{'noise':<28}{'effect':>7}{heads}   pairs  covers")
    for noise in NOISES:
        for slower in (0.0, 0.03, 0.05):
            found, pairs, covers = rates(noise, slower, count, ComparisonQuestion())
            shares = "".join(f"{100 * found[decision] / count:>11.1f}" for decision in ComparisonDecision)
            print(f"{noise.name:<28}{100 * slower:>5.0f} %{shares}{pairs:>8.1f}{100 * covers:>8.1f}", flush=True)
