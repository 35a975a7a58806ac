"""Whole nights, with a fake driver and environments that are not built."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scalescope import environments
from scalescope.cli import main as cli
from scalescope.environments import Built, PackageRelease
from scalescope.errors import EnvironmentUnavailable, ExitStatus, InvalidField, UsageError
from scalescope.model.environment import Environment
from scalescope.model.sweep import PlannedTrial
from scalescope.nightly import alerts, decisions, missing_nights, night_record, reruns
from scalescope.nightly.night_record import Alert, AlertState, ChangeOutcome, Culprit, Judged, NightRecord
from scalescope.nightly.running import run_nightly
from scalescope.nightly.series import OTHERS
from scalescope.owner import user
from scalescope.run.runner import Event, Runner, RunStep
from scalescope.store.store import Store
from scalescope.studies.report import sheet
from scalescope.studies.running import StudyResult

WORKLOADS = ["futures-map", "bag-map"]


class Nights:
    """Runs nights with given factors for the machine and for each release."""

    def __init__(self, fake: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake, self.address = fake, address
        self.index = {"dask": "1", "crunch": "1"}  # releases that requirements resolve to now
        self.between: dict[str, list[str]] = {}  # all releases of a package, if there are more than first and last
        self.slower: dict[tuple[str, str], float] = {}  # factor on everything, by package and release
        self.machine = 1.0  # factor on all that a night measures, but not its reruns
        self.sent: list[Event] = []
        self.said: list[str] = []
        fake.measures = self._measures
        monkeypatch.setattr(environments, "resolve", lambda environment: dict(self.index))
        monkeypatch.setattr(environments, "ensure", _ensure)
        monkeypatch.setattr(environments, "releases", self._releases)
        monkeypatch.setattr(reruns, "SHOW", RunStep("script", lambda text, seconds: (True, "A 1.000 s, B 1.500 s")))

    def __call__(self, **changed: Any) -> StudyResult:
        night = self

        class Sends(Runner):
            def send(self, event: Event) -> None:
                night.sent.append(event)

        asked = {"workloads": ["futures-map"], "environment": "dask crunch", "axes": {"workers": [2], "items": [4]}}
        return run_nightly({**asked, "store": self.address, **changed}, Sends(lambda news: self.said.append(news.line)))

    def _measures(self, planned: PlannedTrial) -> tuple[int, float]:
        environment = Environment.parse(planned.point.environment)
        seconds = 1.0 if environment.name else self.machine  # environments of reruns have a name
        for (package, release), factor in self.slower.items():
            seconds *= factor if f"{package}=={release}" in environment.requirements else 1.0
        return 2, seconds

    def _releases(self, package: str, *, first: str, last: str, python_version: str) -> list[PackageRelease]:
        return [PackageRelease(package, each) for each in self.between.get(package, [first, last])]

    @property
    def told(self) -> list[Event]:
        """The events of confirmed regressions."""
        return [event for event in self.sent if event.name == alerts.CONFIRMED]

    @property
    def records(self) -> list[NightRecord]:
        with Store.open(self.address) as store:
            return [night.record for night in night_record.nights(store)]


def _ensure(environment: Environment, says: Callable[[str], None] = print) -> Built:
    if "broken==2" in environment.requirements:
        raise EnvironmentUnavailable("it cannot be had today")
    return Built(environment, sys.executable, "3.11.7", {}, "digest", fresh=False, seconds=0.0)


@pytest.fixture
def night(fake: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> Nights:
    return Nights(fake, address, monkeypatch)


# ------------------------------------------------------------------ what is fine


def test_nights_with_equal_measurements_raise_no_alarm(night: Nights) -> None:
    for _ in range(2):
        result = night()
        assert not result.alarm
        assert (len(night.records[-1].measured), night.records[-1].judged) == (1, ())
    first, second = night.records
    assert [each.series.id for each in first.measured] == [each.series.id for each in second.measured]
    assert first.lock == second.lock
    assert first.lock.pins == {"python": first.lock.pins["python"], "dask": "1", "crunch": "1"}
    night.index["crunch"] = "2"
    assert not night().alarm
    assert (night.records[-1].judged, night.told) == ((), [])


@pytest.mark.thorough
def test_an_improvement_is_rerun_and_traced_without_an_alarm(night: Nights) -> None:
    night.slower["crunch", "1"] = 1.5
    night()
    night.index |= {"crunch": "2", "dask": "2"}
    result = night()
    assert not result.alarm
    [judged] = night.records[-1].judged
    assert (judged.outcome, judged.since) == (ChangeOutcome.FASTER, "crunch 1 → 2")
    assert judged.ratio == pytest.approx(1 / 1.5)
    assert (night.records[-1].alerts, night.told) == ((), [])
    with Store.open(night.address) as store:
        study = store.studies.get(result.study_id)
        assert judged.study in study.followed_by
        notes = [note.text for note in sheet(study, []).notes]
    assert any(f"since {judged.since}." in text for text in notes), notes
    night()
    assert night.records[-1].judged == ()


@pytest.mark.thorough
def test_regressions_are_rerun_before_improvements(night: Nights) -> None:
    usual = night.fake.measures

    def measures(planned: PlannedTrial) -> tuple[int, float]:
        used, seconds = usual(planned)
        new = "crunch==2" in Environment.parse(planned.point.environment).requirements
        factor = {2: 0.25, 4: 1.5}[planned.point.workers] if new else 1.0
        return used, factor * seconds

    night.fake.measures = measures
    axes = {"workers": [2, 4], "items": [4]}
    night(axes=axes)
    night.index["crunch"] = "2"
    assert night(axes=axes).alarm
    assert [each.outcome for each in night.records[-1].judged] == [ChangeOutcome.CONFIRMED, ChangeOutcome.FASTER]
    [alert] = night.records[-1].alerts
    assert [each.series.point["workers"] for each in alert.changes] == [4]


@pytest.mark.thorough
def test_a_slow_drift_is_noted_without_an_alarm(night: Nights) -> None:
    for _ in range(14):
        result = night()
        night.machine *= 1.005
    assert not result.alarm
    [drift] = night.records[-1].drifts
    assert (drift.nights, night.records[-1].judged) == (14, ())
    with Store.open(night.address) as store:
        notes = [note.text for note in sheet(store.studies.get(result.study_id), []).notes]
    assert any("(6.7 % higher" in text for text in notes), notes


# ------------------------------------------------------------------ what got worse


def test_all_series_that_one_release_made_slower_share_one_alert(night: Nights, tmp_path: Path) -> None:
    night(workloads=WORKLOADS)
    night.index["crunch"], night.slower["crunch", "2"] = "2", 1.5
    result = night(workloads=WORKLOADS, site=str(tmp_path / "site"))
    assert result.alarm
    [alert] = night.records[-1].alerts
    assert (alert.culprit.package, alert.culprit.good, alert.culprit.bad) == ("crunch", "1", "2")
    assert {each.series.workload for each in alert.changes} == set(WORKLOADS)
    assert [each.ratio for each in alert.changes] == pytest.approx([1.5, 1.5])
    [event] = night.told
    assert event.payload["culprit"]["bad"] == "2"
    assert "crunch 1 → 2" in event.title
    with Store.open(night.address) as store:
        study = store.studies.get(result.study_id)
        assert {store.studies.get(each).kind for each in study.followed_by} == {"comparison"}
        shown = sheet(study, [store.run(each) for each in study.runs])
    assert shown.table is not None
    assert [row.cells[-1] for row in shown.table.rows] == ["confirmed", "confirmed"]
    assert "crunch 1 → 2" in (tmp_path / "site/index.html").read_text()
    assert "packages: crunch 1" in (tmp_path / "site/index.html").read_text()
    assert alert.shown.endswith(": A 1.000 s, B 1.500 s")
    [written] = (tmp_path / "site").glob("slower-*.py")
    assert written.read_text() == event.payload["script"] == alert.script
    assert f"scalescope alerts script {alert.id} >" in event.payload["issue"]
    assert len(list((tmp_path / "site").glob("*-map-*.html"))) == 2


def test_the_culprit_is_found_among_several_packages_and_intermediate_releases(night: Nights) -> None:
    night()
    night.index |= {"crunch": "4", "dask": "2"}
    night.between["crunch"] = ["1", "2", "3", "4"]
    night.slower |= {("crunch", "3"): 1.5, ("crunch", "4"): 1.5}
    night()
    [alert] = night.records[-1].alerts
    assert (alert.culprit.package, alert.culprit.good, alert.culprit.bad) == ("crunch", "2", "3")
    assert "dask 1 → 2" in alert.culprit.changed


@pytest.mark.thorough
def test_a_new_regression_by_the_culprit_of_an_open_alert_raises_an_alarm_again(night: Nights) -> None:
    """The second workload was added later and gets slower by the release that an alert already names."""
    night()
    night.index["crunch"], night.slower["crunch", "2"] = "2", 1.5
    night()
    [alert] = night.records[-1].alerts
    night.index["crunch"] = "1"
    night(workloads=["bag-map"])
    night.index["crunch"] = "2"
    result = night(workloads=["bag-map"])
    assert (result.alarm, night.records[-1].alerts) == (True, ())
    assert alert.id in result.line
    [standing] = night.records[-1].standing
    assert {each.series.workload for each in standing.changes} == {"bag-map", "futures-map"}
    assert len({event.identity for event in night.told}) == 2
    assert night.told[-1].payload["night"] == result.study_id
    with Store.open(night.address) as store:
        assert len(alerts.every(store)) == 1
        assert any(alert.id in note.text for note in sheet(store.studies.get(result.study_id), []).notes)


@pytest.mark.thorough
def test_regressions_by_two_packages_are_two_alerts(night: Nights) -> None:
    night()
    night.index |= {"crunch": "2"}
    night.slower["crunch", "2"] = 1.5
    night()
    night.index |= {"dask": "2"}
    night.slower["dask", "2"] = 1.5
    night()
    assert [event.payload["culprit"]["package"] for event in night.told] == ["crunch", "dask"]


def test_a_lasting_regression_is_reported_once_and_resolved_when_it_ends(night: Nights, tmp_path: Path) -> None:
    night()
    night.index["crunch"], night.slower["crunch", "2"] = "2", 1.5
    assert night().alarm
    assert not night().alarm
    assert len(night.told) == 1
    night.index["crunch"] = "3"
    result = night()
    assert "1 alert resolved" in result.line
    assert [alert.state for each in night.records for alert in each.alerts] == [AlertState.RESOLVED]
    night.index["crunch"] = "2"
    assert night(issues=str(tmp_path / "issues")).alarm
    assert len(night.told) == 2
    [alert] = night.records[-1].alerts
    assert Path(alert.issue).is_file()


def test_a_failing_issue_tracker_is_only_a_problem_of_the_night(night: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCALESCOPE_GITHUB_TOKEN", raising=False)
    night()
    night.index["crunch"], night.slower["crunch", "2"] = "2", 1.5
    result = night(issues="github:team/slow")
    assert result.alarm
    assert "1 problem" in result.line
    [problem] = night.records[-1].problems
    assert "SCALESCOPE_GITHUB_TOKEN" in problem


@pytest.mark.parametrize(
    ("state", "again"), [(AlertState.FALSE, False), pytest.param(AlertState.RESOLVED, True, marks=pytest.mark.thorough)]
)
def test_a_regression_is_an_alarm_again_after_a_resolved_but_not_after_a_false_alert(
    night: Nights, state: AlertState, again: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    night()
    night.index["crunch"], night.slower["crunch", "2"] = "2", 1.5
    night()
    [alert] = night.records[-1].alerts
    assert cli.run(["alerts", "set", alert.id[:6], state, "--store", night.address]) == 0
    assert capsys.readouterr().out.startswith(f"{alert.id} {state}: ")
    with Store.open(night.address) as store:
        assert [each.state for each in alerts.every(store)] == [state]
    assert night().alarm is again


# ------------------------------------------------------------------ what people decide


def test_a_muted_workload_is_measured_but_not_rerun_until_it_is_unmuted(
    night: Nights, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    night()
    asked = ["futures-map", "--store", night.address]
    assert cli.run(["alerts", "mute", *asked, "--until", "2999-01-31", "--reason", "its disk is noisy"]) == 0
    night.index["crunch"], night.slower["crunch", "2"] = "2", 1.5
    result = night(site=str(tmp_path / "site"))
    assert (result.alarm, night.told) == (False, [])
    assert (len(night.records[-1].measured), night.records[-1].judged) == (1, ())
    [decision] = night.records[-1].decisions
    assert (decision.reason, decision.who, decision.until) == ("its disk is noisy", user(), "2999-01-31")
    with Store.open(night.address) as store:
        shown = sheet(store.studies.get(result.study_id), [])
    assert shown.table is not None
    assert [row.cells[-1] for row in shown.table.rows] == ["muted"]
    assert decision.line in [note.text for note in shown.notes]
    for page in (tmp_path / "site").glob("*-map-*.html"):
        assert decision.line in page.read_text()
    assert "its disk is noisy" in (tmp_path / "site/index.html").read_text()

    assert cli.run(["alerts", "undo", *asked]) == 0
    assert cli.run(["alerts", "undo", *asked]) == ExitStatus.USAGE
    assert night().alarm
    capsys.readouterr()
    assert cli.run(["alerts", "--store", night.address, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (len(listed["alerts"]), listed["decisions"]) == (1, [])


def test_later_nights_are_compared_with_an_accepted_level(night: Nights) -> None:
    night()
    night.machine = 1.5
    night()
    assert [each.outcome for each in night.records[-1].judged] == [ChangeOutcome.MACHINE]
    assert cli.run(["alerts", "accept", "simulated", "--reason", "a new CPU", "--store", night.address]) == 0
    night()
    assert night.records[-1].judged == ()
    night.machine = 1.0
    night()
    assert [(each.before, each.after) for each in night.records[-1].judged] == [(1.5, 1.0)]


@pytest.mark.parametrize(
    "options",
    [
        ["accept", "futures-map"],
        ["mute", "futures-map", "--until", "2020-01-01", "--reason", "late"],
        ["mute", "futures-map", "--until", "tomorrow", "--reason", "soon"],
        ["accept", "no-such", "--reason", "a typing error"],
    ],
)
def test_a_decision_without_reason_or_with_a_wrong_date_or_name_is_refused(night: Nights, options: list[str]) -> None:
    night()
    assert cli.run(["alerts", *options, "--store", night.address]) == ExitStatus.USAGE
    with Store.open(night.address) as store:
        assert store.decisions.of() == []


@pytest.mark.thorough
@pytest.mark.parametrize("zone", ["WEST+12", "EAST-14"])  # at any moment, one of them has another day than UTC
def test_the_last_day_of_a_decision_ends_by_the_local_clock(
    night: Nights, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    night()
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        today = datetime.now().astimezone().date()
        with Store.open(night.address) as store:
            with pytest.raises(InvalidField):
                decisions.decide(store, "simulated", until=str(today - timedelta(days=1)), reason="over")
            decisions.decide(store, "simulated", until=str(today), reason="today")
            assert [each.until for each in decisions.in_force(store)] == [str(today)]
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


# ------------------------------------------------------------------ nights that are missing


def test_a_night_prints_its_expected_duration_and_sends_an_event_after_measuring(night: Nights) -> None:
    night()
    night()
    first, second = [each for each in night.said if each.startswith("About ")]
    assert "1 run" in first
    assert "1 night" in second
    [*_, event] = night.sent
    assert (event.name, event.resource) == (missing_nights.MEASURED, "scalescope.history.nightly")
    assert len(night.sent) == 2


def test_a_night_that_measured_nothing_is_an_alarm_and_counts_as_missing(
    night: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    def status(within: str) -> int:
        capsys.readouterr()
        return cli.run(["nightly", "--expected-within", within, "--store", night.address])

    night.fake.script = {0: "fail"}
    assert night().alarm
    assert night.sent == []
    assert status("26h") == ExitStatus.FINDING
    with Store.open(night.address) as store:
        [blind] = night_record.nights(store)
    assert blind.id in capsys.readouterr().out
    night.fake.script = {}
    night()
    assert status("26h") == ExitStatus.OK
    assert blind.id not in capsys.readouterr().out
    assert status("0.000001h") == ExitStatus.FINDING
    assert status("soon") == ExitStatus.USAGE


def test_the_summary_of_a_night_on_a_loaded_host_begins_with_the_load(
    night: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalescope.nightly.series._host", lambda trials: {OTHERS: 0.4})
    before, _, after = night().line.partition("No regression.")
    assert "40 %" in before
    assert after


# ------------------------------------------------------------------ what is not the software


@pytest.mark.parametrize(("factor", "word"), [(2.0, "slower"), pytest.param(0.5, "faster", marks=pytest.mark.thorough)])
def test_a_change_of_the_machine_alone_raises_no_alarm(night: Nights, factor: float, word: str) -> None:
    night()
    night.index["crunch"], night.machine = "2", factor
    assert not night().alarm
    assert night.told == []
    [judged] = night.records[-1].judged
    assert (judged.outcome, judged.since) == (ChangeOutcome.REFUTED, "")
    assert f"is not {word}:" in judged.reason


@pytest.mark.thorough
def test_a_rerun_with_less_than_half_of_the_smallest_effect_refutes_the_change(night: Nights) -> None:
    night()
    night.index["crunch"], night.machine, night.slower["crunch", "2"] = "2", 1.5, 1.02
    assert not night().alarm
    [judged] = night.records[-1].judged
    assert (judged.outcome, judged.ratio) == (ChangeOutcome.REFUTED, pytest.approx(1.02))


@pytest.mark.thorough
def test_a_change_that_a_control_shows_too_is_blamed_on_the_machine(night: Nights) -> None:
    workloads = ["futures-map", "control-cpu"]
    night(workloads=workloads)
    night.index["crunch"], night.machine = "2", 1.5
    assert not night(workloads=workloads).alarm
    assert [(each.outcome, each.control) for each in night.records[-1].judged] == [
        (ChangeOutcome.MACHINE, pytest.approx(1.5))
    ] * 2
    with Store.open(night.address) as store:
        assert all(each.study.followed_by == () for each in night_record.nights(store))


@pytest.mark.thorough
def test_a_change_without_any_changed_package_is_blamed_on_the_machine(night: Nights) -> None:
    night()
    night.machine = 2.0
    result = night()
    assert not result.alarm
    assert {each.outcome for each in night.records[-1].judged} == {ChangeOutcome.MACHINE}
    with Store.open(night.address) as store:
        assert store.studies.get(result.study_id).followed_by == ()


def test_a_rerun_whose_environment_is_unavailable_is_reported_without_an_alarm(
    night: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    night()
    night.index["crunch"], night.slower["crunch", "2"] = "2", 1.5

    def ensure(environment: Environment, says: Callable[[str], None] = print) -> Built:
        if "crunch==1" in environment.requirements:
            raise EnvironmentUnavailable("crunch 1 is gone")
        return _ensure(environment)

    monkeypatch.setattr(environments, "ensure", ensure)
    assert not night().alarm
    assert {each.outcome for each in night.records[-1].judged} == {ChangeOutcome.UNTESTABLE}
    assert "crunch 1 is gone" in night.records[-1].judged[0].reason


# ------------------------------------------------------------------ what breaks


def test_an_interrupted_night_continues_with_the_packages_it_had_locked(night: Nights) -> None:
    night.fake.script = {1: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        night(workloads=WORKLOADS)
    night.index["crunch"] = "2"
    begun = len(night.fake.begun)
    night(workloads=WORKLOADS)
    assert len(night.fake.begun) == begun + 1
    with Store.open(night.address) as store:
        assert len(night_record.nights(store)) == 1
    assert night.records[-1].lock.pins["crunch"] == "1"


def test_a_night_that_was_interrupted_a_day_ago_does_not_continue(
    night: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.fake.script = {0: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        night()

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=1)

    monkeypatch.setattr("scalescope.nightly.running.datetime", Tomorrow)
    night()
    with Store.open(night.address) as store:
        assert len(night_record.nights(store)) == 2


def test_an_unavailable_cluster_is_a_problem_of_that_workload_alone(night: Nights, refusal: Exception) -> None:
    night.fake.refusals = [refusal] * 3
    result = night(workloads=WORKLOADS)
    assert (result.alarm, len(night.records[-1].measured), len(night.records[-1].problems)) == (False, 1, 1)
    assert "no cluster today" in night.records[-1].problems[0]


def test_a_workload_that_the_budget_left_out_is_measured_first_in_the_next_night(night: Nights) -> None:
    given = {"workloads": WORKLOADS, "clusters": ["slurm"], "rounds": 1, "trial_timeout_s": 1}
    result = night(**given, budget={"hours": 1.05 / 3600})
    assert night.records[-1].ended_early in result.line
    assert night.records[-1].ended_early
    assert [each.series.workload for each in night.records[-1].measured] == ["futures-map"]
    night(**given, budget={"hours": 1.05 / 3600})
    assert [each.series.workload for each in night.records[-1].measured] == ["bag-map"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"workloads": ["no-such"]}, "workload"),
        ({"clusters": ["no-such"]}, "kind"),
        ({"metric": "no-such"}, "metric"),
        ({"axes": {"workers": [0]}}, "workers"),
        ({"history": ""}, "history"),
        ({"clusters": []}, "clusters"),
        ({"issues": "github:team"}, "issues"),
    ],
)
def test_an_invalid_option_of_a_night_is_refused_before_any_trial_starts(
    night: Nights, given: dict[str, Any], field: str
) -> None:
    with pytest.raises((InvalidField, UsageError), match=field):
        night(**given)
    assert night.fake.begun == []


@pytest.fixture
def two_alerts(night: Nights) -> list[str]:
    """Ids of two alerts; only the second has a script, and both begin with `a`."""
    study, ids = night().study_id, ["a1", "a2"]
    with Store.open(night.address) as store:
        series = night.records[-1].measured[0].series
        judged = (Judged(series, study, 1.0, 1.5, ChangeOutcome.CONFIRMED, "slower", 1.5),)
        made = [Alert(each, study, Culprit("crunch 2"), judged, "compare", shown="too many workers") for each in ids]
        night_record.amend(store, study, alerts=[made[0], replace(made[1], script="print(1)")])
    return ids


@pytest.mark.usefixtures("two_alerts")
@pytest.mark.parametrize(
    "arguments",
    [
        ["script", "a1"],
        ["script", "a"],
        ["show", "a"],
        ["set", "a", "false"],
        ["set", "", "false"],
        ["set", "b", "false"],
    ],
)
def test_an_id_that_matches_no_single_alert_or_script_is_refused(
    night: Nights, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert cli.run(["alerts", *arguments, "--store", night.address]) == ExitStatus.USAGE
    assert capsys.readouterr().out == ""
    with Store.open(night.address) as store:
        assert {each.state for each in alerts.every(store)} == {AlertState.OPEN}


def test_the_alerts_command_lists_alerts_shows_one_and_prints_its_script(
    night: Nights, two_alerts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*arguments: str) -> str:
        capsys.readouterr()
        assert cli.run(["alerts", *arguments, "--store", night.address]) == 0
        return capsys.readouterr().out

    assert printed("script", "a2") == "print(1)\n"
    assert "print(1)" in printed("show", "a2")
    assert json.loads(printed("show", "a1", "--json"))["id"] == "a1"
    assert printed() == printed("list")
    assert all(each in printed() for each in two_alerts)


def test_the_state_of_the_only_alert_is_not_set_without_its_id(night: Nights) -> None:
    night()
    night.index["crunch"], night.slower["crunch", "2"] = "2", 1.5
    night()
    with Store.open(night.address) as store:
        with pytest.raises(UsageError):
            alerts.set_state(store, "", "false")
        assert [each.state for each in alerts.every(store)] == [AlertState.OPEN]
