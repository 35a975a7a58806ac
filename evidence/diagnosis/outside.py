"""Runs functions that others wrote, whose causes are known, as sweeps.

`--prove` runs each of them mended, too: a label stands only if its remedy makes the work as much faster as the case
says (of a healthy one, if it takes at most `NEAR_IDEAL` times the best possible time). A proven run of the whole set
writes its figures and rows into `evidence/outside.md`.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import pickle
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import matrix
from declare import HEALTHY, Case, functions
from matrix import Result

from evidence.diagnosis import confusion
from evidence.speed.trials import table
from scalescope.model.finding import Severity

PAGE = Path(__file__).resolve().parents[1] / "outside.md"
BEGIN, END = "<!-- figures: begin, written by python -m evidence outside --prove -->", "<!-- figures: end -->"
NEAR_IDEAL = 1.25  # times the best possible time that the call of a healthy workload may take
# Labels that show by a trial that is no measurement
FAILING = {"worker-died", "worker-killing-task", "failed-trials", "invalid-trials", "memory-paused"}
MORE_THREADS = "undersubscribed-threads"
BANDS = (0.0, 0.5, 0.7, 0.9, 1.01)  # edges of the bands of confidence


@dataclass(frozen=True)
class Outcome:
    written: Result
    mended: Result | None = None

    @property
    def case(self) -> Case:
        return self.written.case

    @property
    def predicted(self) -> float | None:
        found = self.written.verdict.findings[0]
        after = self.mended and self.mended.trials[-1]
        if not self.written.right or not found.gain or not after or not after.counts or after.metrics is None:
            return None
        return found.gain.predicted_s / after.metrics.elapsed_s if self.proof[0] else None

    @property
    def proof(self) -> tuple[bool, str]:
        """Whether the label stands, and by what."""
        before = self.written.trials[-1]
        if self.case.expect == HEALTHY:
            if not before.counts or before.metrics is None:
                return False, f"{before.state}: {before.reason.partition(';')[0]}"
            ratio = before.metrics.elapsed_s / before.metrics.ideal_s
            return ratio <= NEAR_IDEAL, f"{ratio:.2f} x the best possible"
        if self.mended is None:
            return False, "not run mended"
        after = self.mended.trials[-1]
        if not after.counts or after.metrics is None:
            return False, f"mended {after.state}: {after.reason.partition(';')[0]}"
        if not before.counts or before.metrics is None:
            return bool(FAILING & set(self.case.labels)), f"{before.state}, and valid mended"
        ratio = before.metrics.elapsed_s / after.metrics.elapsed_s
        wanted = self.case.factor
        return (ratio >= wanted if wanted > 1 else ratio <= wanted), f"{ratio:.3g} x faster"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="names of cases, with * and ?")
    parser.add_argument("--kind", default="*", help="kind of cluster: simulated ones need no quiet host")
    parser.add_argument("--prove", action="store_true", help="run each with its remedy, too")
    parser.add_argument("--save", type=Path, help="keep the records in this file")
    parser.add_argument("--load", type=Path, nargs="+", help="judge the records in these files, instead of running")
    asked = parser.parse_args()
    began = time.monotonic()
    cases = {each.name: each for each in functions() if fnmatch.fnmatch(each.name, asked.only)}
    cases = {name: case for name, case in cases.items() if fnmatch.fnmatch(case.cluster["kind"], asked.kind)}
    if asked.load:
        kept = {pair[0].case.name: pair for file in asked.load for pair in pickle.loads(file.read_bytes())}
        outcomes = [
            Outcome(confusion.rejudged(replace(kept[name][0], case=case)), kept[name][1])
            for name, case in cases.items()
            if name in kept
        ]
    else:
        outcomes = run(tuple(cases.values()), prove=asked.prove)
    if asked.save:
        pairs = [(each.written, each.mended and replace(each.mended, tables=())) for each in outcomes]
        asked.save.write_bytes(pickle.dumps(pairs))
    for head, rows in tables(outcomes):
        for cells in (head, *rows, ()):
            print("".join(f"{cell!s:{46 if i == 0 else 8}}" for i, cell in enumerate(cells)))
    proven = asked.prove or asked.load
    wrong = [line(each.written) for each in outcomes if not (each.written.right or each.written.spoilt)]
    wrong += [f"NOT PROVEN {each.case.name}: {each.proof[1]}" for each in outcomes if proven and not each.proof[0]]
    print("\n".join(wrong))
    if proven and asked.only == asked.kind == "*":
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), outcomes), encoding="utf-8")
    print(f"{len(outcomes)} cases in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return int(bool(proven) and not all(each.proof[0] for each in outcomes))


def run(cases: Sequence[Case], *, prove: bool) -> list[Outcome]:
    def finished(result: Result) -> None:
        print(line(result), file=sys.stderr, flush=True)

    written = {result.case.name: result for result in matrix.run(cases, at_once=2, finished=finished)}
    remedies = [case.mended() for case in cases if prove and case.lever]
    mended = {result.case.name: result for result in matrix.run(remedies, at_once=2)}
    return [Outcome(written[case.name], mended.get(case.mended().name) if case.lever else None) for case in cases]


# ------------------------------------------------------------------ figures


def line(result: Result) -> str:
    return f"{confusion.line(result)}   label: {' or '.join(result.case.labels)}"


def counts(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, int, int]]:
    judged = [each for each in outcomes if not each.written.spoilt]
    yield "labels proven", len(outcomes), sum(each.proof[0] for each in outcomes)
    for name, healthy in (("cause named first", False), ("healthy, and left alone", True)):
        those = [each for each in judged if (each.case.expect == HEALTHY) is healthy]
        yield name, len(those), sum(each.written.right for each in those)
        proven = [each.written.right for each in those if each.proof[0]]
        yield f"{name}, where the label is proven", len(proven), sum(proven)


def classes(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, int, int, str]]:
    by_label: dict[str, list[Result]] = {}
    for each in outcomes:
        if not each.written.spoilt:
            by_label.setdefault(each.case.expect, []).append(each.written)
    for label, results in sorted(by_label.items()):
        wrong = Counter(result.named for result in results if not result.right)
        yield label, len(results), sum(r.right for r in results), ", ".join(f"{k} x{n}" for k, n in wrong.most_common())


def calibration(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, int, int]]:
    """Findings by confidence; one of lesser weight beside the right one counts as wrong."""
    said = [
        (finding.confidence, finding.code in each.case.labels)
        for each in outcomes
        for finding in each.written.verdict.findings
        if finding.severity is not Severity.INFO
        and not (finding.code == "host-overloaded" and each.written.host_was_busy)
    ]
    for low, high in pairwise(BANDS):
        right = [is_right for confidence, is_right in said if low <= confidence < high]
        yield f"{low:.1f} to {min(high, 1):.1f}", len(right), sum(right)


def predictions(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, int, int | str]]:
    """How far predictions are off: a factor, whichever of the two is larger."""
    off = sorted(max(ratio, 1 / ratio) for each in outcomes if (ratio := each.predicted) is not None)
    more = [each.predicted for each in outcomes if each.predicted is not None and each.case.expect == MORE_THREADS]
    if more:
        middle = f"{median(more):.2f} in the median"
        yield f"of more threads: from {min(more):.2f} to {max(more):.2f}", len(more), middle
    for most in (1.25, 1.5, 2.0):
        yield f"within {most:g} times", len(off), sum(each <= most for each in off)
    for name, at in (("median", 0.5), ("90th percentile", 0.9)) if off else ():
        yield name, len(off), f"{off[min(int(at * len(off)), len(off) - 1)]:.2f} times"


def sums(outcomes: Sequence[Outcome]) -> tuple[str, int, int]:
    """How many trials tell what tasks did inside, and of how many the parts add up to the busy time."""
    told = [trial.metrics for each in outcomes for trial in each.written.trials if trial.metrics]
    told = [metrics for metrics in told if metrics.busy_time_s]
    right = [math.isclose(sum(each.busy_time_s.values()), each.worker_time_s["busy"], abs_tol=1e-9) for each in told]
    return "trials whose busy time is the sum of its parts", len(told), sum(right)


def tables(outcomes: Sequence[Outcome]) -> Iterator[tuple[Sequence[str], list[Sequence[object]]]]:
    yield ("", "cases", "right"), list(counts(outcomes))
    yield ("label", "cases", "right", "named first instead"), list(classes(outcomes))
    yield ("confidence", "findings", "right"), list(calibration(outcomes))
    yield ("", "trials", "right"), [sums(outcomes)]
    yield ("predicted time with the remedy, by measured", "cases", "so near"), list(predictions(outcomes))


def page(text: str, outcomes: Sequence[Outcome]) -> str:
    """The page with these figures and rows; rows of cases that the set has no more stay."""
    before, _, rest = text.partition(BEGIN)
    figures = "\n\n".join(table(head, rows) for head, rows in tables(outcomes))
    found = {each.case.title: row(each) for each in outcomes}
    after = re.sub(r"^\| `(\w+)` \|.*$", lambda old: found.pop(old[1], old[0]), rest.partition(END)[2], flags=re.M)
    return f"{before}{BEGIN}\n{figures}\n{END}{after.rstrip()}\n" + "".join(f"{each}\n" for each in found.values())


def row(outcome: Outcome) -> str:
    case, written, (proven, by) = outcome.case, outcome.written, outcome.proof
    where = f"{case.cluster['kind']}, {'/'.join(map(str, case.workers))} x {case.threads}"
    right = "host busy" if written.spoilt else "yes" if written.right else "**no**"
    predicted = "" if outcome.predicted is None else f"{outcome.predicted:.2f}"
    cells: Iterable[str] = (
        *(f"`{case.title}`", case.source, where, " or ".join(case.labels), case.lever, written.named, right),
        *(f"{written.lost:.0%}", by if proven else f"**not proven**: {by}", predicted),
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
