"""`scalescope find-threshold`, `find-release` and `compare`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalescope.cli import main as cli
from scalescope.cli.console import say, sweep_progress
from scalescope.model.fields import Scalar
from scalescope.run import syntax

if TYPE_CHECKING:
    from scalescope_flows.studies import StudyResult

FOUND, ALARM = 0, 1
STATUSES = (
    "Exit status: 0 {fine}; 1 {alarm}; 2 the request cannot be right; 3 the machine misbehaved, or an unexpected "
    "error; 130 or 143 stopped by a signal."
)
FOUND_STATUSES = STATUSES.format(fine="it is known", alarm="it could not be found out")

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="[RUN]",
        help="A finished run that gives whatever is not given, at its worst point: its id, the beginning of it, or "
        "latest.",
        show_default=False,
    ),
]
Workload = Annotated[
    str,
    typer.Option("--workload", "-w", metavar="NAME", help="A workload, as for `scalescope sweep`.", show_default=False),
]
Value = Annotated[
    list[str] | None,
    typer.Option("--axis", "-a", metavar="NAME=VALUE", help="Where to measure, as workers=200. Several times."),
]
Param = Annotated[list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUE", help="A workload parameter.")]
Cluster = Annotated[
    str, typer.Option("--cluster", "-c", metavar="KIND", help="As for `scalescope sweep`.", show_default=False)
]
ClusterOption = Annotated[
    list[str] | None, typer.Option("--cluster-option", metavar="NAME=VALUE", help="A field of the cluster.")
]
Minutes = Annotated[float, typer.Option(help="Minutes after which no further trial is begun.")]
Seed = Annotated[int, typer.Option(help="Of the order of trials, and of the simulated cluster.")]
Timeout = Annotated[float, typer.Option(help="Real seconds after which a trial is stopped.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Begin anew; do not continue one that was stopped.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Prefect's log.")]
Metric = Annotated[
    str,
    typer.Option("--metric", "-m", metavar="NUMBER", help="tasks, makespan_s, efficiency, workers_used / workers, ..."),
]


@cli.app.command(epilog=FOUND_STATUSES)
def find_threshold(
    run: RunArgument = "",
    workload: Workload = "",
    axis: Annotated[
        list[str] | None,
        typer.Option(
            "--axis",
            "-a",
            metavar="NAME=VALUES",
            help="The axis to search with its range, as items=50..400 or items=0..1000:10; others with one value, as "
            "workers=300.",
        ),
    ] = None,
    param: Param = None,
    metric: Metric = "tasks",
    cluster: Cluster = "",
    cluster_option: ClusterOption = None,
    environment: cli.EnvironmentOption = "",
    max_points: Annotated[int, typer.Option(help="Different values to measure at most.")] = 40,
    max_repeats: Annotated[int, typer.Option(help="Trials of one value at most, where trials differ.")] = 5,
    min_jump: Annotated[float, typer.Option(help="Smallest jump worth naming, as a share.")] = 0.05,
    minutes: Minutes = 60.0,
    seed: Seed = 0,
    timeout: Timeout = 600.0,
    report: cli.ReportOption = None,
    store: cli.StoreOption = "",
    fresh: Fresh = False,
    as_json: cli.Json = False,
    verbose: Verbose = False,
) -> None:
    """Find the exact value of an axis at which a metric jumps, with few trials instead of a grid.

    For example: scalescope find-threshold -w beam-pardo -a items=50..400 -a workers=300 --metric tasks
    """
    given = _shared(workload, param, cluster, cluster_option, environment, seed=seed, timeout=timeout)
    axes: dict[str, Any] = syntax.axes(axis or ())
    design = {"max_points": max_points, "max_repeats": max_repeats, "min_jump": min_jump}
    _carry(
        "find_threshold",
        given | {"axes": axes, "run": run, "metric": metric, "minutes": minutes} | design,
        store=store,
        fresh=fresh,
        report=report,
        as_json=as_json,
        verbose=verbose,
    )


@cli.app.command(epilog=FOUND_STATUSES)
def find_release(
    package: Annotated[
        str, typer.Argument(metavar="[PACKAGE]", help="Whose releases are searched.", show_default=False)
    ] = "",
    good: Annotated[str, typer.Option(metavar="VERSION", help="A release known to be good.", show_default=False)] = "",
    bad: Annotated[str, typer.Option(metavar="VERSION", help="A later one that is not.")] = "latest",
    before: Annotated[
        str,
        typer.Option(metavar="FILE", help="A lock file known to be good, in place of a package.", show_default=False),
    ] = "",
    after: Annotated[str, typer.Option(metavar="FILE", help="The lock file that is not.", show_default=False)] = "",
    run: Annotated[
        str, typer.Option(metavar="RUN", help="A finished run that gives whatever is not given.", show_default=False)
    ] = "",
    workload: Workload = "",
    axis: Value = None,
    param: Param = None,
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            "-m",
            metavar="NUMBER|COMPARISON",
            help="What moved (workers_used), or what came to hold (workers_used < 0.5 * workers).",
            show_default=False,
        ),
    ] = "",
    finding: Annotated[
        str, typer.Option(metavar="CODE", help="The finding that came up, in place of a metric.", show_default=False)
    ] = "",
    cluster: Cluster = "",
    cluster_option: ClusterOption = None,
    environment: Annotated[
        str,
        typer.Option(
            "--environment",
            "-e",
            metavar="REQUIREMENTS",
            help="What goes with every release, as 'dask[distributed]==2024.8.0'.",
            show_default=False,
        ),
    ] = "",
    max_environments: Annotated[int, typer.Option(help="Releases to try at most.")] = 12,
    max_pairs: Annotated[int, typer.Option(help="Pairs of trials of one release at most, where trials differ.")] = 20,
    smallest_effect: Annotated[float, typer.Option(help="By how much the ends must differ, as a share.")] = 0.03,
    minutes: Minutes = 60.0,
    seed: Seed = 0,
    timeout: Timeout = 600.0,
    report: cli.ReportOption = None,
    store: cli.StoreOption = "",
    fresh: Fresh = False,
    as_json: cli.Json = False,
    verbose: Verbose = False,
) -> None:
    """Find the release of a package that moved a metric or brought a finding; or the package of two lock files.

    For example: scalescope find-release apache-beam --good 2.50.0 -w beam-pardo -a items=199 -a workers=199 -m
    workers_used
    """
    given = _shared(workload, param, cluster, cluster_option, environment, seed=seed, timeout=timeout)
    asked = {"package": package, "good": good, "bad": bad, "before": before, "after": after, "run": run}
    design = {"max_environments": max_environments, "max_pairs": max_pairs, "smallest_effect": smallest_effect}
    looked_at = {"metric": metric, "finding": finding, "values": _values(axis), "minutes": minutes}
    _carry(
        "find_release",
        given | asked | design | looked_at,
        store=store,
        fresh=fresh,
        report=report,
        as_json=as_json,
        verbose=verbose,
    )


@cli.app.command(epilog=STATUSES.format(fine="B is not slower", alarm="B is slower"))
def compare(
    run: RunArgument = "",
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME",
            help="A workload, as for `scalescope sweep`. Several times: each is compared, all are judged together.",
        ),
    ] = None,
    a: Annotated[
        list[str] | None,
        typer.Option("--a", metavar="NAME=VALUE", help="What is particular to A: environment=..., cluster=..., ..."),
    ] = None,
    b: Annotated[list[str] | None, typer.Option("--b", metavar="NAME=VALUE", help="What is particular to B.")] = None,
    axis: Value = None,
    param: Param = None,
    metric: Metric = "makespan_s",
    cluster: Cluster = "",
    cluster_option: ClusterOption = None,
    environment: cli.EnvironmentOption = "",
    smallest_effect: Annotated[
        float, typer.Option(help="Differences up to it are called the same, as a share.")
    ] = 0.03,
    max_pairs: Annotated[int, typer.Option(help="Pairs after which it is given up.")] = 20,
    minutes: Minutes = 60.0,
    seed: Seed = 0,
    timeout: Timeout = 600.0,
    report: cli.ReportOption = None,
    store: cli.StoreOption = "",
    fresh: Fresh = False,
    as_json: cli.Json = False,
    verbose: Verbose = False,
) -> None:
    """Compare B with A in interleaved pairs of trials, until the answer is clear.

    For example: scalescope compare -w beam-pardo -a items=100 -a workers=100 --a partition_size=1 --b partition_size=4
    """
    given = _shared("", param, cluster, cluster_option, environment, seed=seed, timeout=timeout)
    asked = {"workloads": list(workload or ()), "a": _arm("--a", a), "b": _arm("--b", b), "run": run}
    design = {"metric": metric, "smallest_effect": smallest_effect, "max_pairs": max_pairs, "minutes": minutes}
    del given["workload"]
    _carry(
        "compare",
        given | asked | design | {"values": _values(axis)},
        store=store,
        fresh=fresh,
        report=report,
        as_json=as_json,
        verbose=verbose,
    )


def _shared(
    workload: str,
    param: list[str] | None,
    cluster: str,
    cluster_option: list[str] | None,
    environment: str,
    *,
    seed: int,
    timeout: float,
) -> dict[str, Any]:
    """Parameters that the three flows have in common."""
    data: dict[str, Any] = {}
    syntax.merge_cluster(data, cluster or None, syntax.params("--cluster-option", cluster_option or ()))
    return {
        "workload": workload,
        "params": syntax.params("--param", param or ()),
        "cluster": data.get("cluster", ""),
        "environment": environment,
        "seed": seed,
        "trial_timeout_s": timeout,
    }


def _values(axis: list[str] | None) -> dict[str, Scalar]:
    return syntax.params("--axis", axis or ())


def _arm(option: str, given: list[str] | None) -> dict[str, Scalar]:
    return syntax.params(option, given or ())


_CHECKS: dict[str, Callable[[Mapping[str, Any], str], object]] = {
    "find_threshold": lambda given, store: _studies("threshold").ask(given, store),
    "find_release": lambda given, store: _studies("release").check(given, store),
    "compare": lambda given, store: _studies("comparison").ask(given, store),
}


def _studies(name: str) -> Any:
    return import_module(f"scalescope.studies.{name}.plan")


def _carry(
    name: str,
    given: Mapping[str, Any],
    *,
    store: str,
    fresh: bool,
    report: Path | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Carry a study out, as a flow in this process, and show its answer."""
    if report:
        cli._check_report(report)
    if not (syntax.names_block(given["cluster"]) or syntax.names_store(store)):
        _CHECKS[name](given, store)  # before Prefect, which takes seconds, is even loaded
    where = cli._without_password(store)
    cli._start_prefect(verbose=verbose)
    import scalescope_flows
    from scalescope.run.progress import listening

    flow: Callable[..., StudyResult] = getattr(scalescope_flows, name)
    try:
        with sweep_progress() as listener, listening(listener):
            result = flow(**given, store=where, fresh=fresh, report=str(report or ""))
    except KeyboardInterrupt:
        say("Stopped. Finished trials are kept; the same command continues.", "yellow")
        raise typer.Exit(cli.INTERRUPTED) from None
    from scalescope.cli.commands.show import show_study

    with cli._open_store(store) as opened:
        study = opened.studies.get(result.study_id)
        show_study(study, [opened.run(run) for run in study.runs], as_json=as_json)
