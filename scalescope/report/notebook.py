"""A run as a Python object for notebooks: points, trials, findings, a table and a chart."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from scalescope.analysis import knee
from scalescope.analysis.summary import PointSummary
from scalescope.errors import UsageError
from scalescope.model.finding import Finding
from scalescope.model.metrics import PARTS
from scalescope.model.trial import Trial
from scalescope.model.words import capital, plural, seconds
from scalescope.report import export, run_tables, worker_time
from scalescope.report.html import theme
from scalescope.report.table import ReportTable, html_text

if TYPE_CHECKING:
    import pandas

    from scalescope.store.store import SweepRun

MOST_ROWS, MOST_SERIES = 60, 6  # most points in a notebook's table, and most series in its chart
# Colours that are visible on white and on black, since the background of a notebook is unknown
FAINT, GREY = "#88888855", "#808890"


class Shown(ABC):
    """Results of a run; a measured block of code is a run with one trial."""

    @abstractmethod
    def _shown(self) -> SweepRun:
        """The run; raises `UsageError` while the run has not ended."""

    @property
    def points(self) -> tuple[PointSummary, ...]:
        """Metrics of each point, combined over its repeats."""
        return run_tables.points(self._shown().trials)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials in their order, including failed and invalid ones with their reasons."""
        return tuple(self._shown().trials)

    @property
    def trust(self) -> tuple[str, ...]:
        """Limits of trust in the numbers, in sentences."""
        verdict = self._shown().verdict
        return tuple(finding.summary for finding in verdict.trust) if verdict else ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All causes found, worst first."""
        verdict = self._shown().verdict
        return verdict.findings if verdict else ()

    def to_json(self) -> dict[str, Any]:
        """The same mapping as `scalescope show --json` prints."""
        run = self._shown()
        return export.to_json(run.sweep, run.trials, run_tables.verdict_of(run))

    def to_dataframe(self) -> pandas.DataFrame:
        """One row per point: settings, metrics (units: docs/reference/metrics.md), `worker_time.*` (thread-seconds).

        `valid`, `failed` and `invalid` count trials. What was not measured is missing.

        Raises:
            UsageError: pandas is not installed.
        """
        return table([_row(point) for point in self.points])

    def plot(self) -> Plot:
        """Speed-up against threads, with the fitted curve and the ideal (dashed).

        Raises:
            UsageError: Bokeh is not installed, or no two points differ only in workers.
        """
        return Plot(self._shown())

    def _repr_html_(self) -> str:
        run = self._shown()
        summaries = self.points
        findings = "".join(
            f"<li>{html_text(f'{finding.severity.word}: {finding.line}')}</li>"
            for finding in (run.verdict.others if run.verdict else ())
        )
        trust = "".join(f"<p>{html_text(text)}</p>" for text in self.trust)
        line = run.verdict.line if run.verdict else "This run has no verdict yet."
        doubt = run.verdict.doubt if run.verdict else ""
        worst = worker_time.worst_point(summaries, run.verdict)
        return (
            f"<div>{trust}<p><strong>{html_text(line)}</strong> {doubt}</p>{_bar(worst)}"
            f"{_table(summaries) if len(summaries) > 1 else ''}<ul>{findings}</ul></div>"
        )


class Plot:
    """A chart for notebooks; it loads nothing from the network."""

    def __init__(self, run: SweepRun) -> None:
        from scalescope.report.html import charts

        found = [each for each in knee.of_sweep(run.sweep, run.trials) if len(each.series.points) > 1][:MOST_SERIES]
        if not found:
            raise UsageError(
                "There is no scaling to draw",
                cause="no two measured points differ only in workers",
                next_step="measure at least two numbers of workers; to_dataframe() has the numbers of this run",
            )
        canvas = charts.Canvas()
        for number, each in enumerate(found):
            charts.scaling(canvas, f"series-{number}", each)
        # Bokeh figures, one per series of points that differ only in workers
        self.figures: list[Any] = list(canvas.figures.values())
        for figure in self.figures:
            figure.grid.grid_line_color = figure.axis.axis_line_color = figure.axis.major_tick_line_color = FAINT
            figure.axis.axis_label_text_color = figure.axis.major_label_text_color = GREY
        self._titles = [f"{capital(each.title)}: {each.line}" for each in found]

    def _repr_html_(self) -> str:
        from bokeh.embed import file_html
        from bokeh.layouts import column
        from bokeh.resources import Resources

        titles = "".join(f"<p>{html_text(title)}</p>" for title in self._titles)
        page = file_html(column(*self.figures, sizing_mode="stretch_width"), Resources(mode="inline"), "Scaling")
        height = 20 + sum(figure.height + 10 for figure in self.figures)
        return (
            f'{titles}<iframe style="border:0;width:100%;height:{height}px" sandbox="allow-scripts" '
            f'srcdoc="{html.escape(page)}"></iframe>'
        )


def table(data: Any) -> pandas.DataFrame:
    """Columns or rows as a pandas table.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise UsageError("A table needs pandas", next_step="pip install pandas") from error
    return pandas.DataFrame(data)


def _row(summary: PointSummary) -> dict[str, Any]:
    spent = summary.metrics.worker_time_s if summary.metrics else None
    return {
        **summary.point.values,
        **run_tables.measured(summary),
        **({} if spent is None else {f"worker_time.{part}": spent.get(part, 0.0) for part in PARTS}),
        "valid": summary.valid,
        "failed": summary.failed,
        "invalid": summary.invalid,
    }


def _bar(worst: PointSummary | None) -> str:
    parts = worker_time.worker_time_parts(worst.metrics) if worst and worst.metrics else ()
    whole = sum(part.seconds for part in parts)
    if worst is None or not whole:
        return "<p>Nothing was measured.</p>"
    shown = [(part, part.seconds / whole) for part in parts if part.seconds / whole >= 0.005]
    bar = "".join(_swatch(part.name, f"{100 * share / sum(each for _, each in shown):.2f}%") for part, share in shown)
    legend = ", ".join(
        f"{_swatch(part.name, '0.8em')} {html.escape(part.title)} {100 * share:.0f} %" for part, share in shown
    )
    where = plural(worst.point.workers, "worker")
    return (
        f'<div style="white-space:nowrap;width:100%;font-size:1.4em">{bar}</div>'
        f"<p>Worker time at {where}, {seconds(whole)} thread-seconds: {legend}.</p>"
    )


def _swatch(part: str, width: str) -> str:
    colour = FAINT if part == "no_runnable_task" else theme.LIGHT[part]
    return f'<span style="display:inline-block;height:0.8em;width:{width};background:{colour}"></span>'


def _table(summaries: tuple[PointSummary, ...]) -> str:
    points, legend = run_tables.points_table(summaries, most=MOST_ROWS)
    notes = "; ".join(each for each in (points.notice, legend) if each)
    return f"{html_table(points)}<p>{html_text(notes)}</p>"


def html_table(shown: ReportTable) -> str:
    heads = "".join(f"<th>{html_text(head)}</th>" for head in shown.heads)
    body = "".join(f"<tr>{''.join(f'<td>{html_text(cell)}</td>' for cell in row.cells)}</tr>" for row in shown.rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
