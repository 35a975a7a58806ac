"""`scalescope trace`."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from scalescope.cli.carrying import read_store
from scalescope.cli.options import Json, StoreAddress
from scalescope.cli.output import print_json, say


def trace(
    store: StoreAddress = "",
    run: Annotated[str, typer.Argument(help="Run: an id, the start of an id, or `latest`.")] = "latest",
    point: Annotated[
        str,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Point, as workers=200,items=199, or the start of its id (default: the worst point).",
            show_default=False,
        ),
    ] = "",
    trial: Annotated[
        str, typer.Option(metavar="KEY", help="Trial: its key, or the start of its key.", show_default=False)
    ] = "",
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write (default: trace-RUN-POINT-REPEAT.json.gz in this folder).",
            show_default=False,
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Write one trial as a trace for https://ui.perfetto.dev: every task on its worker thread."""
    from scalescope.analysis.summary import label
    from scalescope.report import trace as traces

    with read_store(store) as opened:
        found = opened.run(run)
        chosen = traces.choose(found.trials, found.verdict, point=point, trial=trial)
        name = re.sub(r"\W+", "-", f"{found.id} {label(chosen.point)} {chosen.repeat + 1}")
        path = output or f"trace-{name}.json.gz"
        title = f"{found.sweep.workload}, {label(chosen.point)}, run {found.id}, trial {chosen.key}"
        count = traces.write(opened.tables(chosen, "tasks", "workers"), path, title=title)
    if as_json:
        print_json({"run": found.id, "trial": chosen.key, "file": path, "events": count})
    else:
        print(f"{path}: {title}; {count:,} events")
        say("Open it at https://ui.perfetto.dev (it stays on your machine) or in chrome://tracing.", "dim")
