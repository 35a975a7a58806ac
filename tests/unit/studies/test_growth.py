"""Studies that ask for further trials, with a fake driver and environments that are only names."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.requests import finished_run

from scalescope import environments
from scalescope.environments import PackageRelease
from scalescope.errors import EnvironmentFailed, EnvironmentUnavailable, InvalidField
from scalescope.model.environment import Environment
from scalescope.model.sweep import PlannedTrial
from scalescope.run import orchestrator_load
from scalescope.run.drivers import MAX_DRIVERS, Drivers
from scalescope.run.request import RunRequest
from scalescope.run.sweep import abort, analyse, begin
from scalescope.run.trials import run_trials
from scalescope.store.store import Store, SweepRun
from scalescope.studies import STUDIES
from scalescope.studies.planning import PlannedStudy, StudyAnswer

THRESHOLD: dict[str, Any] = {"workload": "bag-map", "axes": {"items": "50..400", "workers": 300}}
COMPARISON: dict[str, Any] = {
    "workloads": ["futures-map"],
    "values": {"workers": 4, "items": 8},
    "a": {"seconds": 1},
    "b": {"seconds": 2},
}
RELEASE: dict[str, Any] = {
    "workload": "futures-map",
    "package": "thing",
    "good": "1.0",
    "values": {"workers": 100, "items": 100},
    "metric": "workers_used",
}
VERSIONS = [f"1.{number}" for number in range(16)]


def ask(kind: str, given: dict[str, Any], address: str = "") -> PlannedStudy:
    return STUDIES[kind].ask(given, address)


def carry_out(inquiry: PlannedStudy, address: str, *, most: int = 10_000) -> tuple[list[SweepRun], StudyAnswer]:
    """Returns all runs of a study and its answer; interrupted by an error after `most` trials."""
    runs: list[SweepRun] = []
    with Store.open(address) as store:
        study = store.studies.begin(inquiry.kind, inquiry.question)
        for asked in inquiry.requests:
            request = asked if isinstance(asked, RunRequest) else asked(runs, store, store.folder(study.id))
            if request is None:
                continue
            request = replace(request, study=study.id)
            run, waiting = begin(request, store)
            done: list[object] = []

            def finished(trial: object, done: list[object] = done) -> None:
                done.append(trial)
                if len(done) >= most:
                    raise KeyboardInterrupt

            def more(request: RunRequest = request, run: SweepRun = run) -> list[PlannedTrial]:
                return request.grown(store, run.id)

            try:
                run_trials(Drivers(request, run.id, store), waiting, finished=finished, more=more)
            except BaseException as error:
                abort(store, run.id, error)
                raise
            analyse(store, run.id)
            runs.append(store.run(run.id))
        return runs, inquiry.answer(runs)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """Environments that are only names; errors put in here by requirement are raised."""
    failing: dict[str, Exception] = {}

    def ensure(environment: Environment, *, says: Callable[[str], None] = print) -> Any:
        for requirement in environment.requirements:
            if requirement in failing:
                raise failing[requirement]
        return SimpleNamespace(python=environment.text or "here")

    def releases(package: str, *, first: str, last: str, python_version: str) -> list[PackageRelease]:
        last = last or VERSIONS[-1]
        return [
            PackageRelease(package, version) for version in VERSIONS[VERSIONS.index(first) : VERSIONS.index(last) + 1]
        ]

    monkeypatch.setattr(environments, "ensure", ensure)
    monkeypatch.setattr(environments, "releases", releases)
    monkeypatch.setattr(environments, "changelog", lambda built, package: f"see {package}")
    return failing


def partitions(planned: PlannedTrial) -> tuple[int, float]:
    """Dask of early 2023: from 200 items on there are 100 partitions."""
    items = planned.point.items or 0
    return (items if items < 200 else 100), 1.0


# ------------------------------------------------------------------ thresholds


def test_a_threshold_is_found_with_few_points(fake: Any, address: str) -> None:
    fake.measures = partitions
    [run], answer = carry_out(ask("threshold", THRESHOLD), address)
    assert "from 199 to 100" in answer.line
    assert [(jump["left"], jump["right"]) for jump in answer.result["jumps"]] == [(199, 200)]
    assert not answer.alarm
    assert len(fake.begun) == run.planned <= 12
    assert len(fake.started) == 1


def test_an_interrupted_search_continues_with_the_same_points(fake: Any, address: str, tmp_path: Path) -> None:
    fake.measures = partitions
    with pytest.raises(KeyboardInterrupt):
        carry_out(ask("threshold", THRESHOLD), address, most=5)
    [run], answer = carry_out(ask("threshold", THRESHOLD), address)
    assert len(fake.begun) == len({planned.key for planned in fake.begun}) == len(run.trials)
    [whole], expected = carry_out(ask("threshold", THRESHOLD), str(tmp_path / "other.db"))
    assert answer.line == expected.line
    assert [trial.key for trial in run.trials] == [trial.key for trial in whole.trials]


def test_a_search_that_ends_early_is_an_alarm_with_unresolved_parts(fake: Any, address: str) -> None:
    fake.measures = partitions
    inquiry = ask("threshold", THRESHOLD)
    hurried = replace(inquiry, requests=(replace(inquiry.requests[0], grow=lambda done: ()),))
    _, answer = carry_out(hurried, address)
    assert answer.alarm
    assert answer.result["unresolved"]


@pytest.mark.thorough
def test_a_noisy_threshold_is_found_by_repeating_points(fake: Any, address: str) -> None:
    rng = random.Random(1)
    fake.measures = lambda planned: (1, (2.0 if planned.point.items >= 60 else 1.0) * rng.lognormvariate(0, 0.03))
    given = {**THRESHOLD, "axes": {"items": "50..80", "workers": 3}, "metric": "makespan_s", "cluster": "light"}
    _, answer = carry_out(ask("threshold", given), address)
    assert [(jump["left"], jump["right"]) for jump in answer.result["jumps"]] == [(59, 60)]
    assert answer.result["trials"] > answer.result["points"]


def test_a_threshold_search_can_start_from_a_stored_run(fake: Any, address: str) -> None:
    run = finished_run({"workload": "bag-map", "axes": {"workers": [30], "items": [60]}}, address)
    inquiry = ask("threshold", {"run": "latest", "axes": {"items": "50..60"}}, address)
    assert inquiry.follows == run.id
    assert {planned.point.workers for planned in inquiry.requests[0].plan} == {30}
    assert sorted(planned.point.items or 0 for planned in inquiry.requests[0].plan) == [50, 60]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"axes": {}}, "exactly one axis"),
        ({"axes": {"items": "1..9", "workers": "1..9"}}, "exactly one axis"),
        ({"axes": {"items": [1, 2, 4]}}, "equal steps"),
        ({"axes": {"items": ["a", "b"]}}, "a finite number"),
        ({"axes": {"items": "9..1"}}, "goes up"),
        ({"axes": {"itmes": "1..9"}}, "did you mean 'items'"),
        ({"metric": "taks"}, "did you mean 'tasks'"),
        ({"metric": "tasks <"}, "a number that is measured"),
        ({"max_points": 1}, "from 2 to"),
        ({"min_jump": 2}, "to 0.999"),
        ({"workload": ""}, "the name of a workload"),
        ({"minutes": -1}, "from 0.01"),
    ],
)
def test_an_invalid_threshold_question_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidField, match=says):
        ask("threshold", {**THRESHOLD, **given})


# ------------------------------------------------------------------ comparisons


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a quiet host, since nothing real is measured."""
    monkeypatch.setattr(
        orchestrator_load, "quiet", lambda pids, *, enabled: nullcontext(SimpleNamespace(waited_s=0.0, cpu_s=0.0))
    )


