"""How far predictions of sizes that were not run are off, on small machines that are real (infra/machines).

    sudo python -m evidence prediction --measure FOLDER [--workers 1,2,4,8,16] [--only NAME ...]
    python -m evidence prediction --compare FOLDER ... [--only NAME ...]

`--measure` keeps store and records of each workload of `cases/predicted.py` in the folder, and skips what is there.
`--compare` predicts the sizes above `LARGEST_SHOWN` from the others, beside Ernest's formula (Venkataraman et al., NSDI
2016) and the universal scalability law, and prints a section as `evidence/prediction.md` has them.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from declare import predictions
from scipy.optimize import nnls

from evidence.diagnosis.confusion import anew
from evidence.speed.trials import table
from scalescope.analysis.scaling import USL, _search
from scalescope.diagnosis.causes.no_known_cause import UNKNOWN
from scalescope.model.finding import Finding
from scalescope.model.trial import Trial
from scalescope.model.words import percent
from scalescope.run.sweep import run_sweep
from scalescope.store.schema import RunState
from scalescope.store.store import Store, SweepRun
from scalescope.studies.prediction.judge import PredictedSize, Prediction, holding_back
from scalescope.studies.running import run_study

ROOT = Path(__file__).parents[1]
CORES, MBIT = 0.1, 200
LARGEST_SHOWN = 4  # workers of the largest size that a prediction may see
NEAR = 0.25  # relative error that is near enough to plan by
IDLE = 0.03  # share of the host idle, from which its other work did not slow the machines down by much
Times = Mapping[int, Sequence[float]]  # workers -> seconds of each valid trial


# ------------------------------------------------------------------ measuring


def measure(folder: Path, workers: Sequence[int], repeats: int, names: Sequence[str], *, fresh: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    store = str(folder.resolve() / "store.db")
    os.nice(-10)  # driver and scheduler come first on a busy host, as the machines do
    os.chdir(ROOT)  # the driver finds `infra` in its working folder, since it is no package that is installed
    cases = [case for case in predictions() if case.title in names]
    with machines(max(workers)), processors_awake():
        for case in cases:
            before = runs(store).get(case.title)
            if not fresh and before and before.state is RunState.COMPLETE and set(workers) <= set(times(before)):
                continue
            asked = {"workload": case.function, "cluster": dict(case.cluster), "trial_timeout_s": case.timeout_s}
            asked |= {"axes": {"workers": list(workers)}, "repeats": repeats, "store": store, "fresh": fresh}
            done = run_sweep(asked)
            print(f"{case.title}: {shown(times(done.run))}; {done.verdict}", flush=True)


@contextmanager
def machines(count: int) -> Iterator[None]:
    from infra.machines import mini

    if len(mini.machines()) >= count:
        yield
        return
    mini.up(count, cpu=CORES, mbit=MBIT)
    try:
        yield
    finally:
        mini.down()


@contextmanager
def processors_awake() -> Iterator[None]:
    """Have idle processors poll: one that sleeps between short bursts computes up to a third slower, by turns.

    A host with few busy machines would else be slower than one with many, of which no prediction can know.
    """
    with open("/dev/cpu_dma_latency", "wb", buffering=0) as latency:  # in force while it is open
        latency.write(bytes(4))  # microseconds
        yield


def runs(store: str) -> dict[str, SweepRun]:
    """The newest run of each workload that was measured whole, or else in part."""
    with Store.open(store) as opened:
        found = [run for run in opened.runs(limit=10_000) if run.sweep.cluster.kind == "custom"]
    found.sort(key=lambda run: (run.state is RunState.COMPLETE, run.id))
    return {run.sweep.workload.rpartition(":")[2]: run for run in found}


def times(run: SweepRun | None) -> dict[int, list[float]]:
    """Seconds of the trials that had a host with idle cores; at sizes where none had, of all."""
    found: dict[int, list[Trial]] = {}
    for trial in run.trials if run else ():
        if trial.counts and trial.metrics is not None:
            found.setdefault(trial.point.workers, []).append(trial)
    kept = {size: [each for each in trials if quiet(each)] or trials for size, trials in sorted(found.items())}
    return {size: [each.metrics.elapsed_s for each in trials if each.metrics] for size, trials in kept.items()}


def quiet(trial: Trial) -> bool:
    return float(trial.facts["host"]["load"]["idle"]) >= IDLE


def shown(measured: Times) -> str:
    return ", ".join(f"{size}: {statistics.median(each):.1f} s" for size, each in measured.items())


# ------------------------------------------------------------------ predicting


def ernest(seen: Times, sizes: Sequence[int]) -> dict[int, float]:
    """Seconds by a + b / P + c log P + d P, none of them negative."""

    def terms(p: np.ndarray) -> np.ndarray:
        return np.stack([np.ones_like(p), 1 / p, np.log(p), p], axis=1)

    p, seconds = rows(seen)
    # relative errors count, as of the other formula
    factors, _ = nnls(terms(p) / seconds[:, None], np.ones_like(p))
    return dict(zip(sizes, map(float, terms(np.array(sizes, dtype=float)) @ factors), strict=True))


def usl(seen: Times, sizes: Sequence[int]) -> dict[int, float]:
    p, seconds = rows(seen)
    shape = _search(USL, p, -np.log(seconds))
    rate = float(np.exp(np.mean(-np.log(seconds) - np.log(USL.curve(p, *shape)))))
    return {size: 1 / (rate * float(USL.curve(np.array([float(size)]), *shape)[0])) for size in sizes}


def rows(seen: Times) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(size, seconds) for size, each in seen.items() for seconds in each]
    p, seconds = np.array(pairs, dtype=float).T
    return p, seconds


def predict(run: SweepRun, folder: Path, seen: Iterable[int], sizes: Sequence[int]) -> Prediction:
    """What `scalescope predict` says from the trials of at most `LARGEST_SHOWN` workers."""
    texts = {"using": ",".join(map(str, seen)), "workers": ",".join(map(str, sizes))}
    given = {"run": run.id, "store": str(folder.resolve() / "store.db"), "others_code": True, "fresh": True, **texts}
    return Prediction.from_mapping(run_study("prediction", given).result)


FORMULAS: dict[str, Callable[[Times, Sequence[int]], dict[int, float]]] = {"Ernest": ernest, "USL": usl}


# ------------------------------------------------------------------ comparing


@dataclass(frozen=True)
class LeftOut:
    """A trial and the prediction, both compared with the other trials of that size."""

    near: bool  # whether the trial is within 25 % of their median
    right: bool  # whether it says first what they say
    predicted_near: bool
    predicted_right: bool


@dataclass(frozen=True)
class Compared:
    """A workload, what it took, and what was predicted."""

    name: str
    measured: Times
    firsts: Mapping[int, Sequence[str]]  # workers -> what each measured trial says first
    causes: Mapping[int, set[str]]  # and with what cost as much as that in another one
    predicted: Mapping[str, Mapping[int, float]]  # method -> workers -> seconds
    answers: Mapping[int, PredictedSize]  # workers -> what Scalescope says
    doubts: Sequence[str]  # why it says that this is not to be relied on
    left_out: Sequence[LeftOut]  # each trial of the largest size

    def covered(self, size: int) -> bool:
        return self.answers[size].low_s <= statistics.median(self.measured[size]) <= self.answers[size].high_s

    def right(self, size: int) -> bool:
        return self.answers[size].limit in self.causes[size]

    def named(self, size: int) -> bool:
        """Whether it is among those that are said to cost nearly as much."""
        return self.right(size) or bool(self.causes[size].intersection(self.answers[size].also))

    def error(self, method: str, size: int) -> float:
        return self.predicted[method][size] / statistics.median(self.measured[size]) - 1


def compare(folder: Path, names: Sequence[str]) -> list[Compared]:
    """Predict the large sizes of these workloads from the small ones, by each method."""
    found = []
    for name, run in runs(str(folder / "store.db")).items():
        measured = times(run)
        seen = {size: each for size, each in measured.items() if size <= LARGEST_SHOWN}
        sizes = [size for size in measured if size > LARGEST_SHOWN]
        if name in names and len(seen) > 1 and sizes:
            answer = predict(run, folder, seen, sizes)
            answers = {each.workers: each for each in answer.sizes}
            predicted = {"Scalescope": {size: answers[size].predicted_s for size in sizes}}
            predicted |= {formula: fit(seen, sizes) for formula, fit in FORMULAS.items()}
            trials = {size: judged(folder, run, size) for size in sizes}
            limits = {size: [holding_back(run, trial)[:1] for trial in each] for size, each in trials.items()}
            firsts = {size: ["".join(limit.code for limit in one) for one in each] for size, each in limits.items()}
            causes = {size: leading(run, trials[size], limits[size]) for size in sizes}
            last = max(sizes)
            left = left_out(run, trials[last], limits[last], answers[last])
            found.append(Compared(name, measured, firsts, causes, predicted, answers, answer.doubts, left))
    return found


def left_out(
    run: SweepRun, trials: Sequence[Trial], firsts: Sequence[Sequence[Finding]], answer: PredictedSize
) -> list[LeftOut]:
    found = []
    for i, trial in enumerate(trials):
        others = [*trials[:i], *trials[i + 1 :]]
        if others:
            causes = leading(run, others, [*firsts[:i], *firsts[i + 1 :]])
            typical_s = statistics.median(elapsed_s(each) for each in others)
            found.append(
                LeftOut(
                    abs(elapsed_s(trial) / typical_s - 1) <= NEAR,
                    "".join(each.code for each in firsts[i]) in causes,
                    abs(answer.predicted_s / typical_s - 1) <= NEAR,
                    answer.limit in causes,
                )
            )
    return found


def elapsed_s(trial: Trial) -> float:
    assert trial.metrics is not None
    return trial.metrics.elapsed_s


def judged(folder: Path, run: SweepRun, workers: int) -> list[Trial]:
    with Store.open(str(folder.resolve() / "store.db")) as store:
        trials = [trial for trial in run.trials if trial.counts and trial.point.workers == workers]
        return [anew(trial, store.tables(trial)) for trial in trials]


def leading(run: SweepRun, trials: Sequence[Trial], firsts: Sequence[Sequence[Finding]]) -> set[str]:
    """What each trial says first, and what cost as much as that in another one; `""` where one says nothing."""
    pairs = [(first, trial) for trial, found in zip(trials, firsts, strict=True) for first in found]
    least = min((share(first, trial) for first, trial in pairs), default=math.inf)
    found = {first.code for first, _ in pairs} | {"" for each in firsts if not each}
    for trial in trials:
        known = [each for each in holding_back(run, trial) if each.code != UNKNOWN.code]
        found |= {each.code for each in known if share(each, trial) >= least}
    return found


def share(finding: Finding, trial: Trial) -> float:
    """The share of the worker time that the finding cost."""
    assert trial.metrics is not None
    return finding.lost_s / sum(trial.metrics.worker_time_s.values())


def section(found: Sequence[Compared]) -> str:
    sizes = sorted({size for each in found for size in each.measured})
    large = [size for size in sizes if size > LARGEST_SHOWN]
    header = ["workload", *(f"{size}, s" for size in sizes), *(f"error at {size}" for size in large)]
    header += [f"cause measured at {large[-1]}", "predicted", "not to be relied on"]
    blocks = [whole(found, large[-1]), again(found)]
    blocks.append(table(["method", "workers", *SUMMARY], summaries(found, large)))
    blocks.append(table(header, [row(each, sizes, large) for each in found]))
    return "\n\n".join(blocks)


def whole(found: Sequence[Compared], size: int) -> str:
    """All workloads at the largest size, and the intervals at all that were predicted."""
    errors = {each.name: abs(each.error("Scalescope", size)) for each in found}
    relied = [errors[each.name] for each in found if not each.doubts]
    covered = [each.covered(workers) for each in found for workers in each.answers if workers > LARGEST_SHOWN]
    right, named = sum(each.right(size) for each in found), sum(each.named(size) for each in found)
    clear = [each.right(size) for each in found if len(set(each.firsts[size])) == 1]
    return (
        f"**All {len(found)} at {size} machines: {percent(statistics.median(errors.values()))} off in the median, "
        f"{sum(error <= NEAR for error in errors.values())} within 25 %**; of the {len(relied)} that the prediction "
        f"itself did not doubt, {sum(error <= NEAR for error in relied)}. {percent(np.mean(covered))} of what was "
        f"measured lies in the interval of 80 %. The cause is right in {right}, and named in {named}; of the "
        f"{len(clear)} where all repeats name the same first, it is right in {sum(clear)}."
    )


def again(found: Sequence[Compared]) -> str:
    """How far measured trials of one kind are from each other."""
    spreads = [spread(seconds) for each in found for seconds in each.measured.values() if len(seconds) > 1]
    firsts = [names for each in found for names in each.firsts.values() if len(names) > 1]
    same = sum(len(set(names)) == 1 for names in firsts)
    left_out = [one for each in found for one in each.left_out]
    near, right, predicted_near, predicted_right = (
        percent(np.mean(column)) for column in zip(*map(astuple, left_out), strict=True)
    )
    return (
        f"The same trial twice differs by {percent(statistics.median(spreads))} in the median, and by "
        f"{percent(np.quantile(spreads, 0.9))} or less in nine of ten. It names the same cause first in {same} of "
        f"{len(firsts)} sizes. Beside the other trials of the largest size, one that is left out is within 25 % of "
        f"them in {near} and says first what they say in {right}; the prediction in {predicted_near} and "
        f"{predicted_right}. No prediction can know more than a trial of that size."
    )


SUMMARY = ("median error", "90 % are within", "within 25 %", "in the interval of 80 %", "cause right", "cause named")
OURS = (Compared.covered, Compared.right, Compared.named)


def summaries(found: Sequence[Compared], large: Sequence[int]) -> list[list[object]]:
    lines: list[list[object]] = []
    for method, size in ((method, size) for method in found[0].predicted for size in large):
        those = [each for each in found if size in each.measured]
        errors = [abs(each.error(method, size)) for each in those]
        line = [method, size, percent(statistics.median(errors)), percent(np.quantile(errors, 0.9))]
        line.append(percent(np.mean([error <= NEAR for error in errors])))
        ours = method == "Scalescope"
        line += [percent(np.mean([told(each, size) for each in those])) if ours else "" for told in OURS]
        lines.append(line)
    return lines


def row(each: Compared, sizes: Sequence[int], large: Sequence[int]) -> list[str]:
    last = large[-1]
    return [
        each.name,
        *(cell(each.measured.get(size, ())) for size in sizes),
        *(f"{each.error('Scalescope', size):+.0%}" if size in each.measured else "" for size in large),
        " or ".join(sorted(cause or "nothing" for cause in each.causes.get(last, ()))),
        " or ".join([each.answers[last].limit or "nothing", *each.answers[last].also]),
        "; ".join(each.doubts),
    ]


def cell(seconds: Sequence[float]) -> str:
    if not seconds:
        return ""
    return f"{statistics.median(seconds):.1f}" + (f" ± {spread(seconds) / 2:.0%}" if len(seconds) > 1 else "")


def spread(seconds: Sequence[float]) -> float:
    return (max(seconds) - min(seconds)) / statistics.median(seconds)


def main() -> None:
    every = [case.title for case in predictions()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    doing = parser.add_mutually_exclusive_group(required=True)
    doing.add_argument("--measure", type=Path, metavar="FOLDER")
    doing.add_argument("--compare", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--workers", default="1,2,4,8,16")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=every, default=every, metavar="NAME")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    given = parser.parse_args()
    if given.measure:
        workers = [int(each) for each in given.workers.split(",")]
        measure(given.measure, workers, given.repeats, given.only, fresh=given.fresh)
        return
    found = {each.name: each for folder in given.compare for each in compare(folder, given.only)}
    if not found:
        sys.exit("no workload was measured at sizes of both kinds")
    print(section([found[name] for name in every if name in found]))
