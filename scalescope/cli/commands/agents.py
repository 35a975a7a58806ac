"""`scalescope skill` and `scalescope mcp`: for coding agents."""

from __future__ import annotations

from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from scalescope.cli.options import option
from scalescope.errors import UsageError
from scalescope.model.extras import install_command

FOLDER, FILE = "scalescope", "SKILL.md"


def skill(
    install: Annotated[
        str,
        option(
            metavar="DIR",
            help="Write the skill to DIR/scalescope/SKILL.md. DIR: the folder where your agent looks for skills.",
        ),
    ] = "",
) -> None:
    """Print what a coding agent needs to know: when to use which command, and how to prove a change."""
    text = resources.files("scalescope.cli").joinpath(FILE).read_text(encoding="utf-8")
    if not install:
        print(text, end="")
        return
    target = Path(install).expanduser() / FOLDER / FILE
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError("the skill file cannot be written", where=str(target), cause=str(error)) from error
    print(target)


def mcp() -> None:
    """Serve tools for coding agents on standard input and output (Model Context Protocol).

    Tools: diagnose_script, explain_finding, compare_runs, check_script, predict_sizes, size_cluster, watch_cluster,
    fix_script. The agent's program starts this command; nothing listens on the network.
    """
    if find_spec("mcp") is None:
        raise UsageError("the package mcp is not installed", next_step=install_command("mcp"))
    from scalescope.cli.agent_tools import server

    server.run()
