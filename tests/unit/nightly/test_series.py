"""Which changes of a series deserve a rerun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from scalescope.model.decision import Decision
from scalescope.model.study import Study
from scalescope.nightly.night_record import (
    Alert,
    AlertState,
    ChangeOutcome,
    Culprit,
    Judged,
    Measured,
    Night,
    NightlySeries,
    NightRecord,
    SoftwareLock,
)
from scalescope.nightly.series import SETTLED, YOUNG, ChangeCandidate, drifts, machine
from scalescope.nightly.series import candidates as changed

POINT = {"workers": 4, "threads_per_worker": 1, "params": {"items": 8}, "dask_config": {}}


def series(hardware: str = "a CPU", metric: str = "makespan_s") -> NightlySeries:
    return NightlySeries("mine", 1, POINT, {"kind": "local"}, hardware, metric)


def nights(values: Sequence[float], of: NightlySeries | None = None) -> list[Night]:
    return [
        Night(Study(f"nightly-{number:04}", "nightly", {}), NightRecord(measured=(Measured(of or series(), value, 3),)))
        for number, value in enumerate(values)
    ]


def add(night: Night, **parts: Any) -> Night:
    return replace(night, record=replace(night.record, **parts))


def candidates(tonight: NightRecord, past: Sequence[Night], smallest: float) -> list[ChangeCandidate]:
    return [each for each in changed(tonight, past, smallest) if not each.answered]


def found(values: Sequence[float], past: list[Night] | None = None) -> list[tuple[str, float, float, bool]]:
    every = nights(values)
    return [
        (each.good.id, each.before, each.after, each.worse)
        for each in candidates(every[-1].record, every[:-1] if past is None else past, 0.05)
    ]


def test_a_first_night_and_a_quiet_series_have_no_change_to_rerun() -> None:
    assert found([1.0]) == []
    assert found([1.0, 1.04]) == []
    assert found([1.0, 1.01] * 10) == []


def test_a_night_of_a_young_series_is_compared_with_the_median_of_earlier_nights() -> None:
    assert found([1.0, 1.0, 1.2]) == [("nightly-0001", 1.0, 1.2, True)]
    assert found([1.0, 1.0, 0.8]) == [("nightly-0001", 1.0, 0.8, False)]
    assert found([1.0, 1.0, 1.2, 1.2]) == [("nightly-0001", 1.0, 1.2, True)]


def test_a_value_beyond_the_scatter_of_a_young_series_deserves_one_rerun() -> None:
    values = [1.0, 1.1] * 5
    assert found([*values, 1.1]) == []
    assert found([*values, 0.99]) == []
    change = ("nightly-0009", 1.0, 1.3, True)
    assert found([*values, 1.3]) == [change]
    again = ("nightly-0009", 1.1, 1.3, True)
    assert found([*values, 1.3, 1.3]) == [again]
    for outcome, expected in ((ChangeOutcome.WAITING, [again]), (ChangeOutcome.REFUTED, [])):
        past = nights([*values, 1.3])
        judged = Judged(series(), "nightly-0009", 1.0, 1.3, outcome, "for a reason")
        past[-1] = add(past[-1], judged=(judged,))
        assert found([*values, 1.3, 1.3], past) == expected
    assert len(values) + 2 in range(YOUNG, SETTLED)


@pytest.mark.parametrize(("after", "asked"), [(1, 0), (4, 1), (6, 1), (7, 0), (20, 0)])
def test_a_recent_change_point_of_a_settled_series_deserves_a_rerun(after: int, asked: int) -> None:
    values = [1.0, 1.01] * (SETTLED // 2) + [1.2] * after
    expected = [(f"nightly-{SETTLED - 1:04}", True)] * asked
    assert [(good, worse) for good, _, _, worse in found(values)] == expected


def test_a_change_that_a_rerun_has_refuted_deserves_no_other_rerun() -> None:
    values = [1.0, 1.01] * (SETTLED // 2) + [1.2] * 5
    refuted, waiting, machine = ChangeOutcome.REFUTED, ChangeOutcome.WAITING, ChangeOutcome.MACHINE
    for outcome, control, asked in ((refuted, None, 0), (waiting, None, 1), (machine, None, 0), (machine, 1.2, 1)):
        every = nights(values)
        judged = Judged(series(), "nightly-0001", 1.0, 1.2, outcome, "for a reason", control=control)
        every[-2] = add(every[-2], judged=(judged,))
        assert len(candidates(every[-1].record, every[:-1], 0.05)) == asked


@pytest.mark.parametrize("state", AlertState)
def test_an_alert_begins_a_new_level_unless_it_is_false_or_resolved(state: AlertState) -> None:
    every = nights([1.0, 1.0, 1.2, 1.2])
    judged = Judged(series(), "", 1.0, 1.2, ChangeOutcome.CONFIRMED, "")
    every[2] = add(every[2], alerts=(Alert("a1", every[2].id, Culprit("it"), (judged,), "", state),))
    expected = 1 if state in (AlertState.FALSE, AlertState.RESOLVED) else 0
    assert len(candidates(every[-1].record, every[:-1], 0.05)) == expected


def test_a_confirmed_improvement_begins_a_new_level() -> None:
    every = nights([1.2, 1.2, 1.0, 1.2])
    faster = Judged(series(), "nightly-0001", 1.2, 1.0, ChangeOutcome.FASTER, "for a reason")
    every[2] = add(every[2], judged=(faster,))
    [candidate] = candidates(every[-1].record, every[:-1], 0.05)
    assert (candidate.good.id, candidate.before, candidate.worse) == ("nightly-0002", 1.0, True)


def test_a_change_of_a_muted_series_is_found_only_after_the_muting_ends() -> None:
    every = nights([1.0, 1.01] * (SETTLED // 2) + [1.2] * 20)
    muted = (Decision("mine", "it is noisy", until="2027-01-31"),)
    for number in range(SETTLED, SETTLED + 18):
        every[number] = add(every[number], decisions=muted)
        assert candidates(every[number].record, every[:number], 0.05) == []
    [found] = candidates(every[-1].record, every[:-1], 0.05)
    assert (found.good.id, found.worse) == (f"nightly-{SETTLED - 1:04}", True)


@pytest.mark.parametrize("what", ["mine", "local", "mine (4 workers, 8 items, local)"])
def test_nights_after_an_accepted_level_are_compared_with_that_level(what: str) -> None:
    accepted = (Decision(what, "more checks", created_at="2026-11-03T12:00:00+00:00"),)
    for last, asked in ((1.2, 0), (1.5, 1)):
        every = [
            replace(night, study=replace(night.study, created_at=f"2026-11-{day:02}T04:00:00+00:00"))
            for day, night in enumerate(nights([1.0, 1.0, 1.2, last]), 1)
        ]
        tonight = add(every[-1], decisions=accepted)
        found = candidates(tonight.record, every[:-1], 0.05)
        assert [(each.good.id, each.before) for each in found] == [("nightly-0002", 1.2)] * asked
    assert len(candidates(add(tonight, decisions=()).record, every[:-1], 0.05)) == 1


def test_no_drift_is_reported_for_a_muted_series_or_across_an_accepted_level() -> None:
    every = nights([1.005**day for day in range(14)])
    assert len(drifts(every[-1].record, every[:-1])) == 1
    for decision in (Decision("mine", "noisy", until="2027-01-31"), Decision("mine", "so be it", created_at="2026")):
        assert drifts(add(every[-1], decisions=(decision,)).record, every[:-1]) == []


def test_series_of_different_hardware_are_never_mixed() -> None:
    assert found([1.2], nights([1.0, 1.0], series("another CPU"))) == []


def test_a_lower_value_is_worse_for_a_metric_like_efficiency() -> None:
    every = nights([0.8, 0.8, 0.4], series(metric="efficiency"))
    assert [each.worse for each in candidates(every[-1].record, every[:-1], 0.05)] == [True]


def test_differences_between_the_machines_of_two_nights_are_named() -> None:
    then = {"cpu_model": "A", "platform": "Linux 6.1", "taken by others": 0.01, "load_average": 0.2}
    now = {"cpu_model": "A", "platform": "Linux 6.8", "taken by others": 0.9, "load_average": 0.9}
    assert (
        machine(now, then) == "platform Linux 6.1 before, Linux 6.8 tonight; taken by others 0.01 before, 0.9 tonight"
    )
    assert "none" in machine(then, then)


# ------------------------------------------------------------------ controls

CONTROL = replace(series(metric="work_s"), workload="control-cpu")


def with_control(values: Sequence[float], control: Sequence[float]) -> list[Night]:
    pairs = zip(nights(values), nights(control, CONTROL), strict=True)
    return [add(one, measured=(*one.record.measured, *other.record.measured)) for one, other in pairs]


def explained(every: list[Night]) -> list[bool]:
    found = changed(every[-1].record, every[:-1], 0.05)
    return [each.control is not None for each in found if each.series == series()]


@pytest.mark.parametrize(
    ("control", "expected"), [(1.0, False), (1.1, False), (1.15, True), (1.2, True), (1.4, True), (0.8, False)]
)
def test_a_change_is_explained_by_a_control_that_changed_nearly_as_much(control: float, expected: bool) -> None:
    assert explained(with_control([1.0, 1.0, 1.2], [2.0, 2.0, 2.0 * control])) == [expected]
    old, new = SETTLED, 5
    values = [1.0, 1.01] * (old // 2) + [1.2] * new
    assert explained(with_control(values, [2.0] * old + [2.0 * control] * new)) == [expected]


def test_a_noisy_control_or_one_on_other_hardware_or_python_explains_nothing() -> None:
    values, noisy = [1.0] * 6 + [1.2], [1.0, 1.3, 0.8, 1.2, 0.7, 1.0, 1.2]
    assert explained(with_control(values, noisy)) == [False]
    steady = with_control(values, values)
    assert explained(steady) == [True]
    elsewhere = replace(CONTROL, hardware="another CPU")
    assert explained(
        [*steady[:-1], add(steady[-1], measured=(Measured(series(), 1.2, 3), Measured(elsewhere, 1.2, 3)))]
    ) == [False]
    assert explained([*steady[:-1], add(steady[-1], lock=SoftwareLock(pins={"python": "3.12"}))]) == [False]
