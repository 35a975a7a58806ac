"""Report of a night: its series, their changes, its alerts, and its failures."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import TYPE_CHECKING

from scalescope.model.environment import Environment
from scalescope.model.study import Study
from scalescope.model.words import MISSING, change, pairs
from scalescope.nightly import alerts, decisions
from scalescope.nightly.night_record import ChangeOutcome, Drift, Judged, Measured, NightRecord
from scalescope.nightly.series import SETTLED
from scalescope.nightly.whole_suite import is_suite
from scalescope.report.table import ReportTable, Row, Tone
from scalescope.store.store import SweepRun
from scalescope.studies.report import common
from scalescope.studies.report.pictures import Picture
from scalescope.studies.report.sheet import Note, Sheet, share

if TYPE_CHECKING:
    from scalescope.report.html.charts import Canvas

TONES = {
    ChangeOutcome.CONFIRMED: Tone.BAD,
    ChangeOutcome.SUITE: Tone.BAD,
    ChangeOutcome.FASTER: Tone.GOOD,
    ChangeOutcome.UNDECIDED: Tone.DOUBT,
    ChangeOutcome.UNTESTABLE: Tone.DOUBT,
}


def sheet(study: Study, runs: Sequence[SweepRun]) -> Sheet:
    record = NightRecord.from_mapping(study.result)
    return Sheet(
        table=_table(record) if record.measured else None,
        notes=tuple(_notes(record)),
        asked=tuple(_asked(study, record)),
        sure=(
            (
                "Changes",
                f"change points of series with {SETTLED} nights or more; in younger series, nights that differ from "
                f"the median of the earlier ones by more than {share(study.question['smallest_effect'])}",
            ),
            ("Confirmed", "by rerunning tonight's environment and the last good night's in pairs on this machine"),
            *([("Own record", record.track.words)] if record.track.nights else []),
            *common.trials(runs),
        ),
    )


def picture(study: Study, runs: Sequence[SweepRun], canvas: Canvas) -> Picture:
    """No charts: the pages of the history have them."""
    return Picture()


def _table(record: NightRecord) -> ReportTable:
    heads = ("workload", "size", "cluster", "tonight", "before", "change", "rerun")
    judged = {each.series.id: each for each in record.judged}
    rows = [_row(each, judged.get(each.series.id), record) for each in record.measured]
    return ReportTable("What was measured, a row per series", heads, tuple(rows), frozenset(range(3, 5)))


def _row(each: Measured, judged: Judged | None, record: NightRecord) -> Row:
    series = each.series
    cells = (series.name, series.size, str(series.cluster["kind"]), series.written(each.value))
    if judged is None:
        return Row((*cells, MISSING, MISSING, "muted" if decisions.is_muted(series, record) else MISSING), Tone.PLAIN)
    ratio = judged.after / judged.before if judged.before else float("inf")
    words = "from 0" if isinf(ratio) else change(ratio)
    outcome = judged.outcome
    return Row((*cells, series.written(judged.before), words, str(outcome)), TONES.get(outcome, Tone.PLAIN))


def _notes(record: NightRecord) -> list[Note]:
    notes = [Note(each.reason, TONES.get(each.outcome, Tone.PLAIN)) for each in record.judged if is_suite(each.series)]
    notes += [Note(f"Alert ({each.state}) {each.id}: {alerts.line(each)}", Tone.BAD) for each in record.regressions]
    notes += [Note(f"{each.series.words}: {_reason(each)}") for each in record.judged if not is_suite(each.series)]
    notes += [Note(f"Issue of alert {each.id}: {each.issue}") for each in record.regressions if each.issue]
    notes += [Note(f"To reproduce: {each.command}") for each in record.regressions]
    notes += [
        Note(f"Script that needs no Scalescope (scalescope alerts script {each.id} prints it): {each.shown}")
        for each in record.regressions
        if each.script
    ]
    notes += [Note(f"{each.series.words}: {_drift(each)}", Tone.DOUBT) for each in record.drifts]
    notes += [Note(each.line) for each in record.decisions]
    notes += [Note(f"Problem: {each}", Tone.DOUBT) for each in record.problems]
    return notes


def _reason(each: Judged) -> str:
    return f"{each.outcome} since {each.since}. {each.reason}" if each.since else each.reason


def _drift(each: Drift) -> str:
    low, high = (change(1 + end) for end in (each.low, each.high))
    before, after = map(each.series.written, (each.before, each.after))
    return (
        f"{each.series.metric} drifts: {before} → {after} over {each.nights} nights, without "
        f"a step ({change(each.after / each.before)}; from {low} to {high}). Drifts are reported, but not rerun."
    )


def _asked(study: Study, record: NightRecord) -> list[tuple[str, str]]:
    question = study.question
    environment = Environment.parse(str(question["environment"])).label
    found = [
        ("History", str(question["history"])),
        ("Workloads", ", ".join(question["workloads"]) or "the whole suite"),
        ("Sizes", pairs(question["axes"])),
        (
            "Environment",
            f"{environment}, {'pinned' if question['pinned'] else 'resolved'} to {len(record.lock.pins)} packages",
        ),
        ("Metric", str(question["metric"])),
        ("Budget", pairs(question["budget"])),
    ]
    return [(term, text) for term, text in found if text]