def noisy(fake: Any, effect: float, seed: int = 0) -> None:
    """Trials take 1 s with 2 % of noise, and side B takes longer by this effect."""
    rng = random.Random(seed)

    def measures(planned: PlannedTrial) -> tuple[int, float]:
        slower = effect if planned.point.params["seconds"] == 2 else 0
        return 4, (1 + slower) * rng.lognormvariate(0, 0.02)

    fake.measures = measures


def test_a_comparison_finds_that_side_b_is_slower(fake: Any, address: str) -> None:
    noisy(fake, 0.2)
    [run], answer = carry_out(ask("comparison", {**COMPARISON, "cluster": "light"}), address)
    assert answer.alarm
    assert answer.result["decision"] == "slower"
    assert "B (seconds=2.0) is slower" in answer.line
    trials = [trial for trial in run.trials if not trial.warmup]
    assert len(trials) == 2 * answer.result["pairs"]
    sides = [trial.point.params["seconds"] for trial in trials]
    assert all({a, b} == {1.0, 2.0} for a, b in zip(sides[::2], sides[1::2], strict=True))  # interleaved
    assert len(set(zip(sides[::2], sides[1::2], strict=True))) == 2  # in both orders
    assert sum(trial.warmup for trial in run.trials) == 2


def test_a_point_compared_with_itself_is_the_same(fake: Any, address: str) -> None:
    rng = random.Random(4)
    fake.measures = lambda planned: (4, rng.lognormvariate(0, 0.005))
    _, answer = carry_out(ask("comparison", {**COMPARISON, "b": {"seconds": 1}, "cluster": "light"}), address)
    assert answer.result["decision"] == "same"
    assert not answer.alarm
    assert len({(planned.point.id, planned.repeat, planned.warmup) for planned in fake.begun}) == len(fake.begun)


