"""The exit statuses in the help of commands."""

from __future__ import annotations

from pathlib import Path

from scalescope.cli.output import exit_statuses
from scalescope.errors import ExitStatus

DOCS = Path(__file__).parents[3] / "docs"


def test_the_help_of_a_command_without_findings_calls_exit_status_0_done():
    assert exit_statuses().startswith("Exit status: 0 done")
    assert exit_statuses(ExitStatus.FINDING).startswith("Exit status: 0 no critical")
