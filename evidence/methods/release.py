"""How often a bisection is right on made-up trials: `python -m evidence release [series]`.

28 releases, a culprit drawn at random among them. `right`: exactly the culprit was named; `around`: it was bracketed,
with candidates between that could not be installed or decided; `wrong`: a boundary that is not there; `none`: the ends
were not told apart. All in percent of the series; `tried` and `trials` are means, `most` is the most tried.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np

from scalescope.studies.release.judge import Mode, ReleaseQuestion, ReleaseReading, further, judge

LABELS = tuple(f"2.{minor}.0" for minor in range(50, 78))


@dataclass(frozen=True)
class Case:
    """One kind of trials."""

    name: str  # of the row
    mode: Mode  # what a trial gives
    effect: float = 0.0  # of bad releases, where trials give a number: 0.1 is 10 %
    own: float = 0.0  # spread of each trial by itself, or the share of trials that lie
    gone: float = 0.0  # share of releases that cannot be installed, other than the ends
    outliers: float = 0.0  # share of trials that take 30 % longer


CASES = (
    Case("shown or not, no lies", Mode.FINDING),
    Case("shown or not, 5 % lie", Mode.FINDING, own=0.05),
    Case("shown or not, 10 % lie", Mode.FINDING, own=0.10),
    Case("shown or not, 20 % lie", Mode.FINDING, own=0.20),
    Case("shown or not, 35 % lie", Mode.FINDING, own=0.35),
    Case("5 % lie, 20 % cannot be had", Mode.FINDING, own=0.05, gone=0.2),
    Case("100 times, no noise", Mode.METRIC, effect=99.0),
    Case("100 times, own 2.2 %", Mode.METRIC, effect=99.0, own=0.022),
    Case("+50 %, own 2.2 %", Mode.METRIC, effect=0.5, own=0.022),
    Case("+10 %, own 2.2 %", Mode.METRIC, effect=0.1, own=0.022),
    Case("+10 %, 5 % outliers", Mode.METRIC, effect=0.1, own=0.022, outliers=0.05),
    Case("+5 %, own 2.2 %", Mode.METRIC, effect=0.05, own=0.022),
    Case("+5 %, own 1 %", Mode.METRIC, effect=0.05, own=0.01),
    Case("no effect, own 2.2 %", Mode.METRIC, own=0.022),
)


def search(case: Case, question: ReleaseQuestion, seed: int) -> tuple[str, int, int]:
    rng = np.random.default_rng(seed)
    culprit = int(rng.integers(1, len(LABELS)))
    gone = rng.random(len(LABELS)) < case.gone
    gone[[0, -1]] = False
    shared = rng.normal(0, 0.045, 10_000)

    def trial(candidate: int, turn: int) -> bool | float:
        bad = candidate >= culprit
        if case.mode is Mode.FINDING:
            return bad != (rng.random() < case.own)
        late = 1 + 0.3 * (rng.random() < case.outliers)
        common = shared[turn] if case.own else 0.0
        return float(np.exp(common + rng.normal(0, case.own)) * late * (1 + case.effect * bad))

    readings: list[ReleaseReading] = []
    while asks := further(question, readings):
        for ask in asks:
            if gone[ask.candidate]:
                readings.append(ReleaseReading(ask.candidate, ask.turn, unavailable=True))
            else:
                readings.append(ReleaseReading(ask.candidate, ask.turn, trial(ask.candidate, ask.turn)))
    answer = judge(question, readings)
    if answer.first_bad is None or answer.last_good is None:
        return "none", len(answer.tried), answer.trials
    good, bad = answer.last_good.index, answer.first_bad.index
    if not good < culprit <= bad:
        return "wrong", len(answer.tried), answer.trials
    return ("right" if bad - good == 1 else "around"), len(answer.tried), answer.trials


def rates(case: Case, series: int) -> tuple[Counter[str], list[int], list[int]]:
    question = ReleaseQuestion(LABELS, mode=case.mode)
    found = [search(case, question, seed) for seed in range(series)]
    return Counter(end for end, _, _ in found), [tried for _, tried, _ in found], [trials for _, _, trials in found]


def main() -> None:
    series = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    ends = ("right", "around", "wrong", "none")
    print(f"{'trials':<30}" + "".join(f"{end:>8}" for end in ends) + "   tried    most  trials")
    for case in CASES:
        count, tried, trials = rates(case, series)
        shares = "".join(f"{100 * count[end] / series:>8.1f}" for end in ends)
        print(f"{case.name:<30}{shares}{np.mean(tried):>8.1f}{max(tried):>8}{np.mean(trials):>8.1f}", flush=True)
