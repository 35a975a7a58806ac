"""`scalescope isolate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalescope.cli import main as cli
from scalescope.cli.console import say, say_error, sweep_progress
from scalescope.errors import UsageError
from scalescope.run import syntax

if TYPE_CHECKING:
    from scalescope.studies.isolation.search import Isolated

CONFIRMED, UNCONFIRMED = 0, 1
_ASKED: dict[str, Any] = {"parallel_clusters": 1, "refine": 0, "budget": {}}
"""What a file may say besides the sweep itself, and what holds where it does not."""
STATUSES = (
    "Exit status: 0 there is a script that was seen to show the symptom; 1 there is none; 2 the request cannot be "
    "right, or the run has no such symptom; 3 the machine misbehaved, or an unexpected error; 130 or 143 stopped by a "
    "signal."
)


@cli.app.command(epilog=STATUSES)
def isolate(
    run: Annotated[
        str,
        typer.Argument(metavar="[RUN | FILE.yaml]", help="A run: its id, the beginning of it, or latest; or a sweep."),
    ] = "",
    workload: Annotated[
        str | None,
        typer.Option("--workload", "-w", metavar="NAME", help="Run a sweep of this workload first, and take its run."),
    ] = None,
    axis: Annotated[
        list[str] | None, typer.Option("--axis", "-a", metavar="NAME=VALUES", help="Of that sweep: an axis.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUE", help="Of that sweep: a parameter.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", metavar="KIND", help="Of that sweep: the cluster.")
    ] = None,
    cluster_option: Annotated[
        list[str] | None, typer.Option("--cluster-option", metavar="NAME=VALUE", help="Of that sweep: a cluster field.")
    ] = None,
    finding: Annotated[
        str, typer.Option(metavar="CODE", help="The finding to look into (default: the first).", show_default=False)
    ] = "",
    metric: Annotated[
        str,
        typer.Option(
            metavar="COMPARISON",
            help="A comparison in its place: 'workers_used < 0.5 * workers', 'efficiency < 0.6'.",
            show_default=False,
        ),
    ] = "",
    max_trials: Annotated[int, typer.Option(help="Trials that it may run.")] = 80,
    minutes: Annotated[float, typer.Option(help="Minutes after which it begins no further trial.")] = 30.0,
    folder: Annotated[
        Path, typer.Option(help="For notebook.md, reproducer.py, bug-report.md, report.html and isolation.json.")
    ] = Path("isolated"),
    store: cli.StoreOption = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure anew what was measured before.")] = False,
    as_json: cli.Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show Prefect's log.")] = False,
) -> None:
    """Find the smallest trial that still shows what is wrong, and a script that shows it without Scalescope.

    It takes away one expensive thing after the other (the cluster, real compute, file I/O, stages, workers, items), and
    keeps a removal only while the symptom stays. Ctrl-C stops it; the same command continues it.
    """
    from scalescope.studies.isolation.search import check

    given: dict[str, Any] = {
        "finding": finding,
        "metric": metric,
        "max_trials": max_trials,
        "minutes": minutes,
        "folder": str(folder),
    }
    check(given)  # before Prefect, which takes seconds, is even loaded
    sweep = _sweep(run, workload, axis, param, cluster, cluster_option)
    if sweep:
        asked = {"store": store or sweep.pop("store", ""), "fresh": fresh}
        asked |= {name: sweep.pop(name, default) for name, default in _ASKED.items()}
        finished, _ = cli._sweep(sweep, asked, verbose=verbose)
        run, store = finished.id, str(asked["store"])
        if not as_json:
            _print_run(finished)
    result = _isolate({**given, "run": run or "latest", "store": store, "fresh": fresh}, verbose=verbose)
    if as_json:
        cli._print_json(result.to_mapping())
    else:
        _print(result)
    raise typer.Exit(CONFIRMED if result.confirmed else UNCONFIRMED)


def _sweep(
    run: str,
    workload: str | None,
    axis: list[str] | None,
    param: list[str] | None,
    cluster: str | None,
    cluster_option: list[str] | None,
) -> dict[str, Any]:
    """The sweep to be run first, or nothing."""
    is_file = run.endswith((".yaml", ".yml"))
    options = (workload, axis, param, cluster, cluster_option)
    if not is_file and workload is None:
        if any(options):
            raise UsageError("There is no workload to sweep", next_step="give --workload, or only a RUN")
        return {}
    if run and not is_file:
        raise UsageError(f"Both the run {run!r} and a sweep are given", next_step="give either RUN or --workload")
    data = syntax.read_file(Path(run)) if is_file else {}
    data |= {} if workload is None else {"workload": workload}
    syntax.merge(data, "axes", syntax.axes(axis or ()))
    syntax.merge(data, "params", syntax.params("--param", param or ()))
    syntax.merge_cluster(data, cluster, syntax.params("--cluster-option", cluster_option or ()))
    return data


def _isolate(given: dict[str, Any], *, verbose: bool) -> Isolated:
    """Carry it out, as a flow in this process."""
    given = {**given, "store": cli._without_password(given["store"])}
    cli._start_prefect(verbose=verbose)
    from scalescope.run.progress import listening
    from scalescope_flows.isolate import isolate as flow

    try:
        with sweep_progress() as listener, listening(listener):
            result: Isolated = flow(**given)
    except KeyboardInterrupt:
        say("Stopped. Finished trials are kept; the same command continues.", "yellow")
        raise typer.Exit(cli.INTERRUPTED) from None
    return result


def _print_run(run: Any) -> None:
    from rich.console import Console

    from scalescope.report.terminal import print_run

    console = Console(highlight=False)
    print_run(console, run)
    console.print()


def _print(result: Isolated) -> None:
    from rich.console import Console
    from rich.text import Text

    from scalescope.studies.isolation import notebook

    console = Console(highlight=False)
    console.print(notebook.render(result.isolation))
    finding = result.isolation.finding
    if finding is not None and finding.remedy:
        console.print(Text.assemble(("Fix: ", "bold"), f"{finding.remedy}."))
    if result.confirmed:
        assert result.confirmation is not None
        lines = result.reproducer.text.count("\n")
        console.print(Text(f"\nreproducer.py ({lines} lines) shows it in a process of its own:", style="bold green"))
        console.print(Text(result.confirmation.output))
    else:
        console.print()
        say_error(f"NO CONFIRMED REPRODUCER: {result.doubt}")
    console.print(Text(f"\nIn {result.folder}: {', '.join(result.files)}"))
