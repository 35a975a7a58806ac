"""Issues of alerts, on a small server that speaks GitHub's API, and in a folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import github as server
from support.github import REPOSITORY, TOKEN, GitHub

from scalescope import forge
from scalescope.errors import InfrastructureError, InvalidField, StoreError
from scalescope.model.study import Study
from scalescope.nightly import alerts, github, issues, night_record, regression_script
from scalescope.nightly.github import GitHubIssues
from scalescope.nightly.night_record import (
    Alert,
    AlertState,
    ChangeOutcome,
    Culprit,
    Judged,
    NightlySeries,
)
from scalescope.redaction import GITHUB_TOKEN
from scalescope.store.store import Store

HISTORY = "nightly"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    with server.serving() as found:
        monkeypatch.setenv("GITHUB_API_URL", found.address)
        monkeypatch.setenv(GITHUB_TOKEN, f"{TOKEN}\n")
        yield found


@pytest.fixture
def tracker() -> GitHubIssues:
    return GitHubIssues(REPOSITORY)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/results.db") as found:
        yield found


def judged(workers: int) -> Judged:
    series = NightlySeries("bag-map", 1, {"workers": workers}, {"kind": "local"}, "a machine", "makespan_s")
    return Judged(series, "good", 1.0, 1.5, ChangeOutcome.CONFIRMED, "slower", 1.5, 1.4, 1.6, "study")


def night(store: Store, *workers: int, state: AlertState = AlertState.OPEN, culprit: str = "crunch") -> Study:
    """A night with an alert, which is the same in all nights."""
    study = store.studies.begin("nightly", {"history": HISTORY}, fresh=True)
    found = Culprit(f"{culprit} 1 → 2", culprit, "1", "2", f"{culprit} 1 → 2")
    alert = Alert("a1b2c3d4e5f6", study.id, found, tuple(map(judged, workers)), "scalescope compare", state)
    amend(store, study, alert)
    return study


def amend(store: Store, study: Study, alert: Alert) -> None:
    night_record.amend(store, study.id, alerts=[alert])


def stored(store: Store) -> Alert:
    return alerts.every(store)[-1]


def tell(store: Store, tracker: issues.IssueTracker) -> list[str]:
    return issues.bring_up_to_date(store, HISTORY, tracker)


# ------------------------------------------------------------------ what is fine


def test_an_issue_is_opened_once_commented_closed_and_opened_again(
    hub: GitHub, store: Store, tracker: GitHubIssues
) -> None:
    first = night(store, 2)
    assert tell(store, tracker) == []
    [issue] = hub.issues
    assert issue["state"] == "open"
    assert issue["title"] == alerts.line(stored(store))
    assert all(part in issue["body"] for part in ("a1b2c3d4e5f6", first.id, "40 %", "60 %", "crunch 1 → 2", "compare"))
    assert stored(store).issue == f"github:{REPOSITORY}#1"
    asked = len(hub.asked)
    assert tell(store, tracker) == []
    assert len(hub.asked) == asked  # no request, since nothing changed

    both = Alert(**{**vars(stored(store)), "changes": (judged(2), judged(4))})
    amend(store, first, both)
    assert tell(store, tracker) == []
    [(number, text)] = hub.comments
    assert (number, issue["state"]) == (1, "open")
    assert "4 workers" in text

    alerts.set_state(store, "a1b2", "resolved")
    assert tell(store, tracker) == []
    assert (len(hub.comments), issue["state"]) == (2, "closed")

    second = night(store, 2)
    assert tell(store, tracker) == []
    assert (len(hub.issues), len(hub.comments), issue["state"]) == (1, 3, "open")
    assert second.id in hub.comments[-1][1]


def test_a_folder_keeps_one_issue_file_that_follows_the_state_of_its_alert(store: Store, tmp_path: Path) -> None:
    folder = issues.IssueFolder(str(tmp_path / "issues"))
    night(store, 2)
    assert tell(store, folder) == []
    [file] = (tmp_path / "issues").iterdir()
    assert stored(store).issue == str(file)
    opened = file.read_text()
    assert "crunch 1 → 2" in opened
    assert tell(store, folder) == []
    assert file.read_text() == opened
    alerts.set_state(store, "a1b2", "accepted")
    assert tell(store, folder) == []
    assert file.read_text().startswith(opened)
    assert issues.ENDED[AlertState.ACCEPTED] in file.read_text()
    again = night(store, 2)
    assert tell(store, folder) == []
    assert again.id in file.read_text()
    assert len(list((tmp_path / "issues").iterdir())) == 1


def test_an_issue_opened_before_the_night_was_interrupted_is_not_opened_twice(
    hub: GitHub, store: Store, tracker: GitHubIssues
) -> None:
    study = night(store, 2)
    before = stored(store)
    tell(store, tracker)
    amend(store, study, before)
    assert tell(store, tracker) == []
    assert (len(hub.issues), hub.comments) == (1, [])
    assert stored(store).issue


def test_an_alert_marked_false_before_it_was_reported_gets_no_issue(
    hub: GitHub, store: Store, tracker: GitHubIssues
) -> None:
    night(store, 2, state=AlertState.FALSE)
    assert tell(store, tracker) == []
    assert hub.asked == []


def test_an_issue_that_the_search_misses_is_found_among_the_newest(
    hub: GitHub, store: Store, tracker: GitHubIssues
) -> None:
    study, hub.lags = night(store, 2), True
    before = stored(store)
    tell(store, tracker)
    amend(store, study, before)
    assert tell(store, tracker) == []
    assert (len(hub.issues), hub.comments) == (1, [])


def test_an_issue_that_is_not_among_the_newest_is_found_by_the_search(
    hub: GitHub, store: Store, tracker: GitHubIssues
) -> None:
    night(store, 2)
    tell(store, tracker)
    hub.issues += [{"number": number, "body": "another"} for number in range(2, 150)]
    assert tracker.find(stored(store).id, stored(store).id) == (f"{tracker.prefix}1", hub.issues[0]["body"])


# ------------------------------------------------------------------ what breaks


def test_a_refused_close_adds_no_comment_and_is_tried_again(hub: GitHub, store: Store, tracker: GitHubIssues) -> None:
    night(store, 2)
    tell(store, tracker)
    alerts.set_state(store, "a1b2", "resolved")
    hub.refuses = "PATCH"
    for _ in range(3):
        assert len(tell(store, tracker)) == 1
    assert (hub.comments, hub.issues[0]["state"]) == ([], "open")
    hub.refuses = ""
    assert tell(store, tracker) == []
    assert (len(hub.comments), hub.issues[0]["state"]) == (1, "closed")


def test_the_error_for_an_unreadable_issue_says_that_reading_failed(store: Store, tmp_path: Path) -> None:
    folder = issues.IssueFolder(str(tmp_path / "issues"))
    Path(folder.folder, "alert-a1b2c3d4e5f6.md").mkdir(parents=True)
    with pytest.raises(StoreError) as caught:
        folder.find("a1b2c3d4e5f6", "a1b2")
    assert "read" in caught.value.what.split(":")[0].split()


MANY = {"x-ratelimit-remaining": "0"}


@pytest.mark.parametrize(
    ("status", "headers", "body", "category"),
    [
        (401, {}, b'{"message": "Bad credentials"}', "token"),
        (403, {}, b'{"message": "Resource not accessible"}', "token"),
        (403, MANY, b'{"message": "API rate limit exceeded"}', "limit"),
        (429, {"retry-after": "60"}, b"", "limit"),
        (404, {}, b'{"message": "Not Found"}', "missing"),
        (410, {}, b'{"message": "Issues are disabled"}', "missing"),
        (301, {"location": "http://127.0.0.1:1/elsewhere"}, b"", "answer"),
        (500, {}, b"<html>", "answer"),
        (200, {}, b"<html>", "answer"),
        (200, {}, b"{}", "answer"),
    ],
)
def test_an_error_answer_of_github_is_reported_with_its_category_and_retried(
    hub: GitHub, store: Store, tracker: GitHubIssues, status: int, headers: dict[str, str], body: bytes, category: str
) -> None:
    night(store, 2)
    hub.fails = (status, headers, body)
    with pytest.raises(InfrastructureError) as caught:
        tracker.find("a1b2", "a1b2")
    assert caught.value.category == category
    assert len(tell(store, tracker)) == 1
    assert len(hub.asked) == 2  # no redirect was followed
    hub.fails = None
    assert tell(store, tracker) == []
    assert len(hub.issues) == 1


def test_an_unreachable_api_is_waited_for_only_once(
    hub: GitHub, store: Store, tracker: GitHubIssues, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = night(store, 2)
    amend(store, study, Alert(**{**vars(stored(store)), "id": "another"}))
    monkeypatch.setattr(forge, "TIMEOUT_S", 0.1)
    hub.silent = True
    assert len(tell(store, tracker)) == 1
    assert len(hub.asked) == 1
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:1")
    with pytest.raises(InfrastructureError) as caught:
        tracker.open("a1b2", "title", "text")
    assert caught.value.category == "unreachable"


@pytest.mark.parametrize("token", ["", "two words", "ghp_äöü"])
def test_github_is_not_asked_without_a_valid_token(
    hub: GitHub, store: Store, tracker: GitHubIssues, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv(GITHUB_TOKEN, token)
    night(store, 2)
    [problem] = tell(store, tracker)
    assert GITHUB_TOKEN in problem
    assert not token or token not in problem
    assert hub.asked == []


def test_the_token_is_sent_only_to_the_github_api_and_never_shown(
    hub: GitHub,
    store: Store,
    tracker: GitHubIssues,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    night(store, 2, culprit=f"crunch-{TOKEN}")
    hub.fails = (401, {}, f'{{"message": "Bad credentials {TOKEN}"}}'.encode())
    [problem] = tell(store, tracker)
    hub.fails = None
    assert tell(store, tracker) == []
    assert TOKEN not in f"{problem}{caplog.text}{hub.issues}"
    script = f"import os, sys; print('A ', os.environ.get('{GITHUB_TOKEN}')); sys.exit(1)"
    assert regression_script.show(script, 30) == (True, "A  None")
    monkeypatch.setenv("GITHUB_API_URL", "http://example.org")
    asked = len(hub.asked)
    with pytest.raises(InfrastructureError):
        tracker.find("a", "a")
    assert len(hub.asked) == asked


@pytest.mark.parametrize(
    "name", ["github:", "github:owner", "github:owner/..", "github:a/b/c", "github:a/b?c", "github://a"]
)
def test_an_invalid_name_of_a_github_repository_is_refused(name: str) -> None:
    with pytest.raises(InvalidField):
        github.repository(name)


def test_an_issue_states_the_reason_if_the_rerun_showed_one() -> None:
    found = Culprit("crunch 1 → 2", "crunch", "1", "2", "crunch 1 → 2")
    each = judged(4)
    known, unknown = (
        alerts.summary(Alert("a", "night", found, (replace(each, why=why),), "scalescope compare"))
        for why in ("1 s of 1 s: `load` at a.py:3 f", "")
    )
    assert "\\`load\\` at a.py:3 f" in known
    assert len(unknown) < len(known)


def test_a_cause_that_was_not_found_brought_nothing() -> None:
    known, unknown = (
        Alert("a", "night", Culprit("crunch 1 → 2", found=found), (judged(4),), "scalescope compare")
        for found in (True, False)
    )
    assert "since crunch" in alerts.line(known)
    assert "Brought by" in alerts.summary(known)
    assert "since" not in alerts.line(unknown)
    assert "Brought by" not in alerts.summary(unknown)


@pytest.mark.parametrize(
    ("workload", "kind", "is_named"), [("my.py:run", "local", True), ("my.py:run", "slurm", False)]
)
def test_an_issue_names_the_command_that_patches_a_function_of_ones_own(
    workload: str, kind: str, is_named: bool
) -> None:
    each = judged(4)
    series = replace(each.series, workload=workload, cluster={"kind": kind})
    alert = Alert("a", "night", Culprit("crunch 1 → 2"), (replace(each, series=series),), "scalescope compare")
    assert ("scalescope fix -w my.py:run -a workers=4" in alerts.summary(alert)) is is_named
