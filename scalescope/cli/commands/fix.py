"""`scalescope fix`."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from scalescope.cli.commands.run import script_python
from scalescope.cli.options import Json, OtherPython, python_of, seconds_of
from scalescope.cli.output import print_json, say, stdout
from scalescope.errors import ExitStatus
from scalescope.own_code.script import Program, last_program

if TYPE_CHECKING:
    from scalescope.fixing.running import Fix

LATEST = "latest"
OWN_OPTIONS = ("--apply", "--budget", "--allow-side-effects", "--yes", "--environment", "--json", "--debug")


def fix(
    script: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT.py",
            help="The script; `latest`: what `scalescope run` ran last, with its arguments.",
        ),
    ] = LATEST,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Arguments of the script.", show_default=False)
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Write proven patches to your files. Patches proven earlier are written at once if nothing changed.",
        ),
    ] = False,
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Time for the runs of one patch, as 10m (default: five times the script's own time)."
        ),
    ] = "",
    side_effects: Annotated[
        bool,
        typer.Option(
            "--allow-side-effects",
            help="Run the script several times even if it writes outside its folder or connects to other machines.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the script is run several times.")] = False,
    environment: OtherPython = "",
    as_json: Json = False,
) -> None:
    """Patch a script if a finding has a remedy in code, and prove that the script is then faster and does the same.

    The script runs in copies of its folder: once to record it, then with and without each patch in turn. A patch that
    is not proven is withdrawn. Your files are not written without --apply; the patch is saved next to the script.
    Options stand before the script; words after the script are its arguments.
    """
    from scalescope.fixing import applying, running

    for name in OWN_OPTIONS:
        if name in (arguments or ()):
            say(f"{name} is passed to {os.path.basename(script)}. Scalescope's options go before the script.", "yellow")
    program = last_program() if script == LATEST else Program(script, arguments or ())
    if script != LATEST or environment:
        program = Program(
            program.script,
            program.arguments,
            program.is_module,
            python_of(environment) or script_python(),
            program.folder,
        )
    where = running.place_of(program)
    if apply and (files := applying.apply_kept(where, program)) is not None:
        _tell_applied([str(each) for each in files], as_json=as_json)
        return
    found = running.fix(
        program,
        budget_s=seconds_of("--budget", budget) or None,
        side_effects=side_effects,
        says=lambda text: say(text),
        agrees=lambda: yes or not sys.stdin.isatty() or typer.confirm("Run it?", err=True),
    )
    applied: list[str] = []
    patch = ""
    if found.proven and apply:
        applied = [str(each) for each in applying.apply(found)]
    elif found.proven:
        applying.keep(found, program)
        patch = str(applying.write_patch(found))
    if as_json:
        print_json({**found.to_json(), "patch_file": patch, "applied": applied})
    else:
        _tell(found, program, patch, applied)
    raise typer.Exit(ExitStatus.OK if found.proven else ExitStatus.FINDING)


def _tell(found: Fix, program: Program, patch: str, applied: list[str]) -> None:
    from rich.text import Text

    from scalescope.fixing import running

    console = stdout()
    for line in found.lines():
        for each in line.splitlines():
            style = "green" if each.startswith("+") else "red" if each.startswith("-") else ""
            console.print(Text(each, style=style), soft_wrap=True)
    console.print(Text(running.told(found), style="bold green" if found.proven else ""))
    if applied:
        _tell_applied(applied, as_json=False)
    elif patch:
        command = shlex.join(["scalescope", "fix", "--apply", program.script, *program.arguments])
        console.print(Text(f"Apply it: {command} (or: patch -p1 < {shlex.quote(os.path.relpath(patch))})"))


def _tell_applied(files: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"applied": files})
        return
    for each in files:
        stdout().print(f"Patched {os.path.relpath(each)}", markup=False)
