"""Parts that the sheets of all studies share: the question and the trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalescope.analysis.summary import summarise
from scalescope.model.environment import Environment
from scalescope.model.study import Study
from scalescope.model.words import pairs, plural
from scalescope.report import run_tables
from scalescope.report.cluster_lines import cluster_lines
from scalescope.store.store import SweepRun


def asked(study: Study, runs: Sequence[SweepRun], *, environment: bool = True) -> list[tuple[str, str]]:
    """Workload, parameters, point, cluster and, if `environment`, the environment; without empty ones."""
    question = study.question
    found = [
        ("Workload", ", ".join(map(str, question.get("workloads") or [question.get("workload", "")]))),
        ("Parameters", pairs(question.get("params") or {})),
        ("Measured at", pairs(question.get("values") or {})),
        ("Cluster", _cluster(question, runs)),
    ]
    if environment:
        found.append(("Environment", Environment.parse(str(question.get("environment") or "")).label))
    return [(term, text) for term, text in found if text]


def workload(study: Study) -> str:
    names = study.question.get("workloads") or [study.question.get("workload", "")]
    return str(names[0]) if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def trials(runs: Sequence[SweepRun]) -> list[tuple[str, str]]:
    every = [trial for run in runs for trial in run.trials]
    if not every:
        return []
    warmups = sum(trial.warmup for trial in every)
    counted = sum(trial.counts for trial in every)
    text = f"{counted:,} of {plural(len(every) - warmups, 'trial')} count"
    found = [("Trials", text + (f", plus {plural(warmups, 'warm-up')}" if warmups else ""))]
    reasons = [reason for run in runs for reason in run_tables.reasons(summarise(run.trials))]
    if reasons:
        more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
        found.append(("Excluded trials", "; ".join(" ".join(reason.split()) for reason in reasons[:3]) + more))
    return found


def _cluster(question: Mapping[str, Any], runs: Sequence[SweepRun]) -> str:
    found = dict.fromkeys(line for run in runs for line in cluster_lines(run.sweep, run.trials))
    if found:
        return " ".join(line.removeprefix("Cluster: ") for line in found)
    given = question.get("cluster") or ""
    return str(given.get("kind", "")) if isinstance(given, Mapping) else str(given)
