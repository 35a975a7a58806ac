"""The charts, in Bokeh. All share one document, so that the charts of a trial can share a time axis.

Untrusted text, such as names of tasks, never reaches a chart, because Bokeh would interpret markup and formulas in it.
It is shown in tables, and below the charts, where the page's own script names what is under the cursor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from bokeh import models
from bokeh.core.json_encoder import serialize_json
from bokeh.document import Document
from bokeh.embed.util import standalone_docs_json_and_render_items
from bokeh.model import Model
from bokeh.plotting import figure
from bokeh.resources import Resources

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.knee import Knee
from scalescope.analysis.work_span import Profile
from scalescope.diagnosis.blame import Blame
from scalescope.report.html.gantt import LOST, Bars
from scalescope.report.html.series import Heat, Memory
from scalescope.report.html.theme import LIGHT, stage_colour

FONT = "system-ui, sans-serif"
# Most bars, and most rows, of a chart whose bars get outlines, so that short bars stay visible
OUTLINED_BARS, OUTLINED_ROWS = 5_000, 150
LEFT = 64  # pixels for the vertical axis, the same in all charts of a trial so that their time axes align
HEAT_STEPS = 64
# Textures for areas of one colour. A style is COLOUR or COLOUR TEXTURE, as in the style sheet.
TEXTURES: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "pale": {"fill_alpha": 0.35},
    "hatched": {"hatch_pattern": "/", "hatch_weight": 1.5, "hatch_scale": 9.0},
    "dotted": {"hatch_pattern": ".", "hatch_scale": 7.0},
}
PLAIN = re.compile(r"[\w .()/*+-]+", re.ASCII)  # text that Bokeh cannot take for a formula
LEVEL_NIGHTS = 8  # nights before and after a change point for which the level is drawn as a line
LOG_FROM = 20  # ratio of most to fewest threads from which both axes are logarithmic


def bokeh_script() -> str:
    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw)


class Canvas:
    """The figures of one page, and their colours."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}  # figures by name; each goes to the element `chart-NAME`
        # id of the model, property, and the name of its colour (or the names of a palette)
        self.paints: list[tuple[str, str, str | list[str]]] = []
        self.reading: dict[str, Any] = {}  # data with which the page's script names what is under the cursor

    def paint(self, model: Model, **colours: str | list[str]) -> None:
        """Colour properties of a model by names of `theme.LIGHT`; the page changes them with the colour scheme."""
        for name, colour in colours.items():
            self.paints.append((model.id, name, colour))
            model.update(**{name: LIGHT[colour] if isinstance(colour, str) else [LIGHT[each] for each in colour]})

    def figure(
        self, name: str, *, height: int, x_label: str, y_label: str, numbers: tuple[str, str], **options: Any
    ) -> Any:
        """A figure with axes. `numbers`: number formats of the x and y axis (`NumeralTickFormatter`)."""
        made = figure(
            height=height,
            sizing_mode="stretch_width",
            toolbar_location=None,
            background_fill_color=None,
            border_fill_color=None,
            outline_line_color=None,
            x_axis_label=x_label,
            y_axis_label=y_label,
            min_border_left=LEFT,
            min_border_right=12,
            **{"tools": "", **options},
        )
        for axis, form in zip((*made.xaxis, *made.yaxis), numbers, strict=True):
            axis.update(
                formatter=models.NumeralTickFormatter(format=form),
                axis_label_text_font=FONT,
                axis_label_text_font_style="normal",
                axis_label_text_font_size="12px",
                major_label_text_font=FONT,
                major_label_text_font_size="12px",
                minor_tick_line_color=None,
                major_tick_in=0,
                major_tick_out=4,
            )
            self.paint(axis, axis_label_text_color="muted", major_label_text_color="muted")
            self.paint(axis, axis_line_color="rule", major_tick_line_color="rule")
        made.xgrid.grid_line_color = None
        for grid in made.ygrid:
            self.paint(grid, grid_line_color="rule")
        self.figures[name] = made
        return made

    def to_json(self) -> str:
        document = Document()
        for made in self.figures.values():
            document.add_root(made)
        elements = {made.id: f"chart-{name}" for name, made in self.figures.items()}
        documents, items = standalone_docs_json_and_render_items([document]) if elements else ({}, [])
        rendered = [{**item.to_json(), "roots": elements} for item in items]
        rest = json.dumps({"items": rendered, "paints": self.paints, "reading": self.reading}, allow_nan=False)
        return f'{{"documents":{serialize_json(documents)},{rest[1:]}'


