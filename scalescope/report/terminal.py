"""The result of a sweep on a terminal: the verdict, the remedy, the table, where the worker time went, and doubts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from scalescope.analysis.summary import Estimate, PointSummary, label, settings, summarise, varied
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import Finding, Severity, Verdict
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial
from scalescope.report import rows

MARKS: dict[Severity, tuple[str, str]] = {
    Severity.HIGH: ("✗", "bold red"),
    Severity.MEDIUM: ("!", "bold yellow"),
    Severity.LOW: ("!", "yellow"),
    Severity.INFO: ("·", ""),
}
HEALTHY = ("✓", "bold green")
INKS = {
    "busy": ("█", "green"),
    "transfer": ("▒", "blue"),
    "serialisation": ("%", "cyan"),
    "spill": ("$", "magenta"),
    "paused": ("=", "bright_magenta"),
    "no_runnable_task": ("·", "bright_black"),
    "not_assigned": ("?", "yellow"),
    "late_start": (">", "white"),
    "lost": ("x", "red"),
    "tail": ("~", "bright_blue"),
}
"""A character and a colour for each part of worker time: the bar can be read without colours."""
REASONS_SHOWN = 10
KNEES_SHOWN = 6
_GAP = 2
"""Spaces between two columns, as `_table` sets them."""


def render(sweep: Sweep, trials: Sequence[Trial], verdict: Verdict, *, width: int | None = None) -> Group:
    """The whole report.

    Args:
        sweep: The question.
        trials: Everything that was run.
        verdict: The answer (`scalescope.diagnosis.verdict.diagnose`).
        width: Columns to fit into; None takes those of the terminal.
    """
    width = width or Console().width
    summaries = summarise(trials)
    blocks = [
        _headline(verdict),
        _points(summaries, width),
        _scaling(sweep, trials),
        _worker_time(summaries, verdict, width),
        _other_findings(verdict),
        _listed("Excluded trials", rows.reasons(summaries), "red"),
        _listed("Quality of the capture", rows.warnings(summaries), "yellow"),
        _cluster(sweep, trials),
    ]
    return Group(*_spaced(block for block in blocks if block))


def print_run(console: Console, run: rows.Run) -> None:
    """Print a run; of one without a verdict, what can be said so far."""
    if run.verdict is None:
        console.print(Text("This run has not finished: what follows is what is known so far.\n", style="yellow"))
    verdict = run.verdict or diagnose(run.sweep, run.trials)
    console.print(render(run.sweep, run.trials, verdict, width=console.width))


def render_comparison(left: rows.Run, right: rows.Run, labels: tuple[str, str], *, width: int | None = None) -> Group:
    """Two runs side by side, matched by workers, threads and items.

    Args:
        left: The baseline, A.
        right: What is compared with it, B; a speed-up above 1 means that it is faster.
        labels: Names of the two.
        width: Columns to fit into; None takes those of the terminal.
    """
    comparison = rows.compare(left, right)
    pairs, points = comparison.pairs, [pair.point for pair in comparison.pairs]
    columns = [
        _Cells("workers", [f"{point.workers:,}" for point in points]),
        _Cells("items", [rows.MISSING if point.items is None else f"{point.items:,}" for point in points]),
    ]
    columns += [_Cells(name, [str(settings(point).get(name)) for point in points]) for name in comparison.names]
    measured = {column.key: column for column in rows.MEASURED}
    for side, summaries in (("A", [pair.left for pair in pairs]), ("B", [pair.right for pair in pairs])):
        for key, rank in (("makespan_s", 0), ("workers_used", 0), ("busy", 1)):
            column = measured[key]
            columns.append(_Cells(f"{side} {column.title}", [_cell(column, found) for found in summaries], rank))
        means = [Estimate(found.efficiency.mean) if found and found.efficiency else None for found in summaries]
        columns.append(_Cells(f"{side} eff.", [rows.estimate(mean) for mean in means], 2))
    columns.append(_Cells("speed-up", [rows.speedup(pair.speedup) for pair in pairs]))
    table = _table(columns, width or Console().width)
    return Group(Text(f"A: {labels[0]}"), Text(f"B: {labels[1]}"), Text(), table)


# ------------------------------------------------------------------ blocks


def _headline(verdict: Verdict) -> list[RenderableType]:
    if verdict.findings:
        return _finding(verdict.findings[0])
    mark, style = MARKS[verdict.severity]
    return [_hanging(mark, Text(verdict.line, style=style))]


def _finding(finding: Finding) -> list[RenderableType]:
    mark, style = HEALTHY if finding.code == "healthy" else MARKS[finding.severity]
    lines: list[RenderableType] = [_hanging(mark, Text(finding.summary, style=style))]
    if finding.remedy:
        lines.append(_hanging("", Text.assemble(("Fix: ", "bold"), f"{finding.remedy}.")))
    if finding.link:
        lines.append(_hanging("", Text(finding.link, style="dim")))
    return lines


def _points(summaries: Sequence[PointSummary], width: int) -> list[RenderableType]:
    if not summaries:
        return []
    columns = rows.columns(summaries)
    table = [_Cells(column.title, [_cell(column, summary) for summary in summaries], column.rank) for column in columns]
    kept = {cells.title for cells in _fitting(table, width)}
    notes = [rows.legend(column for column in columns if column.title in kept)]
    repeated = [summary.efficiency for summary in summaries if summary.efficiency and summary.valid > 1]
    if repeated:
        exact = all(estimate.exact for estimate in repeated)
        notes.append("repeats agree exactly" if exact else "in brackets: 95 % interval over repeats")
    return [_table(table, width), Text("; ".join(notes), style="dim")]


def _scaling(sweep: Sweep, trials: Sequence[Trial]) -> list[RenderableType]:
    lines = rows.knees(sweep, trials)
    shown: list[RenderableType] = [Text.assemble((f"{title}: ", "bold"), line) for title, line in lines[:KNEES_SHOWN]]
    if len(lines) > KNEES_SHOWN:
        shown.append(Text(f"and {len(lines) - KNEES_SHOWN} more series (--json has all)", style="dim"))
    return shown


def _worker_time(summaries: Sequence[PointSummary], verdict: Verdict, width: int) -> list[RenderableType]:
    point = rows.worst_point(summaries, verdict)
    if point is None or point.metrics is None:
        return []
    parts = rows.worker_time_parts(point.metrics)
    total = sum(part.seconds for part in parts)
    bar, legend = Text(), Text()
    for part, size in zip(parts, rows.apportion([part.seconds for part in parts], width), strict=True):
        ink, style = INKS[part.name]
        bar.append(ink * size, style=style)
        legend.append(ink, style=style).append(f" {part.title} {part.percent} %   ")
    legend.rstrip()
    where = label(point.point, varied(summary.point for summary in summaries))
    title = Text.assemble(("Worker time", "bold"), f" at {where}: {rows.seconds(total)} thread-seconds")
    return [title, bar, legend]


def _other_findings(verdict: Verdict) -> list[RenderableType]:
    return [line for finding in verdict.findings[1:] for line in _finding(finding)]


def _cluster(sweep: Sweep, trials: Sequence[Trial]) -> list[RenderableType]:
    return [Text(line, style="dim") for line in rows.cluster_lines(sweep, trials)]


# ------------------------------------------------------------------ pieces


def _cell(column: rows.Column, summary: PointSummary | None) -> str:
    return rows.MISSING if summary is None else rows.cells(summary, [column])[0]


@dataclass(frozen=True)
class _Cells:
    """A column as text; the higher its rank, the sooner it is left out."""

    title: str
    texts: Sequence[str]
    rank: int = 0

    @property
    def width(self) -> int:
        return max(map(cell_len, (self.title, *self.texts)))


def _fitting(columns: Sequence[_Cells], width: int) -> list[_Cells]:
    """The columns that fit side by side; those of the highest rank go first, together."""
    shown = list(columns)
    while sum(column.width + _GAP for column in shown) - _GAP > width:
        rank = max(column.rank for column in shown)
        if rank == 0:
            break
        shown = [column for column in shown if column.rank != rank]
    return shown


def _table(columns: Sequence[_Cells], width: int) -> Table:
    shown = _fitting(columns, width)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in shown:
        table.add_column(column.title, justify="right", no_wrap=True)
    for texts in zip(*(column.texts for column in shown), strict=True):
        table.add_row(*map(Text, texts))
    return table


def _hanging(mark: str, text: Text) -> Table:
    """Text that wraps beside its mark, not below it."""
    grid = Table.grid(padding=(0, 1, 0, 0))
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


def _spaced(blocks: Iterable[list[RenderableType]]) -> Iterator[RenderableType]:
    for i, block in enumerate(blocks):
        if i:
            yield Text()
        yield from block
