"""The report of a study on a terminal: the answer, the measurements, and doubts about them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from scalescope.model.study import Study
from scalescope.report.table import STYLES, to_terminal
from scalescope.store.store import SweepRun
from scalescope.studies.report import headline, sheet


def render(study: Study, runs: Sequence[SweepRun]) -> Group:
    shown = sheet(study, runs)
    style = "bold yellow" if not study.finished_at else "bold red" if study.alarm else "bold"
    blocks: list[RenderableType] = [Text(headline(study), style=style), Text()]
    if shown.table is not None:
        blocks += [to_terminal(shown.table), Text()]
    blocks += [Text(note.text, style=STYLES[note.tone]) for note in shown.notes]
    if shown.changelog:
        blocks.append(Text(f"Changelog: {shown.changelog}"))
    return Group(*blocks)
