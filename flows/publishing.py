"""The result of a sweep in Prefect's own pages: a Markdown and a table artifact."""

from __future__ import annotations

import socket
from pathlib import Path

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from scalescope.model.finding import Verdict
from scalescope.report.export import to_markdown, to_rows
from scalescope.report.rows import markdown_text
from scalescope.store.store import SweepRun


def publish(run: SweepRun, verdict: Verdict, report: str = "") -> None:
    """Create the artifacts of a run; those of later runs of the same sweep become their newer versions.

    Args:
        run: As the store has it.
        verdict: Of the run.
        report: File of the HTML report on this machine, if one was written.
    """
    key = f"scalescope-{run.sweep.id}"
    text = to_markdown(run.sweep, run.trials, verdict)
    if report:
        where = markdown_text(f"{Path(report).absolute()} on {socket.gethostname()}")
        text += f"\n**Report** with charts and evidence: {where}. Any machine with the store can write it again: " + (
            f"`scalescope report {run.id}`.\n"
        )
    create_markdown_artifact(text, key=key, description=verdict.line)
    create_table_artifact(to_rows(run.sweep, run.trials, verdict), key=f"{key}-table", description=verdict.line)
