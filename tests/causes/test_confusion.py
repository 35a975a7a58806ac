"""Part of the confusion matrix; `python -m evidence confusion` runs it all.

The cases run through the whole chain: driver, cluster, recorder, metrics, findings, verdict.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import matrix
from cases import HEALTHY, Case, all_cases
from matrix import Result
from test_examples import CODES_OF_EXAMPLES

from scalescope import workloads
from scalescope.diagnosis.causes import by_code
from scalescope.model.finding import Finding, Severity, Verdict
from scalescope.model.sweep import Sweep

CODES = set(by_code())
# Codes without a case. The first two need more than two cores. Workers that join during a trial make it invalid on
# these clusters, so `late-workers` is tested on tables alone. An unknown cause cannot be provoked on purpose.
NOT_PROVOKED = {
    *("oversubscribed-threads", "undersubscribed-threads", "late-workers", "idle-workers-cause-unknown"),
    *("experiments", "too-short"),  # information, which takes several points, and a trial of next to nothing
    *(
        "lock-bound",
        "task-overhead",
    ),  # within busy time, and only real workers are profiled: `evidence/cases/of_inside.py`
    "garbage-collection",  # only real workers tell it: `unit/diagnosis/causes/test_memory.py`
    # a sweep has neither flows nor adaptive clusters: `python -m evidence scripts` runs scripts that do
    *("adaptive-scaling", "scaled-down", "prefect-overhead", "prefect-server-in-workers", "unfinished-tasks"),
    # scripts that make their clusters, or compute past them, and client calls: `integration/test_own_scripts.py`
    *("cluster-in-each-round", "local-scheduler", "meta-computed"),
    # `test_gpu.py` has a stand-in for cards
    *("gpu-starved", "gpu-contended", "gpu-unused", "gpu-missing", "gpu-memory-full", "gpu-slow"),
}

# Cases with real processes that are quick enough to run each time
REAL = ("worker-killing-task/kill-2",)

OTHERS = [case for case in all_cases() if case.expect not in CODES_OF_EXAMPLES]
PART = matrix.stratified(OTHERS, per_code=1, healthy=4, real=REAL)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Results of a fixed part of the cases."""
    return matrix.run(PART, at_once=1)


def test_the_confusion_matrix_has_enough_cases_of_each_cause() -> None:
    cases = all_cases()
    assert len(cases) >= 150
    assert sum(case.expect == HEALTHY for case in cases) >= 50
    assert {case.expect for case in cases} == CODES - NOT_PROVOKED
    assert {code for case in cases for code in case.also} <= CODES


def test_every_case_can_be_planned_as_a_sweep() -> None:
    for case in all_cases():
        sweep = Sweep.from_mapping(case.sweep())
        assert len(sweep.plan(workloads.load(sweep.workload))) == len(case.workers), case.name


def test_the_tested_cases_cover_all_simulated_causes() -> None:
    shown = {case.expect for case in PART} | CODES_OF_EXAMPLES
    assert shown >= {case.expect for case in all_cases() if not case.real}
    assert 8 <= len(PART) <= 28


def test_faulty_cases_lose_much_time_and_healthy_ones_little(results: list[Result]) -> None:
    """A label is right only if the worker time of its trial shows the loss."""
    doubtful = [(result.case.name, round(result.lost, 2)) for result in results if not matrix.shows_its_label(result)]
    assert doubtful == []


def test_the_expected_cause_comes_first_in_95_percent_of_cases_and_no_healthy_one_has_a_fault(
    results: list[Result],
) -> None:
    rates = matrix.count(results)
    assert rates.overall >= 0.95, rates.confusions
    assert rates.accused == 0, rates.confusions


@pytest.mark.thorough  # computing tasks need all cores
def test_a_case_of_the_interpreter_lock_is_named_gil_bound() -> None:
    [case] = [each for each in all_cases() if each.name == "gil-bound/python-1x3"]
    [result] = matrix.run([case], at_once=1)
    assert result.named == "gil-bound"


def said(case: Case, *codes: str) -> Result:
    """A result with these findings."""
    findings = tuple(Finding(code, Severity.HIGH, "It is so.", "change it") for code in codes)
    return Result(case, (), Verdict("", findings))


SOUND = Case("healthy/a", HEALTHY, "stages", (4,))
SLOW = Case("slow-worker/a", "slow-worker", "stages", (4,), also=("straggler",))


def test_a_case_is_right_if_an_accepted_cause_comes_first() -> None:
    rates = matrix.count([said(SOUND, HEALTHY), said(SOUND), said(SLOW, "slow-worker"), said(SLOW, "straggler")])
    assert (rates.overall, rates.false_alarms, rates.confusions) == (1.0, 0.0, Counter())
    rates = matrix.count([said(SLOW, "tiny-tasks", "slow-worker"), said(SLOW, "slow-worker")])
    assert rates.recall == {"slow-worker": (2, 1)}
    assert rates.confusions == {("slow-worker", "tiny-tasks"): 1}
    rates = matrix.count([said(SOUND, "straggler"), said(SOUND, HEALTHY)])
    assert (rates.healthy, rates.accused, rates.false_alarms) == (2, 1, 0.5)
    assert not said(SOUND, "host-overloaded", HEALTHY).right  # simulated: no host is busy


@pytest.mark.parametrize(("others", "right"), [(0.5, True), (0.05, False)])
def test_host_overloaded_may_come_first_only_if_others_used_the_host(
    others: float, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Result, "others", others)
    real = replace(SLOW, cluster={"kind": "local"})
    assert said(real, "host-overloaded", "slow-worker").right is right
    assert not said(real, "host-overloaded", "tiny-tasks").right
    assert matrix.count([said(real, "host-overloaded")]).spoilt == int(right)
