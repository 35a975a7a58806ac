"""`scalescope report`."""

from __future__ import annotations

from typing import Annotated

import typer

from scalescope.cli.carrying import read_store
from scalescope.cli.options import RunOrStudy, StoreAddress, option
from scalescope.errors import UsageError
from scalescope.store.studies import is_study


def report(
    store: StoreAddress = "",
    run: RunOrStudy = "latest",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="File to write: a path, or s3://BUCKET/FILE.")
    ] = "report.html",
    trial: Annotated[
        str,
        option(
            metavar="KEY",
            help="Trial of the run to show in detail (default: a trial of the worst point).",
        ),
    ] = "",
) -> None:
    """Write the report of a run or study as one HTML file with charts, which can be read offline."""
    from scalescope.report import html
    from scalescope.studies.report.html import write_study

    html.check(output)
    if trial and is_study(run):
        next_step = "Give one of the study's runs, or leave out --trial."
        raise UsageError(f"--trial needs a run, but {run} is a study", next_step=next_step)
    with read_store(store) as opened:
        if is_study(run):
            study = opened.studies.get(run)
            write_study(output, study, [opened.run(each) for each in study.runs])
        else:
            found = opened.run(run)
            html.write(output, found, opened.tables, trial=trial, followed_by=opened.studies.following(found.id))
    print(output)
