"""The command line: `scalescope`."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from scalescope import __version__
from scalescope.cli.console import say, say_error, sweep_progress
from scalescope.errors import ScalescopeError
from scalescope.run import syntax

if TYPE_CHECKING:
    from scalescope.model.workload import Workload
    from scalescope.store.store import Store, SweepRun

OK, FINDING, USAGE, INFRASTRUCTURE, BUDGET_SPENT, INTERRUPTED = 0, 1, 2, 3, 4, 130
STATUSES = (
    "Exit status: 0 fine; 1 a finding of severity high; 2 the request cannot be right; "
    "3 the machine misbehaved, or an unexpected error; 4 a budget ended it early; 130 or 143 stopped by a signal."
)

app: typer.Typer = typer.Typer(
    name="scalescope",
    help="Finds where a Dask or Beam-on-Dask workload stops scaling, and why.",
    epilog=STATUSES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() and sys.stderr.isatty() else None,
)

Json = Annotated[bool, typer.Option("--json", help="Write JSON to standard output, and nothing else.")]
StoreOption = Annotated[
    str,
    typer.Option(
        help="Where results are kept: a path, a database URL, or a saved block (result-store/NAME). Default: "
        "$SCALESCOPE_STORE, or a file in the user's data folder.",
        show_default=False,
    ),
]


EnvironmentOption = Annotated[
    str,
    typer.Option(
        "--environment",
        "-e",
        metavar="REQUIREMENTS",
        help="Software to run with: 'apache-beam==2.50.0 dask[distributed]==2023.9.1', with a name in front if you "
        "like ('2023 = ...'), or the path of a Python interpreter.",
        show_default=False,
    ),
]
ReportOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the result as one HTML file as well.", show_default=False),
]


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command line, and end the process with its exit status."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run a command line; return its exit status. The one place where errors become statuses."""
    debug = "--debug" in argv  # wherever it stands
    received: list[int] = []

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        typer.main.get_command(app).main([text for text in argv if text != "--debug"], prog_name="scalescope")
    except SystemExit as end:  # Typer makes one of an interrupt, too
        return 128 + received[0] if received else end.code if isinstance(end.code, int) else OK
    except ScalescopeError as error:
        _explain(error, debug=debug)
        return error.exit_status
    except Exception as error:  # noqa: BLE001 - whatever it is, the person gets a sentence and a program a status
        _explain(error, debug=debug)
        return INFRASTRUCTURE
    finally:
        signal.signal(signal.SIGTERM, before)
    return OK


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
        raise typer.Exit(OK)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Both are dealt with elsewhere: `run` takes `--debug` out, `_version` ends."""


# ------------------------------------------------------------------ sweep


@app.command(epilog=STATUSES)
def sweep(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE.yaml", help="A sweep as YAML; options add to it and win over it."),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            "-w",
            help="A built-in workload, package.module:function, or path.py:function.",
            metavar="NAME",
        ),
    ] = None,
    axis: Annotated[
        list[str] | None,
        typer.Option(
            "--axis",
            "-a",
            metavar="NAME=VALUES",
            help="Values of an axis: workers=1,2,4 or workers=1..8 or items=50..300:50. Can be given several times; "
            "all combinations are run.",
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter of the workload, for all points."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            metavar="KIND",
            help="simulated (the default), virtual, local, slurm, ssh, scheduler, custom, or a saved TYPE/NAME.",
        ),
    ] = None,
    cluster_option: Annotated[
        list[str] | None, typer.Option("--cluster-option", metavar="NAME=VALUE", help="A field of the cluster.")
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            "--environment",
            "-e",
            metavar="REQUIREMENTS",
            help="Software to run with: 'apache-beam==2.50.0 dask[distributed]==2023.9.1', with a name in front if you "
            "like ('2023 = ...'), the path of a Python interpreter, or present. Several times: an axis of the sweep.",
        ),
    ] = None,
    repeats: Annotated[int | None, typer.Option(help="Trials per point (default 1).")] = None,
    warmups: Annotated[int | None, typer.Option(help="Trials per point run first, never counted.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the order of trials, and of the simulated cluster.")] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Real seconds after which a trial is stopped (default 600).")
    ] = None,
    parallel_clusters: Annotated[
        int | None, typer.Option(help="Simulated clusters at the same time, each on cores of its own.")
    ] = None,
    refine: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Add up to N points until it is known where throughput stops growing (default 0)."
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            metavar="NAME=LIMIT",
            help="What the run may cost: core_hours=100, hours=2 (of measuring), or money=50, for which "
            "$SCALESCOPE_PRICES names a price table. Can be given several times.",
        ),
    ] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what it would cost, and start nothing.")] = False,
    report: ReportOption = None,
    store: StoreOption = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew; do not continue a stopped run.")] = False,
    as_json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show Prefect's log.")] = False,
) -> None:
    """Measure a workload at every point of some axes, and say where it stops scaling and why.

    Ctrl-C stops a sweep; the same command continues it.
    """
    data = syntax.read_file(file) if file else {}
    syntax.merge(data, "budget", syntax.params("--budget", budget or ()))
    asked = {
        "store": store or data.pop("store", ""),
        "parallel_clusters": data.pop("parallel_clusters", 1) if parallel_clusters is None else parallel_clusters,
        "refine": data.pop("refine", 0) if refine is None else refine,
        "budget": data.pop("budget", {}),
        "fresh": fresh,
    }
    given = {
        "workload": workload,
        "repeats": repeats,
        "warmups": warmups,
        "seed": seed,
        "trial_timeout_s": timeout,
    }
    data |= {name: value for name, value in given.items() if value is not None}
    syntax.merge(data, "axes", syntax.axes(axis or ()))
    syntax.merge_environments(data, environment or ())
    syntax.merge(data, "params", syntax.params("--param", param or ()))
    syntax.merge_cluster(data, cluster, syntax.params("--cluster-option", cluster_option or ()))
    if estimate:
        _estimate(data, asked)
        return
    run, ended_early = _sweep(data, asked, verbose=verbose, report=report)
    status = _show.show_run(run, as_json=as_json)
    if ended_early:
        say_error(ended_early)
    raise typer.Exit(BUDGET_SPENT if ended_early else status)


def _estimate(data: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Say what a sweep would cost, trials that an earlier attempt has finished included."""
    from scalescope.run import engine

    if syntax.names_block(data.get("cluster")) or syntax.names_store(asked["store"]):
        _start_prefect(verbose=False)
        from scalescope_flows.sweep import resolve

        request = resolve(data, **asked)
    else:
        request = engine.check(data, **asked)
    with request.open_store() as opened:
        print(engine.expected_cost(request, request.plan, opened))