# ------------------------------------------------------------------ a sweep


def scaling(canvas: Canvas, name: str, knee: Knee) -> None:
    """Speed-up against threads: measurements, the fitted model with its knee, and the ideal."""
    threads, speedup = list(knee.series.threads), list(knee.series.speedup)
    scale = "log" if max(threads) > LOG_FROM * min(threads) and min(speedup) > 0 else "linear"
    axes: dict[str, Any] = {"numbers": ("0,0.[00]", "0,0.[00]"), "x_axis_type": scale, "y_axis_type": scale}
    made = canvas.figure(name, height=320, x_label="threads", y_label="speed-up", **axes)
    if knee.k is not None:
        ends = {"left": knee.low or knee.k, "right": knee.high or knee.k}
        band = models.BoxAnnotation(**ends, fill_alpha=0.13, line_color=None)
        at = models.Span(location=knee.k, dimension="height", line_width=1.5, line_dash="dotted")
        canvas.paint(band, fill_color="fit")
        canvas.paint(at, line_color="fit")
        made.add_layout(band)
        made.add_layout(at)
    canvas.paint(made.line(*_columns(knee.ideal()), line_width=1.5, line_dash="dashed").glyph, line_color="ideal")
    if knee.fit is not None:
        canvas.paint(made.line(*_columns(knee.curve()), line_width=2).glyph, line_color="fit")
    _marks(canvas, made, threads, speedup, {"threads": "@x{0,0}", "speed-up": "@y{0,0.[00]}"})


# ------------------------------------------------------------------ many nights


def nights(
    canvas: Canvas, name: str, values: Sequence[float], changes: Sequence[tuple[int, float, float]], unit: str
) -> None:
    """A metric night by night. `changes`: for each, its first night (from 0), and the level before and after."""
    labels = {"x_label": "night with a result", "y_label": _plain(unit, "value")}
    made = canvas.figure(name, height=320, numbers=("0,0", "0,0.[0000]"), **labels)
    for at, before, after in changes:
        place = models.Span(location=at + 0.5, dimension="height", line_width=1.5, line_dash="dashed")
        canvas.paint(place, line_color="fit")
        made.add_layout(place)
        levels = {"x0": [at - LEVEL_NIGHTS, at + 0.5], "x1": [at + 0.5, at + LEVEL_NIGHTS + 1], "y": [before, after]}
        drawn = made.segment("x0", "y", "x1", "y", source=models.ColumnDataSource(levels), line_width=2.5)
        canvas.paint(drawn.glyph, line_color="fit")
    place_of = list(range(1, len(values) + 1))
    canvas.paint(made.line(place_of, list(values), line_width=1, line_alpha=0.5).glyph, line_color="busy")
    _marks(canvas, made, place_of, list(values), {"night": "@x{0,0}", "value": "@y{0,0.[0000]}"}, size=5)


# ------------------------------------------------------------------ a study


