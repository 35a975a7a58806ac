"""Decisions that people make about series: to mute them, or to accept their level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime

from scalescope import owner
from scalescope.errors import InvalidField
from scalescope.model.decision import Decision
from scalescope.model.fields import suggest
from scalescope.nightly import night_record
from scalescope.nightly.night_record import NightlySeries, NightRecord
from scalescope.store.store import Store


def decide(store: Store, what: str, *, until: str = "", reason: str, history: str = "") -> None:
    """Mute series until a day, or accept their present level (`until` is empty).

    Raises:
        InvalidField: No series matches `what`, `until` is past or no day, or `reason` is empty.
    """
    if not reason.strip():
        raise InvalidField("--reason", reason, "the reason in a few words, which is shown with the series")
    day = _day(until) if until else ""
    nights = night_record.nights(store, history)
    series = {each.series.id: each.series for night in nights for each in night.record.measured}.values()
    if not any(what in _names(each) for each in series):
        short = {name for each in series for name in _names(each)[1:]}
        raise InvalidField("SERIES", what, f"a series as reports write it, or {suggest(what, short)}")
    store.decisions.keep(Decision(what, reason.strip(), day, history, owner.user()))


def undo(store: Store, what: str, history: str = "") -> None:
    """Remove the decisions about series.

    Raises:
        InvalidField: There are none.
    """
    if not store.decisions.undo(what, history):
        raise InvalidField("SERIES", what, suggest(what, {each.what for each in store.decisions.of(history)}))


def in_force(store: Store, history: str = "") -> tuple[Decision, ...]:
    """Decisions that hold today for a history, or for all histories."""
    return tuple(each for each in store.decisions.of(history) if not each.until or each.until >= _today())


def about(series: NightlySeries, decisions: Iterable[Decision]) -> list[Decision]:
    return [each for each in decisions if each.what in _names(series)]


def is_muted(series: NightlySeries, night: NightRecord) -> bool:
    """Whether a series was muted on a night."""
    return any(each.until for each in about(series, night.decisions))


def baseline(series: NightlySeries, begun: Sequence[str], decisions: Iterable[Decision]) -> int:
    """Index of the first night of the last accepted level, or 0. `begun`: start of each night.

    The accepted level begins with the last night before the decision.
    """
    accepted = max((each.created_at for each in about(series, decisions) if not each.until), default="")
    return max(sum(each < accepted for each in begun) - 1, 0)


def _names(series: NightlySeries) -> tuple[str, ...]:
    return series.words, series.workload, series.name, str(series.cluster["kind"])


def _day(text: str) -> str:
    try:
        day = date.fromisoformat(text).isoformat()
    except ValueError:
        day = ""
    if day < _today():
        raise InvalidField("--until", text, "today or a later day, such as 2027-01-31")
    return day


def _today() -> str:
    """Today in the time zone of this machine, where a person types the day."""
    return datetime.now().astimezone().date().isoformat()
