"""The command line: `scalescope`."""

from __future__ import annotations

import io
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Annotated, Any, NoReturn

import typer

from scalescope import __version__
from scalescope.cli.output import FINDING_OR_END, exit_statuses, say_error
from scalescope.errors import ExitStatus, ScalescopeError
from scalescope.own_code.script import OUR_UTF8
from scalescope.run.signals import noted
from scalescope.studies import OWN, STUDIES, StudyType

FINDING, BUDGET_SPENT, FAILED = FINDING_OR_END
PLAIN = exit_statuses()


def _of_study(kind: str) -> Callable[..., None]:
    from scalescope.cli.commands.studies import study_command

    return study_command(kind)


Row = tuple[str, str | Callable[[], Callable[..., None]], str]


def _studies(studies: Iterable[tuple[str, StudyType]]) -> Iterator[Row]:
    for kind, study in studies:
        if study.plan:
            statuses = exit_statuses(FINDING, ok=study.exit_ok, finding=study.exit_finding)
            yield study.command, partial(_of_study, kind), statuses


# Each row: a command's name; where its function or group of commands is, or a callable that returns its function; and
# the help text on its exit statuses. Only the command that is run is imported.
COMMANDS: Sequence[Row] = (
    (
        "sweep",
        "scalescope.cli.commands.sweep:sweep",
        exit_statuses(*FINDING_OR_END, finding=f"{FINDING.help}, or a --require is not met"),
    ),
    ("show", "scalescope.cli.commands.show:app", PLAIN),
    ("report", "scalescope.cli.commands.report:report", PLAIN),
    ("serve", "scalescope.cli.commands.serve:serve", PLAIN),
    ("trace", "scalescope.cli.commands.trace:trace", PLAIN),
    ("diff", "scalescope.cli.commands.diff:diff", PLAIN),
    (
        "isolate",
        "scalescope.cli.commands.isolate:isolate",
        exit_statuses(FINDING, ok="the script shows the symptom", finding="no script shows the symptom"),
    ),
    *_studies(OWN.items()),
    (
        "pull-request",
        "scalescope.cli.commands.pull_request:pull_request",
        exit_statuses(FINDING, ok="the head is not slower", finding="the head is slower, or a --require is not met"),
    ),
    (
        "nightly",
        "scalescope.cli.commands.nightly:nightly",
        exit_statuses(
            FINDING,
            ok="no regression",
            finding="a confirmed regression, nothing measured, or no recent night (--expected-within)",
        ),
    ),
    ("alerts", "scalescope.cli.commands.alerts:app", PLAIN),
    ("workloads", "scalescope.cli.commands.workloads:workloads", PLAIN),
    (
        "watch",
        "scalescope.cli.commands.watch:watch",
        exit_statuses(
            FINDING, ok="not stuck", finding="the cluster was stuck at the end, or with --record a critical finding"
        ),
    ),
    (
        "run",
        "scalescope.cli.commands.run:run",
        exit_statuses(FINDING, ok="the script's status", finding="the script's status, or a --require is not met"),
    ),
    (
        "check",
        "scalescope.cli.commands.check:check",
        exit_statuses(FINDING, ok="nothing stands out", finding="something stands out; the output says what"),
    ),
    (
        "fix",
        "scalescope.cli.commands.fix:fix",
        exit_statuses(FINDING, ok="a patch is proven, or was applied", finding="no patch is proven"),
    ),
    ("doctor", "scalescope.cli.commands.doctor:doctor", PLAIN),
    ("demo", "scalescope.cli.commands.demo:demo", PLAIN),
    ("calibrate", "scalescope.cli.commands.doctor:calibrate", PLAIN),
    ("job-script", "scalescope.cli.commands.job_script:job_script", PLAIN),
    ("leases", "scalescope.cli.commands.leases:leases", PLAIN),
    ("reap", "scalescope.cli.commands.leases:reap", PLAIN),
    ("prune", "scalescope.cli.commands.prune:prune", PLAIN),
    ("environments", "scalescope.cli.commands.environments:app", PLAIN),
    ("skill", "scalescope.cli.commands.agents:skill", PLAIN),
    ("mcp", "scalescope.cli.commands.agents:mcp", PLAIN),
)
OF_SCRIPTS = ("run", "fix", "check")
# Settings of commands that take a script: words after the script are its arguments
SCRIPT: dict[str, Any] = {"allow_interspersed_args": False, "ignore_unknown_options": False}


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit(ExitStatus.OK)


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Declares options that other functions handle: `run` removes `--debug`, `_version` ends the process."""


@cache
def app(command: str = "") -> typer.Typer:
    """The command line with only `command`, or with all commands if none has that name."""
    made = typer.Typer(
        name="scalescope",
        help="Finds where a Dask or Beam-on-Dask workload stops scaling, and why.",
        epilog=exit_statuses(*FINDING_OR_END),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if all(each and each.isatty() for each in (sys.stdout, sys.stderr)) else None,
        callback=_options,
    )
    every = command not in {name for name, _, _ in COMMANDS}
    added = _studies((kind, STUDIES[kind]) for kind in STUDIES if kind not in OWN) if every else ()
    for name, target, statuses in (*COMMANDS, *added):
        if every or command == name:
            found = pkgutil.resolve_name(target) if isinstance(target, str) else target()
            if isinstance(found, typer.Typer):
                found.rich_markup_mode = made.rich_markup_mode
                made.add_typer(found, name=name, epilog=statuses)
            else:
                made.command(name, epilog=statuses, context_settings=SCRIPT if name in OF_SCRIPTS else None)(found)
    return made


def main(argv: Sequence[str] | None = None) -> NoReturn:
    if sys.getfilesystemencoding() == "ascii" and not sys.flags.ignore_environment:
        # With LC_ALL=C, some texts cannot be written: restart with UTF-8, which `scalescope run` undoes for the script.
        os.environ["PYTHONUTF8"], os.environ[OUR_UTF8] = "1", "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a ? replaces each character that the encoding lacks
    given = sys.argv[1:] if argv is None else argv
    status = run(given)
    if _command(given) == "run":  # the status is the script's; another Ctrl-C must not change it
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


def run(argv: Sequence[str]) -> int:
    """Run a command line; return its exit status. Errors become statuses only here."""
    debug = "--debug" in argv
    with noted(signal.SIGTERM) as received:
        try:
            commands = typer.main.get_command(app(_command(argv)))
            own = argv[: _script(argv, commands)]
            debug = "--debug" in own  # `--debug` may be at any position
            arguments = [*(text for text in own if text != "--debug"), *argv[len(own) :]]
            commands.main(arguments, prog_name="scalescope")
        except SystemExit as end:  # Typer also turns an interrupt into SystemExit
            return 128 + received[0] if received else int(end.code) if isinstance(end.code, int) else ExitStatus.OK
        except ScalescopeError as error:
            _explain(error, debug=debug)
            return error.exit_status
        except Exception as error:  # noqa: BLE001 - any error becomes a sentence for people and a status for programs
            _explain(error, debug=debug)
            return ExitStatus.INFRASTRUCTURE
    return ExitStatus.OK


def _command(argv: Sequence[str]) -> str:
    return next((text for text in argv if not text.startswith("-")), "")


def _script(argv: Sequence[str], commands: Any) -> int:
    """Index of the script in `argv` if the command is one of `OF_SCRIPTS`; else the length of `argv`."""
    words = iter(enumerate(argv))
    if (name := next((text for _, text in words if not text.startswith("-")), "")) in OF_SCRIPTS:
        options = [each for each in commands.commands[name].params if not getattr(each, "is_flag", True)]
        for number, text in words:
            if not text.startswith("-") or text == "--":
                return number
            if any(text in each.opts for each in options):
                next(words, None)
    return len(argv)


def _explain(error: Exception, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    if isinstance(error, ScalescopeError):
        say_error(str(error))
    else:
        say_error(f"unexpected {type(error).__name__}: {error}\n  next: run the same command with --debug to see where")
