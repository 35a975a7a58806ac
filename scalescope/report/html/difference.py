"""The page that shows why B took longer than A."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from scalescope.diagnosis.blame import OTHER, Blame, blame
from scalescope.model.words import number, plural, seconds
from scalescope.report.html import build, charts, gantt, series
from scalescope.report.html.charts import Canvas
from scalescope.report.html.over_time import TimeChart, charge_legend, styles
from scalescope.report.run_difference import RunDifference, observed
from scalescope.report.table import ReportTable, Row


@dataclass(frozen=True)
class DifferenceStep:
    """A row with its bar, which spans from the sum of all rows above to the sum that includes this row."""

    row: Row
    left: float  # distance from the left end of the axis to the bar, in percent of the axis
    right: float  # distance from the bar to the right end of the axis, in percent of the axis


def render_difference(found: RunDifference) -> str:
    """The difference of two runs as one self-contained HTML file."""
    canvas = charts.Canvas()
    drawn, charged = _timelines(found, canvas)
    level, word = ("high", "Slower") if found.found.seconds > 0 else ("good", "Faster")
    if not found.found.named:
        level, word = "info", "Nothing named"
    return build.fill(
        "difference.html.j2",
        canvas,
        line=found.summary,
        advice=found.advice,
        level=level,
        word=word,
        steps=steps(found),
        heads=found.table().heads,
        charts=drawn,
        charged=charged,
        notes=found.notes(),
    )


def write_difference(place: build.Target, found: RunDifference) -> build.Target:
    return build.save(place, lambda: render_difference(found))


def steps(found: RunDifference) -> list[DifferenceStep]:
    """Rows of a waterfall chart: A's seconds, the seconds that each part adds or removes, and B's seconds."""
    ends = list(accumulate((each for each, _ in found.rows), initial=found.found.a_s))
    bars = [(0.0, ends[0]), *pairwise(ends), (0.0, found.found.b_s)]
    took = (found.found.a_s, found.found.a_thread_s), (found.found.b_s, found.found.b_thread_s)
    sides = [
        Row((*found.amounts(number, *of_side, money), "", side, what))
        for side, what, of_side, money in zip("AB", (found.a, found.b), took, found.money, strict=True)
    ]
    low, high = min(min(bar) for bar in bars), max(max(bar) for bar in bars)
    scale = 100 / (high - low) if high > low else 0.0
    rows = [sides[0], *(row for _, row in found.rows), sides[1]]
    return [
        DifferenceStep(row, scale * (min(bar) - low), scale * (high - max(bar)))
        for row, bar in zip(rows, bars, strict=True)
    ]


def _timelines(found: RunDifference, canvas: Canvas) -> tuple[list[TimeChart], ReportTable]:
    """Charts of the threads of A and B by what they are charged to, with equal scales and colours; and one table."""
    seen = [each for trial in found.trials if (each := observed(trial))]
    same = {name: each.name for each in found.found.matches for name in (*each.a, *each.b)}
    sides = [_renamed(blame(each, series.BINS), same) for each in seen]
    totals = [_totals(side) for side in sides]
    order = sorted({**totals[0], **totals[1]}, key=lambda key: -max(side.get(key, 0.0) for side in totals))
    tasks = {charge.name for side in sides for charge in side.charges if charge.of_tasks}
    colours = [name for name in dict.fromkeys(name for _, name in order) if name in tasks and name != OTHER]
    codes = {OTHER: gantt.OTHER} | {name: min(i, gantt.OTHER) for i, name in enumerate(colours)}
    ends = max(side.edges[-1] - side.edges[0] for side in sides), max(each.threads for each in seen)
    drawn = []
    for name, title, trial, side in zip("ab", (found.a, found.b), seen, sides, strict=True):
        of_side = styles(side, codes)
        charts.threads_of(canvas, f"threads-{name}", side, of_side, seconds=float(ends[0]), threads=ends[1])
        ran_s = sum(charge.total_s for charge in side.charges if charge.state == "ran")
        all_s = sum(charge.total_s for charge in side.charges)
        text = f"{plural(trial.threads, 'thread')}; tasks ran for {seconds(ran_s)} of {seconds(all_s)} thread-seconds."
        legend = charge_legend(side, of_side)
        drawn.append(TimeChart(text, legend=legend, name=f"threads-{name}", title=f"{name.upper()}: {title}"))
    cells = [(what, state, *(seconds(side.get((state, what), 0.0)) for side in totals)) for state, what in order]
    heads = ("what", "thread", "A, thread-seconds", "B, thread-seconds")
    return drawn, ReportTable.of("What every thread-second of the two trials is charged to", heads, cells, 2)


def _renamed(charged: Blame, names: Mapping[str, str]) -> Blame:
    charges = (
        replace(each, name=names.get(each.name, each.name)) if each.of_tasks else each for each in charged.charges
    )
    return replace(charged, charges=tuple(charges))


def _totals(charged: Blame) -> dict[tuple[str, str], float]:
    """Thread-seconds by state of the thread and text of the charge."""
    found: dict[tuple[str, str], float] = {}
    for each in charged.charges:
        key = each.state, each.text
        found[key] = found.get(key, 0.0) + each.total_s
    return found
