"""Results in Prefect's own pages: a Markdown and a table artifact for each run and each study."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from pathlib import Path

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from scalescope.model.finding import Verdict
from scalescope.model.study import Study
from scalescope.model.sweep import Sweep, digest
from scalescope.report import export, links
from scalescope.report.table import markdown_text
from scalescope.store.store import SweepRun
from scalescope.studies.report import export as studies
from scalescope.studies.report import headline


def publish(run: SweepRun, verdict: Verdict, report: str = "") -> None:
    """Create the artifacts of a run; those of later runs of the same sweep become their newer versions.

    Args:
        run: As the store has it.
        verdict: Of the run.
        report: File of the HTML report on this machine, if one was written.
    """
    text = export.to_markdown(run.sweep, run.trials, verdict) + _report(report, run.id)
    if part := studies.linked(links.of_run(run)):
        text += f"\n{part}\n"
    rows = export.to_rows(run.sweep, run.trials, verdict)
    _create(f"scalescope-{run.sweep.id}", text, rows, verdict.line)


def publish_study(study: Study, runs: Sequence[SweepRun], report: str = "") -> None:
    """Create the artifacts of a study; those of later studies of the same question become their newer versions.

    Args:
        study: As the store has it.
        runs: Its runs, with their trials.
        report: File of the HTML report on this machine, if one was written.
    """
    text = studies.to_markdown(study, runs) + _report(report, study.id)
    key = f"scalescope-{study.kind}-{digest(study.question)}"
    _create(key, text, studies.to_rows(study, runs), headline(study))


def publish_job_script(sweep: Sweep, kind: str, script: str) -> None:
    """Show what will be submitted, before it is.

    Args:
        sweep: For which the cluster is.
        kind: Of the cluster.
        script: The job script of its workers.
    """
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", script)), default=0))
    text = f"{fence}bash\n{script}\n{fence}\n"
    line = f"The job script of the workers, before any is submitted on the {kind} cluster"
    create_markdown_artifact(text, key=f"scalescope-{sweep.id}-job-script", description=line)


def _create(key: str, text: str, rows: list[dict[str, str]], line: str) -> None:
    create_markdown_artifact(text, key=key, description=line)
    create_table_artifact(rows, key=f"{key}-table", description=line)


def _report(path: str, reference: str) -> str:
    """Where the HTML report is, and how it is written again; nothing where there is none."""
    if not path:
        return ""
    where = markdown_text(f"{Path(path).absolute()} on {socket.gethostname()}")
    again = f"`scalescope report {reference}`"
    return f"\n**Report** with charts and evidence: {where}. Any machine with the store can write it again: {again}.\n"
