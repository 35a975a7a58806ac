"""A study on a terminal: the answer, what was measured, and what is doubtful."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from scalescope.model.study import Study
from scalescope.store.store import SweepRun
from scalescope.studies.report import headline, sheet
from scalescope.studies.report.sheet import Table, Tone

STYLES = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.BAD: "red", Tone.DOUBT: "yellow", Tone.FAINT: "dim"}


def render(study: Study, runs: Sequence[SweepRun]) -> Group:
    """All that is shown of a study.

    Args:
        study: As the store has it.
        runs: Its runs, with their trials.
    """
    shown = sheet(study, runs)
    style = "bold yellow" if not study.finished_at else "bold red" if study.alarm else "bold"
    blocks: list[RenderableType] = [Text(headline(study), style=style), Text()]
    if shown.table is not None:
        blocks += [_table(shown.table), Text()]
    blocks += [Text(note.text, style=STYLES[note.tone]) for note in shown.notes]
    if shown.changelog:
        blocks.append(Text(f"Changelog: {shown.changelog}"))
    return Group(*blocks)


def _table(table: Table) -> RichTable:
    """The last column wraps where the terminal is narrow, and the first folds."""
    made = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    last = len(table.heads) - 1
    for i, head in enumerate(table.heads):
        made.add_column(
            Text(head),
            justify="right" if i in table.numbers else "left",
            overflow="fold",
            no_wrap=0 < i < last,
            min_width=len(head) if i in (0, last) else None,
        )
    for row in table.rows:
        made.add_row(*map(Text, row.cells), style=STYLES[row.tone])
    return made
