"""Stored trials, judged by the present version."""

from __future__ import annotations

from dataclasses import replace

from scalescope.analysis.events import Tables
from scalescope.analysis.measure import measure
from scalescope.diagnosis import causes
from scalescope.diagnosis.observation import Observation
from scalescope.model.trial import Trial


def anew(trial: Trial, tables: Tables) -> Trial:
    """The trial as it would be measured and judged now."""
    if trial.metrics is not None:
        elapsed_s = trial.metrics.elapsed_s
        trial = replace(trial, metrics=measure(tables, threads=trial.point.threads, elapsed_s=elapsed_s))
    return replace(trial, findings=causes.find(Observation.of(trial, tables)))
