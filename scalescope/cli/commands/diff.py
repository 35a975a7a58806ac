"""`scalescope diff`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from scalescope.cli.carrying import read_store
from scalescope.cli.options import Brief, Json, StoreAddress, option
from scalescope.cli.output import print_brief, print_json, stdout
from scalescope.errors import UsageError
from scalescope.store.studies import is_study

RUN = "an id, the start of an id, `latest`, or `latest~1` for the one before."


def diff(
    store: StoreAddress = "",
    a: Annotated[str, typer.Argument(metavar="[RUN_A]", help=f"The run to compare B with: {RUN}")] = "latest~1",
    b: Annotated[str, typer.Argument(metavar="[RUN_B]", help=f"The run to explain: {RUN}")] = "latest",
    point: Annotated[
        str,
        option(
            metavar="NAME=VALUE,...",
            help="Point, as workers=200,items=199 (default: of the points of both runs, the one that differs most).",
        ),
    ] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for an issue.")] = False,
    brief: Brief = False,
    as_json: Json = False,
    output: Annotated[
        str,
        option(
            "--output",
            "-o",
            metavar="FILE",
            help="HTML page to write, too: a path, or s3://BUCKET/FILE.",
        ),
    ] = "",
) -> None:
    """Say why run B took longer than run A: the seconds by which it differs, in parts that add up to all of it."""
    from scalescope.report import html, run_difference
    from scalescope.report.html.difference import write_difference
    from scalescope.report.table import to_terminal

    if output:
        html.check(output)
    if studies := [each for each in (a, b) if is_study(each)]:
        next_step = f"`scalescope show {studies[0]}` lists its runs (for a comparison, also why one is slower)"
        raise UsageError(f"`diff` compares two runs, but {studies[0]} is a study", next_step=next_step)
    with read_store(store) as opened:
        found = run_difference.of_runs(opened.run(a), opened.run(b), point=point)
    if output:
        write_difference(output, found)
    if brief:
        from scalescope.report.brief import of_answer

        about = f"{a} and {b}"
        print_brief(of_answer(about, found.line, table=found.table(), notes=found.notes()), as_json=as_json)
    elif as_json:
        print_json(found.to_mapping())
    elif markdown:
        print(found.to_markdown(), end="")
    else:
        screen = stdout()
        screen.print(Text(found.line, style="bold"))
        screen.print(Text())
        screen.print(to_terminal(found.table()))
        screen.print(Text("\n" + "\n".join(found.notes()), style="dim"))
        if output:
            screen.print(Text(output))