def threshold(
    canvas: Canvas,
    name: str,
    spots: Sequence[tuple[float, float]],
    jumps: Sequence[tuple[float, float]],
    doubts: Sequence[tuple[float, float]],
    labels: tuple[str, str],
) -> None:
    """A metric against an axis: measured `spots`, `jumps` between two axis values, undecided ranges (`doubts`)."""
    axis, metric = _plain(labels[0], "value"), _plain(labels[1], "metric")
    made = canvas.figure(name, height=340, x_label=axis, y_label=metric, numbers=("0,0.[000]", "0,0.[000]"))
    for parts, colour, strength in ((doubts, "not_assigned", 0.16), (jumps, "fit", 0.2)):
        for left, right in parts:
            box = models.BoxAnnotation(left=left, right=right, fill_alpha=strength, line_width=0)
            canvas.paint(box, fill_color=colour)
            made.add_layout(box)
    lines = _regimes(spots, {left for left, _ in jumps})
    source = {"x": [[x for x, _ in line] for line in lines], "y": [[y for _, y in line] for line in lines]}
    canvas.paint(
        made.multi_line("x", "y", source=models.ColumnDataSource(source), line_width=1.5).glyph, line_color="busy"
    )
    height = dict(spots)
    rises = [(left, height[left], right, height[right]) for left, right in jumps if left in height and right in height]
    ends_of_rises = {name: [rise[i] for rise in rises] for i, name in enumerate(("x0", "y0", "x1", "y1"))}
    rising = made.segment(*ends_of_rises, source=models.ColumnDataSource(ends_of_rises), line_width=2.5)
    canvas.paint(rising.glyph, line_color="fit")
    tips = {"value": "@x{0,0.[0000]}", "metric": "@y{0,0.[0000]}"}
    _marks(canvas, made, [x for x, _ in spots], [y for _, y in spots], tips, size=8)


def prediction(
    canvas: Canvas,
    name: str,
    predicted: Sequence[tuple[int, float, float, float]],
    measured: Sequence[tuple[int, float]],
) -> None:
    """Seconds against workers: a line in a band (`predicted`: workers, low, middle, high), and dots where measured."""
    workers, low, middle, high = (list(column) for column in zip(*predicted, strict=True))
    axes: dict[str, Any] = {"numbers": ("0,0.[000]", "0,0.[000]"), "x_axis_type": "log", "y_axis_type": "log"}
    made = canvas.figure(name, height=340, x_label="workers", y_label="seconds", **axes)
    canvas.paint(made.varea(x=workers, y1=low, y2=high, fill_alpha=0.2).glyph, fill_color="fit")
    canvas.paint(made.line(workers, middle, line_width=2).glyph, line_color="fit")
    tips = {"workers": "@x{0,0}", "seconds": "@y{0,0.[000]}"}
    _marks(canvas, made, workers, middle, tips, colour="fit", size=7)
    _marks(canvas, made, [x for x, _ in measured], [y for _, y in measured], tips)


def pairs(canvas: Canvas, name: str, measured: Sequence[tuple[float | None, float | None]], metric: str) -> None:
    """A and B of each pair of a comparison, in the order in which pairs ran; invalid trials are left out."""
    labels = {"x_label": "pair", "y_label": _plain(metric, "metric")}
    made = canvas.figure(name, height=260, numbers=("0,0", "0,0.[0000]"), **labels)
    made.xaxis.ticker.min_interval = 1
    both = [(i, a, b) for i, (a, b) in enumerate(measured, 1) if a is not None and b is not None]
    source = {"x": [i for i, _, _ in both], "a": [a for _, a, _ in both], "b": [b for _, _, b in both]}
    joined = made.segment("x", "a", "x", "b", source=models.ColumnDataSource(source), line_width=1.5)
    canvas.paint(joined.glyph, line_color="ideal")
    for side, colour, marker in (("a", "transfer", "circle"), ("b", "fit", "square")):
        place = "ab".index(side)
        own = [(i, pair[place]) for i, pair in enumerate(measured, 1) if pair[place] is not None]
        tips = {"pair": "@x", side.upper(): "@y{0,0.[0000]}"}
        _marks(canvas, made, [i for i, _ in own], [y for _, y in own], tips, colour=colour, marker=marker)


def _marks(
    canvas: Canvas, made: Any, x: Sequence[Any], y: Sequence[Any], tips: dict[str, str], *, colour: str = "busy",
    size: int = 9, **given: Any,
) -> None:  # fmt: skip
    source = models.ColumnDataSource({"x": list(x), "y": list(y)})
    marks = made.scatter("x", "y", source=source, size=size, line_width=1.2, **given)
    canvas.paint(marks.glyph, fill_color=colour, line_color="page")
    made.add_tools(models.HoverTool(renderers=[marks], tooltips=list(tips.items())))


