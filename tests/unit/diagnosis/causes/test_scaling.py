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


def sized(workers, durations, items=None, threads=1, found=(), name="read"):
    """A trial of one size: the seconds of each task, and the items that the sweep was told."""
    seen = Cluster(workers, threads).run([Task(seconds, name) for seconds in durations])
    metrics = measure(seen.tables, threads=seen.threads, elapsed_s=seen.metrics.makespan_s)
    point = Point(workers, threads, params={} if items is None else {"items": items})
    findings = (*causes.find(seen), *found)
    return replace(seen.trial, key=f"t{workers}", point=point, metrics=metrics, findings=findings)


def verdict(*trials: Trial):
    return diagnose(OWN, trials)


def codes(found):
    return [finding.code for finding in found.findings]


# ------------------------------------------------------------------ healthy


HEALTHY = {
    "equal work of unknown items": lambda n: ([1.0] * 64, None),
    "equal work": lambda n: ([1.0] * 64, 64),
    "less by noise": lambda n: ([0.9 if n > 2 else 1.0] * 64, 64),
    "more by noise": lambda n: ([1.1 if n > 2 else 1.0] * 64, 64),
    "a slow trial in the middle": lambda n: ([2.0 if n == 4 else 1.0] * 64, 64),
    "weak scaling": lambda n: ([1.0] * 8 * n, 8 * n),
    "weak scaling of unknown items": lambda n: ([1.0] * 8 * n, None),
    "larger tasks for more items": lambda n: ([0.5 * n] * 64, 16 * n),
    "smaller tasks for more workers": lambda n: ([8.0 / n] * 8 * n, 64),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_work_that_does_not_grow_with_the_workers_is_healthy(case):
    assert codes(verdict(*[sized(n, *HEALTHY[case](n)) for n in SIZES])) == ["healthy"]


def test_zero_length_tasks_alone_are_not_found_as_work_inflation():
    assert "work-inflation" not in codes(verdict(*[sized(n, [0.0] * 63 + [1.0], 64) for n in (1, 8)]))
    assert "work-inflation" in codes(verdict(sized(1, [0.0] * 63 + [1.0], 64), sized(2, [1.0] * 64, 64)))


# ------------------------------------------------------------------ what the tasks share


@pytest.mark.parametrize("items", [None, 64])
def test_an_outside_resource_that_serves_two_tasks_at_once_is_found_as_work_inflation(items, golden_once):
    found = verdict(*[sized(n, [max(1.0, n / 2)] * 64, items) for n in SIZES])
    finding = golden_once(found.findings[0])
    assert codes(found) == ["work-inflation"]
    assert finding.severity is Severity.HIGH
    assert finding.lost_s == pytest.approx(64 * 3.0)
    assert (finding.gain.now_s, finding.gain.predicted_s) == pytest.approx((32.0, 8.0))


GROWING = {
    "weak scaling": lambda: [sized(n, [max(1.0, n / 2)] * 8 * n, 8 * n) for n in SIZES],
    "more threads": lambda: [sized(1, [max(1.0, n / 2)] * 64, 64, threads=n) for n in SIZES],
    "slow growth": lambda: [sized(n, [n**0.3] * 64, 64) for n in SIZES],
    "a fixed cost of more and more tasks": lambda: [sized(n, [1.0] * 8 * n, 64) for n in SIZES],
    # as when each worker loads a model; these tasks are stragglers, too
    "long first tasks": lambda: [sized(n, [9.0] * n + [1.0] * (64 - n), 64) for n in (1, 4, 16)],
}


@pytest.mark.parametrize("case", GROWING)
def test_work_that_grows_with_the_workers_is_found_as_work_inflation(case, golden):
    found = verdict(*GROWING[case]())
    assert "work-inflation" in codes(found) if case == "long first tasks" else codes(found) == ["work-inflation"]
    golden(next(each for each in found.findings if each.code == "work-inflation"))


def test_one_long_task_or_fewer_items_than_workers_are_not_found_as_work_inflation():
    found = codes(verdict(sized(1, [1.0] * 64, 64), sized(8, [1.0] * 63 + [40.0], 64)))
    assert found[0] == "straggler"
    few = codes(verdict(*[sized(n, [1.0] * 4, 4) for n in SIZES]))
    assert "fewer-items-than-workers" in few
    assert "work-inflation" not in found + few


@pytest.mark.parametrize("code", ["waiting-tasks", "gil-bound", "slow-worker"])
def test_work_inflation_that_another_finding_explains_is_not_reported(code):
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
def test_a_sweep_whose_largest_point_is_no_faster_is_never_healthy(busy, gain, golden_once):
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
