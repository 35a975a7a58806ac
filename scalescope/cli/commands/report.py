"""`scalescope report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scalescope.cli import main as cli
from scalescope.errors import UsageError


@cli.app.command(epilog=cli.STATUSES)
def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN | STUDY]",
            help="A run: its id, the beginning of it, or latest. Or a study: likewise; threshold, release or "
            "comparison is the newest of these.",
        ),
    ] = "latest",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.")] = Path(
        "report.html"
    ),
    trial: Annotated[
        str, typer.Option(metavar="KEY", help="Of a run: look into this trial, not the worst.", show_default=False)
    ] = "",
    store: cli.StoreOption = "",
) -> None:
    """Write what a sweep or study found as one HTML file, with charts, that can be read offline and sent to anyone."""
    from scalescope.report import html
    from scalescope.store.studies import is_study
    from scalescope.studies.report.html import write_study

    cli._check_report(output)
    if trial and is_study(run):
        raise UsageError(
            f"--trial looks into a trial of a run, and {run} is a study",
            next_step="Give one of its runs, or no --trial.",
        )
    with cli._open_store(store) as opened:
        if is_study(run):
            study = opened.studies.get(run)
            write_study(output, study, [opened.run(each) for each in study.runs])
        else:
            found = opened.run(run)
            html.write(output, found, opened.tables, trial=trial, followed_by=opened.studies.following(found.id))
    print(output)