def _sweep(
    data: Mapping[str, Any], asked: Mapping[str, Any], *, verbose: bool, report: Path | None = None
) -> tuple[SweepRun, str]:
    """Carry a sweep out, as a flow in this process; returns the run, and why a budget ended it early, if one did."""
    if report:
        _check_report(report)
    from scalescope.run import engine

    saved = syntax.names_block(data.get("cluster")) or syntax.names_store(asked["store"])
    request = None if saved else engine.check(data, **asked)  # before Prefect, which takes seconds, is even loaded
    asked = {**asked, "store": _without_password(asked["store"])}
    _start_prefect(verbose=verbose)
    from scalescope.run.progress import listening
    from scalescope_flows.sweep import resolve, scale_sweep

    request = request or resolve(data, **asked)
    try:
        with sweep_progress() as listener, listening(listener):
            result = scale_sweep(**data, **asked, report=str(report or ""))
    except KeyboardInterrupt:
        say("Stopped. Finished trials are kept; the same command continues.", "yellow")
        raise typer.Exit(INTERRUPTED) from None
    with request.open_store() as opened:
        return opened.run(result.run_id), result.ended_early


def _without_password(store: str) -> str:
    """An address with a password goes into the environment: Prefect keeps, and shows, what a flow was called with."""
    from scalescope.store.location import VARIABLE, holds_password

    if not holds_password(store):
        return store
    os.environ[VARIABLE] = store
    return ""


def _start_prefect(*, verbose: bool) -> None:
    """Load Prefect and have a server, at least a temporary one."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    if not verbose:
        # Its log still goes to its server; what went wrong is said once, by us.
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    from scalescope_flows import temporary

    if temporary.is_needed():
        say("Starting a temporary Prefect server (about 10 s; a first start takes about 20 s)", "dim")
    temporary.begin()
    import scalescope_flows.sweep  # noqa: F401 (takes seconds as well, so meanwhile)

    temporary.ready()


# ------------------------------------------------------------------ show and report, each in a module of its own

from scalescope.cli.commands import show as _show  # noqa: E402 (here, so that `--help` lists it in this place)

# isort: split
from scalescope.cli.commands import report as _report  # noqa: E402, F401


def _open_store(address: str) -> Store:
    from scalescope.store.store import Store

    if not syntax.names_store(address):
        return Store.open(address)
    _start_prefect(verbose=False)
    import scalescope_blocks

    return Store.open(*scalescope_blocks.store(address))


def _check_report(path: Path) -> None:
    from scalescope.report import html

    html.check(path)


# ------------------------------------------------------------------ trace


@app.command(epilog=STATUSES)
def trace(
    run: Annotated[str, typer.Argument(help="Its id, the beginning of it, or latest.")] = "latest",
    point: Annotated[
        str,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="The point, as workers=200,items=199, or the beginning of its id (default: the worst).",
            show_default=False,
        ),
    ] = "",
    trial: Annotated[
        str, typer.Option(metavar="KEY", help="The trial, or the beginning of its key.", show_default=False)
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to (default: TRIAL.json.gz in this folder).",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = "",
    as_json: Json = False,
) -> None:
    """Write one trial as a trace for https://ui.perfetto.dev: every task on its worker thread."""
    from scalescope.analysis.summary import label
    from scalescope.report import trace as traces

    with _open_store(store) as opened:
        found = opened.run(run)
        chosen = traces.choose(found.trials, found.verdict, point=point, trial=trial)
        path = output or Path(f"{chosen.key}.json.gz")
        title = f"{found.sweep.workload}, {label(chosen.point)}, run {found.id}, trial {chosen.key}"
        count = traces.write(opened.tables(chosen, "tasks", "workers"), path, title=title)
    if as_json:
        _print_json({"run": found.id, "trial": chosen.key, "file": str(path), "events": count})
    else:
        print(f"{path}: {title}; {count:,} events")
        say("Open it at https://ui.perfetto.dev (it stays on your machine) or in chrome://tracing.", "dim")


