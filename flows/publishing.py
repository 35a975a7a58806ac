"""The result of a sweep in Prefect's own pages: a Markdown and a table artifact."""

from __future__ import annotations

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from scalescope.model.finding import Verdict
from scalescope.report.export import to_markdown, to_rows
from scalescope.store.store import SweepRun


def publish(run: SweepRun, verdict: Verdict) -> None:
    """Create the artifacts of a run; those of later runs of the same sweep become their newer versions."""
    key = f"scalescope-{run.sweep.id}"
    create_markdown_artifact(to_markdown(run.sweep, run.trials, verdict), key=key, description=verdict.line)
    create_table_artifact(to_rows(run.sweep, run.trials, verdict), key=f"{key}-table", description=verdict.line)
