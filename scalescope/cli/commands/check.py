"""`scalescope check`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from scalescope.cli.options import Brief, Json, OtherPython, argument, option, python_of, script_python
from scalescope.cli.output import print_brief, print_json, stdout
from scalescope.errors import InvalidField, UsageError


def check(
    target: Annotated[
        str,
        argument(
            metavar="SCRIPT.py | FILE.py:NAME",
            help="A script, or a collection in a file, or a function that returns a collection.",
        ),
    ] = "",
    arguments: Annotated[list[str] | None, argument(metavar="[ARGUMENT]...", help="Arguments of the script.")] = None,
    workers: Annotated[
        int,
        option(min=0, help="Workers of the cluster. Default: as the script asks, else the cores here."),
    ] = 0,
    threads: Annotated[
        int,
        option(min=0, help="Threads of each worker. Default: as the script asks, else 1."),
    ] = 0,
    memory: Annotated[str, option(metavar="SIZE", help="Memory of each worker, as 4GiB.")] = "",
    environment: OtherPython = "",
    brief: Brief = False,
    as_json: Json = False,
) -> None:
    """Say what a graph will cost before anything of it is computed: tasks, most workers, memory, better chunks.

    A script runs up to the first line that needs a value; clusters that it asks for are not started. Options stand
    before the script.
    """
    if not target:
        raise UsageError("there is nothing to check", next_step="`scalescope check SCRIPT.py`, or `check FILE.py:NAME`")
    shape = (workers, threads, _bytes(memory))
    from scalescope.checking.program import check_program

    python = python_of(environment) or script_python()
    found = check_program(target, arguments or (), python=python, shape=shape, stdout=2 if as_json or brief else None)
    if brief:
        print_brief(found.brief([f"scalescope run {target}"] if target.endswith(".py") else ()), as_json=as_json)
    elif as_json:
        print_json({**found.to_mapping(), "stands_out": [each.code for each in found.stands_out]})
    else:
        from scalescope.report.table import to_terminal

        screen = stdout()
        screen.print(Text(str(found)))
        screen.print(Text())
        screen.print(to_terminal(found.table()))
    raise typer.Exit(found.status)


def _bytes(text: str) -> float:
    from dask.utils import parse_bytes

    try:
        return float(parse_bytes(text)) if text else 0.0
    except ValueError as error:
        raise InvalidField("--memory", text, "a size such as 4GiB") from error
