"""`scalescope nightly` and `alerts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scalescope.cli.carrying import carry_out, open_store
from scalescope.cli.commands.show import show_study
from scalescope.cli.options import GivenOptions, Json, Prefect, Verbose, options
from scalescope.cli.output import print_json, print_table, say
from scalescope.nightly.parameters import NightlyParameters
from scalescope.run import syntax
from scalescope.run.parameters import Reported, Storage


@options(NightlyParameters, Reported)
def nightly(
    asked: GivenOptions,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.yaml]", help="Parameters of the night as YAML. Options override them.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    prefect: Prefect = None,
    verbose: Verbose = False,
) -> None:
    """Run the suite once, and say what got worse since earlier nights, by how much, and because of what.

    Each change is rerun before it is reported: tonight's environment against the last good night's, in pairs, on this
    machine. For each confirmed change, the package and release that brought it are searched. Ctrl-C stops a night; the
    same command continues it within 12 hours.

    Example: scalescope nightly --small -e 'dask[distributed]' -c local -a workers=4
    """
    from scalescope.nightly import running

    given = asked.over(syntax.read_file(file) if file else {})
    result = carry_out("nightly", given, running.run_nightly, check=running.check, prefect=prefect, verbose=verbose)
    show_study(result.study, result.runs, as_json=as_json)


@options(Storage, without=("fresh",))
def alerts(
    asked: GivenOptions,
    alert: Annotated[str, typer.Argument(metavar="[ALERT]", help="One alert: its id, or the start of its id.")] = "",
    state: Annotated[
        str,
        typer.Option(
            metavar="STATE",
            help="Set its state: acknowledged, accepted (later nights expect the new level), false (not reported "
            "again), resolved, or open.",
            show_default=False,
        ),
    ] = "",
    script: Annotated[
        bool, typer.Option("--script", help="Print the script that shows the regression without Scalescope.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the regressions that nights have confirmed, or set the state of one."""
    from scalescope.nightly import alerts as library

    with open_store(str(asked.given.get("store", ""))) as opened:
        if state:
            library.set_state(opened, alert, state)
        found = [each for each in reversed(library.every(opened)) if each.id.startswith(alert)]
    if as_json:
        print_json([each.to_mapping() for each in found])
    elif alert and len(found) == 1:
        print(found[0].script if script and found[0].script else library.issue(found[0]))
    elif found:
        rows = [(each.id, str(each.state), each.night, library.line(each)) for each in found]
        print_table(["alert", "state", "night", "what"], rows, whole=(0,))
    else:
        say("No alerts.", "dim")
