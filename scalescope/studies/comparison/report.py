"""Report of a comparison of B with A: ratios, their intervals, and the smallest difference that would have shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from scalescope.model.study import Study
from scalescope.model.words import MISSING, number, pairs
from scalescope.report.table import ReportTable, Row, Tone
from scalescope.store.store import SweepRun
from scalescope.studies.comparison.judge import ComparisonDecision, PairedComparison, ordered
from scalescope.studies.report import common, headline
from scalescope.studies.report.pictures import Chart, Picture, forest
from scalescope.studies.report.sheet import Note, Sheet, share

if TYPE_CHECKING:
    from scalescope.report.html.charts import Canvas

TONES = {
    ComparisonDecision.SLOWER: Tone.BAD,
    ComparisonDecision.FASTER: Tone.GOOD,
    ComparisonDecision.UNDECIDED: Tone.DOUBT,
}


def members(study: Study) -> list[PairedComparison]:
    result = study.result
    found = [PairedComparison.from_mapping(each) for each in result.get("members") or ([result] if result else [])]
    return ordered([replace(each, question=replace(each.question, name=_name(each, study))) for each in found])


def sheet(study: Study, runs: Sequence[SweepRun]) -> Sheet:
    every = members(study)
    shown = every if len(every) == 1 else [each for each in every if each.different]
    return Sheet(
        table=_table(shown, many=len(every) > 1) if shown else None,
        notes=tuple(_notes(study, every, shown)),
        asked=tuple(_asked(study, runs, every)),
        sure=(*_sure(study, every), *common.trials(runs)),
        undecided=bool(every) and all(each.decision is ComparisonDecision.UNDECIDED for each in every),
    )


def picture(study: Study, runs: Sequence[SweepRun], canvas: Canvas) -> Picture:
    from scalescope.report.html import charts

    every, chart = members(study), None
    if len(every) == 1 and every[0].measured:
        metric, question = study.question["metric"], every[0].question
        charts.pairs(canvas, "pairs", every[0].measured, metric)
        title = f"{metric} of the pairs, in the order in which they ran"
        chart = Chart("pairs", title, headline(study), (("transfer", question.a), ("fit", question.b)))
    return Picture(chart, forest=forest(every, whole_table(every)) if every else None)


def whole_table(every: Sequence[PairedComparison]) -> ReportTable:
    return _table(every, many=len(every) > 1)


def ratio(value: float | None) -> str:
    """`1.051`, `12.3`, `∞`."""
    if value is None:
        return MISSING
    if math.isinf(value):
        return "∞"
    return f"{value:.3f}" if 0.1 <= value < 10 else number(value)


def _name(found: PairedComparison, study: Study) -> str:
    return found.question.name or str(study.question.get("workload") or (study.question.get("workloads") or [""])[0])


# ------------------------------------------------------------------ the table


def _table(shown: Sequence[PairedComparison], *, many: bool) -> ReportTable:
    heads = ("workload", "B / A", "interval", "p", *(("q",) if many else ()), "pairs", "detects", "B is")
    rows = []
    for each in shown:
        q = (_probability(each.q),) if many else ()
        cells = (each.question.name, ratio(each.ratio), _interval(each), _probability(each.p), *q, _pairs(each))
        rows.append(Row((*cells, _seen(each), str(each.decision)), TONES.get(each.decision, Tone.PLAIN)))
    return ReportTable("B against A, a row per workload", heads, tuple(rows), frozenset(range(1, len(heads) - 1)))


def _interval(member: PairedComparison) -> str:
    if member.low is None or member.high is None:
        return MISSING
    return "exact" if member.low == member.high else f"{ratio(member.low)} to {ratio(member.high)}"


def _probability(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2g}"


def _pairs(member: PairedComparison) -> str:
    parts = [f"{member.pairs}"]
    parts += [f"{member.outlying} set aside"] if member.outlying else []
    parts += [f"{member.dropped} not valid"] if member.dropped else []
    return ", ".join(parts)


def _seen(member: PairedComparison) -> str:
    if member.minimal_effect is None:
        return MISSING
    if math.isinf(member.minimal_effect):
        return "nothing"
    return f"{100 * member.minimal_effect:.2g} %" if member.minimal_effect > 0 else "any"


# ------------------------------------------------------------------ in words


def _notes(study: Study, every: Sequence[PairedComparison], shown: Sequence[PairedComparison]) -> list[Note]:
    notes = []
    if every:
        line = f"{every[0].question.b} against {every[0].question.a}, by {study.question['metric']}."
        notes.append(Note(f"{line} Column detects: the smallest difference that these pairs would have shown."))
    notes += [Note(f"{name}, why: {each['reason']}.") for name, each in study.result.get("whys", {}).items()]
    counts = Counter(str(each.decision) for each in every if each not in shown)
    if counts:
        listed = ", ".join(f"{count} {decision}" for decision, count in counts.items())
        notes.append(Note(f"Not shown: {listed} (the report and the JSON have them).", Tone.FAINT))
    return notes


def _asked(study: Study, runs: Sequence[SweepRun], every: Sequence[PairedComparison]) -> list[tuple[str, str]]:
    question = study.question
    smallest = share(question["smallest_effect"])
    sides = [(side, pairs(question[side]) or "no settings of its own") for side in ("a", "b")]
    return [
        ("Metric", f"{question['metric']}; differences up to {smallest} are called the same"),
        *((side.upper(), text) for side, text in sides),
        *common.asked(study, runs, environment="environment" not in question["a"]),
        ("Limits", pairs({"max_pairs": question["max_pairs"]})),
    ]


def _sure(study: Study, every: Sequence[PairedComparison]) -> list[tuple[str, str]]:
    if not every:
        return []
    alpha = every[0].question.alpha
    found = [
        (
            "Pairs",
            "A and B take turns, every second pair in the opposite order, so that drift of the machine cancels",
        ),
        ("p", "of the paired t-test on log ratios, corrected for every look at the pairs so far"),
        ("Interval", f"of the ratio; it holds at all looks at once, in {100 * (1 - alpha):g} of 100 comparisons"),
        ("Detects", "the smallest difference that this number of pairs shows in four of five comparisons"),
    ]
    if len(every) > 1:
        corrected = "p corrected for many workloads (Benjamini and Hochberg)"
        found.insert(2, ("q", f"{corrected}: {100 * alpha:g} % of the shown differences may be false"))
    return found
