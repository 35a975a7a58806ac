"""The factors of the efficiency multiply to the efficiency, at every size."""

from __future__ import annotations

from dataclasses import replace
from statistics import geometric_mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.analysis.factors import FACTORS, OUTSIDE, WORK, by_size, falling, of_metrics
from scalescope.analysis.knee import series_of
from scalescope.model.metrics import WORKER_TIME, WORKING
from scalescope.model.sweep import Sweep

SECONDS = st.floats(0.0, 1e4)


@pytest.fixture
def measured(bag_trial):
    """The metrics of a trial of four workers with the given worker time."""
    metrics = bag_trial(4, [1] * 8).metrics

    def made(makespan_s=2.0, work_s=None, **parts):
        worked = sum(parts.get(part, 0.0) for part in WORKING)
        efficiency = (worked if work_s is None else work_s) / (4 * makespan_s)
        return replace(metrics, makespan_s=makespan_s, worker_time_s=parts, efficiency=efficiency)

    return made


def test_every_part_of_worker_time_lowers_exactly_one_factor():
    assert sorted([*WORKING, *(part for factor in FACTORS.values() for part in factor.parts)]) == sorted(WORKER_TIME)


def test_threads_that_are_always_busy_have_factors_of_1(bag_trial):
    assert of_metrics(bag_trial(4, [1] * 8).metrics, 4) == dict.fromkeys(FACTORS, 1.0)


def test_each_factor_is_a_share_of_what_the_factors_before_it_left(measured):
    found = of_metrics(measured(busy=2.0, transfer=1.0, no_runnable_task=1.0, client=4.0), 4)
    assert found == pytest.approx(
        {"client": 4 / 8, "present": 1, "dependency": 3 / 4, "balance": 1, "scheduling": 1, "transfer": 2 / 3}
    )


def test_client_time_before_the_first_and_after_the_last_task_lowers_no_factor(measured):
    found = of_metrics(measured(busy=4.0, client=3.0 + 4.0, tail=1.0), 4)
    assert found["client"] == pytest.approx(5 / 8)
    assert of_metrics(measured(busy=8.0, client=100.0), 4)["client"] == 1


def test_tasks_run_by_threads_beyond_those_asked_for_raise_the_factor_of_present_threads(measured):
    found = of_metrics(measured(work_s=12.0, busy=8.0), 4)
    assert found["present"] == pytest.approx(1.5)


def test_a_trial_whose_tasks_took_no_time_has_no_factors(measured):
    assert of_metrics(measured(client=8.0), 4) == {}


@given(
    st.dictionaries(st.sampled_from(WORKER_TIME), SECONDS),
    st.floats(1e-3, 1e4),
    st.floats(0.5, 2.0),
    st.sampled_from(OUTSIDE),
    SECONDS,
)
def test_the_product_of_the_factors_is_the_efficiency(measured_parts, parts, busy, more_work, outside, beyond_s):
    metrics = measured_parts
    parts = dict.fromkeys(WORKER_TIME, 0.0) | parts | {"busy": busy}
    makespan_s = sum(parts.values()) / 4
    work_s = (busy + parts["actors"]) * more_work
    parts[outside] += beyond_s
    metrics = replace(metrics, makespan_s=makespan_s, worker_time_s=parts, efficiency=work_s / (4 * makespan_s))
    found = of_metrics(metrics, 4)
    product = 1.0
    for value in found.values():
        product *= value
    assert product == pytest.approx(metrics.efficiency, rel=1e-9)
    assert all(0 <= value <= 1 + 1e-9 for name, value in found.items() if name != "present")


@pytest.fixture(scope="session")
def measured_parts(bag_trial):
    return bag_trial(4, [1] * 8).metrics


def trials_of(bag_trial, sizes):
    """One trial for each number of workers; its value is the list of durations of the tasks, 12 s in all."""
    return [bag_trial(workers, cut) for workers, cut in sizes.items()]


def sizes_of(trials):
    [series] = series_of(Sweep("bag-map"), trials)
    return series, series.factors


def test_the_factors_times_work_inflation_are_the_speedup_per_thread(bag_trial):
    trials = trials_of(bag_trial, {1: [1] * 12, 2: [1] * 12, 8: [2] * 6})
    series, sizes = sizes_of(trials)
    assert [size.point.workers for size in sizes] == [1, 2, 8]
    for trial, size, speedup, threads in zip(trials, sizes, series.speedup, series.threads, strict=True):
        assert size.efficiency == pytest.approx(trial.metrics.efficiency)
        assert size.speedup == pytest.approx(speedup / threads)
    assert sizes[-1].factors["dependency"] == pytest.approx(6 / 8)
    assert falling(sizes) == "dependency"


def test_work_that_grows_with_the_cluster_is_a_factor_of_its_own(bag_trial):
    trials = trials_of(bag_trial, {1: [1] * 12, 4: [1] * 12})
    slower = trials[1].metrics
    times = {part: 2 * value for part, value in slower.worker_time_s.items()}
    trials[1] = replace(
        trials[1], metrics=replace(slower, work_s=24.0, makespan_s=2 * slower.makespan_s, worker_time_s=times)
    )
    _, sizes = sizes_of(trials)
    assert sizes[1].efficiency == pytest.approx(1.0)
    assert sizes[1].factors[WORK] == pytest.approx(0.5)
    assert falling(sizes) == WORK


def test_factors_over_several_repeats_still_multiply_to_the_mean_efficiency(bag_trial):
    trials = [bag_trial(2, [1] * 12), bag_trial(2, [3] * 4, repeat=1)]
    trials += [bag_trial(4, [1] * 12), bag_trial(4, [5, 1, 1, 5], repeat=1)]
    _, sizes = sizes_of(trials)
    for size, own in zip(sizes, (trials[:2], trials[2:]), strict=True):
        assert size.efficiency == pytest.approx(geometric_mean(trial.metrics.efficiency for trial in own))


def test_no_factor_is_named_when_none_falls_much(bag_trial):
    _, sizes = sizes_of(trials_of(bag_trial, {1: [1] * 12, 2: [1] * 12}))
    assert falling(sizes) == falling(()) == ""
    assert by_size([]) == ()