def test_a_comparison_on_simulated_clusters_runs_no_warm_up(fake: Any, address: str) -> None:
    [run], answer = carry_out(ask("comparison", COMPARISON), address)
    assert answer.result["decision"] == "same"
    assert len(run.trials) == 14


def test_compared_environments_have_separate_drivers(fake: Any, address: str, named: Any) -> None:
    fake.measures = lambda planned: (4, 2.0 if "old" in planned.point.environment else 1.0)
    given = {**COMPARISON, "a": {"environment": "old = thing==1.0"}, "b": {}}
    _, answer = carry_out(ask("comparison", given), address)
    assert answer.result["decision"] == "faster"
    assert {driver.python for driver in fake.started} == {"thing==1.0", "here"}
    assert len(fake.started) == 2
    assert all(driver.closed for driver in fake.started)


def test_two_cluster_kinds_can_be_compared(fake: Any, address: str) -> None:
    _, answer = carry_out(ask("comparison", {**COMPARISON, "a": {}, "b": {"cluster": "light"}}), address)
    assert [driver.facts["kind"] for driver in fake.started] in (["simulated", "light"], ["light", "simulated"])
    assert "cluster=light" in answer.line


def test_comparisons_of_several_workloads_are_judged_as_a_family(fake: Any, address: str) -> None:
    def measures(planned: PlannedTrial) -> tuple[int, float]:
        slower = planned.point.params["seconds"] == 2 and "npartitions" in planned.point.params
        return 4, 1.3 if slower else 1.0

    fake.measures = measures
    runs, answer = carry_out(ask("comparison", {**COMPARISON, "workloads": ["futures-map", "bag-map"]}), address)
    assert [run.sweep.workload for run in runs] == ["futures-map", "bag-map"]
    assert answer.alarm
    assert answer.result["counts"] == {"slower": 1, "faster": 0, "same": 1, "undecided": 0}
    assert answer.result["hidden"] == 1
    assert [(name, each["seconds"]) for name, each in answer.result["whys"].items()] == [
        ("bag-map", pytest.approx(0.3))
    ]


def test_a_comparison_of_failed_trials_names_their_reason(fake: Any, address: str) -> None:
    fake.script = dict.fromkeys(range(100), "fail")
    _, answer = carry_out(ask("comparison", COMPARISON), address)
    assert answer.result["decision"] == "undecided"
    assert "because it should fail" in answer.line


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"b": {}}, "b"),
        ({"a": {"secs": 1}}, "points[0].secs"),
        ({"workloads": []}, "workload"),
        ({"workloads": ["bag-map", "bag-map"]}, "workloads"),
        ({"b": {"cluster": "cloud"}}, "points[1].cluster"),
        ({"b": {"environment": "-r file"}}, "points[1].environment"),
        ({"max_pairs": 3}, "max_pairs"),
        ({"smallest_effect": "small"}, "smallest_effect"),
        ({"metric": "efficiency < 1"}, "metric"),
    ],
)
def test_an_invalid_comparison_is_refused_by_its_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as error:
        ask("comparison", {**COMPARISON, **given})
    assert error.value.field == field


# ------------------------------------------------------------------ releases


def broken_since(version: str) -> Callable[[PlannedTrial], tuple[int, float]]:
    first = VERSIONS.index(version)

    def measures(planned: PlannedTrial) -> tuple[int, float]:
        [requirement] = [each for each in Environment.parse(planned.point.environment).requirements if "thing" in each]
        return (2 if VERSIONS.index(requirement.partition("==")[2]) >= first else 100), 1.0

    return measures


