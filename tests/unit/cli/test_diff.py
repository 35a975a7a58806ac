"""`scalescope diff`: why one run took longer than another, as text, JSON and Markdown."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.requests import finished_run

from scalescope.cli import main as cli
from scalescope.errors import ExitStatus
from scalescope.model.finding import Finding, Severity
from scalescope.report.run_difference import of_runs
from scalescope.store.store import Store, SweepRun
from scalescope.studies.running import run_study

SWEEP: dict[str, Any] = {"workload": "futures-map", "axes": {"workers": [2, 4]}, "params": {"items": 4}, "repeats": 3}


@pytest.fixture
def two(fake: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two runs of two points; in the second, tasks of the point of 4 workers take three times as long."""
    monkeypatch.setenv("SCALESCOPE_STORE", address)
    first = finished_run(SWEEP, address, fresh=True).id
    fake.measures = lambda planned: (planned.point.workers, 1.0 if planned.point.workers == 2 else 3.0)
    return first, finished_run({**SWEEP, "seed": 1}, address, fresh=True).id


def test_diff_compares_two_runs_at_the_point_that_differs_most(
    two: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["diff", *two, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    [part] = [each for each in told["parts"] if each["named"]]
    assert (part["kind"], part["name"], part["tasks"]) == ("slower", "sleep", [4, 4])
    assert told["seconds"] == pytest.approx(2.0) == sum(each["seconds"] for each in told["parts"])
    assert told["b_thread_s"] - told["a_thread_s"] == pytest.approx(8.0)

    assert cli.run(["diff", *two, "--json", "--point", "workers=2"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] == 0


def test_latest_tilde_n_names_the_run_n_before_the_latest(two: tuple[str, str], address: str) -> None:
    with Store.open(address) as store:
        assert (store.run("latest~1").id, store.run("latest~0").id) == two
        assert of_runs(store.run("latest"), store.run("latest~1")).found.seconds == pytest.approx(-2.0)


def test_a_finding_that_only_the_slower_run_has_is_the_cause_of_the_difference(
    two: tuple[str, str], address: str
) -> None:
    fault = Finding("tiny-tasks", Severity.HIGH, "Tasks are tiny.", "make them larger")

    def faulty(run: SweepRun) -> SweepRun:
        return replace(run, trials=tuple(replace(trial, findings=(fault,)) for trial in run.trials))

    with Store.open(address) as store:
        faster, slower = store.run("latest~1"), store.run("latest")
        assert of_runs(faster, faulty(slower)).cause == of_runs(faulty(slower), faster).cause == fault
        assert of_runs(faulty(faster), faulty(slower)).cause is None
        assert of_runs(faulty(faster), slower).cause is None


def test_a_part_that_goes_against_the_whole_difference_is_shown_as_more_instead_of_less(
    address: str, two: tuple[str, str]
) -> None:
    with Store.open(address) as store:
        found = of_runs(*map(store.run, reversed(two)))
    [part] = found.found.named
    against = replace(part, seconds=0.5)
    both = replace(found, found=replace(found.found, parts=(part, against)))
    assert "; 500 ms more: " in both.largest(2)
    assert both.largest(1).startswith("2 s less, 2 s of it: ")


def test_task_names_are_escaped_in_markdown(
    fake: Any, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], two: tuple[str, str]
) -> None:
    assert cli.run(["diff", *two, "--markdown"]) == 0
    text = capsys.readouterr().out
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert "\\`sleep\\`" in text


@pytest.mark.parametrize(("seconds", "named"), [(2.0, [("slower", "sleep")]), (1.0, [])])
def test_a_comparison_explains_why_b_is_slower_only_if_b_is_slower(
    fake: Any, address: str, seconds: float, named: list[tuple[str, str]]
) -> None:
    fake.measures = lambda planned: (2, seconds if planned.point.params["items"] == 8 else 1.0)
    given = {"workloads": ["futures-map"], "values": {"workers": 2}, "store": address}
    found = run_study("comparison", {**given, "a": {"items": 4}, "b": {"items": 8}}).result
    told = found.get("why", {"parts": []})
    assert [(part["kind"], part["name"]) for part in told["parts"] if part["named"]] == named
    assert [each["name"] for each in told.get("culprits", ())] == ["items"] * len(named)


@pytest.mark.parametrize(
    "named", [["latest", "nothing"], ["comparison", "latest"], ["--point", "workers=9"], ["latest~7"]]
)
def test_diff_of_a_missing_run_or_point_is_refused(two: tuple[str, str], named: list[str]) -> None:
    assert cli.run(["diff", *named]) == ExitStatus.USAGE
