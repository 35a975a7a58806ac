"""The history of a suite as a folder of self-contained pages, without a server."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from scalescope import workloads
from scalescope.analysis.culprits import changed_packages
from scalescope.model.metrics import METRICS
from scalescope.model.trial import TrialState
from scalescope.model.words import MISSING, plural
from scalescope.nightly import alerts, whole_suite
from scalescope.nightly.changes import Change
from scalescope.nightly.history import History, SeriesHistory
from scalescope.nightly.night_record import Alert, AlertState, Night
from scalescope.report import files
from scalescope.report.html import build, embed
from scalescope.report.html.page import moment
from scalescope.report.table import ReportTable, Row, Tone
from scalescope.workloads.suite import SUITE

SPARK_NIGHTS = 60  # nights in a sparkline of the overview
HEALTH_NIGHTS = 30  # nights in the overview's table of nights
RECENT_NIGHTS = 14  # number of latest nights in which a change point counts as new
WIDTH, HEIGHT = 150, 26  # size of a sparkline in the overview, in SVG units


def write_site(folder: str | Path, history: History) -> str:
    """Write all pages of a history to a folder or address, file by file; return the overview's address."""
    place = str(folder).rstrip("/")
    files.make_folder(place, "history")
    for name, text in {
        **{page_name(each): _series_page(history, each) for each in history.series},
        "compare.html": _compare_page(history),
        "index.html": _overview(history),
        **{script_name(alert): alert.script for alert in history.alerts if alert.script},
    }.items():
        files.write(f"{place}/{name}", text, "history")
    return f"{place}/index.html"


def page_name(history: SeriesHistory) -> str:
    """Name of the page of a series; the same every night."""
    readable = re.sub(r"[^a-z0-9]+", "-", history.series.name.lower()).strip("-")[:40]
    return f"{readable}-{history.series.id}.html"


def script_name(alert: Alert) -> str:
    """File name of an alert's script; with a hash, because a stored id could contain any text."""
    return f"slower-{hashlib.sha256(alert.id.encode()).hexdigest()[:10]}.py"


def title(history: SeriesHistory) -> str:
    return ", ".join([history.series.name, *_settings(history).values(), history.series.metric])


