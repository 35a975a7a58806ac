"""The same work on more and more workers: what it costs, and whether it pays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.small_cluster import Cluster, Task

from scalescope.analysis.measure import measure
from scalescope.diagnosis import causes
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.finding import Finding, Severity
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial

OWN = Sweep("mine.py:run")
SIZES = (1, 2, 4, 8)


@pytest.fixture
def sized():
    """A trial of one size: the seconds of each task, and the items that it was told."""

    def run(workers, durations, items=None, threads=1, found=(), name="read"):
        seen = Cluster(workers, threads).run([Task(seconds, name) for seconds in durations])
        makespan = seen.metrics.makespan_s
        metrics = measure(seen.tables, threads=seen.threads, elapsed_s=makespan)
        point = Point(workers, threads, params={} if items is None else {"items": items})
        findings = (*causes.find(seen), *found)
        return replace(seen.trial, key=f"t{workers}", point=point, metrics=metrics, findings=findings)

    return run


def verdict(*trials: Trial):
    return diagnose(OWN, trials)


def codes(found):
    return [finding.code for finding in found.findings]


# ------------------------------------------------------------------ healthy


@pytest.mark.parametrize("items", [None, 64])
def test_equal_work_at_every_size_is_healthy(sized, items):
    assert codes(verdict(*[sized(n, [1.0] * 64, items) for n in SIZES])) == ["healthy"]


@pytest.mark.parametrize("noise", [0.9, 1.1])
def test_work_that_differs_by_noise_is_healthy(sized, noise):
    assert codes(verdict(*[sized(n, [noise if n > 2 else 1.0] * 64, 64) for n in SIZES])) == ["healthy"]
    assert codes(verdict(*[sized(n, [2.0 if n == 4 else 1.0] * 64, 64) for n in SIZES])) == ["healthy"]


@pytest.mark.parametrize("told", [True, False])
def test_more_work_on_more_workers_is_healthy(sized, told):
    """Weak scaling, whether the sweep knows of the items or not."""
    assert codes(verdict(*[sized(n, [1.0] * 8 * n, 8 * n if told else None) for n in SIZES])) == ["healthy"]


def test_larger_tasks_for_more_items_or_smaller_tasks_for_more_workers_are_healthy(sized):
    assert codes(verdict(*[sized(n, [0.5 * n] * 64, 16 * n) for n in SIZES])) == ["healthy"]
    assert codes(verdict(*[sized(n, [8.0 / n] * 8 * n, 64) for n in SIZES])) == ["healthy"]


def test_zero_length_tasks_alone_are_not_work_inflation(sized):
    assert "work-inflation" not in codes(verdict(*[sized(n, [0.0] * 63 + [1.0], 64) for n in (1, 8)]))
    assert "work-inflation" in codes(verdict(sized(1, [0.0] * 63 + [1.0], 64), sized(2, [1.0] * 64, 64)))


# ------------------------------------------------------------------ what the tasks share


@pytest.mark.parametrize("items", [None, 64])
def test_a_resource_outside_dask_that_serves_two_at_once_is_work_inflation(sized, items, golden_once):
    found = verdict(*[sized(n, [max(1.0, n / 2)] * 64, items) for n in SIZES])
    finding = golden_once(found.findings[0])
    assert codes(found) == ["work-inflation"]
    assert finding.severity is Severity.HIGH
    assert finding.lost_s == pytest.approx(64 * 3.0)
    assert (finding.gain.now_s, finding.gain.predicted_s) == pytest.approx((32.0, 8.0))


def test_work_inflation_is_found_in_weak_scaling(sized, golden):
    found = golden(verdict(*[sized(n, [max(1.0, n / 2)] * 8 * n, 8 * n) for n in SIZES]))
    assert codes(found) == ["work-inflation"]


def test_work_inflation_is_found_between_numbers_of_threads(sized, golden):
    found = golden(verdict(*[sized(1, [max(1.0, n / 2)] * 64, 64, threads=n) for n in SIZES]))
    assert codes(found) == ["work-inflation"]


def test_slowly_growing_work_is_found_as_work_inflation(sized, golden):
    found = golden(verdict(*[sized(n, [n**0.3] * 64, 64) for n in SIZES]))
    assert codes(found) == ["work-inflation"]


def test_long_first_tasks_of_each_worker_are_found_as_work_inflation(sized, golden):
    """The first task of each worker takes longer, as when a worker loads a model."""
    found = verdict(*[sized(n, [9.0] * n + [1.0] * (64 - n), 64) for n in (1, 4, 16)])
    assert "work-inflation" in codes(found)
    golden(next(each for each in found.findings if each.code == "work-inflation"))


def test_a_fixed_cost_of_more_and_more_tasks_is_found_as_work_inflation(sized, golden):
    found = golden(verdict(*[sized(n, [1.0] * 8 * n, 64) for n in SIZES]))
    assert codes(found) == ["work-inflation"]


def test_one_long_task_is_a_straggler_and_not_work_inflation(sized):
    found = verdict(sized(1, [1.0] * 64, 64), sized(8, [1.0] * 63 + [40.0], 64))
    assert codes(found)[0] == "straggler"
    assert "work-inflation" not in codes(found)


@pytest.mark.parametrize("code", ["waiting-tasks", "gil-bound", "slow-worker"])
def test_work_inflation_that_another_finding_explains_is_not_reported(sized, code):
    lost = {n: 64 * (max(1.0, n / 2) - 1.0) for n in SIZES}
    trials = [
        sized(
            n,
            [max(1.0, n / 2)] * 64,
            found=[Finding(code, Severity.HIGH, "It is so.", "mend it", lost_s=lost[n])] if lost[n] else (),
        )
        for n in SIZES
    ]
    assert codes(verdict(*trials)) == [code]


# ------------------------------------------------------------------ the knee


@pytest.mark.parametrize("busy", [1.0, 0.85, 0.71])
@pytest.mark.parametrize("gain", [1.09, 1.0, 0.8])
def test_a_sweep_whose_largest_point_is_no_faster_is_never_healthy(sized, busy, gain, golden_once):
    """Twice the threads, at most 9 % faster, and busy enough for nothing else to be said."""
    small = sized(4, [1.0] * 64, 64)
    seconds = 16.0 / gain
    large = sized(8, [seconds * busy / 8] * 64, 64)
    whole = 8 * seconds
    parts = dict.fromkeys(large.metrics.worker_time_s, 0.0)
    parts |= {"busy": whole * busy, "not_assigned": whole * (1 - busy)}
    metrics = replace(large.metrics, makespan_s=seconds, elapsed_s=seconds, worker_time_s=parts)
    found = golden_once(verdict(small, replace(large, metrics=metrics, findings=())))
    assert codes(found) == ["work-inflation"]


def test_fewer_items_than_workers_are_not_work_inflation(sized):
    found = verdict(*[sized(n, [1.0] * 4, 4) for n in SIZES])
    assert "fewer-items-than-workers" in codes(found)
    assert "work-inflation" not in codes(found)
