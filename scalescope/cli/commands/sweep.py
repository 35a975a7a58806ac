"""`scalescope sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalescope.cli.carrying import carry_out, open_store
from scalescope.cli.commands.show import show_run
from scalescope.cli.options import GivenOptions, Json, Prefect, Require, SweepFile, Verbose, options
from scalescope.cli.output import say_error
from scalescope.errors import ExitStatus
from scalescope.run import syntax
from scalescope.run.parameters import RunParameters

if TYPE_CHECKING:
    from scalescope.run.sweep import SweepResult
    from scalescope.studies.requirement import Requirement


@options(RunParameters)
def sweep(
    asked: GivenOptions,
    file: SweepFile = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what it would cost, and start nothing.")] = False,
    require: Require = None,
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
    required = _checked(require or (), given)
    result = run_sweep(given, prefect=prefect, verbose=verbose)
    with open_store(str(given.get("store", ""))) as store:
        status = show_run(store.run(result.run_id), required, as_json=as_json)
    if result.ended_early:
        say_error(result.ended_early)
    raise typer.Exit(ExitStatus.BUDGET_SPENT if result.ended_early else status)


def run_sweep(given: Mapping[str, Any], *, prefect: bool | None = None, verbose: bool = False) -> SweepResult:
    """Carry a sweep out."""
    from scalescope.run import request
    from scalescope.run import sweep as library

    return carry_out("scale-sweep", given, library.run_sweep, check=request.check, prefect=prefect, verbose=verbose)


def _checked(conditions: Sequence[str], given: Mapping[str, Any]) -> list[Requirement]:
    """Conditions that can be met or not, checked before anything is started."""
    from scalescope.run import request
    from scalescope.studies.requirement import check_points, requirement

    required = [requirement(text) for text in conditions]
    if required and not syntax.names_block(given.get("cluster")) and not syntax.names_store(given.get("store")):
        check_points(required, [planned.point for planned in request.check(given).plan])
    return required


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
