"""The command line: `scalescope`."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from scalescope import __version__
from scalescope.cli.commands import (
    demo,
    doctor,
    environments,
    isolate,
    job_script,
    leases,
    nightly,
    prune,
    report,
    serve,
    show,
    studies,
    sweep,
    trace,
    watch,
    workloads,
)
from scalescope.cli.commands import run as script
from scalescope.cli.output import OF_SOME, epilog, say_error
from scalescope.errors import ExitStatus, ScalescopeError
from scalescope.run.signals import noted
from scalescope.studies import STUDIES

FINDING, BUDGET_SPENT, FAILED = OF_SOME

app: typer.Typer = typer.Typer(
    name="scalescope",
    help="Finds where a Dask or Beam-on-Dask workload stops scaling, and why.",
    epilog=epilog(*OF_SOME),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() and sys.stderr.isatty() else None,
)

app.command(epilog=epilog(*OF_SOME, finding=f"{FINDING.help}, or a --require is not met"))(sweep.sweep)
app.command(
    epilog=epilog(
        FINDING, FAILED, finding="a critical finding, a --require is not met, or a study with bad news or no answer"
    )
)(show.show)
app.command(epilog=epilog())(report.report)
app.command(epilog=epilog())(serve.serve)
app.command(epilog=epilog())(trace.trace)
app.command(epilog=epilog(FINDING, ok="a script was seen to show the symptom", finding="there is none"))(
    isolate.isolate
)
for kind, study in STUDIES.items():
    if study.plan:
        ended = epilog(FINDING, ok=study.exit_ok, finding=study.exit_finding)
        app.command(study.command, epilog=ended)(studies.study_command(kind))
app.command(epilog=epilog(FINDING, ok="no regression", finding="a confirmed regression"))(nightly.nightly)
app.command(epilog=epilog())(nightly.alerts)
app.command(epilog=epilog())(workloads.workloads)
app.command(
    epilog=epilog(FINDING, ok="work moved", finding="nothing moved at the end, or with --record a critical finding")
)(watch.watch)
app.command(
    epilog=epilog(FINDING, ok="the script's own", finding="the script's own, or a --require is not met"),
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)(script.run)
app.command(epilog=epilog())(doctor.doctor)
app.command(epilog=epilog())(demo.demo)
app.command(epilog=epilog())(doctor.calibrate)
app.command("job-script", epilog=epilog())(job_script.job_script)
app.command(epilog=epilog())(leases.leases)
app.command(epilog=epilog())(leases.reap)
app.command(epilog=epilog())(prune.prune)
environments.app.rich_markup_mode = app.rich_markup_mode
app.add_typer(environments.app, name="environments")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command line, and end the process with its exit status."""
    if sys.getfilesystemencoding() == "ascii" and not sys.flags.ignore_environment:
        os.environ["PYTHONUTF8"] = "1"  # LC_ALL=C, say: neither names of files nor our own words could be written
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal of other encodings shows ? for what it lacks
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run a command line; return its exit status. The one place where errors become statuses."""
    own = [*argv[:1]] if argv[:1] == ["run"] else [*argv]  # after a script all is the script's
    debug = "--debug" in own  # wherever it stands
    with noted(signal.SIGTERM) as received:
        try:
            typer.main.get_command(app).main(
                [text for text in own if text != "--debug"] + [*argv[len(own) :]], prog_name="scalescope"
            )
        except SystemExit as end:  # Typer makes one of an interrupt, too
            return 128 + received[0] if received else int(end.code) if isinstance(end.code, int) else ExitStatus.OK
        except ScalescopeError as error:
            _explain(error, debug=debug)
            return error.exit_status
        except Exception as error:  # noqa: BLE001 - whatever it is, the person gets a sentence and a program a status
            _explain(error, debug=debug)
            return ExitStatus.INFRASTRUCTURE
    return ExitStatus.OK


def _explain(error: Exception, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    if isinstance(error, ScalescopeError):
        say_error(str(error))
    else:
        say_error(f"unexpected {type(error).__name__}: {error}\n  next: the same command with --debug shows where")


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit(ExitStatus.OK)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Both are dealt with elsewhere: `run` takes `--debug` out, `_version` ends."""
