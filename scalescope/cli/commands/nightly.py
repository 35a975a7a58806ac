"""`scalescope nightly` and `alerts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalescope.cli.carrying import carry_out, open_store, read_store
from scalescope.cli.commands.show import show_study
from scalescope.cli.options import GivenOptions, Json, Prefect, Verbose, options
from scalescope.cli.output import print_json, print_table, say
from scalescope.errors import ExitStatus
from scalescope.nightly.parameters import NightlyParameters
from scalescope.run import syntax
from scalescope.run.parameters import Reported, Storage

if TYPE_CHECKING:
    from scalescope.model.decision import Decision
    from scalescope.nightly.night_record import Alert


@options(NightlyParameters, Reported)
def nightly(
    asked: GivenOptions,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.yaml]", help="Parameters of the night as YAML. Options override them.", show_default=False
        ),
    ] = None,
    expected_within: Annotated[
        str,
        typer.Option(
            metavar="HOURS",
            help="For cron: run nothing, and say when the last night was. Exit status 1 unless one ended within the "
            "last HOURS, such as 26h, and measured something.",
            show_default=False,
        ),
    ] = "",
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


@options(Storage, without=("fresh",))
def alerts(
    asked: GivenOptions,
    alert: Annotated[
        str,
        typer.Argument(
            metavar="[ALERT]",
            help="One alert: its id, or the start of its id. With --mute-until, --accept and --undo: a workload, a "
            "kind of cluster, or one series as reports write it: 'bag-map (4 workers, 40 items, local)'.",
        ),
    ] = "",
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
    mute_until: Annotated[
        str,
        typer.Option(
            metavar="DAY",
            help="Until the end of this day, such as 2027-01-31, measure and show these series, and raise no alert.",
            show_default=False,
        ),
    ] = "",
    accept: Annotated[
        bool, typer.Option("--accept", help="Expect the present level of these series from now on.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why they are muted or accepted.", show_default=False)] = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Undo what --mute-until and --accept did to these series.")
    ] = False,
    history: Annotated[str, typer.Option(help="Mute, accept or undo in one history alone.", show_default=False)] = "",
    as_json: Json = False,
) -> None:
    """List the regressions that nights have confirmed, set the state of one, or mute series.

    Example: scalescope alerts bag-map --mute-until 2027-01-31 --reason 'its disk is being replaced'
    """
    from scalescope.nightly import alerts as library
    from scalescope.nightly import decisions

    with open_store(str(asked.given.get("store", ""))) as opened:
        if state:
            library.set_state(opened, alert, state)
        if undo:
            decisions.undo(opened, alert, history)
        if mute_until:
            decisions.decide(opened, alert, until=mute_until, reason=reason, history=history)
        if accept:
            decisions.decide(opened, alert, reason=reason, history=history)
        wanted = "" if undo or accept or mute_until else alert  # else all are listed, as they are now
        found = [each for each in reversed(library.every(opened)) if each.id.startswith(wanted)]
        decided = () if wanted else decisions.in_force(opened)
    if as_json:
        listed = {"alerts": found, "decisions": decided}
        print_json({name: [each.to_mapping() for each in some] for name, some in listed.items()})
    elif wanted and len(found) == 1:
        print(found[0].script if script and found[0].script else library.issue(found[0]))
    else:
        _print(found, decided)


def _print(found: Sequence[Alert], decided: Sequence[Decision]) -> None:
    from scalescope.nightly import alerts as library

    if found:
        rows = [(each.id, str(each.state), each.night, library.line(each)) for each in found]
        print_table(["alert", "state", "night", "what"], rows, whole=(0,))
    if decided:
        cells = [(each.what, each.kind, each.who, each.reason) for each in decided]
        print_table(["series", "decision", "who", "why"], cells)
    if not found and not decided:
        say("No alerts, and nothing is muted.", "dim")
