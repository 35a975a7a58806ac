"""Builds the HTML report of a study."""

from __future__ import annotations

from collections.abc import Sequence

from scalescope.model.study import Study
from scalescope.report import links
from scalescope.report.html import build
from scalescope.report.html.embed import safe_link
from scalescope.report.html.page import period
from scalescope.report.table import Tone
from scalescope.store.store import SweepRun
from scalescope.studies import STUDIES
from scalescope.studies.report import common, headline, sheet
from scalescope.studies.report.sheet import Sheet


def render_study(study: Study, runs: Sequence[SweepRun]) -> str:
    """The report of a study, finished or not, as one HTML file that needs nothing else."""
    from scalescope.report.html import charts

    canvas = charts.Canvas()
    shown = sheet(study, runs)
    picture = STUDIES[study.kind].picture(study, runs, canvas)
    level, word = _level(study, shown)
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
        notes=[note for note in shown.notes if note.tone is not Tone.FAINT],  # faint: on rows that only pages show
        changelog=safe_link(shown.changelog),
        chart=picture.chart,
        strip=picture.strip,
        forest=picture.forest,
        runs=[_run(run) for run in runs],
        links=[link for link in links.of_study(study) if link.what != "Run"][: links.MOST_LINKS],
        when=period(study.created_at, study.finished_at),
    )


def write_study(place: build.Target, study: Study, runs: Sequence[SweepRun]) -> build.Target:
    """Write the report to a path or an address; a reader sees the old file or the whole new one."""
    return build.save(place, lambda: render_study(study, runs))


def _level(study: Study, shown: Sheet) -> tuple[str, str]:
    kind = STUDIES[study.kind]
    if not study.finished_at:
        return "medium", "Not finished"
    if study.alarm:
        return kind.alarm
    return ("medium", "Undecided") if shown.undecided else kind.fine


def _run(run: SweepRun) -> tuple[links.RelatedLink, str]:
    counted = sum(trial.counts for trial in run.trials)
    text = f"{run.sweep.workload}, {counted:,} of {run.planned:,} trials count, {run.state.value}"
    return links.RelatedLink("Run", run.id), text