@pytest.mark.parametrize(
    "culprit",
    [pytest.param("1.1", marks=pytest.mark.thorough), "1.7", pytest.param("1.15", marks=pytest.mark.thorough)],
)
@pytest.mark.parametrize("metric", ["workers_used", "workers_used < 0.5 * workers"])
def test_a_release_search_names_the_first_bad_release(
    fake: Any, address: str, named: Any, culprit: str, metric: str
) -> None:
    fake.measures = broken_since(culprit)
    [run], answer = carry_out(ask("release", {**RELEASE, "metric": metric}), address)
    assert answer.result["first_bad"]["label"] == culprit
    assert answer.result["last_good"]["label"] == VERSIONS[VERSIONS.index(culprit) - 1]
    assert answer.result["changelog"] == "see thing"
    assert not answer.alarm
    assert len({trial.point.id for trial in run.trials}) <= 6
    assert all(driver.closed for driver in fake.started)


def test_the_answer_about_the_first_bad_release_names_the_slower_part(fake: Any, address: str, named: Any) -> None:
    bad = broken_since("1.7")
    fake.measures = lambda planned: (2, 1.0 if bad(planned)[0] == 100 else 3.0)
    given = {**RELEASE, "bad": "1.7", "good": "1.5", "values": {"workers": 2, "items": 2}, "metric": "makespan_s"}
    _, answer = carry_out(ask("release", given), address)
    assert answer.result["first_bad"]["label"] == "1.7"
    told = [(part["kind"], part["name"]) for part in answer.result["why"]["parts"] if part["named"]]
    assert told == [("slower", "sleep")]


def test_a_release_search_keeps_a_limited_number_of_drivers_open(fake: Any, address: str, named: Any) -> None:
    fake.measures = broken_since("1.7")
    opened: list[int] = []
    inner = fake.measures

    def measures(planned: PlannedTrial) -> tuple[int, float]:
        opened.append(sum(driver.alive for driver in fake.started))
        return inner(planned)

    fake.measures = measures
    carry_out(ask("release", RELEASE), address)
    assert max(opened) == MAX_DRIVERS


def test_a_release_that_cannot_be_installed_is_skipped(fake: Any, address: str, named: Any) -> None:
    fake.measures = broken_since("1.9")
    named["thing==1.7"] = EnvironmentFailed("thing 1.7 does not build")
    [run], answer = carry_out(ask("release", RELEASE), address)
    assert answer.result["first_bad"]["label"] == "1.9"
    [spoilt] = [trial for trial in run.trials if not trial.counts]
    assert "does not build" in spoilt.reason
    assert len(run.trials) == answer.result["trials"] + 1


def test_an_unreachable_package_index_interrupts_a_release_search(fake: Any, address: str, named: Any) -> None:
    fake.measures = broken_since("1.9")
    named["thing==1.7"] = EnvironmentUnavailable("the index is out of reach")
    with pytest.raises(EnvironmentUnavailable):
        carry_out(ask("release", RELEASE), address)
    named.clear()
    _, answer = carry_out(ask("release", RELEASE), address)
    assert answer.result["first_bad"]["label"] == "1.9"


def test_the_changed_package_between_two_lock_files_is_named(
    fake: Any, address: str, named: Any, tmp_path: Path
) -> None:
    before, after = tmp_path / "before.txt", tmp_path / "after.txt"
    before.write_text("alpha==1\nbeta==1\ndask==1\ndistributed==1\n")
    after.write_text("alpha==2\nbeta==2\ndask==2\ndistributed==2\n")
    fake.measures = lambda planned: (2 if "beta==2" in planned.point.environment else 100, 1.0)
    given = {**RELEASE, "package": "", "good": "", "before": str(before), "after": str(after)}
    _, answer = carry_out(ask("release", given), address)
    assert answer.result["first_bad"]["label"] == "beta 1 → 2"
    assert "beta 1 → 2" in answer.line


def test_a_range_of_releases_whose_ends_do_not_differ_is_not_bisected(fake: Any, address: str, named: Any) -> None:
    [run], answer = carry_out(ask("release", RELEASE), address)
    assert answer.alarm
    assert answer.result["decision"] == "no-difference"
    assert len({trial.point.id for trial in run.trials}) == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"metric": ""}, "a metric or a finding"),
        ({"finding": "idle-workers"}, "a metric or a finding"),
        ({"package": ""}, "a package and a good release, or two lock files"),
        ({"before": "a", "after": "b"}, "or two lock files"),
        ({"good": ""}, "good"),
        ({"good": "1.15"}, "later than 1.15"),
        ({"environment": "/usr/bin/python"}, "not an interpreter"),
        ({"max_environments": 1}, "from 2 to"),
        ({"values": {"wokers": 3}}, "did you mean 'workers'"),
    ],
)
def test_an_invalid_release_question_is_refused(named: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidField, match=says):
        ask("release", {**RELEASE, **given})
