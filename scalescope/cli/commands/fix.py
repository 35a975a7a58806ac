"""`scalescope fix`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from scalescope.cli.options import Brief, Json, OtherPython, python_of, script_python, seconds_of
from scalescope.cli.output import print_brief, print_json, say, stdout
from scalescope.errors import ExitStatus, UsageError
from scalescope.own_code.script import Program, last_program
from scalescope.run.syntax import merge_cluster, params

if TYPE_CHECKING:
    from scalescope.fixing.result import Fix
    from scalescope.fixing.subject import Subject

LATEST = "latest"
OWN_OPTIONS = ("--apply", "--budget", "--allow-side-effects", "--yes", "--environment", "--json", "--debug")


def fix(
    script: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT.py",
            help="The script, or with -m the module; `latest`: what `scalescope run` ran last, with its arguments.",
        ),
    ] = LATEST,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Arguments of the script.", show_default=False)
    ] = None,
    module: Annotated[bool, typer.Option("-m", "--module", help="SCRIPT.py is a module or package.")] = False,
    workload: Annotated[
        str,
        typer.Option(
            *("-w", "--workload"),
            metavar="FILE.py:FUNCTION",
            help="Instead of a script, fix a function of yours (a workload of a sweep), on workers of this machine.",
            show_default=False,
        ),
    ] = "",
    axis: Annotated[
        list[str] | None,
        typer.Option(
            *("-a", "--axis"),
            metavar="NAME=VALUE",
            help="A value of the workload's point, as workers=8. Can be given several times.",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(
            *("-c", "--cluster"),
            metavar="KIND",
            help="Run the workload on this kind of cluster, as simulated, light or local (default: a `LocalCluster`).",
            show_default=False,
        ),
    ] = "",
    cluster_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A field of the cluster.", show_default=False),
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
    brief: Brief = False,
    as_json: Json = False,
) -> None:
    """Patch a script if a finding has a remedy in code or a setting, and prove that it is faster and does the same.

    The script runs in copies of its folder: once to record it, then with and without each patch in turn. A patch that
    is not proven is withdrawn. Your files are not written without --apply; the patch is saved next to the script. If
    the remedy is a setting that is in no file, it is printed as an option of the command.
    Options stand before the script; words after the script are its arguments.
    """
    from scalescope.fixing import applying

    for name in OWN_OPTIONS:
        if name in (arguments or ()):
            say(f"{name} is passed to {os.path.basename(script)}. Scalescope's options go before the script.", "yellow")
    subject = _subject(
        script,
        arguments or (),
        workload,
        axis or (),
        environment,
        is_module=module,
        cluster=_cluster(cluster, cluster_option),
    )
    if apply and (files := applying.apply_kept(subject)) is not None:
        _tell_applied([str(each) for each in files], as_json=as_json)
        return
    found, patch = fix_subject(
        subject, budget_s=seconds_of("--budget", budget), side_effects=side_effects, yes=yes, keeps=not apply
    )
    applied = [str(each) for each in applying.apply(found)] if found.after and apply else []
    if brief:
        _brief(found, subject, patch, applied, as_json=as_json)
    elif as_json:
        print_json({**found.to_json(), "patch_file": patch, "applied": applied})
    else:
        tell(found, subject, patch)
        if applied:
            _tell_applied(applied, as_json=False)
    raise typer.Exit(ExitStatus.OK if found.proven else ExitStatus.FINDING)


def fix_subject(
    subject: Subject, *, budget_s: float = 0.0, side_effects: bool = False, yes: bool = False, keeps: bool = True
) -> tuple[Fix, str]:
    """Fix the subject, with progress on standard error; also return the patch file's path, empty if none is kept."""
    from scalescope.fixing import applying, running

    found = running.fix(
        subject,
        budget_s=budget_s or None,
        side_effects=side_effects,
        says=lambda text: say(text),
        agrees=lambda: yes or not sys.stdin.isatty() or typer.confirm("Run it?", err=True),
    )
    if not found.after or not keeps:
        return found, ""
    applying.keep(found, subject)
    return found, str(applying.write_patch(found))


def _subject(
    script: str,
    arguments: Sequence[str],
    workload: str,
    axis: Sequence[str],
    environment: str,
    *,
    is_module: bool,
    cluster: Mapping[str, Any],
) -> Subject:
    """The subject that the command line names."""
    from scalescope.fixing.subject import Subject

    python = python_of(environment) or script_python()
    if workload:
        if script != LATEST or environment:
            raise UsageError(
                "`fix -w` takes neither a script nor another Python", next_step="leave out the script and --environment"
            )
        return Subject.of_workload(workload, params("--axis", axis), python, cluster=cluster)
    if axis or cluster:
        raise UsageError(
            "--axis and --cluster need a workload", next_step="name the workload: scalescope fix -w FILE.py:FUNCTION"
        )
    if script == LATEST:
        last = last_program()
        return Subject.of(replace(last, python=python) if environment else last)
    return Subject.of(Program(script, arguments, is_module, python))


def _cluster(kind: str, options: Sequence[str] | None) -> dict[str, Any]:
    given: dict[str, Any] = {}
    merge_cluster(given, kind or None, params("--cluster-option", options or ()))
    cluster = given.get("cluster", {})
    return {"kind": cluster} if isinstance(cluster, str) else cluster


def _brief(found: Fix, subject: Subject, patch: str, applied: list[str], *, as_json: bool) -> None:
    from scalescope.fixing import result
    from scalescope.report.brief import of_answer

    notes = [*(f"Patched {each}" for each in applied), *found.lines(), *([found.settings] if found.settings else [])]
    next = [*([_apply_command(subject)] if patch else []), *filter(None, [shlex.join(found.measured_by)])]
    print_brief(of_answer(" ".join(subject.words), result.told(found), notes=notes, next=next), as_json=as_json)


def _apply_command(subject: Subject) -> str:
    return shlex.join(["scalescope", "fix", "--apply", *subject.words])


def tell(found: Fix, subject: Subject, patch: str) -> None:
    from scalescope.fixing import result

    console = stdout()
    for line in found.lines():
        for each in line.splitlines():
            style = "green" if each.startswith("+") else "red" if each.startswith("-") else ""
            console.print(Text(each, style=style), soft_wrap=True)
    console.print(Text(result.told(found), style="bold green" if found.proven else ""))
    if found.settings:
        console.print(Text(f"Set it:\n{found.settings.rstrip()}"))
    if patch:
        console.print(
            Text(f"Apply it: {_apply_command(subject)} (or: patch -p1 < {shlex.quote(os.path.relpath(patch))})")
        )


def _tell_applied(files: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"applied": files})
        return
    for each in files:
        stdout().print(f"Patched {os.path.relpath(each)}", markup=False)
