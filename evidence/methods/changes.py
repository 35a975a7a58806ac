"""How often a nightly series is judged wrongly: `python -m evidence changes [folder]`.

On simulated noise, and on real series where a folder holds them (`series.csv.gz` and `noise.csv`; also named by
SCALESCOPE_SERIES). Every rule is asked again each night, as a nightly would. The rules were tuned on simulated noise
and on the real series whose names hash to an even number; the others are the result. `--tuned` shows the former.

Quiet series are those in which `noise.csv` counts no shift of more than 5 %, except where machines are mixed. `false`
is the number of change points per 100 nights when each night is judged as it comes, `later` when all are judged at the
end. Steps of +10 % begin at night 40 of stretches scaled to a coefficient of variation of 5 %; `5` and `20` are percent
found within so many nights. `alert` and `missed` are what remains after a paired rerun, as `scalescope compare` judges
it: percent of series with a false alert, and of steps with none.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from support.year import rerun

from scalescope.nightly.changes import EFFECT, Floats, find_changes
from scalescope.studies.comparison.judge import ComparisonDecision

Rule = Callable[[Floats], list[int]]
FIRST, LONGEST, HISTORY = 14, 300, 120
STEP, AT, END = 1.10, 40, 60
NEAR = 5  # nights by which a change point may be off
CV = 0.05


def own(values: Floats) -> list[int]:
    return [change.index for change in find_changes(values)]


def rustc_perf(values: Floats) -> list[int]:
    """Tonight's relative change above Q3 + 3 IQR of those of the 30 nights before."""
    relative = np.abs(np.diff(values[-32:]) / values[-32:-1])
    low, high = np.percentile(relative[:-1], [25, 75])
    return [len(values) - 1] if relative[-1] > high + 3 * (high - low) else []


def coiled(values: Floats) -> list[int]:
    """The last three all above the mean of the ten before and three standard deviations; without its floor of 1 s."""
    before = values[-13:-3]
    return [len(values) - 3] if (values[-3:] > before.mean() + 3 * before.std()).all() else []


def rules() -> dict[str, Rule]:
    found: dict[str, Rule] = {"scalescope": own, "rustc-perf": rustc_perf, "coiled/benchmarks": coiled}
    try:
        from otava.analysis import compute_change_points
    except ImportError:
        print("Apache Otava is not installed here: pip install apache-otava, in an environment of its own.")
    else:
        found["otava, default"] = lambda values: [each.index for each in compute_change_points(values.tolist())[0]]
    return found


@dataclass(frozen=True)
class Rates:
    """What a rule does with some series; see the module's text."""

    false: float
    later: float
    within_5: float
    within_20: float
    alert: float
    missed: float


def confirmed(rng: np.random.Generator, ratio: float) -> bool:
    """Whether a paired rerun shows a change for the worse of at least half of `EFFECT`."""
    found = rerun(rng, ratio)
    return found.decision is ComparisonDecision.SLOWER and (found.ratio or 1.0) >= 1 + EFFECT / 2


def replay(rule: Rule, values: Floats) -> int:
    seen: list[int] = []
    found = 0
    for night in range(FIRST, len(values) + 1):
        begin = max(0, night - HISTORY)
        for index in rule(values[begin:night]):
            if begin and index < FIRST:  # where the history was cut off
                continue
            found += all(abs(begin + index - other) > NEAR for other in seen)
            seen.append(begin + index)
    return found


def delay(rule: Rule, values: Floats) -> int:
    """Nights until the step at `AT` is reported; more than all where it never is."""
    for night in range(AT + 1, END + 1):
        if any(abs(index - AT) <= NEAR for index in rule(values[:night])):
            return night - AT
    return END


def stepped(values: Floats, rng: np.random.Generator) -> Iterator[Floats]:
    for begin in {int(each) for each in rng.integers(0, max(1, len(values) - END), 3)}:
        logs = np.log(values[begin : begin + END])
        if len(logs) == END and logs.std() > 1e-3:
            scaled = np.exp((logs - np.median(logs)) * CV / logs.std())
            scaled[AT:] *= STEP
            yield scaled


def rates(rule: Rule, series: Sequence[Floats]) -> Rates:
    rng = np.random.default_rng(1)
    reports = [replay(rule, each) for each in series]
    nights = sum(len(each) - FIRST + 1 for each in series)
    later = sum(len(rule(each)) for each in series)
    delays = np.array([delay(rule, each) for values in series for each in stepped(values, rng)])
    alerts = [any(confirmed(rng, 1.0) for _ in range(found)) for found in reports]
    missed = [found > 20 or not confirmed(rng, STEP) for found in delays]
    return Rates(
        100 * sum(reports) / nights,
        100 * later / nights,
        100 * float(np.mean(delays <= 5)),
        100 * float(np.mean(delays <= 20)),
        100 * float(np.mean(alerts)),
        100 * float(np.mean(missed)),
    )


def simulated(shape: str, rng: np.random.Generator, nights: int = 100) -> Floats:
    noise = rng.normal(0, 1, nights + 50)
    follows = {"AR(0.4)": 0.4, "AR(0.8)": 0.8}.get(shape, 0.0)
    for i in range(1, len(noise)):
        noise[i] = follows * noise[i - 1] + np.sqrt(1 - follows**2) * noise[i]
    logs = CV * noise[50:]
    if shape == "5 % outliers":
        logs = logs + 0.3 * (rng.random(nights) < 0.05)
    elif shape == "bimodal":
        logs = 0.6 * logs + 0.8 * CV * rng.choice([-1.0, 1.0], nights)
    elif shape == "drift":
        logs = logs + np.linspace(0, 0.02, nights)
    return np.exp(logs)


SHAPES = ("white", "AR(0.4)", "AR(0.8)", "5 % outliers", "bimodal", "drift")


def real(folder: Path, *, tuned: bool) -> list[Floats]:
    with (folder / "noise.csv").open() as file:
        quiet = {(row["source"], row["series"], row["machine"]) for row in csv.DictReader(file) if row["steps5"] == "0"}
    found: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    with gzip.open(folder / "series.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            name = (row["source"], row["series"], row["machine"])
            even = int(hashlib.sha256("|".join(name[:2]).encode()).hexdigest(), 16) % 2 == 0
            if name in quiet and even == tuned:
                found.setdefault(name, []).append((int(row["index"]), float(row["value"])))
    return [np.array([value for _, value in sorted(each)][:LONGEST]) for each in found.values() if len(each) >= END]


def main() -> None:
    given = [each for each in sys.argv[1:] if each != "--tuned"]
    folder = Path(given[0] if given else os.environ.get("SCALESCOPE_SERIES", ""))
    sets: list[tuple[str, list[Floats]]] = []
    if (folder / "noise.csv").is_file():
        sets.append(("real, quiet", real(folder, tuned="--tuned" in sys.argv)))
    else:
        print("No real series: name the folder that holds series.csv.gz and noise.csv.")
    rng = np.random.default_rng(7)
    sets += [(shape, [simulated(shape, rng) for _ in range(40)]) for shape in SHAPES]
    heads = ("false", "later", "5", "20", "alert", "missed")
    print(f"{'series':<14}{'number':>7}  {'rule':<18}" + "".join(f"{head:>8}" for head in heads))
    compared = rules()
    for name, series in sets:
        for called, rule in compared.items():
            found = rates(rule, series)
            figures = (found.false, found.later, found.within_5, found.within_20, found.alert, found.missed)
            row = f"{name:<14}{len(series):>7}  {called:<18}" + "".join(f"{each:>8.2f}" for each in figures)
            print(row, flush=True)