def _plain(text: str, other: str) -> str:
    return text if PLAIN.fullmatch(text) else other


def _regimes(spots: Sequence[tuple[float, float]], ends: Collection[float]) -> list[list[tuple[float, float]]]:
    lines: list[list[tuple[float, float]]] = [[]]
    for spot in spots:
        lines[-1].append(spot)
        if spot[0] in ends:
            lines.append([])
    return [line for line in lines if line]


def _columns(pairs: Sequence[tuple[float, float]]) -> list[list[float]]:
    return [list(column) for column in zip(*pairs, strict=True)]


# ------------------------------------------------------------------ two runs


def threads_of(canvas: Canvas, name: str, blame: Blame, styles: Sequence[str], *, seconds: float, threads: int) -> None:
    """Threads of a trial since the call, by what they are charged to. `seconds`, `threads`: ends of the axes."""
    ranges = {"x_range": models.Range1d(0, seconds), "y_range": models.Range1d(0, threads)}
    labels = {"x_label": "seconds since the call", "y_label": "threads"}
    made = canvas.figure(name, height=220, numbers=("0,0.[000]", "0,0.[00]"), **labels, **ranges)
    made.yaxis.ticker.min_interval = 1
    _stacked(canvas, made, name, replace(blame, edges=blame.edges - blame.edges[0]), styles)


# ------------------------------------------------------------------ a trial


