"""`scalescope run`."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from scalescope.cli.detached import Detach, detach
from scalescope.cli.options import Brief, Json, OtherPython, Require, argument, option, python_of, script_python
from scalescope.cli.output import print_brief, print_json, say, say_error
from scalescope.errors import ExitStatus, ScalescopeError, UsageError
from scalescope.own_code.process import end_by
from scalescope.own_code.script import Judge, Program, ScriptOutcome, last_folder, note_last, run_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scalescope.own_code.diagnosis import Diagnosis
    from scalescope.studies.requirement import Requirement, RequirementAnswer

# Options of Scalescope that scripts may also have
OWN_OPTIONS = (
    "--report",
    "--environment",
    "--require",
    "--no-save",
    "--brief",
    "--detach",
    "--json",
    "--store",
    "--debug",
)


FEW = 2  # most clusters shown in full; if there are more, only that with the most worker time is shown in full


def run(
    script: Annotated[str, argument(metavar="SCRIPT.py", help="The script; with -m the name of a module.")] = "",
    arguments: Annotated[list[str] | None, argument(metavar="[ARGUMENT]...", help="Arguments of the script.")] = None,
    module: Annotated[bool, option("-m", "--module", help="Run a module or package, as `python -m` does.")] = False,
    report: Annotated[
        str,
        option(
            metavar="FILE",
            help="Write the report as one HTML file. Each further cluster gets its own: FILE-2.html.",
        ),
    ] = "",
    environment: OtherPython = "",
    require: Require = None,
    store: Annotated[str, option(metavar="ADDRESS", help="Where results are kept (default: $SCALESCOPE_STORE).")] = "",
    no_save: Annotated[bool, typer.Option("--no-save", help="Do not keep the result for `scalescope show`.")] = False,
    last_record: Annotated[
        bool,
        typer.Option(
            "--last-record",
            help="Run nothing: judge the recording of the last script, if Scalescope was killed before its verdict.",
        ),
    ] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Then patch the script as `scalescope fix` does: it runs again in copies of its folder, with and "
            "without each patch.",
        ),
    ] = False,
    brief: Brief = False,
    as_json: Json = False,
    detached: Detach = False,
) -> None:
    """Run an unchanged script, and diagnose the cluster of each Dask client that it makes.

    Options stand before the script; words after the script are its arguments. The script runs as `python SCRIPT.py` or
    `python -m MODULE` would. The verdict goes to standard error when the script has ended; with --json or --brief, the
    verdict goes to standard output, and the script's output to standard error.
    """
    if not script and not last_record:
        raise UsageError("there is no script to run", next_step="`scalescope run SCRIPT.py`, or `run -m MODULE`")
    if detached:
        detach(as_json=as_json)
    required = _requirements(require)
    if report:
        from scalescope.report import html

        html.check(report)
    for name in OWN_OPTIONS:
        if name in (arguments or ()):
            say(f"{name} is passed to {PurePath(script).name}. Scalescope's options go before the script.", "yellow")
    if last_record:
        program = Program(script or "the script")
        done = ScriptOutcome(last_folder())
        Judge(program)(done)
    else:
        program = Program(script, arguments or (), module, python_of(environment) or script_python())
        note_last(program)
        done = run_script(program, says=lambda text: say(text, "yellow"), stdout=2 if as_json or brief else None)
    try:
        kept = None if no_save else store
        status = _answer(program, done, _Asked(required, report, kept, fix=fix, brief=brief, as_json=as_json))
    except KeyboardInterrupt:
        say("Stopped before the verdict was shown.", "yellow")
        status = ExitStatus.OK
    except Exception as error:
        if done.status is None:
            raise
        status = ExitStatus.INFRASTRUCTURE if required else ExitStatus.OK  # OK: the script's own status counts
        told = error.line if isinstance(error, ScalescopeError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            say_error(f"The verdict could not be shown: {told}")
    _exit(done.status, status)


@dataclass(frozen=True)
class _Asked:
    required: list[Requirement]
    report: str
    store: str | None  # address of the store; None: nothing is kept
    fix: bool
    brief: bool
    as_json: bool


def _answer(program: Program, done: ScriptOutcome, asked: _Asked) -> int:
    """Print what was found, then store it; return the exit status that the requirements give."""
    answers: tuple[RequirementAnswer, ...] = ()
    status: int = ExitStatus.OK
    if asked.required:
        from scalescope.studies import requirement

        answers = requirement.judge(asked.required, [found.trial for found in done.found])
        status = requirement.status(answers)
    if nothing := _nothing(program, done):
        done.hints.insert(0, nothing)
    if not asked.as_json and not asked.brief:
        _tell(done, answers)
    fixed = _fixed(program, done, tells=not (asked.as_json or asked.brief)) if asked.fix and done.found else None
    runs = [] if asked.store is None else _saved(done, asked.store)
    if asked.brief:
        _brief(program, done, answers, runs, as_json=asked.as_json)
    elif asked.as_json:
        print_json(
            {
                "script": program.script,
                "status": _shell_status(done.status),
                "runs": runs,
                "clusters": [{"title": _place(done, found).strip(), **found.to_json()} for found in done.found],
                "said": done.said,
                "problems": done.problems,
                "hints": done.hints,
                "requirements": [asdict(answer) for answer in answers],
                **({} if fixed is None else {"fix": fixed}),
            }
        )
    for number, found in enumerate(done.found, 1):
        if asked.report:
            found.report(_numbered(asked.report, number))
    return status


def _fixed(program: Program, done: ScriptOutcome, *, tells: bool) -> dict[str, Any] | None:
    """Fix the script, and put the patches into the verdicts. If it cannot be fixed, say why and return None."""
    from scalescope.cli.commands.fix import fix_subject, tell
    from scalescope.fixing.subject import Subject

    try:
        subject = Subject.of(program)
        found, patch = fix_subject(subject)
    except UsageError as error:
        say_error(error.line)
        return None
    for each in done.found:
        each.patch(found.shown_in)
    if tells:
        tell(found, subject, patch)
    return {**found.to_json(), "patch_file": patch}


def _brief(
    program: Program, done: ScriptOutcome, answers: Sequence[RequirementAnswer], runs: Sequence[str], *, as_json: bool
) -> None:
    """Print the short answer about the cluster with most worker time, and the first lines about other clusters."""
    from scalescope.report import brief

    ended = [f"The script ended with status {_shell_status(done.status)}."] if done.status else []
    notes = [*ended, *done.problems, *(answer.line for answer in answers), *done.said, *done.hints]
    if not done.found:
        print_brief(brief.of_answer(program.name, "Nothing was diagnosed.", notes=notes), as_json=as_json)
        return
    most = max(done.found, key=_worker_time)
    notes += [f"{_place(done, each)}{each.verdict}" for each in done.found if each is not most]
    known = dict(zip(map(id, done.found), runs, strict=False))
    print_brief(most.brief(known.get(id(most), ""), notes, _fix_command(program, most)), as_json=as_json)


def _fix_command(program: Program, found: Diagnosis) -> list[str]:
    """The command that patches the script and proves the patch, if a cause has a rewrite."""
    from scalescope.remedies import REWRITES

    if not any(each.code in REWRITES for each in found.findings):
        return []
    environment = [] if program.python == script_python() else ["-e", program.python]
    module = ["-m"] if program.is_module else []
    return [shlex.join(["scalescope", "fix", *environment, *module, program.script, *program.arguments])]


def _requirements(require: list[str] | None) -> list[Requirement]:
    if not require:
        return []
    from scalescope.studies import requirement

    return [requirement.requirement(text) for text in require]


def _saved(done: ScriptOutcome, store: str) -> list[str]:
    runs = []
    for found in done.found:
        try:
            runs.append(found.save(store))
        except (ScalescopeError, OSError) as error:
            told = error.line if isinstance(error, ScalescopeError) else str(error)
            problem = f"The result was not kept: {told}"
            done.problems.append(problem)
            say_error(problem)
            break
    return runs


def _nothing(program: Program, done: ScriptOutcome) -> str:
    is_there = program.is_module or os.path.exists(program.script)  # Python itself reports a missing script
    if done.found or done.problems or not is_there:
        return ""
    said = "" if done.hints else ": there is nothing to diagnose"
    return f"{program.name} made no Dask client{said}."


def _tell(done: ScriptOutcome, answers: tuple[RequirementAnswer, ...]) -> None:
    most = max(done.found, key=_worker_time, default=None)
    for found in done.found:
        if len(done.found) <= FEW or found is most:
            say(f"\n{_place(done, found)}{found}")
        else:
            say(f"\n{_place(done, found)}{found.judgement.line}")
    for problem in done.problems:
        say_error(problem)
    for answer in answers:
        say(f"\n{answer.line}", "bold green" if answer.status is ExitStatus.OK else "bold red")
    for hint in done.hints:
        say(hint, "" if done.found else "yellow")


def _place(done: ScriptOutcome, found: Diagnosis) -> str:
    """A title for one of several clusters; empty for a single cluster."""
    if len(done.found) < 2:
        return ""
    cluster = found.trial.facts["cluster"]
    made = f", made at {cluster['made_at']}" if cluster.get("made_at") else f" at {cluster['address']}"
    return f"{found.name}: {cluster['kind']}{made}\n"


def _worker_time(found: Diagnosis) -> float:
    metrics = found.metrics
    return metrics.elapsed_s * found.trial.point.threads if metrics else 0.0


def _numbered(report: str, number: int) -> str:
    """The address of the report on a cluster: its number is added to the file's name."""
    if number == 1:
        return report
    folder, slash, name = report.rpartition("/")
    path = PurePath(name)
    return f"{folder}{slash}{path.stem}-{number}{path.suffix}"


def _shell_status(status: int | None) -> int:
    """An exit status as shells write it: 128 + N for signal N."""
    return 0 if status is None else 128 - status if status < 0 else status


def _exit(status: int | None, otherwise: int) -> NoReturn:
    """End as the script did, also by the same signal; if the script ended well, with `otherwise`."""
    if status is not None and status < 0:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        end_by(-status)
    raise typer.Exit(_shell_status(status) or otherwise)
