"""Report of a search for thresholds: the measured values in order, and where the metric jumps."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalescope.model.study import Study
from scalescope.model.sweep import ITEMS_PER_WORKER, Point
from scalescope.model.words import number as to_digits
from scalescope.model.words import pairs, plural
from scalescope.report.table import ReportTable, Row, Tone
from scalescope.store.store import SweepRun
from scalescope.studies.report import common, headline
from scalescope.studies.report.pictures import Chart, Picture
from scalescope.studies.report.sheet import Note, Sheet, number, share
from scalescope.studies.symptom import quantity
from scalescope.studies.threshold.question import ThresholdQuestion

if TYPE_CHECKING:
    from scalescope.report.html.charts import Canvas

# Most values in the table: those near jumps and an even choice of the others.
MOST_ROWS = 80
BESIDE = 2
MOST_NAMED = 12


@dataclass(frozen=True)
class TriedValue:
    """A value of the axis that was tried; `y` is the median of the metric, or None without a valid trial."""

    x: float
    y: float | None
    trials: int


def spots(study: Study, runs: Sequence[SweepRun]) -> tuple[TriedValue, ...]:
    """The tried values in the order of the axis, so far if the search is unfinished."""
    question = ThresholdQuestion.from_mapping(study.question)
    metric = quantity(question.metric)
    found: dict[float, list[float | None]] = {}
    for trial in (trial for run in runs for trial in run.trials if not trial.warmup):
        value = _place(question, trial.point)
        if value is not None:
            found.setdefault(value, []).append(metric.of(trial))
    return tuple(_spot(value, metrics) for value, metrics in sorted(found.items()))


def sheet(study: Study, runs: Sequence[SweepRun]) -> Sheet:
    question, result = ThresholdQuestion.from_mapping(study.question), study.result
    measured = spots(study, runs)
    asked = [
        ("Metric", f"{question.metric}; jumps of {share(question.min_jump)} or more are named"),
        ("Axis", f"{question.axis} from {number(question.low)} to {number(question.high)} by {number(question.step)}"),
        *common.asked(study, runs),
        ("Limits", pairs({"max_points": question.max_points, "max_repeats": question.max_repeats})),
    ]
    return Sheet(
        table=_table(question, measured, study.result.get("jumps", ())) if measured else None,
        notes=tuple(_notes(question, result, measured)),
        asked=tuple(asked),
        sure=(*_sure(question, result), *common.trials(runs)),
    )


def picture(study: Study, runs: Sequence[SweepRun], canvas: Canvas) -> Picture:
    from scalescope.report.html import charts

    measured = [(spot.x, spot.y) for spot in spots(study, runs) if spot.y is not None]
    if not measured:
        return Picture()
    question = ThresholdQuestion.from_mapping(study.question)
    found = [(jump["left"], jump["right"]) for jump in study.result.get("jumps", ())]
    doubts = [(part["low"], part["high"]) for part in study.result.get("unresolved", ())]
    charts.threshold(canvas, "curve", measured, found, doubts, (question.axis, question.metric))
    legend = [("busy", "measured")]
    legend += [("fit", "a jump, between its two values")] if found else []
    legend += [("not_assigned", "not resolved")] if doubts else []
    return Picture(Chart("curve", f"{question.metric} against {question.axis}", headline(study), tuple(legend)))


def _place(question: ThresholdQuestion, point: Point) -> float | None:
    if question.axis == ITEMS_PER_WORKER:
        value: Any = None if point.items is None else point.items / point.workers
    else:
        value = point.values.get(question.axis)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return question.value(round((value - question.low) / question.step))


def _spot(value: float, metrics: Sequence[float | None]) -> TriedValue:
    valid = [metric for metric in metrics if metric is not None]
    return TriedValue(value, statistics.median(valid) if valid else None, len(metrics))


# ------------------------------------------------------------------ the table


def _table(
    question: ThresholdQuestion, measured: Sequence[TriedValue], found: Sequence[Mapping[str, Any]]
) -> ReportTable:
    ends = {jump["right"]: jump for jump in found}
    kept = _kept(measured, {end for jump in found for end in (jump["left"], jump["right"])})
    repeated = any(spot.trials > 1 for spot in measured)
    rows = []
    for spot in kept:
        jump = ends.get(spot.x)
        cells = (number(spot.x), number(spot.y), *((f"{spot.trials:,}",) if repeated else ()))
        tone = Tone.DOUBT if spot.y is None else Tone.BAD if jump else Tone.PLAIN
        rows.append(Row((*cells, _mark(jump) if jump else "no valid trial" if spot.y is None else ""), tone))
    left_out = len(measured) - len(kept)
    caption = "The values measured, in their order" + (f"; values left out: {left_out}" if left_out else "")
    heads = (question.axis, question.metric, *(("trials",) if repeated else ()), "")
    return ReportTable(caption, heads, tuple(rows), frozenset(range(len(heads) - 1)))


def _kept(measured: Sequence[TriedValue], ends: set[float]) -> list[TriedValue]:
    if len(measured) <= MOST_ROWS:
        return list(measured)
    places = [i for i, spot in enumerate(measured) if spot.x in ends]
    near = {j for i in places for j in range(i - BESIDE, i + BESIDE + 1)}
    every = -(-len(measured) // (MOST_ROWS // 2))
    return [spot for i, spot in enumerate(measured) if i in near or i % every == 0 or i == len(measured) - 1]


def _mark(jump: Mapping[str, Any]) -> str:
    ratio = jump["ratio"]
    times = f", × {to_digits(ratio)}" if ratio is not None else ""
    sign = "▲" if jump["after"] > jump["before"] else "▼"
    place = f"between {number(jump['left'])} and {number(jump['right'])}"
    text = f"{sign} {number(jump['before'])} → {number(jump['after'])}{times}, {place}"
    return text if jump["exact"] else f"{text}; not exact: {jump['why_not_exact']}"


# ------------------------------------------------------------------ how sure


def _notes(question: ThresholdQuestion, result: Mapping[str, Any], measured: Sequence[TriedValue]) -> list[Note]:
    points, tried = len(measured), sum(spot.trials for spot in measured)
    notes = [Note(f"{points:,} of {plural(question.last + 1, 'point')} measured in {plural(tried, 'trial')}.")]
    for part in result.get("unresolved", ()):
        place = f"{question.axis} {number(part['low'])} to {number(part['high'])}"
        notes.append(Note(f"Not resolved: {place}: {part['reason']}.", Tone.DOUBT))
    if result.get("unmeasurable"):
        places = list(map(number, result["unmeasurable"]))
        more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
        notes.append(Note(f"No valid trial at {question.axis} {', '.join(places[:MOST_NAMED])}{more}.", Tone.DOUBT))
    return notes


def _sure(question: ThresholdQuestion, result: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not result:
        return []
    noise = (
        f"Trials may differ; each statement holds with {share(question.confidence)} confidence."
        if question.noisy
        else "Two trials of a value are equal, so one is enough."
    )
    wide = number(result["widest"] * question.step)
    return [
        ("Shape", str(result["shape"])),
        ("Exact jumps", f"{sum(bool(jump['exact']) for jump in result['jumps'])} of {len(result['jumps'])}"),
        ("Noise", noise),
        ("Smallest jump", f"a jump of {share(result['smallest'])} or more between two values would have been seen"),
        ("May be missed", f"a regime narrower than {wide} {question.axis}" if result["widest"] > 1 else ""),
    ]
