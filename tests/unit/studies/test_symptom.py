from __future__ import annotations

from typing import Any

import pytest

from scalescope.diagnosis.verdict import diagnose
from scalescope.errors import InvalidField
from scalescope.model.finding import Severity
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.studies.symptom import FindingSymptom, finding_symptom, first_finding, metric_symptom, worst_showing

SWEEP = Sweep("beam-pardo")


def trial(workers: int, items: int | None, used: int, state: TrialState = TrialState.VALID) -> Trial:
    """A trial with items of 1 s on `used` workers, in as many partitions."""
    params: dict[str, Any] = {} if items is None else {"items": items}
    work = float(items or used)
    span = work / used
    metrics = Metrics(
        makespan_s=span,
        elapsed_s=span,
        work_s=work,
        span_s=span,
        ideal_s=span,
        efficiency=used / workers,
        schedule_quality=1.0,
        parallelism=float(used),
        tasks=used,
        widest_stage=used,
        workers_used=used,
        peak_parallelism=used,
        mean_parallelism=float(used),
        peak_runnable=used,
        worker_time_s={"busy": work, "no_runnable_task": (workers - used) * span},
    )
    return Trial(
        f"{workers}-{items}", Point(workers, 1, params), 0, False, state, "no" * bool(state != "valid"), metrics
    )


HEALTHY, BAD, WORSE = trial(2, 2, 2), trial(10, 10, 1), trial(300, 300, 3)


@pytest.mark.parametrize(
    "text",
    [
        "workers_used < 0.5 * workers",
        "workers_used/workers<=0.01",
        "busy < 0.5",
        "no_runnable_task > 0.5",
        "items - workers_used >= 290",
        "2 * workers_used < workers",
    ],
)
def test_a_comparison_of_metrics_tells_a_bad_trial_from_a_healthy_one(text: str) -> None:
    symptom = metric_symptom(text)
    assert symptom.shows(SWEEP, WORSE)
    assert not symptom.shows(SWEEP, HEALTHY)


def test_an_invalid_trial_does_not_show_a_metric_symptom() -> None:
    assert not metric_symptom("busy < 0.5").shows(SWEEP, trial(10, 10, 1, TrialState.INVALID))


def test_a_symptom_that_divides_by_zero_is_not_shown() -> None:
    assert not metric_symptom("1 / tail > 0").shows(SWEEP, WORSE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a comparison"),
        ("workers_used", "a comparison"),
        ("workers_used == 3", "a comparison"),
        ("1 < workers_used < 3", "a comparison"),
        ("worker_used < 3", "did you mean 'workers_used'"),
        ("__import__('os').getcwd() < 3", "a comparison"),
        ("workers_used < 'a'", "a comparison"),
        ("workers_used < True", "a comparison"),
        ("workers ** 99 < 3", "a comparison"),
        ("1 < 2", "names nothing"),
        ("(" * 500, "a comparison"),
    ],
)
def test_an_invalid_comparison_of_metrics_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidField, match="metric") as raised:
        metric_symptom(text)
    assert says in str(raised.value)


def test_a_symptom_about_items_is_refused_for_a_workload_without_items() -> None:
    with pytest.raises(InvalidField, match="has no 'items'"):
        metric_symptom("items > 3").shows(SWEEP, trial(10, None, 1))


def test_a_symptom_from_a_finding_starts_at_the_worst_trial() -> None:
    trials = [HEALTHY, BAD, WORSE]
    about = first_finding(diagnose(SWEEP, trials))
    assert about.code == "too-few-partitions"
    symptom, start = finding_symptom(SWEEP, trials, about)
    assert symptom == FindingSymptom("too-few-partitions", Severity.HIGH)
    assert start is WORSE
    assert symptom.shows(SWEEP, BAD)
    assert not symptom.shows(SWEEP, HEALTHY)


def test_a_finding_symptom_is_shown_only_with_at_least_its_severity() -> None:
    """With 9 of 10 workers used the finding is the same, but not severe."""
    assert not FindingSymptom("too-few-partitions", Severity.HIGH).shows(SWEEP, trial(10, 10, 8))
    assert FindingSymptom("too-few-partitions", Severity.LOW).shows(SWEEP, trial(10, 10, 8))


def test_a_failed_trial_can_be_the_symptom() -> None:
    failed = Trial("k", Point(2), 0, False, TrialState.FAILED, "it raised")
    symptom, start = finding_symptom(SWEEP, [failed], first_finding(diagnose(SWEEP, [failed]), "failed-trials"))
    assert symptom.state is TrialState.FAILED
    assert start is failed
    assert symptom.shows(SWEEP, failed)


def test_an_invalid_trial_does_not_show_a_finding_symptom() -> None:
    """The trial has metrics, but it is invalid."""
    spoilt = trial(300, 300, 3, TrialState.INVALID)
    about = first_finding(diagnose(SWEEP, [BAD, spoilt]), "too-few-partitions")
    symptom, start = finding_symptom(SWEEP, [spoilt, BAD], about)
    assert start is BAD
    assert not symptom.shows(SWEEP, spoilt)


def test_a_symptom_from_a_healthy_run_or_an_unknown_code_is_refused() -> None:
    with pytest.raises(InvalidField, match="this run is healthy") as raised:
        first_finding(diagnose(SWEEP, [HEALTHY]))
    assert "the metric" in str(raised.value)
    with pytest.raises(InvalidField, match="did you mean 'too-few-partitions'"):
        first_finding(diagnose(SWEEP, [WORSE]), "too-few-partition")


def test_a_metric_symptom_starts_at_the_least_busy_trial_that_shows_it() -> None:
    assert worst_showing(metric_symptom("busy < 0.5"), SWEEP, [HEALTHY, BAD, WORSE]) is WORSE
    with pytest.raises(InvalidField, match="a valid trial"):
        worst_showing(metric_symptom("busy < 0.001"), SWEEP, [HEALTHY, BAD, WORSE])
