from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from support.findings import observed
from support.small_cluster import Cluster, Task, find

from scalescope.model.records import STATUS_ERRED
from scalescope.model.trial import TrialState


def failing(observation, share, text="OSError: 503 Service Unavailable"):
    """The same trial, with the first of its attempts failed."""
    tables = {name: dict(table) for name, table in observation.tables.items()}
    count = round(share * len(tables["tasks"]["key"]))
    tables["tasks"]["status"] = array("b", [STATUS_ERRED] * count + [0] * (len(tables["tasks"]["key"]) - count))
    keys = tables["tasks"]["key"][:count]
    tables["events"] = {
        "time": array("d", [1_001.0] * count),
        "topic": ["task-erred"] * count,
        "message": [f'{{"key": "{key}", "worker": "w", "exception": "{text}"}}' for key in keys],
    }
    return observed(replace(observation.trial), tables)


def test_a_few_failed_attempts_are_healthy():
    assert not find(failing(Cluster(8).run([Task(1.0)] * 160), 0.05))


@pytest.mark.parametrize("workers", [4, 40])
@pytest.mark.parametrize("share", [0.15, 0.5, 0.75])
def test_attempts_that_fail_count_as_lost_time(workers, share, golden_once):
    finding = golden_once(find(failing(Cluster(workers).run([Task(1.0)] * 10 * workers), share))["retried-tasks"])
    failed = round(share * 10 * workers)
    assert finding.lost_s == pytest.approx(failed)


def test_failed_attempts_without_a_retry_or_with_a_died_worker_are_not_found_as_retried_tasks():
    seen = failing(Cluster(4).run([Task(1.0)] * 8), 0.5)
    ended = replace(seen, trial=replace(seen.trial, state=TrialState.FAILED))
    assert "retried-tasks" not in find(ended)
    ended.tables["tasks"]["retries"] = array("b", [1] * 8)
    assert "retried-tasks" in find(ended)
    assert "retried-tasks" not in find(failing(Cluster(8).run([Task(1.0)] * 80), 0.5, "KilledWorker: it died"))
