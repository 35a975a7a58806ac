"""`scalescope trace`."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from scalescope.cli.carrying import read_store
from scalescope.cli.options import Json, StoreAddress, option
from scalescope.cli.output import print_json, say
from scalescope.model.fields import choice

ENDS = {"": "json.gz", "speedscope": "speedscope.json", "collapsed": "txt"}


def trace(
    store: StoreAddress = "",
    run: Annotated[str, typer.Argument(help="Run: an id, the start of an id, or `latest`.")] = "latest",
    point: Annotated[
        str,
        option(
            metavar="NAME=VALUE,...",
            help="Point, as workers=200,items=199, or the start of its id (default: the worst point).",
        ),
    ] = "",
    trial: Annotated[str, option(metavar="KEY", help="Trial: its key, or the start of its key.")] = "",
    output: Annotated[
        str,
        option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write (default: trace-RUN-POINT-REPEAT.json.gz in this folder; the ending shows the form).",
        ),
    ] = "",
    profile: Annotated[
        str,
        option(
            metavar="FORM",
            help="Instead of tasks over time, what busy threads did: `speedscope` (https://www.speedscope.app), or "
            "`collapsed` stacks for flame graphs.",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Write one trial as a trace for https://ui.perfetto.dev: every task on its worker thread."""
    from scalescope.analysis.summary import label
    from scalescope.report import profile_files
    from scalescope.report import trace as traces

    if profile:
        choice("--profile", profile, tuple(profile_files.FORMS))

    with read_store(store) as opened:
        found = opened.run(run)
        chosen = traces.choose(found.trials, found.verdict, point=point, trial=trial)
        name = re.sub(r"\W+", "-", f"{found.id} {label(chosen.point)} {chosen.repeat + 1}")
        path = output or f"trace-{name}.{ENDS[profile]}"
        title = f"{found.sweep.workload}, {label(chosen.point)}, run {found.id}, trial {chosen.key}"
        if profile:
            count = profile_files.write(opened.tables(chosen, "inside"), path, profile, title=title)
        else:
            tables = opened.tables(chosen, "tasks", "workers", if_present=("dependencies",))
            count = traces.write(tables, path, title=title)
    counted = "samples" if profile else "events"
    if as_json:
        print_json({"run": found.id, "trial": chosen.key, "file": path, counted: count})
    else:
        print(f"{path}: {title}; {count:,} {counted}")
    if not (profile or as_json):
        say("Open it at https://ui.perfetto.dev (it stays on your machine) or in chrome://tracing.", "dim")
