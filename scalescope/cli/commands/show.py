"""`scalescope show`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalescope.cli import main as cli
from scalescope.cli.console import say
from scalescope.errors import UsageError
from scalescope.model.finding import Severity
from scalescope.model.study import Study

if TYPE_CHECKING:
    from scalescope.report.links import Link
    from scalescope.store.store import Store, SweepRun

LINE = 90
"""Characters of an answer in a list."""
WIDE = 100
"""Columns of a terminal from which on the list has all of its own."""
STATUSES = cli.STATUSES.replace("severity high", "severity high, or a study with bad news or no answer")


@cli.app.command(epilog=STATUSES)
def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN | STUDY]",
            help="A run: its id, the beginning of it, or latest. Or a study: likewise; threshold, release or "
            "comparison is the newest of these.",
        ),
    ] = "latest",
    list_runs: Annotated[bool, typer.Option("--list", help="List the newest runs and studies instead.")] = False,
    all_runs: Annotated[bool, typer.Option("--all", help="List the runs of studies as well.")] = False,
    compare: Annotated[
        str, typer.Option(metavar="RUN", help="Show this other run beside it.", show_default=False)
    ] = "",
    store: cli.StoreOption = "",
    as_json: cli.Json = False,
) -> None:
    """Show what a sweep or a study found."""
    from scalescope.store.studies import is_study

    with cli._open_store(store) as opened:
        if list_runs:
            _list(opened, all_runs=all_runs, as_json=as_json)
        elif compare:
            _compare(opened, run, compare, as_json=as_json)
        elif is_study(run):
            study = opened.studies.get(run)
            show_study(study, [opened.run(each) for each in study.runs], as_json=as_json)
        else:
            found = opened.run(run)
            raise typer.Exit(show_run(found, opened.studies.following(found.id), as_json=as_json))


def show_run(run: SweepRun, followed_by: tuple[str, ...] = (), *, as_json: bool) -> int:
    """Show a run; returns the exit status that it deserves."""
    from scalescope.diagnosis.verdict import diagnose
    from scalescope.report import links

    verdict = run.verdict or diagnose(run.sweep, run.trials)
    if as_json:
        from scalescope.report.export import to_json

        linked = {"study": run.study, "followed_by": list(followed_by)}
        cli._print_json({**_identity(run), **linked, **to_json(run.sweep, run.trials, verdict)})
    else:
        from rich.console import Console

        from scalescope.report.terminal import print_run

        print_run(Console(highlight=False), run)
        _print_links(links.of_run(run, followed_by))
        say(f"\nRun {run.id} in {run.where}", "dim")
    return cli.FINDING if verdict.severity is Severity.HIGH else cli.OK


def show_study(study: Study, runs: list[SweepRun], *, as_json: bool) -> None:
    """Show a study, and end with its status."""
    if as_json:
        from scalescope.studies.report.export import to_json

        cli._print_json(to_json(study))
    else:
        from rich.console import Console

        from scalescope.report import links
        from scalescope.studies.report.terminal import render

        Console(highlight=False).print(render(study, runs))
        _print_links(links.of_study(study))
        say(f"\nStudy {study.id} in {study.where}", "dim")
    raise typer.Exit(cli.FINDING if study.alarm else cli.OK)


def _print_links(found: tuple[Link, ...]) -> None:
    from scalescope.report.links import lines

    if found:
        print("", *lines(found), sep="\n")


def _compare(store: Store, left: str, right: str, *, as_json: bool) -> None:
    from scalescope.store.studies import is_study

    if as_json:
        raise UsageError("--compare has no JSON form", next_step="`scalescope show RUN --json` of each run")
    if studies := [each for each in (left, right) if is_study(each)]:
        raise UsageError(
            f"--compare sets two runs side by side, and {studies[0]} is a study",
            next_step=f"`scalescope show {studies[0]}` lists its runs",
        )
    from rich.console import Console

    from scalescope.report.terminal import render_comparison

    runs = store.run(left), store.run(right)
    console = Console(highlight=False)
    labels = (f"{runs[0].id} {runs[0].sweep.workload}", f"{runs[1].id} {runs[1].sweep.workload}")
    console.print(render_comparison(*runs, labels, width=console.width))


# ------------------------------------------------------------------ the list


def _list(store: Store, *, all_runs: bool, as_json: bool) -> None:
    """The newest runs and studies together; runs that were made for a study only where asked for."""
    from scalescope.studies.report.export import identity

    found: list[SweepRun | Study] = [*store.runs(own=not all_runs), *store.studies.newest()]
    found.sort(key=lambda each: datetime.fromisoformat(each.created_at), reverse=True)
    if as_json:
        cli._print_json([identity(each) if isinstance(each, Study) else _identity(each) for each in found])
        return
    rows = [_study_row(each) if isinstance(each, Study) else _run_row(each) for each in found]
    _print_rows(rows)


def _print_rows(rows: Sequence[tuple[str, ...]]) -> None:
    """A table in which an id stays in one piece, to be copied, however narrow the terminal is."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    titles = ("run or study", "workload", "cluster", "trials", "state", "finding or answer")
    kept = [i for i, title in enumerate(titles) if console.width >= WIDE or title not in ("cluster", "trials")]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for i in kept:
        table.add_column(titles[i], no_wrap=i == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[i]) for i in kept))
    console.print(table)


def _run_row(run: SweepRun) -> tuple[str, ...]:
    trials = f"{len(run.trials)}/{run.planned}"
    worst = f"{run.verdict.severity.word}: {run.verdict.findings[0].code}" if run.verdict else ""
    return (run.id, run.sweep.workload, run.sweep.cluster.kind, trials, run.state.value, worst)


def _study_row(study: Study) -> tuple[str, ...]:
    from scalescope.analysis.summary import plural
    from scalescope.studies.report.common import workload

    cluster = study.question.get("cluster") or ""
    kind = str(cluster.get("kind", "")) if isinstance(cluster, dict) else str(cluster)
    state = "answered" if study.finished_at else "not finished"
    answer = shorten(study.line, LINE, placeholder=" …")
    return (study.id, workload(study), kind, plural(len(study.runs), "run"), state, answer)


def _identity(run: SweepRun) -> dict[str, Any]:
    return {
        "run": run.id,
        "state": run.state.value,
        "workload": run.sweep.workload,
        "planned": run.planned,
        "finished": len(run.trials),
        "created_at": run.created_at,
        "finished_at": run.finished_at,
        "verdict_line": run.verdict.line if run.verdict else None,
        "store": run.where,
    }