class TrialCharts:
    """The charts of one trial, below each other, with a common time axis and cursor.

    The page's script finds models by name: `time` (axis), `figure-NAME`, `cursor-NAME`, and sources such as `bars`.
    """

    def __init__(self, canvas: Canvas, attempts: Attempts) -> None:
        self._canvas, self._makespan = canvas, attempts.makespan
        begin, end = attempts.begin, attempts.end
        self._range = models.Range1d(begin, end, bounds=(begin, end), name="time")
        canvas.reading |= {"begin": begin, "end": end, "makespan": attempts.makespan, "figures": []}

    def blame(self, blame: Blame, styles: Sequence[str]) -> None:
        """Threads by what they are charged to, as stacked areas; `styles`: colour and texture of each charge."""
        made = self._figure("blame", height=260, y_label="threads")
        made.y_range.start = 0
        _stacked(self._canvas, made, "blame", blame, styles)

    def parallelism(self, profile: Profile) -> None:
        """Threads available, runnable tasks and running tasks."""
        steps = {"provisioned": profile.provisioned, "runnable": profile.runnable, "running": profile.running}
        made = self._figure("parallelism", height=220, y_label="threads, tasks")
        for name, step in steps.items():
            level = step.level.astype(np.int32)
            level[-1:] = level[-2:-1]  # do not draw the drop to zero at the end of the trial
            source = _source(name, time=step.time, level=level)
            if name == "running":
                area = made.varea_step("time", 0, "level", source=source, step_mode="after", fill_alpha=0.85)
                self._canvas.paint(area.glyph, fill_color="busy")
                continue
            dash = "dashed" if name == "provisioned" else "solid"
            line = made.step("time", "level", source=source, mode="after", line_width=1.6, line_dash=dash)
            self._canvas.paint(line.glyph, line_color="ideal" if name == "provisioned" else "not_assigned")
        made.y_range.start = 0

    def heat(self, name: str, heat: Heat) -> None:
        """Busy share of each worker, or of its GPU, over time."""
        rows = len(heat.share)
        made = self._figure(name, height=max(120, min(320, 40 + 14 * rows)), y_label="workers", rows=rows)
        mapper = models.LinearColorMapper(low=0, high=255, palette=_between(LIGHT["heat-low"], LIGHT["heat-high"]))
        self._canvas.paints.append((mapper.id, "palette", ["heat-low", "heat-high"]))
        source = models.ColumnDataSource({"image": [heat.share]}, name=name)
        area = {"x": 0, "y": -0.5, "dw": self._makespan, "dh": rows}
        made.image("image", source=source, color_mapper=mapper, level="image", **area)

    def gantt(self, bars: Bars, rows: int) -> None:
        made = self._figure("gantt", height=max(140, min(460, 50 + 14 * rows)), y_label="worker threads", rows=rows)
        small = np.uint16 if rows < 65_536 else np.uint32
        data = {"row": bars.row.astype(small), "left": bars.left, "right": bars.right, "stage": bars.stage}
        source = _source("bars", **data, **({"count": bars.count} if bars.merged_below_s else {}))
        mapper = models.LinearColorMapper(low=-0.5, high=LOST + 0.5, palette=["#000000"] * (LOST + 1))
        self._canvas.paint(mapper, palette=[stage_colour(code) for code in range(LOST + 1)])
        colour = {"field": "stage", "transform": mapper}
        outlined = len(bars.row) <= OUTLINED_BARS and rows <= OUTLINED_ROWS
        made.hbar(
            y="row", left="left", right="right", height=0.86 if rows < 400 else 1.0, source=source,
            fill_color=colour, line_color=colour if outlined else None, line_width=0.5,
        )  # fmt: skip

    def memory(self, memory: Memory) -> None:
        """Resident, managed and spilled memory in GiB."""
        made = self._figure("memory", height=200, y_label="memory, GiB")
        made.y_range.start = 0
        styles = {"rss": ("busy", "solid"), "managed": ("transfer", "solid"), "spilled": ("spill", "solid"),
                  "highest": ("not_assigned", "dashed"), "scheduler": ("ideal", "dotted")}  # fmt: skip
        source = _source("memory", time=memory.time, **{name: getattr(memory, name) / 2**30 for name in styles})
        for name, (colour, dash) in styles.items():
            line = made.line("time", name, source=source, line_width=1.6, line_dash=dash)
            self._canvas.paint(line.glyph, line_color=colour)

    def _figure(self, name: str, *, height: int, y_label: str, rows: int = 0) -> Any:
        zoom = models.BoxZoomTool(dimensions="width")
        given: dict[str, Any] = {"x_range": self._range, "tools": [zoom], "active_drag": zoom}
        given |= {"y_range": models.Range1d(rows - 0.5, -0.5)} if rows else {}
        numbers = ("0,0.[000]", "0,0.[00]")
        made = self._canvas.figure(name, height=height, x_label="time, s", y_label=y_label, numbers=numbers, **given)
        made.name = f"figure-{name}"
        if rows:
            made.ygrid.visible = False
            made.yaxis.ticker.min_interval = 1
        line = {"line_width": 1, "line_alpha": 0.9, "name": f"cursor-{name}"}
        cursor = models.Span(location=0, dimension="height", visible=False, **line)
        self._canvas.paint(cursor, line_color="cursor")
        made.add_layout(cursor)
        self._canvas.reading["figures"].append(name)
        return made


def _stacked(canvas: Canvas, made: Any, name: str, blame: Blame, styles: Sequence[str]) -> None:
    width = np.diff(blame.edges)
    tops = np.cumsum([np.zeros(len(width)), *(charge.seconds / width for charge in blame.charges)], axis=0)
    columns = {f"top{i}": np.append(top, top[-1]) for i, top in enumerate(tops)}
    source = _source(name, time=blame.edges, **columns)
    for i, style in enumerate(styles):
        colour, _, texture = style.partition(" ")
        given = TEXTURES[texture]
        area = made.varea_step("time", f"top{i}", f"top{i + 1}", source=source, step_mode="after", **given)
        canvas.paint(area.glyph, fill_color=colour)
        if "hatch_pattern" in given:
            canvas.paint(area.glyph, hatch_color="page")


def _source(name: str, **columns: Any) -> Any:
    """A data source of this name, with numbers in single precision."""
    small = {
        each: column.astype(np.float32) if column.dtype == np.float64 else column for each, column in columns.items()
    }
    return models.ColumnDataSource(small, name=name)


def _between(low: str, high: str) -> list[str]:
    first, last = ([int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (low, high))
    mixed = np.rint(np.linspace(first, last, HEAT_STEPS)).astype(int)
    return ["#" + "".join(f"{part:02x}" for part in colour) for colour in mixed]
