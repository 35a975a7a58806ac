"""The report of a run on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from scalescope.analysis.knee import Knee, of_sweep
from scalescope.analysis.summary import MeanInterval, PointSummary, label, settings, varied
from scalescope.model.finding import Finding, Severity, Verdict
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial
from scalescope.model.words import count, ratio, seconds
from scalescope.report import run_tables, worker_time
from scalescope.report.cluster_lines import cluster_lines
from scalescope.report.table import Column, ReportTable, fitting, to_terminal

MARKS: dict[Severity, tuple[str, str]] = {
    Severity.HIGH: ("✗", "bold red"),
    Severity.MEDIUM: ("!", "bold yellow"),
    Severity.LOW: ("!", "yellow"),
    Severity.INFO: ("·", ""),
}
HEALTHY = ("✓", "bold green")
# For each part of worker time, a character (so that the bar can be read without colours) and a colour
INKS = {
    "busy": ("█", "green"),
    "actors": ("a", "bright_green"),
    "transfer": ("▒", "blue"),
    "serialisation": ("%", "cyan"),
    "spill": ("$", "magenta"),
    "paused": ("=", "bright_magenta"),
    "no_runnable_task": ("·", "bright_black"),
    "client": ("o", "bright_yellow"),
    "other_cluster": ("|", "bright_cyan"),
    "not_assigned": ("?", "yellow"),
    "late_start": (">", "white"),
    "lost": ("x", "red"),
    "tail": ("~", "bright_blue"),
}
REASONS_SHOWN = 10
POINTS_SHOWN = 100
KNEES_SHOWN = 6
# Metrics in the comparison of two runs, with their ranks (`Column.rank`)
COMPARED = {"makespan_s": 0, "workers_used": 0, "efficiency": 1}


def render(
    sweep: Sweep, trials: Sequence[Trial], verdict: Verdict, *, width: int | None = None, tracebacks: bool = True
) -> Group:
    """The whole report, `width` characters wide; by default as wide as the terminal."""
    width = width or Console().width
    summaries, knees = run_tables.points(trials), of_sweep(sweep, trials)
    blocks: list[list[RenderableType]] = [
        _headline(verdict),
        _points(summaries, width),
        _scaling(knees),
        _factors(knees),
        _worker_time(summaries, verdict, width),
        [line for finding in verdict.others for line in _finding(finding)],
        _listed("Excluded trials", run_tables.reasons(summaries), "red"),
        [Text(text) for text in run_tables.tracebacks(trials)] if tracebacks else [],
        _listed("Quality of the capture", run_tables.warnings(summaries), "yellow"),
        [Text(line, style="dim") for line in cluster_lines(sweep, trials)],
    ]
    return Group(*[line for block in blocks if block for line in [*block, Text()]][:-1])


def print_run(console: Console, run: run_tables.ShownRun) -> None:
    if run.verdict is None:
        console.print(Text("This run has not finished: what follows is what is known so far.\n", style="yellow"))
    console.print(render(run.sweep, run.trials, run_tables.verdict_of(run), width=console.width))


def render_comparison(
    left: run_tables.ShownRun, right: run_tables.ShownRun, labels: tuple[str, str], *, width: int | None = None
) -> Group:
    """Two runs side by side, the baseline A on the left; a speed-up above 1 means that B is faster."""
    names, pairs = run_tables.compare(left, right)
    columns: list[Column[run_tables.Pair]] = [
        Column("workers", "workers", lambda pair: pair.point.workers, count),
        Column("items", "items", lambda pair: pair.point.items, count),
    ]
    columns += [_setting(name) for name in names]
    columns += [
        _of_side(side, attribute, name) for side, attribute in (("A", "left"), ("B", "right")) for name in COMPARED
    ]
    columns.append(Column("speedup", "speed-up", lambda pair: pair.speedup, ratio))
    shown = fitting(columns, pairs, width or Console().width)
    cells = ([column.cell(pair) for column in shown] for pair in pairs)
    table = ReportTable.of("Two runs side by side", [column.title for column in shown], cells, labels=0)
    return Group(Text(f"A: {labels[0]}"), Text(f"B: {labels[1]}"), Text(), to_terminal(table))


def _setting(name: str) -> Column[run_tables.Pair]:
    return Column(name, name, lambda pair: settings(pair.point).get(name))


def _of_side(side: str, attribute: str, name: str) -> Column[run_tables.Pair]:
    column = run_tables.MEASURED[name]

    def value(pair: run_tables.Pair) -> Any:
        summary: PointSummary | None = getattr(pair, attribute)
        found = None if summary is None else column.value(summary)
        return MeanInterval(found.mean) if isinstance(found, MeanInterval) else found

    title, short = f"{side} {column.title}", f"{side} {column.short or column.title}"
    return Column(f"{side}_{name}", title, value, column.show, short, rank=COMPARED[name])


def _headline(verdict: Verdict) -> list[RenderableType]:
    if verdict.findings:
        trust = [_hanging(MARKS[Severity.LOW][0], Text(each.summary, style="yellow")) for each in verdict.trust]
        doubt = [_hanging("", Text(verdict.doubt, style="dim"))] if verdict.doubt else []
        return [*trust, *_finding(verdict.findings[0]), *doubt]
    mark, style = MARKS[verdict.severity]
    return [_hanging(mark, Text(verdict.line, style=style))]


def _finding(finding: Finding) -> list[RenderableType]:
    mark, style = HEALTHY if finding.code == "healthy" else MARKS[finding.severity]
    lines: list[RenderableType] = [_hanging(mark, Text(finding.summary, style=style))]
    if finding.fix:
        lines.append(_hanging("", Text.assemble(("Fix: ", "bold"), f"{finding.fix}.")))
    if finding.link:
        lines.append(_hanging("", Text(finding.link, style="dim")))
    return lines


def _points(summaries: Sequence[PointSummary], width: int) -> list[RenderableType]:
    if not summaries:
        return []
    table, legend = run_tables.points_table(summaries[:POINTS_SHOWN], width=width)
    notes = [legend]
    if len(summaries) > POINTS_SHOWN:
        notes.insert(0, f"points not shown: {len(summaries) - POINTS_SHOWN:,} (--json has all)")
    repeated = [mean for summary in summaries if summary.valid > 1 for mean in summary.intervals.values()]
    if repeated:
        exact = all(mean.exact for mean in repeated)
        notes.append("repeats agree exactly" if exact else "in brackets: 95 % interval over repeats")
    return [to_terminal(table), Text("; ".join(notes), style="dim")]


def _scaling(knees: Sequence[Knee]) -> list[RenderableType]:
    lines = run_tables.knees(knees)
    shown: list[RenderableType] = [Text.assemble((f"{title}: ", "bold"), line) for title, line in lines[:KNEES_SHOWN]]
    if len(lines) > KNEES_SHOWN:
        shown.append(Text(f"and {len(lines) - KNEES_SHOWN} more series (--json has all)", style="dim"))
    return shown


def _factors(knees: Sequence[Knee]) -> list[RenderableType]:
    table = run_tables.worst_factors(knees)
    if table is None:
        return []
    return [Text(table.caption, style="bold"), to_terminal(table), Text(table.notice, style="dim")]


def _worker_time(summaries: Sequence[PointSummary], verdict: Verdict, width: int) -> list[RenderableType]:
    point = worker_time.worst_point(summaries, verdict)
    if point is None or point.metrics is None:
        return []
    parts = worker_time.worker_time_parts(point.metrics)
    total = sum(part.seconds for part in parts)
    bar, lines = Text(), [list[Text]()]
    for part, size in zip(parts, worker_time.apportion([part.seconds for part in parts], width), strict=True):
        ink, style = INKS[part.name]
        bar.append(ink * size, style=style)
        item = Text.assemble((ink, style), f" {part.title} {part.percent} %")
        lines[-1:] = [lines[-1] + [item]] if _length(lines[-1] + [item]) <= width else [lines[-1], [item]]
    legend = [Text("   ").join(line) for line in lines]
    where = label(point.point, varied(summary.point for summary in summaries))
    title = Text.assemble(("Worker time", "bold"), f" at {where}: {seconds(total)} thread-seconds")
    lost = worker_time.lost_to(point)
    busy, gpu = worker_time.busy_line(point.metrics), worker_time.gpu_line(point.metrics)
    told = [("Lost to: ", lost), ("Busy: ", busy), ("GPU: ", gpu)]
    return [title, bar, *legend, *(Text.assemble((head, "bold"), line) for head, line in told if line)]


def _length(items: Sequence[Text]) -> int:
    return sum(len(item) for item in items) + 3 * (len(items) - 1)


def _hanging(mark: str, text: Text) -> Grid:
    grid = Grid.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=text.style), text)
    return grid


def _listed(title: str, items: Sequence[str], style: str) -> list[RenderableType]:
    if not items:
        return []
    lines: list[RenderableType] = [Text(title, style=f"bold {style}")]
    lines += [_hanging("-", Text(item)) for item in items[:REASONS_SHOWN]]
    if len(items) > REASONS_SHOWN:
        lines.append(Text(f"  and {len(items) - REASONS_SHOWN} more", style="dim"))
    return lines
