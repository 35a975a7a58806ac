"""`scalescope sweep`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalescope.cli.carrying import carry_out, start_prefect
from scalescope.cli.commands.show import show_run
from scalescope.cli.detached import Detach, detach
from scalescope.cli.options import Brief, GivenOptions, Json, Prefect, Require, SweepFile, Verbose, options
from scalescope.cli.output import say_error
from scalescope.errors import ExitStatus
from scalescope.run import syntax
from scalescope.run.parameters import RunParameters

if TYPE_CHECKING:
    from scalescope.run.request import RunRequest
    from scalescope.run.runner import Runner
    from scalescope.run.sweep import SweepResult


@options(RunParameters)
def sweep(
    asked: GivenOptions,
    file: SweepFile = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Print the expected cost, and start nothing.")] = False,
    require: Require = None,
    brief: Brief = False,
    as_json: Json = False,
    detached: Detach = False,
    prefect: Prefect = None,
    verbose: Verbose = False,
) -> None:
    """Measure a workload at every point of some axes, and say where it stops scaling and why.

    Ctrl-C stops a sweep; the same command continues it.
    """
    from scalescope.studies.requirement import check_points, requirement

    if detached:
        detach(as_json=as_json)
    given = asked.over(syntax.read_file(file) if file else {})
    if estimate:
        _estimate(given)
        return
    required = [requirement(text) for text in require or ()]

    def accepts(request: RunRequest) -> None:
        check_points(required, [planned.point for planned in request.plan])

    result = run_sweep(given, accepts=accepts, prefect=prefect, verbose=verbose)
    status = show_run(result.run, required, brief=brief, as_json=as_json)
    if result.ended_early:
        say_error(result.ended_early)
    raise typer.Exit(ExitStatus.BUDGET_SPENT if result.ended_early else status)


def run_sweep(
    given: Mapping[str, Any],
    *,
    accepts: Callable[[RunRequest], object] = lambda request: None,
    prefect: bool | None = None,
    verbose: bool = False,
) -> SweepResult:
    """Carry out a sweep; `accepts` may raise to refuse it before it starts (not called if saved blocks are named)."""
    from scalescope.run import sweep as library
    from scalescope.run.request import check

    request = None if syntax.names_blocks(given) else check(given)
    if request:
        accepts(request)

    def act(given: Mapping[str, Any], runner: Runner) -> SweepResult:
        return library.run_sweep(request or given, runner)

    return carry_out("scale-sweep", given, act, prefect=prefect, verbose=verbose)


def _estimate(given: Mapping[str, Any]) -> None:
    from scalescope.run.request import resolve
    from scalescope.run.sweep import expected_cost

    if syntax.names_blocks(given):
        start_prefect()
    request = resolve(given)
    with request.open_store() as opened:
        print(expected_cost(request, request.plan, opened))
