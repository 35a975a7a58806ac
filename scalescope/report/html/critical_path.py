"""The critical path of the recorded graph."""

from __future__ import annotations

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.graph import Graph
from scalescope.analysis.work_span import critical_path, work_span
from scalescope.model.words import percent, plural, seconds
from scalescope.report.table import ReportTable

MOST_PREFIXES = 20


def path(attempts: Attempts, graph: Graph) -> tuple[ReportTable | None, str]:
    """Table of the critical path, and the consequence of its length."""
    spans = work_span(attempts, graph)
    longest = critical_path(attempts, graph)
    useful = f"From about {plural(spans.useful_workers, 'thread')} on, more of them help this graph by less than 5 %."
    if longest is None:
        return None, f"The tasks on it are not known, because dependencies were not recorded. {useful}"
    shares, count = longest.shares(), dict.fromkeys(longest.by_prefix, 0)
    for prefix in longest.prefixes:
        count[prefix] += 1
    cells = tuple(
        (prefix, f"{count[prefix]:,}", seconds(taken), percent(shares[prefix]))
        for prefix, taken in list(longest.by_prefix.items())[:MOST_PREFIXES]
    )
    text = (
        f"The longest path has {plural(len(longest.keys), 'task')} and takes {seconds(longest.span_s)} s, "
        f"{percent(longest.span_s / attempts.makespan)} of the makespan: no number of workers makes this graph faster "
        f"than that. {useful}"
    )
    return ReportTable.of(
        "What the critical path consists of", ("task prefix", "tasks", "seconds", "share"), cells
    ), text
