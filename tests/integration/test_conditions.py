"""Conditions on metrics find the fault that they are for, on the real workload."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.requests import asked

from scalescope.run.drivers import Drivers
from scalescope.run.sweep import begin
from scalescope.run.trials import run_trials
from scalescope.store import Store
from scalescope.studies.symptom import metric_symptom


@pytest.mark.thorough
def test_beam_on_300_workers_is_not_efficient_though_its_schedule_is_the_best_possible(tmp_path: Path) -> None:
    pytest.importorskip("apache_beam")
    point = {"workers": 300, "items": 300, "seconds": 10}
    sweep = {"workload": "beam-pardo", "points": [point, {**point, "npartitions": "items"}]}
    request = asked(sweep, store=str(tmp_path / "results.db"))
    with Store.open(request.store) as store:
        run, waiting = begin(request, store)
        run_trials(Drivers(request, run.id, store), waiting)
        trials = store.run(run.id).trials
    by_rule, by_item = sorted(trials, key=lambda trial: str(trial.point.params["npartitions"]))
    assert by_rule.point.params["npartitions"] is None
    assert (by_rule.reason, by_item.reason) == ("", "")
    for condition in ("efficiency < 0.6", "busy < 0.6", "workers_used < 0.5 * workers", "widest_stage < workers"):
        symptom = metric_symptom(condition)
        assert symptom.shows(request.sweep, by_rule), condition
        assert not symptom.shows(request.sweep, by_item), condition
    assert by_rule.metrics is not None
    assert by_rule.metrics.efficiency == pytest.approx(3 / 300, rel=0.4)
    assert metric_symptom("schedule_quality > 0.95").shows(request.sweep, by_rule)
