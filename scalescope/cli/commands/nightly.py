"""`scalescope nightly`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from scalescope.cli.carrying import carry_out, read_store
from scalescope.cli.commands.show import show_study
from scalescope.cli.options import GivenOptions, Json, Prefect, Verbose, argument, option, options
from scalescope.cli.output import print_json
from scalescope.errors import ExitStatus
from scalescope.nightly.parameters import NightlyParameters
from scalescope.run import syntax
from scalescope.run.parameters import Reported


@options(NightlyParameters, Reported)
def nightly(
    asked: GivenOptions,
    file: Annotated[
        Path | None,
        argument(metavar="[FILE.yaml]", help="Parameters of the nightly run as YAML. Options override them."),
    ] = None,
    expected_within: Annotated[
        str,
        option(
            metavar="HOURS",
            help="For cron: run nothing, and print when the last night ended. Exit status 1 if no night that measured "
            "something ended within the last HOURS, such as 26h.",
        ),
    ] = "",
    as_json: Json = False,
    prefect: Prefect = None,
    verbose: Verbose = False,
) -> None:
    """Run the suite once, and say which workloads got worse since earlier nights, by how much, and why.

    Each change is rerun before it is reported: tonight's environment against the last good night's, in pairs, on this
    machine. For each confirmed change, the package and release that brought it are looked for. Ctrl-C stops a night;
    the same command continues it within 12 hours.

    Example: scalescope nightly --small -e 'dask[distributed]' -c local -a workers=4
    """
    from scalescope.nightly import running

    given = asked.over(syntax.read_file(file) if file else {})
    if expected_within:
        raise typer.Exit(_last_night(given, expected_within, as_json=as_json))
    result = carry_out("nightly", given, running.run_nightly, check=running.check, prefect=prefect, verbose=verbose)
    show_study(result.study, result.runs, as_json=as_json)


def _last_night(given: Mapping[str, Any], expected_within: str, *, as_json: bool) -> ExitStatus:
    from scalescope.nightly import missing_nights

    within_h = missing_nights.hours(expected_within)
    with read_store(given.get("store", "")) as opened:
        found = missing_nights.last_night(opened, given.get("history", NightlyParameters().history), within_h)
    if as_json:
        print_json(asdict(found))
    else:
        print(found.line)
    return ExitStatus.FINDING if found.late else ExitStatus.OK
