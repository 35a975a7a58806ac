"""`scalescope alerts`."""

from __future__ import annotations

from typing import Annotated

import typer

from scalescope.cli.carrying import open_store
from scalescope.cli.options import DefaultGroup, Json, StoreAddress, option
from scalescope.cli.output import exit_statuses, print_json, print_table, say
from scalescope.errors import UsageError
from scalescope.store.store import Store

app = typer.Typer(
    cls=DefaultGroup,
    help="List the regressions that nights have confirmed, set the state of one, or mute series. Default: the list.",
)
OneAlert = Annotated[str, typer.Argument(metavar="ALERT", help="Alert: an id, or the start of an id.")]
SomeSeries = Annotated[
    str,
    typer.Argument(
        metavar="SERIES",
        help="A workload, a kind of cluster, or a series as reports write it: 'bag-map (4 workers, 40 items, local)'.",
    ),
]
Reason = Annotated[str, typer.Option(help="Reason in a few words; shown with the series.")]
OneHistory = Annotated[str, option(help="Only in this history.")]


@app.command("list", epilog=exit_statuses())
def list_all(store: StoreAddress = "", as_json: Json = False) -> None:
    """List all alerts, newest first, and which series are muted or accepted."""
    with open_store(store) as opened:
        _list(opened, as_json=as_json)


@app.command(epilog=exit_statuses())
def show(alert: OneAlert, store: StoreAddress = "", as_json: Json = False) -> None:
    """Print an alert as Markdown for a bug tracker."""
    from scalescope.nightly import alerts

    with open_store(store) as opened:
        found = alerts.find(opened, alert)
    if as_json:
        print_json(found.to_mapping())
    else:
        print(alerts.issue(found))


@app.command(epilog=exit_statuses())
def script(alert: OneAlert, store: StoreAddress = "") -> None:
    """Print the script that shows a regression without Scalescope.

    Example: scalescope alerts script 3fa1 > slower.py
    """
    from scalescope.nightly import alerts

    with open_store(store) as opened:
        found = alerts.find(opened, alert)
    if not found.script:
        next_step = f"`scalescope alerts show {found.id}` prints a command that measures the regression again"
        raise UsageError(f"Alert {found.id} has no script", cause=found.shown, next_step=next_step)
    print(found.script)


@app.command("set", epilog=exit_statuses())
def set_state(
    alert: OneAlert,
    state: Annotated[
        str,
        typer.Argument(
            metavar="STATE",
            help="acknowledged, accepted (later nights expect the new level), false (not reported again), resolved, or "
            "open.",
        ),
    ],
    store: StoreAddress = "",
) -> None:
    """Set the state of an alert."""
    from scalescope.nightly import alerts

    with open_store(store) as opened:
        found = alerts.set_state(opened, alert, state)
    print(f"{found.id} {found.state}: {alerts.line(found)}")


@app.command(epilog=exit_statuses())
def mute(
    series: SomeSeries,
    until: Annotated[
        str, typer.Option(metavar="DAY", help="The last day, such as 2027-01-31, by the clock of this machine.")
    ],
    store: StoreAddress = "",
    reason: Reason = "",
    history: OneHistory = "",
) -> None:
    """Raise no alert for series until the end of a day; they are still measured and shown.

    Example: scalescope alerts mute bag-map --until 2027-01-31 --reason 'its disk is being replaced'
    """
    from scalescope.nightly import decisions

    with open_store(store) as opened:
        decisions.decide(opened, series, until=until, reason=reason, history=history)
        _list(opened)


@app.command(epilog=exit_statuses())
def accept(series: SomeSeries, store: StoreAddress = "", reason: Reason = "", history: OneHistory = "") -> None:
    """Accept the present level of series: later nights are compared with it."""
    from scalescope.nightly import decisions

    with open_store(store) as opened:
        decisions.decide(opened, series, reason=reason, history=history)
        _list(opened)


@app.command(epilog=exit_statuses())
def undo(series: SomeSeries, store: StoreAddress = "", history: OneHistory = "") -> None:
    """Undo `mute` and `accept` for series."""
    from scalescope.nightly import decisions

    with open_store(store) as opened:
        decisions.undo(opened, series, history)
        _list(opened)


def _list(store: Store, *, as_json: bool = False) -> None:
    from scalescope.nightly import alerts, decisions

    found, decided = alerts.every(store)[::-1], decisions.in_force(store)
    if as_json:
        listed = {"alerts": found, "decisions": decided}
        print_json({name: [each.to_mapping() for each in some] for name, some in listed.items()})
        return
    if found:
        rows = [(each.id, str(each.state), each.night, alerts.line(each)) for each in found]
        print_table(["alert", "state", "night", "what"], rows, whole=(0,))
    if decided:
        cells = [(each.what, each.kind, each.who, each.reason) for each in decided]
        print_table(["series", "decision", "who", "why"], cells)
    if not found and not decided:
        say("No alerts, and nothing is muted.", "dim")
