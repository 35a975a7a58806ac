"""Alerts: one for each confirmed cause, reported once, and kept with its state."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from scalescope.errors import UsageError
from scalescope.model import fields
from scalescope.model.cluster import kinds
from scalescope.model.parameters import declared
from scalescope.model.sweep import Point, digest
from scalescope.model.words import change
from scalescope.nightly import night_record, regression_script
from scalescope.nightly.night_record import (
    Alert,
    AlertState,
    ChangeOutcome,
    Culprit,
    Judged,
    Night,
    NightlySeries,
    NightRecord,
    SoftwareLock,
)
from scalescope.nightly.parameters import NightlyParameters
from scalescope.nightly.series import back
from scalescope.nightly.whole_suite import SuiteChange, is_suite
from scalescope.report.table import markdown_list, markdown_text
from scalescope.run.runner import Event, Publication
from scalescope.store.store import Store

CONFIRMED = "scalescope.regression.confirmed"  # name of the event; automations match it
WHOLE = 20_000  # characters of the longest script inside a bug report; a longer one is attached
ONGOING = (AlertState.OPEN, AlertState.ACKNOWLEDGED)


def alert_id(history: str, found: Culprit) -> str:
    """Id of a cause: of the release that brought the change or, if none was found, of all changed packages."""
    which = [found.package, found.bad] if found.package else [found.changed]
    return digest([history, *which])


def known(past: Sequence[Night], alert: str) -> Alert | None:
    """An earlier night's alert with this id; None if it was resolved, so that the cause is reported again."""
    found = (each for night in reversed(past) for each in night.record.alerts if each.id == alert)
    return next((each for each in found if each.state is not AlertState.RESOLVED), None)


def new(
    asked: NightlyParameters,
    night: str,
    found: Culprit,
    changes: Sequence[Judged],
    locks: tuple[SoftwareLock, SoftwareLock],
) -> Alert:
    """An alert whose command and script reproduce the largest change. `locks`: of the good night, and of tonight."""
    ordered = tuple(sorted(changes, key=lambda each: -each.size))
    alert = Alert(alert_id(asked.history, found), night, found, ordered, _command(ordered[0].series, locks))
    text, problem = regression_script.write(line(alert), ordered[0].series, *locks)
    return replace(alert, script=text, shown=problem)


def of_suite(asked: NightlyParameters, night: str, found: SuiteChange, lock: SoftwareLock) -> Alert:
    """An alert for the suite as a whole; its command reruns the series that moved furthest. `lock`: of tonight."""
    culprit = Culprit(found.changed, changed=found.changed)
    command = _command(found.largest, (found.good.record.lock, lock))
    shown = "the whole suite changed, and a script runs one workload."
    return Alert(alert_id(asked.history, culprit), night, culprit, (found.judged,), command, shown=shown)


def _command(series: NightlySeries, locks: tuple[SoftwareLock, SoftwareLock]) -> str:
    words = ["scalescope", "compare", "-w", series.workload, "-m", series.metric, "-c", str(series.cluster["kind"])]
    words += _axes(series)
    defaults = {each.name: each.default for each in declared(kinds()[str(series.cluster["kind"])])}
    for name, value in series.cluster.items():
        if name in defaults and value != defaults[name]:
            words += ["--cluster-option", f"{name}={value}"]
    for side, lock in zip(("--a", "--b"), locks, strict=True):
        words += [side, f"environment={lock.pinned}"]
    return shlex.join(words)


def _fix(series: NightlySeries) -> str:
    """The command that patches the workload; empty if it is built in or its workers are not on this machine."""
    if ":" not in series.workload or series.cluster["kind"] != "local":
        return ""
    return shlex.join(["scalescope", "fix", "-w", series.workload, *_axes(series)])


def _axes(series: NightlySeries) -> list[str]:
    return [
        word for name, value in Point.from_mapping(series.point).values.items() for word in ("-a", f"{name}={value}")
    ]


def line(alert: Alert) -> str:
    worst, more = alert.changes[0], len(alert.changes) - 1
    others = f" and {more} more" if more else ""
    size = change(worst.ratio) if worst.ratio else "worse"
    culprit = alert.culprit
    cause = f"since {culprit.line}" if culprit.found else f"tonight. The cause: {culprit.line}"
    return f"{worst.series.words}{others}: {worst.series.metric} {size} {cause}"


def explains(alert: Alert, changed: str) -> bool:
    """Whether an alert's cause is among changes of packages (`culprits.changed_packages`, joined by commas)."""
    both = set(alert.culprit.changed.split(", ")) & set(changed.split(", "))
    return any(each.split()[0] == alert.culprit.package for each in both) or alert.culprit.changed == changed


