"""`scalescope run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated

import typer

from scalescope.cli.options import Json, OtherPython, Require, python_of
from scalescope.cli.output import print_json, say, say_error
from scalescope.errors import ExitStatus, StoreError

if TYPE_CHECKING:
    from scalescope.run.block_diagnosis import Diagnosis
    from scalescope.run.script import ScriptOutcome
    from scalescope.studies.requirement import RequirementAnswer


OWN_OPTIONS = ("--report", "--environment", "--require", "--no-save", "--json")  # scripts may have them, too


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT.py", help="The script.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Arguments of the script.", show_default=False)
    ] = None,
    report: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Write the report as one HTML file; for several clusters one each: FILE-2.html.",
            show_default=False,
        ),
    ] = "",
    environment: OtherPython = "",
    require: Require = None,
    no_save: Annotated[
        bool, typer.Option("--no-save", help="Do not keep the result; `scalescope show --list` has those kept.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run an unchanged script, and say what is wrong, and why, on the cluster of each Dask client that it makes.

    Options stand before the script; what follows it belongs to the script. The verdict goes to standard error; with
    --json, the script's output goes there, too.
    """
    from scalescope.report import html
    from scalescope.studies import requirement

    required = [requirement.requirement(text) for text in require or ()]
    if report:
        html.check(report)
    for name in OWN_OPTIONS:
        if name in (arguments or ()):
            say(f"{name} goes to {script.name}. Options of Scalescope stand before the script.", "yellow")
    with _to_standard_error() if as_json else nullcontext():
        done = _run(script, arguments or (), environment)
        sys.stdout.flush()
    answers = requirement.judge(required, [found.trial for found in done.found if found.is_over])
    runs = [] if no_save else _saved(done)
    if as_json:
        print_json(
            {
                "script": str(script),
                "status": done.status,
                "runs": runs,
                "clusters": [found.to_json() for found in done.found if found.is_over],
                "problems": done.problems,
                "requirements": [asdict(answer) for answer in answers],
            }
        )
    else:
        _tell(script, done, answers)
        if runs:
            say(f"\nKept: `scalescope show {runs[0]}`{' and the next' if len(runs) > 1 else ''}.", "dim")
    for number, found in enumerate(done.found, 1):
        if report and found.is_over:
            found.report(_numbered(report, number))
    raise typer.Exit(done.status or requirement.status(answers))


def _run(script: Path, arguments: Sequence[str], environment: str) -> ScriptOutcome[Diagnosis]:
    if python := python_of(environment):
        from scalescope.run.script_elsewhere import run_script_elsewhere

        return run_script_elsewhere(python, script, arguments)
    from scalescope.run.script import run_script

    return run_script(script, arguments, lambda: resolve_name("scalescope.run.block_diagnosis:Diagnosis")())


def _saved(done: ScriptOutcome[Diagnosis]) -> list[str]:
    try:
        return [found.save() for found in done.found if found.is_over]
    except StoreError as error:
        done.problems.append(f"The result was not kept: {error.line}")
        return []


def _tell(script: Path, done: ScriptOutcome[Diagnosis], answers: tuple[RequirementAnswer, ...]) -> None:
    for found in done.found:
        if found.is_over:
            say(f"\n{found}")
    for problem in done.problems:
        say_error(problem)
    for answer in answers:
        say(f"\n{answer.line}", "bold green" if answer.status is ExitStatus.OK else "bold red")
    if not done.found and not done.problems:
        say(f"{script.name} made no Dask client: there is nothing to diagnose.", "yellow")
        if "prefect_dask" in sys.modules:
            say("A task that the flow calls runs in the flow: `name.submit(...)` or `name.map(...)` sends it to Dask.")


def _numbered(report: str, number: int) -> str:
    stem, point, ending = report.rpartition(".")
    return report if number == 1 else f"{stem}-{number}.{ending}" if point else f"{report}-{number}"


@contextmanager
def _to_standard_error() -> Iterator[None]:
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
        sys.stdout.flush()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
