"""Warns of tasks that take longer than the jobs in which they run, before the jobs are submitted."""

from __future__ import annotations

from collections.abc import Sequence

from scalescope.analysis.attempts import Attempts
from scalescope.analysis.task_lengths import TooLong, longest_tasks, too_long
from scalescope.errors import CaptureError
from scalescope.model.cluster import ClusterSpec
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial
from scalescope.store.store import Store

EARLIER_RUNS = 50  # newest runs among which a record of the same workload is looked for


def tasks_longer_than_jobs(sweep: Sweep, cluster: ClusterSpec, points: Sequence[Point], store: Store) -> str:
    """Says which tasks outlive the workers of this cluster, judged by an earlier trial; empty if none or unknown.

    `points`: the point of each planned trial.
    """
    limits = {"walltime": getattr(cluster, "walltime_s", 0.0), "lifetime": getattr(cluster, "lifetime_s", 0.0)}
    known = _recorded(sweep, store) if any(limits.values()) else None
    if known is None or not points:
        return ""
    run_id, trial, longest = known
    assert trial.metrics is not None
    work_s, span_s = trial.metrics.work_s, trial.metrics.span_s
    whole_s = sum(max(work_s / point.threads, span_s) for point in points)  # jobs stay open from one trial to the next
    each = [too_long(longest, name, limit_s, whole_s) for name, limit_s in limits.items() if limit_s]
    worst: TooLong | None = max(filter(None, each), key=lambda one: one.lost, default=None)
    return f"According to run {run_id}, {worst.text}" if worst else ""


def _recorded(sweep: Sweep, store: Store) -> tuple[str, Trial, dict[str, float]] | None:
    """The newest recorded trial of the same workload: id of its run, the trial, its longest task (s) by prefix."""
    for run in store.runs(limit=EARLIER_RUNS):
        trials = [each for each in run.trials if each.counts and each.records and each.metrics is not None]
        if run.sweep.workload != sweep.workload or not trials:
            continue
        try:
            return run.id, trials[-1], longest_tasks(Attempts.read(store.tables(trials[-1])))
        except CaptureError:
            continue
    return None
