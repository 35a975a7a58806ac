"""A comparison of B with A: ratios with their intervals, and what could have been seen."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalescope.model.study import Study
from scalescope.report.table import MISSING, Row, Table, Tone
from scalescope.store.store import SweepRun
from scalescope.studies.comparison.judge import Decision
from scalescope.studies.report import common
from scalescope.studies.report.sheet import Note, Sheet, pairs, share

TONES = {Decision.SLOWER: Tone.BAD, Decision.FASTER: Tone.GOOD, Decision.UNDECIDED: Tone.DOUBT}
DIFFERENT = (Decision.SLOWER, Decision.FASTER)


@dataclass(frozen=True)
class Member:
    """The comparison of one workload.

    Attributes:
        name: Of the workload.
        a: What A is called.
        b: What B is called.
        ratio: b / a, from 0 to infinity; None with fewer than two valid pairs.
        low: Lower end of its interval.
        high: Upper end.
        p: After all looks.
        q: After Benjamini and Hochberg; None where it is alone.
        pairs: Valid ones.
        dropped: Pairs that are not.
        outlying: Valid pairs set aside.
        minimal_effect: Smallest difference that would have been seen, as a share.
        decision: What B is.
        line: In one sentence.
        measured: The pairs as they ran.
    """

    name: str
    a: str
    b: str
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    q: float | None
    pairs: int
    dropped: int
    outlying: int
    minimal_effect: float | None
    decision: Decision
    line: str
    measured: tuple[tuple[float | None, float | None], ...]

    @property
    def different(self) -> bool:
        """Whether B is slower or faster."""
        return self.decision in DIFFERENT


def members(study: Study) -> tuple[Member, ...]:
    """The comparisons: differences first, the largest of them on top; then the others as they were given."""
    result = study.result
    given = result.get("members") or ([result] if result else [])
    found = [_member(each, study) for each in given]
    return tuple(sorted(found, key=lambda each: -_size(each) if each.different else 1.0))


def sheet(study: Study, runs: Sequence[SweepRun]) -> Sheet:
    """The study for people."""
    every = members(study)
    shown = every if len(every) == 1 else [each for each in every if each.different]
    return Sheet(
        table=_table(shown, many=len(every) > 1) if shown else None,
        notes=tuple(_notes(study, every, shown)),
        asked=tuple(_asked(study, runs, every)),
        sure=(*_sure(study, every), *common.trials(runs)),
    )


def whole_table(every: Sequence[Member]) -> Table:
    """All of them, also those that are not significant."""
    return _table(every, many=len(every) > 1)


def ratio(value: float | None) -> str:
    """`1.051`, `12.3`, `∞`."""
    if value is None:
        return MISSING
    if math.isinf(value):
        return "∞"
    return f"{value:.3f}" if 0.1 <= value < 10 else f"{value:.3g}"


def _member(given: Mapping[str, Any], study: Study) -> Member:
    question = given["question"]
    known = given["pairs"] >= 2  # else there is no ratio; of the others, JSON has none for an infinite one

    def end(name: str) -> float | None:
        value: float | None = given[name]
        return math.inf if value is None and known else value

    return Member(
        name=question["name"] or str(study.question.get("workload") or (study.question.get("workloads") or [""])[0]),
        a=question["a"],
        b=question["b"],
        ratio=end("ratio"),
        low=end("low"),
        high=end("high"),
        p=given["p"],
        q=given.get("q"),
        pairs=given["pairs"],
        dropped=given["dropped"],
        outlying=given["outlying"],
        minimal_effect=end("minimal_effect"),
        decision=Decision(given["decision"]),
        line=given["line"],
        measured=tuple((pair[0], pair[1]) for pair in given.get("measured", ())),
    )


def _size(member: Member) -> float:
    found = member.ratio or 0.0
    return abs(math.log(found)) if 0 < found < math.inf else math.inf


# ------------------------------------------------------------------ the table


def _table(shown: Sequence[Member], *, many: bool) -> Table:
    heads = ("workload", "B / A", "interval", "p", *(("q",) if many else ()), "pairs", "detects", "B is")
    rows = []
    for each in shown:
        q = (_probability(each.q),) if many else ()
        cells = (each.name, ratio(each.ratio), _interval(each), _probability(each.p), *q, _pairs(each))
        rows.append(Row((*cells, _seen(each), str(each.decision)), TONES.get(each.decision, Tone.PLAIN)))
    return Table("B against A, a row per workload", heads, tuple(rows), frozenset(range(1, len(heads) - 1)))


def _interval(member: Member) -> str:
    if member.low is None or member.high is None:
        return MISSING
    return "exact" if member.low == member.high else f"{ratio(member.low)} to {ratio(member.high)}"


def _probability(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2g}"


def _pairs(member: Member) -> str:
    parts = [f"{member.pairs}"]
    parts += [f"{member.outlying} set aside"] if member.outlying else []
    parts += [f"{member.dropped} not valid"] if member.dropped else []
    return ", ".join(parts)


def _seen(member: Member) -> str:
    if member.minimal_effect is None:
        return MISSING
    if math.isinf(member.minimal_effect):
        return "nothing"
    return f"{100 * member.minimal_effect:.2g} %" if member.minimal_effect > 0 else "any"


# ------------------------------------------------------------------ in words


def _notes(study: Study, every: Sequence[Member], shown: Sequence[Member]) -> list[Note]:
    notes = []
    if every:
        line = f"{every[0].b} against {every[0].a}, by {study.question['metric']}."
        notes.append(Note(f"{line} detects: the smallest difference that so many pairs would have shown."))
    counts = Counter(str(each.decision) for each in every if each not in shown)
    if counts:
        listed = ", ".join(f"{count} {decision}" for decision, count in counts.items())
        notes.append(Note(f"Not shown: {listed} (--json and the report have them).", Tone.FAINT))
    return notes


def _asked(study: Study, runs: Sequence[SweepRun], every: Sequence[Member]) -> list[tuple[str, str]]:
    question = study.question
    smallest = share(question["smallest_effect"])
    sides = [(side, pairs(question[side]) or "nothing in particular") for side in ("a", "b")]
    return [
        ("Metric", f"{question['metric']}; differences up to {smallest} are called the same"),
        *((side.upper(), text) for side, text in sides),
        *common.asked(study, runs, environment="environment" not in question["a"]),
        ("Limits", pairs({"max_pairs": question["max_pairs"]})),
    ]


def _sure(study: Study, every: Sequence[Member]) -> list[tuple[str, str]]:
    if not every:
        return []
    found = [
        ("Pairs", "A and B take turns, in a random order within each pair, so that drift of the machine cancels"),
        ("p", "of the paired t-test on log ratios, corrected for every look at the pairs so far"),
        ("Interval", "of the ratio; it holds at all looks at once, in 95 of 100 comparisons"),
        ("Would have seen", "the smallest difference that such pairs show in four of five such comparisons"),
    ]
    if len(every) > 1:
        found.insert(2, ("q", "p after Benjamini and Hochberg: of the differences shown, 5 % are expected to be none"))
    return found
