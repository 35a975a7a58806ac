"""The scheduled flow that removes jobs, processes and clusters of dead runs."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from prefect import get_run_logger
from prefect.artifacts import create_table_artifact

from scalescope.clusters import reaping
from scalescope.clusters.reaping import Fate, Reaped
from scalescope.errors import ClusterError
from scalescope.model.words import plural
from scalescope.report.table import html_text
from scalescope_flows.declared import LocalFlow

KEY = "scalescope-reap"


@partial(LocalFlow[..., Any], name="reap", persist_result=False)
def reap(dry_run: bool = False) -> list[dict[str, object]]:
    """Remove jobs, clusters and processes of dead runs, for the user and on the machine of this flow run.

    Only jobs whose name and comment are the label of one of our leases are removed. In the Kubernetes namespace of the
    flow's pod, or of the current context, clusters of other hosts are also removed once their own lease has expired.

    Args:
        dry_run: Only list what would be removed.

    Raises:
        ClusterError: Something could not be removed; the next run tries again.
    """
    results = reaping.reap(dry_run=dry_run)
    rows = [_row(result) for result in results]
    line = _line(results)
    get_run_logger().info(line)
    create_table_artifact(rows, key=KEY, description=line)
    failed = [result for result in results if result.fate is Fate.FAILED]
    if failed:
        raise ClusterError(
            f"resources of {len(failed)} of {len(results)} leases could not be removed",
            cause="; ".join(f"{result.label}: {result.words}" for result in failed),
            next_step=failed[0].next_step,
        )
    return [asdict(result) for result in results]


def _row(result: Reaped) -> dict[str, str]:
    row = {
        "lease": result.label,
        "backend": result.backend,
        "what was done": result.fate.value,
        "jobs or processes": ", ".join(result.removed) or "-",
        "why": result.words,
        "next": result.next_step,
    }
    return {head: html_text(text) for head, text in row.items()}


def _line(results: list[Reaped]) -> str:
    if not results:
        return "no leases"
    counts = {fate: sum(result.fate is fate for result in results) for fate in Fate}
    ended = sum(len(result.removed) for result in results)
    shown = ", ".join(f"{count} {fate.value}" for fate, count in counts.items() if count)
    return f"{plural(len(results), 'lease')}: {shown}; {ended} jobs or processes of dead runs"
