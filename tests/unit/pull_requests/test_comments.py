"""The comment on a change, on a small server that speaks both APIs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import discussions
from support.discussions import TOKEN, Discussions

from scalescope.cli import main
from scalescope.pull_requests.answer import Notice, PullRequestAnswer

VARIABLES = ("GITHUB_REPOSITORY", "GITHUB_EVENT_PATH", "CI_PROJECT_ID", "CI_MERGE_REQUEST_IID")
NOTICE = Notice("bench/job.py", 7, "Slower: job, 100 %", "16 % more\nin `clean`: yes")


@pytest.fixture
def server() -> Iterator[Discussions]:
    with discussions.serving() as found:
        yield found


@pytest.fixture(params=["github", "gitlab"])
def change(
    request: pytest.FixtureRequest, server: Discussions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Discussions:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if request.param == "github":
        (tmp_path / "event.json").write_text('{"pull_request": {"number": 7}}')
        monkeypatch.setenv("GITHUB_API_URL", server.address)
        monkeypatch.setenv("GITHUB_REPOSITORY", "team/slow.things")
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
        monkeypatch.setenv("SCALESCOPE_GITHUB_TOKEN", TOKEN)
    else:
        monkeypatch.setenv("CI_API_V4_URL", server.address)
        monkeypatch.setenv("CI_PROJECT_ID", "42")
        monkeypatch.setenv("CI_MERGE_REQUEST_IID", "7")
        monkeypatch.setenv("SCALESCOPE_GITLAB_TOKEN", TOKEN)
    return server


def answer(line: str, *, changed: bool, question: str = "abc") -> PullRequestAnswer:
    return PullRequestAnswer(question, "b" * 40, "h" * 40, line, changed, 0)


def tell(found: PullRequestAnswer, folder: Path) -> int:
    path = folder / "answer.json"
    path.write_text(json.dumps(found.to_mapping()))
    return main.run(["pull-request", "--comment", str(path)])


def test_no_comment_is_made_if_nothing_changed(change: Discussions, tmp_path: Path) -> None:
    assert tell(answer("Nothing changed", changed=False), tmp_path) == 0
    assert not change.comments


def test_one_comment_is_made_then_edited_and_never_repeated(change: Discussions, tmp_path: Path) -> None:
    change.comments = dict.fromkeys(range(100), "a person")  # ours is on the second page
    for found in (answer("Slower", changed=True), answer("Slower", changed=True)):
        assert tell(found, tmp_path) == 0
    [ours] = [text for text in change.comments.values() if "Slower" in text]
    assert ours.startswith("<!-- scalescope abc -->")
    writes = [each for each in change.asked if not each.startswith("GET")]
    assert len(writes) == 1
    tell(answer("Nothing changed", changed=False), tmp_path)
    assert [text for text in change.comments.values() if "Nothing changed" in text]
    assert len(change.comments) == 101


def test_two_questions_get_a_comment_each(change: Discussions, tmp_path: Path) -> None:
    for question in ("abc", "def"):
        tell(answer("Slower", changed=True, question=question), tmp_path)
    assert len(change.comments) == 2


@pytest.mark.parametrize("why", ["no token", "token may not write", "token has ended"])
def test_without_a_token_that_may_write_no_comment_is_made_and_the_command_succeeds(
    change: Discussions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    change.may_write = False
    if why != "token may not write":
        for name in ("SCALESCOPE_GITHUB_TOKEN", "SCALESCOPE_GITLAB_TOKEN"):
            monkeypatch.setenv(name, "" if why == "no token" else "ghp_another_token")
    assert tell(answer("Slower", changed=True), tmp_path) == 0
    assert not change.comments


def test_an_unreachable_api_fails_the_command(
    change: Discussions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("CI_API_V4_URL", "http://127.0.0.1:1")
    assert tell(answer("Slower", changed=True), tmp_path) == 3


def test_outside_of_a_pull_request_the_api_is_not_called(
    change: Discussions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "event.json").write_text('{"ref": "refs/heads/main"}')
    monkeypatch.delenv("CI_MERGE_REQUEST_IID", raising=False)
    assert tell(answer("Slower", changed=True), tmp_path) == 0
    assert not change.asked


def test_annotations_keep_their_form_whatever_the_text() -> None:
    [line] = PullRequestAnswer("abc", "b", "h", "Slower", True, 1, notices=(NOTICE,)).annotations()
    assert line == ("::warning file=bench/job.py,line=7,title=Slower%3A job%2C 100 %25::16 %25 more%0Ain `clean`: yes")


def test_the_code_quality_report_has_what_gitlab_requires() -> None:
    [found] = PullRequestAnswer("abc", "b", "h", "Slower", True, 1, notices=(NOTICE,)).code_quality()
    assert found["location"] == {"path": "bench/job.py", "lines": {"begin": 7}}
    assert found.keys() == {"description", "check_name", "fingerprint", "severity", "location"}


def test_text_of_the_code_cannot_become_markdown() -> None:
    found = PullRequestAnswer("abc", "b", "h", "<img src=x> **bold**", True, 1, reasons=("[a](http://x)",))
    assert "<img" not in found.to_markdown()
    assert "[a](" not in found.to_markdown()


def test_a_file_that_is_not_an_answer_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_text("[1]")
    assert main.run(["pull-request", "--comment", str(tmp_path / "answer.json")]) == 2
