"""Puts the report of a study together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scalescope.model.study import Study, StudyKind
from scalescope.report import links
from scalescope.report.html import build
from scalescope.report.html.embed import safe_link
from scalescope.report.html.page import moment
from scalescope.report.table import Tone
from scalescope.store.store import SweepRun
from scalescope.studies import STUDIES
from scalescope.studies.comparison import report as comparison
from scalescope.studies.comparison.judge import Comparison, Decision
from scalescope.studies.release import report as release
from scalescope.studies.report import common, headline, pictures, sheet
from scalescope.studies.threshold import report as threshold

if TYPE_CHECKING:
    from scalescope.report.html.charts import Canvas


@dataclass(frozen=True)
class Chart:
    """A chart that the page's script draws; `text` is for those who do not see it, `legend` is colours and meanings."""

    name: str
    title: str
    text: str
    legend: tuple[tuple[str, str], ...]


def render_study(study: Study, runs: Sequence[SweepRun]) -> str:
    """The report of a study as one HTML file that needs nothing else.

    Args:
        study: As the store has it; one without an answer too.
        runs: Its runs, with their trials.

    Raises:
        UsageError: Bokeh is not installed.
    """
    build.check_packages()
    from scalescope.report.html import charts

    canvas = charts.Canvas()
    shown = sheet(study, runs)
    is_comparison = study.kind is StudyKind.COMPARISON
    members = comparison.members(study) if is_comparison else ()
    level, word = _level(study)
    return build.fill(
        "study.html.j2",
        canvas,
        study=study,
        line=headline(study),
        level=level,
        word=word,
        title=STUDIES[study.kind].title,
        workload=common.workload(study),
        sheet=shown,
        notes=[note for note in shown.notes if note.tone is not Tone.FAINT],  # of what is left out elsewhere
        changelog=safe_link(shown.changelog),
        chart=_chart(study, runs, members, canvas),
        strip=release.candidates(study, runs) if study.kind is StudyKind.RELEASE else (),
        forest=pictures.forest(members) if members else None,
        runs=[_run(run) for run in runs],
        links=[link for link in links.of_study(study) if link.what != "Run"][: links.MOST_LINKS],
        when=_when(study),
    )


def write_study(path: Path, study: Study, runs: Sequence[SweepRun]) -> Path:
    """Write the report of a study; a reader of the file sees the old one or the whole new one.

    Args:
        path: Of the file; its folder must exist.
        study: As `render_study`.
        runs: As `render_study`.

    Raises:
        UsageError: As `render_study`.
        StoreError: The file cannot be written.
    """
    return build.save(path, lambda: render_study(study, runs))


def _level(study: Study) -> tuple[str, str]:
    """Class of the style sheet, and the same in a word."""
    kind = STUDIES[study.kind]
    if not study.finished_at:
        return "medium", "Not finished"
    if study.alarm:
        return kind.level, kind.not_found
    decisions = [each.decision for each in comparison.members(study)] if study.kind is StudyKind.COMPARISON else []
    if decisions and set(decisions) == {Decision.UNDECIDED}:
        return "medium", "Undecided"
    return ("good" if decisions else "info"), kind.found


def _chart(study: Study, runs: Sequence[SweepRun], members: Sequence[Comparison], canvas: Canvas) -> Chart | None:
    """The curve of a search for thresholds, or the pairs of a single comparison."""
    from scalescope.report.html import charts

    if study.kind is StudyKind.THRESHOLD:
        spots = [(spot.x, spot.y) for spot in threshold.spots(study, runs) if spot.y is not None]
        if not spots:
            return None
        searched = threshold.question_of(study)
        jumps = [(jump["left"], jump["right"]) for jump in threshold.jumps(study)]
        doubts = [(part["low"], part["high"]) for part in study.result.get("unresolved", ())]
        charts.threshold(canvas, "curve", spots, jumps, doubts, (searched.axis, searched.metric))
        legend = [("busy", "measured")]
        legend += [("fit", "a jump, between its two values")] if jumps else []
        legend += [("not_assigned", "not resolved")] if doubts else []
        return Chart("curve", f"{searched.metric} against {searched.axis}", headline(study), tuple(legend))
    if len(members) == 1 and members[0].measured:
        metric = study.question["metric"]
        charts.pairs(canvas, "pairs", members[0].measured, metric)
        title = f"{metric} of the pairs, in the order in which they ran"
        return Chart(
            "pairs", title, headline(study), (("transfer", members[0].question.a), ("fit", members[0].question.b))
        )
    return None


def _run(run: SweepRun) -> tuple[links.Link, str]:
    """A run of the study, and what it is in a few words."""
    counted = sum(trial.counts for trial in run.trials)
    return links.Link(
        "Run", run.id
    ), f"{run.sweep.workload}, {counted:,} of {run.planned:,} trials count, {run.state.value}"


def _when(study: Study) -> str:
    begin, end = moment(study.created_at), moment(study.finished_at)
    return f"{begin.removesuffix(' UTC')} to {end}" if end else f"{begin}, not finished"