def event(alert: Alert, history: str, night: str) -> Event:
    """The event for an orchestrator, with everything that is needed to act; `night` confirmed the regression."""
    payload = {
        "line": line(alert),
        "history": history,
        "night": night,
        "culprit": alert.culprit.to_mapping(),
        "series": [
            {
                "workload": each.series.workload,
                "version": each.series.version,
                "size": each.series.size,
                "cluster": each.series.cluster["kind"],
                "hardware": each.series.hardware,
                "metric": each.series.metric,
                "before": each.before,
                "after": each.after,
                "ratio": each.ratio,
                "interval": [each.low, each.high],
                "confirmed_by": each.study,
            }
            for each in alert.changes
        ],
        "command": alert.command,
        "script": alert.script,
        "issue": issue(alert),
        "show": f"scalescope show {night}",
    }
    key = f"{CONFIRMED} {night} {alert.id}"
    return Event(CONFIRMED, f"scalescope.alert.{alert.id}", line(alert), key, payload)


def issue(alert: Alert) -> str:
    """A text for a bug tracker, in Markdown."""
    return "\n\n".join([summary(alert), f"**To reproduce**\n\n```sh\n{alert.command}\n```", _script(alert)])


def summary(alert: Alert) -> str:
    """The series that got worse, by how much, and the cause, in Markdown."""
    culprit = alert.culprit
    rows = [
        f"{each.series.words}: {each.series.metric} {each.series.written(each.before)} → "
        f"{each.series.written(each.after)} over the nights; {_how(each)}"
        for each in alert.changes
    ]
    blocks = [
        f"**{markdown_text(line(alert))}**",
        markdown_list("What got worse", rows).strip(),
        f"**{'Brought by' if culprit.found else 'The cause:'}** {markdown_text(culprit.line)}",
        f"Changelog: {markdown_text(culprit.changelog)}" if culprit.changelog else "",
        f"All changes between the two environments: {markdown_text(culprit.changed)}",
        f"If the cause has a fix, this proves it and writes the patch:\n\n```sh\n{fix}\n```"
        if (fix := _fix(alert.changes[0].series))
        else "",
    ]
    return "\n\n".join(filter(None, blocks))


def _script(alert: Alert) -> str:
    shown = markdown_text(alert.shown)
    if not alert.script:
        return f"No stand-alone script: {shown}"
    if len(alert.script) > WHOLE:
        where = f"`scalescope alerts script {alert.id} > slower.py` writes it; attach the file."
        return f"**Without Scalescope**, by a stand-alone script: {where} {shown}"
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", alert.script))]))
    return f"**Without Scalescope**: {shown}\n\n{fence}python\n{alert.script}{fence}"


def _how(each: Judged) -> str:
    why = f"; why: {each.why}" if each.why else ""
    return f"rerun in pairs {_interval(each)}{why}" if each.study else each.reason


def _interval(each: Judged) -> str:
    if each.ratio is None:
        return "gave no ratio"
    if each.low is None or each.high is None or each.low == each.high:
        return f"{change(each.ratio)}, exactly"
    return f"{change(each.ratio)} (from {change(each.low)} to {change(each.high)})"


def publication(alert: Alert) -> Publication:
    text = issue(alert) + f"\n\n`scalescope alerts set {alert.id} acknowledged` (or accepted, false, resolved)\n"
    return Publication(f"regression in {alert.changes[0].series.name}", alert.id, line(alert), text)


def resolve(store: Store, past: Sequence[Night], tonight: NightRecord, asked: NightlyParameters) -> list[Alert]:
    """Resolve and return alerts whose series are back at the level before the change, or whose suite became faster."""
    faster = {
        each.series.id for each in tonight.judged if is_suite(each.series) and each.outcome is ChangeOutcome.FASTER
    }
    found = []
    for night in past:
        for alert in night.record.alerts:
            before = {each.series.id: each.before for each in alert.changes}
            good = alert.series <= faster or back(tonight, before, asked.smallest_effect, asked.metric)
            if alert.state in ONGOING and good:
                found.append(replace(alert, state=AlertState.RESOLVED))
                night_record.amend(store, night.id, alerts=found[-1:])
    return found


def find(store: Store, reference: str) -> Alert:
    """The newest alert whose id is or starts with `reference`.

    Raises:
        UsageError: There is no such alert, or there are several.
    """
    found = [each for each in every(store) if reference and each.id.startswith(reference)]
    if len({each.id for each in found}) != 1:
        ids = ", ".join(dict.fromkeys(each.id for each in found or every(store))) or "none"
        what = "Several alerts begin" if found else "No alert begins"
        raise UsageError(f"{what} with {reference!r}", where=store.where, next_step=f"There are: {ids}.")
    return found[-1]


def set_state(store: Store, reference: str, state: str) -> Alert:
    """Set the state of the alert whose id is or starts with `reference` (see `find`)."""
    wanted = AlertState(fields.choice("state", state, [str(each) for each in AlertState]))
    alert = replace(find(store, reference), state=wanted)
    night_record.amend(store, alert.night, alerts=[alert])
    return alert


def every(store: Store) -> list[Alert]:
    """All alerts of all histories, oldest first."""
    return [alert for night in night_record.nights(store) for alert in night.record.alerts]
