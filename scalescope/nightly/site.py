"""The history of a suite as a folder of pages: no server, and each page complete in itself.

`index.html` says what changed, and how the nights themselves went; each series has a page with its change points and
the runs of its nights; `compare.html` puts any two nights side by side; each alert has the script that shows it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalescope.errors import UsageError
from scalescope.model.metrics import METRICS
from scalescope.nightly.changes import Change
from scalescope.nightly.history import Alert, AlertState, History, Series
from scalescope.report import files
from scalescope.report.html import build, embed
from scalescope.report.html.page import moment
from scalescope.report.rows import WRITTEN, count
from scalescope.report.table import MISSING, ReportTable, Row, Tone

SPARK_NIGHTS = 60
"""Nights in a line of the overview."""
HEALTH_NIGHTS = 30
"""Nights in the overview's table of nights."""
RECENT_NIGHTS = 14
"""Nights for which a change point is new."""
UNSETTLED = (AlertState.OPEN, AlertState.ACKNOWLEDGED)
WIDTH, HEIGHT = 150, 26
"""Of a line of the overview."""


def write_site(folder: str | Path, history: History) -> str:
    """Write all pages of a history into a folder; those of a former night are replaced one by one.

    Args:
        folder: A folder, which may not exist yet, or the address of one.
        history: What the pages show.

    Returns:
        The path or address of the overview.

    Raises:
        UsageError: The extra for reports is missing, two series have one id, or a night of a series is unknown or twice
            in it.
        StoreError: A file cannot be written.
    """
    build.check_packages()
    _check(history)
    place = str(folder).rstrip("/")
    files.make_folder(place, "history")
    for name, text in {
        **{page_name(series): _series_page(history, series) for series in history.series},
        "compare.html": _compare_page(history),
        "index.html": _overview(history),
        **{script_name(alert): alert.script for alert in history.alerts if alert.script},
    }.items():
        files.write(f"{place}/{name}", text, "history")
    return f"{place}/index.html"


def page_name(series: Series) -> str:
    """The file of a series: the same every night."""
    readable = re.sub(r"[^a-z0-9]+", "-", series.workload.lower()).strip("-")[:40]
    return f"{readable}-{hashlib.sha256(series.id.encode()).hexdigest()[:10]}.html"


def script_name(alert: Alert) -> str:
    """The file of the script of an alert."""
    return f"slower-{hashlib.sha256(alert.id.encode()).hexdigest()[:10]}.py"


def title(series: Series) -> str:
    """What a series is called among others."""
    return ", ".join([series.workload, *series.settings.values(), series.metric])


def spark(values: Sequence[float], changes: Sequence[int] = ()) -> Any:
    """A small line of the last nights, with a mark at each change point; nothing from outside is in it."""
    from markupsafe import Markup

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
    """A change in words: `+10.2 %`, `−3 %`, `from nothing`."""
    if math.isinf(value):
        return "from nothing"
    return f"{'+' if value >= 0 else '−'}{abs(100 * value):.3g} %"


# ------------------------------------------------------------------ pages


def _overview(history: History) -> str:
    last = history.nights[-1] if history.nights else None
    unsettled = [alert for alert in history.alerts if alert.state in UNSETTLED]
    return _page(
        "overview.html.j2",
        history,
        last=last,
        began=moment(last.began) if last else "",
        unsettled=[_alert(history, alert) for alert in reversed(unsettled)],
        settled=[_alert(history, alert) for alert in reversed(history.alerts) if alert.state not in UNSETTLED],
        recent=_recent(history),
        drifting=_drifting(history),
        series=_series_table(history),
        durations=spark([night.elapsed_s for night in history.nights]),
        health=_health(history),
    )


def _series_page(history: History, series: Series) -> str:
    from scalescope.report.html import charts

    canvas = charts.Canvas()
    if series.values:
        places = [(change.index, change.before, change.after) for change in series.changes]
        unit = METRICS[series.metric].unit if series.metric in METRICS else series.metric
        charts.nights(canvas, "nights", [each.value for each in series.values], places, str(unit))
    cells = [
        (
            series.values[change.index].night,
            _written(series, change.before),
            _written(series, change.after),
            share(change.relative),
            f"{share(change.low)} to {share(change.high)}",
            _word(series, change),
        )
        for change in reversed(series.changes)
    ]
    heads = ("first night", "before", "after", "change", "95 % interval", "")
    nights = {night.id: night for night in history.nights}
    values = [
        (
            each.night,
            moment(nights[each.night].began),
            ", ".join(each.runs) or MISSING,
            _written(series, each.value),
        )
        for each in reversed(series.values)
    ]
    return _page(
        "series.html.j2",
        history,
        canvas,
        series=series,
        title=title(series),
        help=METRICS[series.metric].help if series.metric in METRICS else "",
        drift=_drift(series),
        smallest=_smallest(series),
        changes=ReportTable.of("Change points, the last first", heads, cells),
        values=ReportTable.of("All nights, the last first", ("night", "began", "runs", "value"), values, 3),
        alerts=[_alert(history, alert) for alert in reversed(history.alerts) if series.id in alert.series],
    )


def _compare_page(history: History) -> str:
    place = {night.id: i for i, night in enumerate(history.nights)}
    data = [
        {
            "name": title(series),
            "page": page_name(series),
            "values": {place[each.night]: (each.value, _written(series, each.value)) for each in series.values},
        }
        for series in history.series
    ]
    return _page(
        "compare.html.j2",
        history,
        script="compare.js",
        compared=embed.script_json(json.dumps(data, allow_nan=False)),
        options=[(i, f"{night.id}, {moment(night.began)}") for i, night in enumerate(history.nights)],
    )


