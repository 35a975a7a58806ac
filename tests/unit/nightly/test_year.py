"""Alerts over months of simulated nights with known events; `bench_year.py` uses real noise."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from support.year import Event, Year

from scalescope.nightly import alerts, whole_suite
from scalescope.nightly.changes import Floats
from scalescope.nightly.night_record import (
    Alert,
    AlertState,
    ChangeOutcome,
    Culprit,
    Judged,
    Night,
    NightlySeries,
    NightRecord,
    SoftwareLock,
    TrackRecord,
)
from scalescope.nightly.parameters import NightlyParameters
from scalescope.nightly.running import NightInProgress
from scalescope.run.runner import Runner
from scalescope.store.store import Store
from scalescope.studies.report import sheet

SERIES = 12
STAND_IN = NightlySeries("mine", 1, {}, {"kind": "local"}, "a CPU", "makespan_s")


def noise(nights: int, series: int = SERIES) -> Floats:
    rng = np.random.default_rng(4)
    return rng.normal(0, 0.01, (nights, series)) + rng.normal(0, 0.003, (nights, 1))


def some(factor: float, *places: int) -> Floats:
    factors = np.ones(SERIES)
    factors[list(places)] = factor
    return factors


def played(nights: int, *events: Event, **given: object) -> Year:
    both = noise(nights, SERIES + 2)
    return Year(both[:, 2:], both[:, :2], events, **given).run()  # type: ignore[arg-type]


def test_quiet_nights_raise_no_alert_even_when_some_are_missing() -> None:
    quiet = played(50, missing={10, 11, 40})
    assert quiet.told == []
    assert quiet.track == TrackRecord(47)


def test_simulated_months_raise_an_alert_for_each_slower_release_and_no_false_one() -> None:
    every = np.full(SERIES, 1.025)
    found = played(
        90,
        Event(25, some(1.2, 0, 1), "crunch"),
        Event(25, some(1.15, 2), "shuffle"),
        Event(40, every, "dask"),
        Event(60, np.full(SERIES, 1.18), last=67, controls=1.2),
        Event(80, np.full(SERIES, 0.8), controls=0.8),
        missing={10, 11, 50},
        muted={(night, 0) for night in range(90)},
        moved=80,
    )
    told = {(each.what, each.cause, each.series) for each in found.told if each.cause}
    assert told == {("alert", "crunch", 1), ("alert", "shuffle", 1), ("suite", "dask", 1)}
    assert found.false == []
    assert found.count("machine") >= SERIES
    assert found.count("refuted") == 0
    assert all((found.first(release) or 99) < 8 for release in ("crunch", "shuffle"))


def test_changes_of_the_machine_are_refuted_by_reruns_if_there_is_no_control() -> None:
    both = noise(35)
    slow = Event(25, np.full(SERIES, 1.18), last=30)
    found = Year(both, both[:, :0], [slow]).run()
    assert found.count("machine") == 0
    assert found.count("refuted") >= SERIES - 1
    assert (found.track.reruns, found.track.refuted) == (found.count("refuted"), found.count("refuted"))


def test_the_track_record_counts_reruns_refuted_changes_and_changed_series() -> None:
    outcomes = (ChangeOutcome.REFUTED, ChangeOutcome.CONFIRMED, ChangeOutcome.FASTER, ChangeOutcome.MACHINE)
    judged = tuple(Judged(STAND_IN, "", 1.0, 1.2, each, "") for each in outcomes)
    records = [
        NightRecord(judged=judged, changed=("a", "b")),
        NightRecord(changed=("b",)),
        NightRecord(),
        NightRecord(),
    ]
    assert TrackRecord.of(records) == TrackRecord(4, 3, 1, 0.25)
    assert TrackRecord.of([]) == TrackRecord()


def test_a_slower_suite_is_reported_once_and_its_recovery_too() -> None:
    slow = Event(30, np.full(SERIES, 1.03), "dask", last=60)
    found = played(70, slow)
    assert [(each.what, each.cause) for each in found.told if each.what.startswith("suite")] == [
        ("suite", "dask"),
        ("suite faster", ""),
    ]


@pytest.mark.parametrize("equal", [True, False])
def test_a_slower_suite_with_slower_controls_or_equal_software_blames_the_machine(equal: bool) -> None:
    found = played(37, Event(30, np.full(SERIES, 1.03), controls=1.0 if equal else 1.03))
    *past, last = [
        replace(each, record=replace(each.record, lock=SoftwareLock(pins={}), judged=()) if equal else each.record)
        for each in found.past
    ]
    judged = [each.judged for each in whole_suite.judge(last.record, past)]
    assert [each.outcome for each in judged] == [ChangeOutcome.MACHINE]
    assert (judged[0].control is None) is equal


def in_progress(store: Store, past: list[Night], record: NightRecord) -> NightInProgress:
    """A night in progress with measurements and no judged change."""
    asked = NightlyParameters()
    study = store.studies.begin("nightly", asdict(asked), fresh=True)
    record = replace(record, judged=(), alerts=())
    store.studies.amend(study.id, lambda _: record.to_mapping())
    return NightInProgress(asked, study, past, store, Runner(), record)


def test_a_slower_suite_is_one_alert_and_the_first_note_of_the_night(address: str) -> None:
    year = played(36, Event(30, some(1.015, 5) * 1.03, "dask"))
    [told] = [each.night for each in year.told if each.what == "suite"]
    with Store.open(address) as store:
        night = in_progress(store, year.past[:told], year.past[told].record)
        for _ in range(2):
            night.judge_suite()
        [alert] = night.record.alerts
        assert [each.outcome for each in night.record.judged] == [ChangeOutcome.SUITE]
        notes = [note.text for note in sheet(store.studies.get(night.study.id), []).notes]
    assert notes[0] == night.record.judged[0].reason
    assert "dask 1 → 2" in alert.culprit.changed
    assert "-w workload-5" in alert.command
    assert "dask==1" in alert.command
    assert "p = " in alerts.issue(alert)


@pytest.mark.parametrize(("state", "told"), [(AlertState.OPEN, 0), (AlertState.RESOLVED, 1)])
def test_a_slower_suite_raises_no_alert_if_its_culprit_has_an_open_one(
    address: str, state: AlertState, told: int
) -> None:
    year = played(36, Event(30, np.full(SERIES, 1.03), "dask"))
    [tonight] = [each.night for each in year.told if each.what == "suite"]
    culprit = Culprit("dask 1 → 2", "dask", "1", "2", changed="dask 1 → 2")
    one = Judged(STAND_IN, "", 1.0, 1.03, ChangeOutcome.CONFIRMED, "")
    past = year.past[:tonight]
    alert = Alert("a1", past[-2].id, culprit, (one,), "", state)
    past[-2] = replace(past[-2], record=replace(past[-2].record, alerts=(alert,)))
    with Store.open(address) as store:
        night = in_progress(store, past, year.past[tonight].record)
        night.judge_suite()
    assert [each.outcome for each in night.record.judged] == [ChangeOutcome.SUITE]
    assert len(night.record.alerts) == told


def test_too_few_series_are_not_judged_as_a_suite() -> None:
    both = noise(40)[:, : whole_suite.FEWEST - 1]
    year = Year(both, both[:, :0], [Event(30, np.full(both.shape[1], 1.04), "dask")]).run()
    assert whole_suite.suites(year.past[-1].record, year.past[:-1]) == []