def spark(values: Sequence[float], changes: Sequence[int] = ()) -> Any:
    """A small line of the last nights as SVG, with a mark at each change point."""
    first = max(0, len(values) - SPARK_NIGHTS)
    shown = values[first:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    step, scale = WIDTH / (len(shown) - 1), HEIGHT / (high - low) if high > low else 0.0
    points = " ".join(f"{i * step:.1f},{HEIGHT - (value - low) * scale:.1f}" for i, value in enumerate(shown))
    marks = "".join(
        f'<line x1="{(at - first - 0.5) * step:.1f}" x2="{(at - first - 0.5) * step:.1f}" y1="0" y2="{HEIGHT}"/>'
        for at in changes
        if at > first
    )
    return Markup(  # noqa: S704 (numbers alone)
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'{marks}<polyline points="{points}"/></svg>'
    )


def share(value: float) -> str:
    """A change in words: `+10.2 %`, `−3 %`, `from 0`."""
    if math.isinf(value):
        return "from 0"
    return f"{'+' if value >= 0 else '−'}{abs(100 * value):.3g} %"


# ------------------------------------------------------------------ pages


def _overview(history: History) -> str:
    last = history.nights[-1] if history.nights else None
    shown = [(alert.state in alerts.ONGOING, _alert(history, alert)) for alert in reversed(history.alerts)]
    return _page(
        "overview.html.j2",
        history,
        last=last,
        began=moment(last.study.created_at) if last else "",
        counts=_counts(last) if last else None,
        note=_note(last) if last else "",
        unsettled=[alert for ongoing, alert in shown if ongoing],
        settled=[alert for ongoing, alert in shown if not ongoing],
        decisions=_decisions(history),
        suites=_suites(history),
        recent=_recent(history),
        drifting=_drifting(history),
        series=_series_table(history),
        durations=spark([night.elapsed_s for night in history.nights]),
        health=_health(history),
        track=last.record.track.words if last and last.record.track.nights else "",
    )


def _series_page(history: History, found: SeriesHistory) -> str:
    from scalescope.report.html import charts

    canvas = charts.Canvas()
    metric = METRICS[found.series.metric]
    places = [(change.index, change.before, change.after) for change in found.changes]
    charts.nights(canvas, "nights", [each.value for _, each in found.values], places, str(metric.unit))
    changes = [
        (
            found.values[change.index][0].id,
            _written(found, change.before),
            _written(found, change.after),
            share(change.relative),
            f"{share(change.low)} to {share(change.high)}",
            _word(found, change),
        )
        for change in reversed(found.changes)
    ]
    values = [
        (night.id, moment(night.study.created_at), ", ".join(each.runs) or MISSING, _written(found, each.value))
        for night, each in reversed(found.values)
    ]
    heads = ("first night", "before", "after", "change", "95 % interval", "")
    return _page(
        "series.html.j2",
        history,
        canvas,
        title=title(found),
        stresses=_stresses(found.series.workload),
        settings=_settings(found),
        metric=found.series.metric,
        help=metric.help,
        drift=_drift(found),
        smallest=_smallest(found),
        words=found.series.words,
        decisions=[each.line for each in found.decisions],
        changes=ReportTable.of("Change points, the last first", heads, changes),
        values=ReportTable.of("All nights, the last first", ("night", "began", "runs", "value"), values, 3),
        alerts=[_alert(history, alert) for alert in reversed(history.alerts) if found.series.id in alert.series],
    )


def _compare_page(history: History) -> str:
    place = {night.id: i for i, night in enumerate(history.nights)}
    data = [
        {
            "name": title(found),
            "page": page_name(found),
            "values": {place[night.id]: (each.value, _written(found, each.value)) for night, each in found.values},
        }
        for found in history.series
    ]
    return _page(
        "compare.html.j2",
        history,
        script="compare.js",
        compared=embed.script_json(json.dumps(data, allow_nan=False)),
        options=[(i, f"{night.id}, {moment(night.study.created_at)}") for i, night in enumerate(history.nights)],
    )


def _page(template: str, history: History, canvas: Any = None, *, script: str = "", **given: Any) -> str:
    from scalescope.report.html import charts

    canvas = canvas or charts.Canvas()
    return build.fill(template, canvas, package=__package__, script=script, suite=history.name, **given)


# ------------------------------------------------------------------ parts of pages


def _alert(history: History, alert: Alert) -> dict[str, Any]:
    return {
        "level": {AlertState.OPEN: "high", AlertState.ACKNOWLEDGED: "medium"}.get(alert.state, "info"),
        "state": str(alert.state),
        "id": alert.id,
        "night": alert.night,
        "line": alerts.line(alert),
        "culprit": alert.culprit.line,
        "series": [(page_name(each), title(each)) for each in history.series if each.series.id in alert.series],
        "script": script_name(alert) if alert.script else "",
    }


def _suites(history: History) -> list[tuple[str, Any, str]]:
    """The suite as a whole, by kind of cluster: its name, a sparkline of its levels, and its last change."""
    found = []
    for suite in whole_suite.suites(history.nights[-1].record, history.nights[:-1]) if history.nights else []:
        changes = suite.changes
        nights, text = [*suite.nights, history.nights[-1]], f"no change in {plural(len(suite.logs), 'night')}"
        if changes:
            text = f"{share(changes[-1].relative)} since {nights[changes[-1].index].id}"
        line = spark(suite.levels, [change.index for change in changes])
        found.append((f"{suite.series.words}, {len(suite.members)} series", line, text))
    return found


def _recent(history: History) -> ReportTable:
    """Change points of the last nights, with or without an alert; regressions and large changes first."""
    nights = {night.id for night in history.nights[-RECENT_NIGHTS:]}
    found = [
        (each, change)
        for each in history.series
        for change in each.changes
        if each.values[change.index][0].id in nights
    ]
    found.sort(key=lambda pair: (not pair[0].is_worse(pair[1]), -abs(pair[1].relative)))
    rows = [_change_row(each, change, each.values[change.index][0].id) for each, change in found]
    heads = ("series", "since", "change", "")
    return ReportTable(f"Change points of the last {RECENT_NIGHTS} nights", heads, tuple(rows), frozenset({2}))


def _decisions(history: History) -> ReportTable:
    heads = ("series", "decision", "who", "when", "why")
    cells = [(each.what, each.kind, each.who, moment(each.created_at), each.reason) for each in history.decisions]
    return ReportTable.of("Muted and accepted", heads, cells, len(heads))


def _drifting(history: History) -> ReportTable:
    rows = tuple(_change_row(each, each.drift) for each in history.series if each.drift)
    return ReportTable("Slow drifts of the last four weeks", ("series", "change", ""), rows, frozenset({1}))


def _change_row(found: SeriesHistory, change: Change, *since: str) -> Row:
    cells = (_link(found), *since, share(change.relative), _word(found, change))
    return Row(cells, Tone.DOUBT if found.is_worse(change) else Tone.GOOD)


def _series_table(history: History) -> ReportTable:
    cells = [
        (
            _link(found),
            spark([each.value for _, each in found.values], [change.index for change in found.changes]),
            _written(found, found.values[-1][1].value),
            share(found.changes[-1].relative) if found.changes else MISSING,
            found.values[found.changes[-1].index][0].id if found.changes else MISSING,
            _smallest(found),
        )
        for found in history.series
    ]
    heads = ("series", f"last {SPARK_NIGHTS} nights", "last value", "last change", "since", "smallest change")
    return ReportTable.of("Last values and changes", heads, cells, 2)


def _health(history: History) -> ReportTable:
    rows = []
    for night, before in list(zip(history.nights, [None, *history.nights], strict=False))[-HEALTH_NIGHTS:]:
        planned, valid, failed, invalid = _counts(night)
        counts = (f"{night.elapsed_s / 60:,.0f}", f"{valid:,} of {planned:,}", f"{failed:,}", f"{invalid:,}")
        note = f"{_note(night)} packages: {_packages(night, before)}.".strip()
        tone = Tone.DOUBT if night.record.ended_early or failed else Tone.PLAIN
        rows.append(Row((night.id, moment(night.study.created_at), *counts, note), tone))
    heads = ("night", "began", "minutes", "valid trials", "failed", "invalid", "")
    return ReportTable("The last nights, the newest first", heads, tuple(rows[::-1]), frozenset({2, 3, 4, 5}))


def _counts(night: Night) -> tuple[int, int, int, int]:
    planned, valid, failed, invalid = (
        night.record.trials.get(name, 0)
        for name in ("planned", TrialState.VALID, TrialState.FAILED, TrialState.INVALID)
    )
    return planned, valid, failed, invalid


def _note(night: Night) -> str:
    return " ".join(filter(None, [night.study.line, *night.record.problems]))


def _packages(night: Night, before: Night | None) -> str:
    pins = night.record.lock.pins
    if before is None:
        return plural(len(pins), "package")
    return ", ".join(map(str, changed_packages(before.record.lock.pins, pins))) or "as the night before"


def _settings(found: SeriesHistory) -> dict[str, str]:
    """Settings that distinguish a series from the workload's other series."""
    series = found.series
    kind = str(series.cluster["kind"])
    return {"version": f"version {series.version}", "size": series.size, "cluster": kind, "hardware": series.hardware}


def _stresses(workload: str) -> str:
    return workloads.load(workload).summary if workload in {entry.workload for entry in SUITE} else ""


def _word(found: SeriesHistory, change: Change) -> str:
    return "worse" if found.is_worse(change) else "better"


def _written(found: SeriesHistory, value: float) -> str:
    return found.series.written(value)


def _drift(found: SeriesHistory) -> str:
    drift = found.drift
    if drift is None:
        return ""
    since = f"since {found.values[drift.index][0].id}, without a step"
    return f"{share(drift.relative)} {since}; 95 % interval {share(drift.low)} to {share(drift.high)}"


def _smallest(found: SeriesHistory) -> str:
    return "too few nights" if math.isinf(found.smallest) else f"{100 * found.smallest:.2g} %"


def _link(found: SeriesHistory) -> Any:
    return Markup('<a href="{}">{}</a>').format(page_name(found), title(found))
