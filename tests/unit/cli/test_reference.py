"""`docs/cli-reference.md`, and the exit statuses in the help of commands."""

from __future__ import annotations

import runpy
from pathlib import Path

from scalescope.cli.output import epilog
from scalescope.errors import ExitStatus

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_up_to_date():
    page = runpy.run_path(str(DOCS / "generate_cli.py"))["page"]()
    assert all(f"| {status.value} | {status.help} |" in page for status in ExitStatus)
    assert "## scalescope environments prune" in page
    assert (DOCS / "cli-reference.md").read_text(encoding="utf-8") == page, "run `python docs/generate_cli.py`"


def test_a_command_that_judges_nothing_is_done():
    assert epilog().startswith("Exit status: 0 done; 2 ")
    assert epilog(ExitStatus.FINDING).startswith("Exit status: 0 no critical finding; 1 a critical finding; ")
