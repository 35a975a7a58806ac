"""The report of a run for programs and web pages: JSON, Markdown and rows of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from scalescope.analysis.knee import Knee, of_sweep
from scalescope.analysis.summary import PointSummary, label, varied
from scalescope.model.finding import Verdict
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.report import run_tables, worker_time
from scalescope.report.cluster_lines import cluster_lines
from scalescope.report.table import markdown_list, markdown_text, to_mappings
from scalescope.report.table import to_markdown as table_markdown

SCHEMA = 2  # increased when a key of `to_json` changes its meaning or is removed


def to_json(sweep: Sweep, trials: Sequence[Trial], verdict: Verdict) -> dict[str, Any]:
    states = Counter(trial.state for trial in trials if not trial.warmup)
    return {
        "schema": SCHEMA,
        "sweep": {"id": sweep.id, **sweep.to_mapping()},
        "verdict": {
            "line": verdict.line,
            "doubt": verdict.doubt,
            "trust": [finding.summary for finding in verdict.trust],
            "severity": str(verdict.severity),
            "findings": [finding.to_mapping() for finding in verdict.findings],
        },
        "points": [run_tables.row(summary) for summary in run_tables.points(trials)],
        "knees": [knee.to_mapping() for knee in of_sweep(sweep, trials)],
        "trials": {str(state): states[state] for state in TrialState},
        "cluster": list(cluster_lines(sweep, trials)),
    }


def to_rows(sweep: Sweep, trials: Sequence[Trial], verdict: Verdict) -> list[dict[str, str]]:
    """The table of points: for each point a mapping of headings to cells, safe as HTML."""
    return to_mappings(run_tables.points_table(run_tables.points(trials))[0])


def to_markdown(sweep: Sweep, trials: Sequence[Trial], verdict: Verdict) -> str:
    """The whole report; text from outside is escaped for Markdown and HTML."""
    summaries, knees = run_tables.points(trials), of_sweep(sweep, trials)
    blocks = [
        *(markdown_text(finding.summary) for finding in verdict.trust),
        f"**{markdown_text(verdict.line)}** {verdict.doubt}".rstrip(),
        _table(summaries),
        markdown_list("Scaling", [f"{title}: {line}" for title, line in run_tables.knees(knees)]),
        _factors(knees),
        _worker_time(summaries, verdict),
        markdown_list("Also found", [f"{finding.severity.word}: {finding.line}" for finding in verdict.others]),
        markdown_list("Excluded trials", run_tables.reasons(summaries)),
        markdown_list("Quality of the capture", run_tables.warnings(summaries)),
        "\n\n".join(markdown_text(line) for line in cluster_lines(sweep, trials)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _table(summaries: Sequence[PointSummary]) -> str:
    if not summaries:
        return ""
    table, legend = run_tables.points_table(summaries)
    return f"{table_markdown(table)}\n\n{markdown_text(legend)}"


def _factors(knees: Sequence[Knee]) -> str:
    table = run_tables.worst_factors(knees)
    if table is None:
        return ""
    return f"**{markdown_text(table.caption)}**\n\n{table_markdown(table)}\n\n{table.notice}"


def _worker_time(summaries: Sequence[PointSummary], verdict: Verdict) -> str:
    point = worker_time.worst_point(summaries, verdict)
    if point is None or point.metrics is None:
        return ""
    parts = ", ".join(f"{part.title} {part.percent} %" for part in worker_time.worker_time_parts(point.metrics))
    where = label(point.point, varied(summary.point for summary in summaries))
    lost = worker_time.lost_to(point)
    return f"**Worker time** at {markdown_text(where)}: {parts}." + (
        f" Lost to: {markdown_text(lost)}." if lost else ""
    )