def _page(template: str, history: History, canvas: Any = None, *, script: str = "", **given: Any) -> str:
    from scalescope.report.html import charts

    canvas = canvas or charts.Canvas()
    return build.fill(template, canvas, package=__package__, script=script, suite=history.suite, **given)


# ------------------------------------------------------------------ what is on them


def _alert(history: History, alert: Alert) -> dict[str, Any]:
    by_id = {series.id: series for series in history.series}
    return {
        "level": {AlertState.OPEN: "high", AlertState.ACKNOWLEDGED: "medium"}.get(alert.state, "info"),
        "state": str(alert.state),
        "id": alert.id,
        "night": alert.night,
        "line": alert.line,
        "culprit": alert.culprit,
        "series": [(page_name(by_id[each]), title(by_id[each])) for each in alert.series if each in by_id],
        "script": script_name(alert) if alert.script else "",
    }


def _recent(history: History) -> ReportTable:
    """Change points of the last nights, alerted or not."""
    nights = {night.id for night in history.nights[-RECENT_NIGHTS:]}
    found = [
        (series, change)
        for series in history.series
        for change in series.changes
        if series.values[change.index].night in nights
    ]
    found.sort(key=lambda each: (not each[1].worse(larger_is_better=_larger(each[0])), -abs(each[1].relative)))
    rows = tuple(
        Row(
            (
                _link(page_name(series), title(series)),
                series.values[change.index].night,
                share(change.relative),
                _word(series, change),
            ),
            Tone.DOUBT if change.worse(larger_is_better=_larger(series)) else Tone.GOOD,
        )
        for series, change in found
    )
    heads = ("series", "since", "change", "")
    return ReportTable(f"Change points of the last {RECENT_NIGHTS} nights", heads, rows, frozenset({2}))


def _drifting(history: History) -> ReportTable:
    """Series that change slowly, without a step."""
    rows = tuple(
        Row(
            (_link(page_name(series), title(series)), share(series.drift.relative), _word(series, series.drift)),
            Tone.DOUBT if series.drift.worse(larger_is_better=_larger(series)) else Tone.GOOD,
        )
        for series in history.series
        if series.drift
    )
    return ReportTable("Slow drifts of the last four weeks", ("series", "change", ""), rows, frozenset({1}))


def _series_table(history: History) -> ReportTable:
    cells = [
        (
            _link(page_name(series), title(series)),
            spark([each.value for each in series.values], [change.index for change in series.changes]),
            _written(series, series.values[-1].value) if series.values else MISSING,
            share(series.changes[-1].relative) if series.changes else MISSING,
            series.values[series.changes[-1].index].night if series.changes else MISSING,
            _smallest(series),
        )
        for series in history.series
    ]
    heads = ("series", f"last {SPARK_NIGHTS} nights", "last value", "last change", "since", "smallest change")
    return ReportTable.of("Last values and changes", heads, cells, 2)


def _health(history: History) -> ReportTable:
    rows = tuple(
        Row(
            (
                night.id,
                moment(night.began),
                f"{night.elapsed_s / 60:,.0f}",
                f"{night.valid:,} of {night.planned:,}",
                f"{night.failed:,}",
                f"{night.invalid:,}",
                " ".join([night.note, *(f"{name}: {text}." for name, text in night.facts.items())]).strip(),
            ),
            Tone.PLAIN if night.complete and not night.failed else Tone.DOUBT,
        )
        for night in reversed(history.nights[-HEALTH_NIGHTS:])
    )
    heads = ("night", "began", "minutes", "valid trials", "failed", "invalid", "")
    return ReportTable("The last nights, the newest first", heads, rows, frozenset({2, 3, 4, 5}))


def _larger(series: Series) -> bool:
    return series.metric in METRICS and METRICS[series.metric].larger_is_better


def _word(series: Series, change: Change) -> str:
    return "worse" if change.worse(larger_is_better=_larger(series)) else "better"


def _written(series: Series, value: float) -> str:
    metric = METRICS.get(series.metric)
    return WRITTEN.get(metric.unit, count)(value) if metric else f"{value:,.4g}"


def _drift(series: Series) -> str:
    found = series.drift
    if found is None:
        return ""
    since = f"since {series.values[found.index].night}, without a step"
    return f"{share(found.relative)} {since}; 95 % interval {share(found.low)} to {share(found.high)}"


def _smallest(series: Series) -> str:
    return "too few nights" if math.isinf(series.smallest) else f"{100 * series.smallest:.2g} %"


def _link(page: str, text: str) -> Any:
    """A link to another page."""
    from markupsafe import Markup

    return Markup('<a href="{}">{}</a>').format(page, text)


def _check(history: History) -> None:
    names = [page_name(series) for series in history.series]
    nights = {night.id for night in history.nights}
    twice = next((series.id for series, name in zip(history.series, names, strict=True) if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"Two series of the history have the id {twice!r}", next_step="Give each an id of its own.")
    for series in history.series:
        unknown = next((each.night for each in series.values if each.night not in nights), None)
        if unknown is not None:
            raise UsageError(
                f"A value of series {series.id!r} is of night {unknown!r}, which the history does not have",
                next_step="Add the night, or leave out its value.",
            )
        if len({each.night for each in series.values}) < len(series.values):
            raise UsageError(f"Series {series.id!r} has two values of one night", next_step="Leave one of them out.")
