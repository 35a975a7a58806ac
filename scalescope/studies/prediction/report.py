"""Report of a prediction: times with intervals, what limits each size, and how far to trust the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scalescope.diagnosis import causes
from scalescope.model.study import Study
from scalescope.model.words import MISSING, pairs, percent, plural, seconds
from scalescope.report.table import ReportTable, Row, Tone
from scalescope.store.store import SweepRun
from scalescope.studies.prediction.judge import PredictedSize, Prediction
from scalescope.studies.prediction.parameters import ASKED
from scalescope.studies.report import common, headline
from scalescope.studies.report.pictures import Chart, Picture
from scalescope.studies.report.sheet import Note, Sheet, number

if TYPE_CHECKING:
    from scalescope.report.html.charts import Canvas

HELPS = 0.9  # a remedy is shown if it shortens the predicted time to less than this share
HEADS = ("workers", "predicted s", "80 % interval", "measured s", "efficiency", "what holds it back")


def sheet(study: Study, runs: Sequence[SweepRun]) -> Sheet:
    found = _found(study)
    asked = [*common.asked(study, runs[:1]), ("Asked for", pairs(_asked(study)))]
    if found is None:
        return Sheet(None, asked=tuple(asked), sure=tuple(common.trials(runs)))
    return Sheet(_table(found), tuple(_notes(found)), tuple(asked), (*_sure(found), *common.trials(runs)))


def picture(study: Study, runs: Sequence[SweepRun], canvas: Canvas) -> Picture:
    from scalescope.report.html import charts

    found = _found(study)
    if found is None or len(found.sizes) < 2:
        return Picture()
    band = [(size.workers, size.low_s, size.predicted_s, size.high_s) for size in found.sizes]
    measured = [(size.workers, size.measured_s) for size in found.sizes if size.measured_s is not None]
    charts.prediction(canvas, "curve", band, measured)
    legend = (("busy", "measured"), ("fit", "predicted, with its 80 % interval"))
    return Picture(Chart("curve", "Seconds against workers", headline(study), legend))


def _found(study: Study) -> Prediction | None:
    return Prediction.from_mapping(study.result) if study.result else None


def _asked(study: Study) -> dict[str, object]:
    return {name: study.question[name] for name in (*ASKED, "params") if study.question.get(name)}


def _table(found: Prediction) -> ReportTable:
    priced = any(size.money is not None for size in found.sizes)
    heads = (*HEADS, *(("cost",) if priced else ()))
    rows = [Row(_cells(size, priced), Tone.PLAIN if size.measured_s is None else Tone.FAINT) for size in found.sizes]
    for workers, why in found.missing.items():
        cells = (f"{int(workers):,}", *[MISSING] * 4, f"not predicted: {why}", *([MISSING] if priced else ()))
        rows.append(Row(cells, Tone.DOUBT))
    return ReportTable("Predicted from what was measured", heads, tuple(rows), frozenset({0, 1, 2, 3, 4, 6}))


def _cells(size: PredictedSize, priced: bool) -> tuple[str, ...]:
    return (
        f"{size.workers:,}",
        seconds(size.predicted_s),
        f"{seconds(size.low_s)} to {seconds(size.high_s)}",
        MISSING if size.measured_s is None else seconds(size.measured_s),
        percent(size.efficiency),
        "; ".join([size.limit_text or "nothing", *(causes.by_code()[code].title for code in size.also)]),
        *((MISSING if size.money is None else f"{size.money:,.2f}",) if priced else ()),
    )


def _notes(found: Prediction) -> list[Note]:
    notes = []
    trust = found.trust
    if found.unchecked:
        notes.append(Note(f"How far to trust the prediction is not known: {found.unchecked}", Tone.DOUBT))
    elif trust is None:
        notes.append(Note("One measured size does not tell how far to trust this. Measure a second one.", Tone.DOUBT))
    else:
        text = (
            f"How far to trust this: {plural(trust.workers, 'worker')} predicted from {trust.largest_used:,} gave "
            f"{seconds(trust.predicted_s)} s, and {seconds(trust.measured_s)} s were measured "
            f"({percent(abs(trust.error))} off)."
        )
        notes.append(Note(text, Tone.DOUBT if found.doubts else Tone.PLAIN))
    for size in found.sizes:
        if size.workers == max(found.asked) and (size.remedied_s or size.predicted_s) < HELPS * size.predicted_s:
            effect = f"predicted {seconds(size.remedied_s or 0.0)} s instead of {seconds(size.predicted_s)} s"
            notes.append(Note(f"What would help {plural(size.workers, 'worker')}: {size.remedy} ({effect})."))
    if found.assumed:
        notes.append(Note(f"Uncertain, since the trial did not show it: {' and '.join(found.assumed)}.", Tone.DOUBT))
    return notes


def _sure(found: Prediction) -> list[tuple[str, str]]:
    costs = {name: value for name, value in found.costs.items() if name not in ("kind", "durations", "task_cost")}
    return [
        ("Simulated with", pairs(costs)),
        (
            "Measured over simulated",
            f"{number(found.factor)} at the largest measured size; all simulated times are multiplied by it",
        ),
        ("Interval", "80 %, from the spread of repeats and the errors at measured sizes; wider with each doubling"),
        ("Left out", "limits of outside services, such as a database; and memory, unless results do not fit into it"),
    ]
