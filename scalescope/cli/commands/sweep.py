"""`scalescope sweep`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalescope.cli.carrying import carry_out, open_store
from scalescope.cli.commands.show import show_run
from scalescope.cli.options import Asked, Json, Prefect, SweepFile, Verbose, options
from scalescope.cli.output import say_error
from scalescope.errors import ExitStatus
from scalescope.run import syntax
from scalescope.run.parameters import RunParameters

if TYPE_CHECKING:
    from scalescope.run.sweep import SweepResult


@options(RunParameters)
def sweep(
    asked: Asked,
    file: SweepFile = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what it would cost, and start nothing.")] = False,
    as_json: Json = False,
    prefect: Prefect = None,
    verbose: Verbose = False,
) -> None:
    """Measure a workload at every point of some axes, and say where it stops scaling and why.

    Ctrl-C stops a sweep; the same command continues it.
    """
    given = asked.over(syntax.read_file(file) if file else {})
    if estimate:
        _estimate(given)
        return
    result = run_sweep(given, prefect=prefect, verbose=verbose)
    with open_store(str(given.get("store", ""))) as store:
        status = show_run(store.run(result.run_id), as_json=as_json)
    if result.ended_early:
        say_error(result.ended_early)
    raise typer.Exit(ExitStatus.BUDGET_SPENT if result.ended_early else status)


def run_sweep(given: Mapping[str, Any], *, prefect: bool | None = None, verbose: bool = False) -> SweepResult:
    """Carry a sweep out."""
    from scalescope.run import request
    from scalescope.run import sweep as library

    return carry_out("scale-sweep", given, library.run_sweep, check=request.check, prefect=prefect, verbose=verbose)


def _estimate(given: Mapping[str, Any]) -> None:
    """Say what a sweep would cost, trials that an earlier attempt has finished included."""
    from scalescope.cli.carrying import start_prefect
    from scalescope.run.request import resolve
    from scalescope.run.sweep import expected_cost

    if syntax.names_block(given.get("cluster")) or syntax.names_store(given.get("store")):
        start_prefect()
    request = resolve(given)
    with request.open_store() as opened:
        print(expected_cost(request, request.plan, opened))
