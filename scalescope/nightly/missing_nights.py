"""Nights that did not run, or measured nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from scalescope.errors import InvalidField
from scalescope.model.words import number
from scalescope.nightly import night_record
from scalescope.nightly.night_record import Night
from scalescope.report.html.page import moment
from scalescope.run.runner import Event
from scalescope.store.store import Store

MEASURED = "scalescope.night.measured"  # name of the event; an automation waits for it


def event(night: Night) -> Event:
    """The event of a finished night that measured something; other nights send none."""
    history = str(night.study.question["history"])
    payload = {"history": history, "night": night.id, "line": night.study.line, "series": len(night.record.measured)}
    return Event(MEASURED, f"scalescope.history.{history}", history, f"{MEASURED} {night.id}", payload)


@dataclass(frozen=True)
class LastNight:
    """The last night that measured something."""

    late: bool  # True if it ended longer ago than expected, or no night has measured anything
    line: str


def last_night(store: Store, history: str, within_h: float) -> LastNight:
    """The last night of a history that measured something; `late` if it ended more than `within_h` hours ago."""
    nights = night_record.nights(store, history)
    whole = [night for night in nights if night.study.finished_at and night.record.measured]
    since = nights[nights.index(whole[-1]) + 1 :] if whole else nights
    blind = [night.id for night in since if night.study.finished_at]
    unfinished = [night.id for night in since if not night.study.finished_at]
    parts = [f"Ended without a measurement: {', '.join(blind)}."] if blind else []
    parts += [f"Not finished: {', '.join(unfinished)}."] if unfinished else []
    if not whole:
        return LastNight(True, " ".join([f"No night of {history} has measured anything.", *parts]))
    last = whole[-1]
    ago_h = (datetime.now(UTC) - datetime.fromisoformat(last.study.finished_at)).total_seconds() / 3600
    late = ago_h > within_h
    ended = f"it ended {moment(last.study.finished_at)}, {number(ago_h)} hours ago"
    more = f", which is more than {number(within_h)} hours" if late else ""
    first = f"The last night of {history} that measured something is {last.id}; {ended}{more}."
    return LastNight(late, " ".join([first, *parts]))


def hours(text: str) -> float:
    """Read `26h`."""
    try:
        found = float(text.removesuffix("h"))
    except ValueError:
        found = 0.0
    if not found > 0:
        raise InvalidField("--expected-within", text, "hours, such as 26h")
    return found
