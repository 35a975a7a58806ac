"""Control sequences and markup in names of tasks, lines of logs and errors."""

from __future__ import annotations

import io

import pytest
from rich.table import Table as Grid
from rich.text import Text

from scalescope.errors import ClusterError
from scalescope.model.finding import Finding, Severity, Verdict
from scalescope.model.sweep import Point
from scalescope.model.trial import Trial, TrialState
from scalescope.report.screen import Screen
from scalescope.report.table import html_text, markdown_text

EVIL = "sum\x1b]0;owned\x07\x1b[2J\x9b2J\x7f\r<b>\u202e|x|"
COMMANDS = set("\x1b\x07\x9b\x7f\r\u202e")


@pytest.mark.parametrize("shown", [EVIL, Text(EVIL), Text.assemble(("error: ", "bold red"), EVIL)], ids=type)
@pytest.mark.parametrize("inside", [False, True])
def test_control_sequences_in_names_do_not_reach_the_terminal(shown: str | Text, inside: bool) -> None:
    def written(text: str | Text) -> str:
        screen = Screen(file=io.StringIO(), force_terminal=True, color_system="standard", width=200, highlight=False)
        if inside:
            table = Grid(EVIL, title=EVIL)
            table.add_row(text)
            screen.print(table)
        else:
            screen.print(text)
        assert isinstance(screen.file, io.StringIO)
        return screen.file.getvalue()

    ours = Screen(file=io.StringIO(), force_terminal=True, color_system="standard")
    ours.print(Text("healthy", style="bold red"))
    assert isinstance(ours.file, io.StringIO)
    assert ours.file.getvalue() == "\x1b[1;31mhealthy\x1b[0m\n"
    found = written(shown)
    assert "sum" in found
    assert "\x1b]" not in found
    assert "\x1b[2J" not in found
    assert not (COMMANDS - {"\x1b"}) & set(found)


def test_control_characters_and_markup_are_escaped_in_findings_and_errors() -> None:
    finding = Finding("task-failures", Severity.HIGH, f"tasks {EVIL} fail", f"mend {EVIL}")
    trial = Trial("k", Point(1), 0, False, TrialState.INVALID, f"raised {EVIL}")
    error = ClusterError(EVIL, where=EVIL, cause=EVIL, next_step=EVIL)
    texts = [finding.summary, finding.fix, Verdict.of([finding]).line, trial.reason, str(error), error.line]
    for text in texts:
        assert "sum" in text
        assert not COMMANDS & set(text)
    for escaped in (markdown_text(EVIL), html_text(EVIL)):
        assert "sum" in escaped
        assert "<" not in escaped
        assert not COMMANDS & set(escaped)
    assert "\\|x\\|" in markdown_text(EVIL)
