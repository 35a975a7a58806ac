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


def test_json_has_everything_unrounded(run):
    data = json.loads(json.dumps(to_json(run.sweep, run.trials, run.verdict), allow_nan=False))
    assert data["verdict"]["severity"] == "high"
    assert [finding["code"] for finding in data["verdict"]["findings"]] == ["too-few-partitions", "failed-trials"]
    [limit] = data["verdict"]["trust"]
    assert limit.startswith("1 of 3 trials failed, first at 8 workers, 8 items: ValueError: <b")
    assert data["trials"] == {"valid": 2, "failed": 1, "invalid": 0}
    first, second, third = data["points"]
    assert (first["workers"], first["items"], first["metrics"]) == (8, 8, None)
    assert first["reasons"] == [{"state": "failed", "reason": "ValueError: <b>|*x*", "trials": 1}]
    assert (second["cause"], third["cause"]) == ("none", "too-few-partitions")
    assert (third["partitions"], third["workers_used"], third["makespan_s"]) == (3, 3, 100.0)
    assert (third["efficiency"], third["efficiency_low"]) == (pytest.approx(0.01), None)
    assert third["schedule_quality"] == 1.0
    assert third["metrics"]["worker_time_s"]["busy"] == 300


def test_knees_are_in_json_and_markdown(trial, finished):
    run = finished(*[trial(n, 300, 60) for n in (10, 20, 50, 60, 100, 200, 300)], workload="mine.py:run")
    data = json.loads(json.dumps(to_json(run.sweep, run.trials, run.verdict), allow_nan=False))
    [knee] = data["knees"]
    assert (knee["k"], knee["capped"], knee["scaling"], knee["unit"]) == (60, True, "strong", "workers")
    assert knee["line"].startswith("Capped at 60 workers")
    assert len(knee["points"]) == 7
    assert knee["falls_most"] == "dependency"
    assert [size["workers"] for size in knee["factors"]] == [10, 20, 50, 60, 100, 200, 300]
    assert knee["factors"][-1]["dependency"] == pytest.approx(0.2)
    for size, point in zip(knee["factors"], data["points"], strict=True):
        assert size["efficiency"] == pytest.approx(point["efficiency"])
    markdown = to_markdown(run.sweep, run.trials, run.verdict)
    assert "**Scaling**\n\n- Strong scaling, 300 items: Capped at 60 workers" in markdown
    assert "**Factors of the efficiency: strong scaling, 300 items**\n\n| workers | 10 |" in markdown


def test_rows_are_the_terminals_table(run):
    rows = to_rows(run.sweep, run.trials, run.verdict)
    assert len(rows) == 3
    assert rows[2]["workers"] == "300"
    assert rows[2]["partitions"] == "3"
    assert rows[2]["time s"] == "100"
    assert rows[0]["valid"] == "0/1"
    assert len({tuple(row) for row in rows}) == 1


def test_text_from_outside_is_escaped_in_rows(trial, finished):
    run = finished(*[trial(2, 2, 2, params={"path": value}) for value in ("<script>", "b")])
    assert to_rows(run.sweep, run.trials, run.verdict)[0]["path"] == "&lt;script&gt;"


def test_markdown(run):
    text = to_markdown(run.sweep, run.trials, run.verdict)
    lines = text.splitlines()
    assert lines[0].startswith("1 of 3 trials failed, first at 8 workers, 8 items: ValueError: &lt;b")
    assert lines[2].startswith("**300 workers asked for, 3 used")
    lines = lines[2:]
    assert lines[2].startswith(
        "| workers | items | tasks | partitions | workers used | peak tasks | time s | best possible s | eff"
    )
    assert set(lines[3]) <= set("| -:")
    assert lines[3].count("|") == lines[2].count("|") == lines[4].count("|")
    assert "| 300 | 300 | 3 | 3 | 3 |" in text
    assert "**Worker time** at 300 workers, 300 items: busy 1 %, no runnable task 99 %." in text
    assert r"- 1 × failed at 8 workers, 8 items: ValueError: &lt;b&gt;\|\*x\*" in text
    assert r"--dask\_npartitions=&lt;number of items&gt;" in text
    assert "<" not in text.replace("&lt;", "")
    assert "Cluster: simulated, virtual clock." in text


def test_nothing_measured_is_no_error(finished):
    run = finished()
    assert to_rows(run.sweep, run.trials, run.verdict) == []
    assert to_json(run.sweep, run.trials, run.verdict)["points"] == []
    assert to_markdown(run.sweep, run.trials, run.verdict).startswith("**Nothing was measured")
