"""The declarations of metrics are complete and feed the documentation."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from scalescope.model.metrics import METRICS, Metric, Metrics
from scalescope.report.html.page import TERMS
from scalescope.report.run_tables import MEASURED
from scalescope.studies.symptom import LARGER_IS_BETTER, NAMES

DOCS = Path(__file__).parents[3] / "docs"


def test_every_field_of_metrics_has_a_declaration():
    others = {"worker_time_s", "work_by_prefix", "gpu_time_s", "gpu_by_prefix", "busy_time_s", "busy_by_prefix"}
    assert {*METRICS} | others == {field.name for field in fields(Metrics)}
    assert list(METRICS) == [metric.name for metric in METRICS.values()]


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_a_declared_metric_has_a_help_sentence_a_title_and_a_short_title(metric: Metric):
    assert metric.help.endswith(".")
    assert metric.title
    assert len(metric.short) < len(metric.title)


def test_lists_of_metric_names_and_terms_follow_from_the_declarations():
    assert set(METRICS) < set(NAMES)
    assert list(MEASURED) == [
        "tasks", "widest_stage", "workers_used", "peak_parallelism", "makespan_s", "ideal_s", "efficiency", "gpu_busy",
    ]  # fmt: skip
    assert {"efficiency", "workers_used", "busy"} < LARGER_IS_BETTER
    assert "makespan_s" not in LARGER_IS_BETTER
    assert {"Efficiency", "Schedule quality", "Makespan"} < {term for term, _ in TERMS}