# ------------------------------------------------------------------ workloads and doctor


@app.command(epilog=STATUSES)
def workloads(
    name: Annotated[str, typer.Argument(help="Show its parameters.", show_default=False)] = "",
    as_json: Json = False,
) -> None:
    """List the workloads, or the parameters of one."""
    from scalescope import workloads as library

    found = [library.load(name)] if name else library.builtin()
    if as_json:
        fields = ("name", "version", "summary", "packages", "modelled")
        _print_json(
            [
                {field: getattr(workload, field) for field in fields}
                | {"parameters": [asdict(parameter) for parameter in workload.parameters]}
                for workload in found
            ]
        )
    elif name:
        _print_workload(found[0])
    else:
        _print_table(("workload", "what it does"), [(workload.name, workload.summary) for workload in found])
        say("\nParameters: `scalescope workloads NAME`. Functions of your own: module:function or path.py:function.")


def _print_workload(workload: Workload) -> None:
    rows = []
    for parameter in workload.parameters:
        default = "required" if parameter.required else json.dumps(parameter.default)
        rows.append((parameter.name, parameter.kind, default, parameter.help))
    print(f"{workload.name}, version {workload.version}: {workload.summary}\n")
    _print_table(("parameter", "type", "default", "meaning"), rows)


@app.command(epilog=STATUSES)
def doctor(as_json: Json = False) -> None:
    """Say what is installed and what for, and what this host can emulate. Status 3 if something essential is broken."""
    from scalescope.cli import checks

    found = checks.all_checks()
    if as_json:
        _print_json([asdict(check) for check in found])
    else:
        rows = [
            (check.mark, check.name, check.found if check.works else f"{check.purpose}: {check.found}")
            for check in found
        ]
        _print_table(("", "what", "found"), rows)
    broken = any(check.essential and not check.works for check in found)
    raise typer.Exit(INFRASTRUCTURE if broken else OK)


# ------------------------------------------------------------------ demo and calibrate


@app.command(epilog=STATUSES)
def demo(
    folder: Annotated[Path, typer.Option(help="Where everything that it writes is kept.")] = Path(".demo"),
    report: ReportOption = None,
) -> None:
    """Find out why Apache Beam on 300 Dask workers is no faster than on 3: about a minute, all on this machine."""
    from rich.console import Console

    from scalescope.cli import demo as demonstration
    from scalescope.run import quiet

    if report:
        _check_report(report)
    store = demonstration.prepare(folder)

    def carry(data: Mapping[str, Any]) -> SweepRun:
        clusters = 1 if data is demonstration.REAL else max(1, len(quiet.cores()))
        return _sweep(data, {"store": store, "parallel_clusters": clusters, "fresh": True}, verbose=False)[0]

    shown = demonstration.show(Console(highlight=False), carry)
    if report:
        from scalescope.report import html

        with _open_store(store) as opened:
            html.write(report, shown, opened.tables)
        say(f"\nThe first sweep as a report: {report}", "dim")


@app.command(epilog=STATUSES)
def calibrate(as_json: Json = False) -> None:
    """Measure what scheduler and workers of this host spend on a task, for simulated clusters to charge."""
    from scalescope.clusters.simulated import calibration

    measured = calibration.measure()
    path = measured.save()
    if as_json:
        _print_json(measured.to_mapping() | {"file": str(path)})
    else:
        print(f"scheduler: {measured.scheduler_us} us per task transition; worker: {measured.worker_us} us per task")
        say(f"Kept in {path}; simulated clusters of this user charge it from now on. Delete the file to undo.", "dim")


# ------------------------------------------------------------------ output


def _print_json(data: object) -> None:
    print(json.dumps(data, indent=2, allow_nan=False))


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the last column wraps first where the terminal is narrow."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, title in enumerate(titles[:-1]):
        width = max([len(title), *(len(row[number]) for row in rows)])
        table.add_column(title, overflow="fold", min_width=min(width, 22))
    table.add_column(titles[-1], overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


# ------------------------------------------------------------------ commands with a module of their own

from scalescope.cli.commands import environments as _environments  # noqa: E402, F401 (it adds its commands to `app`)
from scalescope.cli.commands import isolate as _isolate  # noqa: E402, F401 (it adds its command to `app`)
from scalescope.cli.commands import jobs as _jobs  # noqa: E402, F401 (it adds its command to `app`)
from scalescope.cli.commands import leases as _leases  # noqa: E402, F401 (it adds its commands to `app`)
from scalescope.cli.commands import study as _study  # noqa: E402, F401
