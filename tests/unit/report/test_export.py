from __future__ import annotations

import json

import pytest

from scalescope.model.trial import TrialState
from scalescope.report.export import to_json, to_markdown, to_rows


@pytest.fixture
def run(trial, finished):
    return finished(
        trial(10, 10, 10),
        trial(300, 300, 3),
        trial(8, 8, 8, state=TrialState.FAILED, reason="ValueError: <b>|*x*", warnings=("w",)),
    )


def test_json_of_a_run_has_verdict_trials_and_unrounded_points(run):
    data = json.loads(json.dumps(to_json(run.sweep, run.trials, run.verdict), allow_nan=False))
    assert data["verdict"]["severity"] == "high"
    assert [finding["code"] for finding in data["verdict"]["findings"]] == ["too-few-partitions", "failed-trials"]
    assert data["verdict"]["trust"] == [data["verdict"]["findings"][1]["summary"]]
    assert data["trials"] == {"valid": 2, "failed": 1, "invalid": 0}
    first, second, third = data["points"]
    assert (first["workers"], first["items"], first["metrics"]) == (8, 8, None)
    assert first["reasons"] == [{"state": "failed", "reason": "ValueError: <b>|*x*", "trials": 1}]
    assert (second["cause"], third["cause"]) == ("none", "too-few-partitions")
    assert (third["partitions"], third["workers_used"], third["makespan_s"]) == (3, 3, 100.0)
    assert (third["efficiency"], third["efficiency_low"]) == (pytest.approx(0.01), None)
    assert third["schedule_quality"] == 1.0
    assert third["metrics"]["worker_time_s"]["busy"] == 300


def test_knees_are_in_json_and_markdown(trial, finished, golden):
    run = finished(*[trial(n, 300, 60) for n in (10, 20, 50, 60, 100, 200, 300)], workload="mine.py:run")
    data = json.loads(json.dumps(to_json(run.sweep, run.trials, run.verdict), allow_nan=False))
    [knee] = data["knees"]
    assert (knee["k"], knee["capped"], knee["scaling"], knee["unit"]) == (60, True, "strong", "workers")
    assert len(knee["points"]) == 7
    assert knee["falls_most"] == "dependency"
    assert [size["workers"] for size in knee["factors"]] == [10, 20, 50, 60, 100, 200, 300]
    assert knee["factors"][-1]["dependency"] == pytest.approx(0.2)
    for size, point in zip(knee["factors"], data["points"], strict=True):
        assert size["efficiency"] == pytest.approx(point["efficiency"])
    golden(to_markdown(run.sweep, run.trials, run.verdict))


def test_rows_have_the_same_columns_and_texts_as_the_table_on_the_terminal(run):
    rows = to_rows(run.sweep, run.trials, run.verdict)
    assert len(rows) == 3
    assert rows[2]["workers"] == "300"
    assert rows[2]["partitions"] == "3"
    assert rows[2]["time s"] == "100"
    assert rows[0]["valid"] == "0/1"
    assert len({tuple(row) for row in rows}) == 1


def test_markup_in_parameters_is_escaped_in_rows(trial, finished):
    run = finished(*[trial(2, 2, 2, params={"path": value}) for value in ("<script>", "b")])
    assert to_rows(run.sweep, run.trials, run.verdict)[0]["path"] == "&lt;script&gt;"


def test_markdown_of_a_run_matches_its_golden_page_and_is_escaped(run, golden):
    text = golden(to_markdown(run.sweep, run.trials, run.verdict))
    assert "<" not in text


def test_a_run_without_trials_can_be_exported(finished, golden):
    run = finished()
    assert to_rows(run.sweep, run.trials, run.verdict) == []
    assert to_json(run.sweep, run.trials, run.verdict)["points"] == []
    golden(to_markdown(run.sweep, run.trials, run.verdict))
