"""What is said of measured comparisons; nothing is measured here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scalescope.errors import ExitStatus
from scalescope.pull_requests import checkouts, measuring
from scalescope.pull_requests.answer import PullRequestAnswer
from scalescope.pull_requests.measuring import PullRequestQuestion
from scalescope.run.runner import Runner
from scalescope.studies.comparison.judge import ComparisonQuestion, judge

FOLDER = "/repository"


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """The answer if pairs have these seconds, at each size; the head measures nothing where `counts` is false."""

    def answered(*sizes: list[tuple[float, float]], counts: bool = True, new: bool = False) -> PullRequestAnswer:
        sides = [
            SimpleNamespace(
                folder=tmp_path, environment=f"{name} = /{name}", importable=(), finds=lambda _, has=has: has
            )
            for name, has in (("base", not new), ("head", True))
        ]
        results = iter(sizes)

        def study(kind: str, given: dict[str, Any], runner: Runner) -> Any:
            assert given["alpha"] == measuring.ALPHA
            question = ComparisonQuestion(smallest_effect=0.05, alpha=given["alpha"])
            point = SimpleNamespace(environment="head = /head")
            runs = [SimpleNamespace(trials=[SimpleNamespace(point=point, counts=counts)])]
            result = {**judge(question, next(results)).to_mapping(), "why": WHY}
            return SimpleNamespace(result=result, runs=runs, line="Undecided.")

        monkeypatch.setattr(checkouts, "commits", lambda *_: ("b" * 40, "h" * 40))
        monkeypatch.setattr(checkouts, "both", lambda *_, **__: _Entered(sides))
        monkeypatch.setattr(measuring.git, "changed_lines", lambda *_: {})
        monkeypatch.setattr(measuring.running, "run_study", study)
        workers = {"workers": list(range(1, len(sizes) + 1))}
        return measuring.answer(PullRequestQuestion(("job.py:run",), workers, {}, FOLDER), Runner())

    return answered


class _Entered:
    def __init__(self, sides: Any) -> None:
        self._sides = sides

    def __enter__(self) -> Any:
        return self._sides

    def __exit__(self, *_: object) -> None: ...


SAME = [(1.0, 1.0)] * 10
SLOWER = [(1.0, 1.1)] * 10
WHY = {"a_s": 1.0, "b_s": 1.1, "reason": "0.1 s of 0.1 s more: transfers; environment a → b", "parts": []}


def test_an_unchanged_workload_gets_no_notice(answer: Any) -> None:
    found = answer(SAME, SAME)
    assert (found.changed, found.notices, found.reasons, found.status) == (False, (), (), ExitStatus.OK)


def test_a_slower_size_gets_a_notice_at_its_line_with_the_reason(answer: Any) -> None:
    found = answer(SAME, SLOWER)
    assert (found.changed, found.status) == (True, ExitStatus.FINDING)
    [notice] = found.notices
    assert (notice.file, notice.line) == ("job.py", 1)
    assert "workers=2" in notice.title
    [reason] = found.reasons
    assert all("0.1 s of 0.1 s more: transfers." in text for text in (notice.text, reason, found.to_markdown()))


def test_a_faster_workload_is_reported_as_a_change_without_a_notice(answer: Any) -> None:
    found = answer([(1.1, 1.0)] * 10)
    assert (found.changed, found.notices, found.status) == (True, (), ExitStatus.OK)


def test_a_difference_below_the_limit_is_no_change_however_certain_it_is(answer: Any) -> None:
    pairs = [(1.0, 1.03 + 0.03 * (number % 2)) for number in range(20)]  # 4.5 %, in an interval beyond 5 %
    found = answer(pairs)
    assert (found.changed, found.notices, found.status) == (False, (), ExitStatus.OK)
    assert found.remarks


def test_an_undecided_comparison_is_not_said_to_be_unchanged(answer: Any) -> None:
    assert "Nothing changed" in answer(SAME).line
    assert "Nothing changed" not in answer(SAME, [(1.0, 1.2), (1.2, 1.0)]).line


def test_a_head_without_a_valid_measurement_fails_the_command(answer: Any) -> None:
    assert answer([(1.0, None)] * 3, counts=False).status == ExitStatus.FAILED


def test_a_workload_that_the_base_lacks_is_not_compared(answer: Any) -> None:
    found = answer(SLOWER, new=True)
    assert (found.changed, found.status, found.table) == (False, ExitStatus.OK, "")
    assert found.remarks
