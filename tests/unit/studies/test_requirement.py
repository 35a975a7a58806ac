"""Requirements that decide the exit status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.golden import Compare

from scalescope.cli.commands.show import status_of
from scalescope.diagnosis.verdict import diagnose
from scalescope.errors import ExitStatus, InvalidField
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.studies.requirement import check_points, judge, requirement, status

Build = Callable[..., Trial]


def spoilt(trial: Trial, state: TrialState) -> Trial:
    return replace(trial, state=state, reason="no such table\nand a traceback", metrics=None)


def test_a_requirement_that_is_met_shows_the_measured_value(bag_trial: Build) -> None:
    trials = [bag_trial(workers, [1] * 8) for workers in (2, 4, 16)]
    answers = judge([requirement("efficiency >= 0.9 at workers=4"), requirement("tasks >= 8")], trials)
    assert [answer.line for answer in answers] == [
        "met: efficiency >= 0.9 at workers=4 (efficiency is 1)",
        "met: tasks >= 8 (at all 3 points)",
    ]
    assert status(answers) is ExitStatus.OK


def test_a_requirement_that_is_not_met_names_the_points(golden: Compare, bag_trial: Build) -> None:
    trials = [bag_trial(workers, [1] * 8) for workers in (2, 4, 16)]
    [answer] = judge([requirement("efficiency  >=  0.9")], trials)
    golden(answer.line)
    assert answer.status is ExitStatus.FINDING


def test_a_requirement_is_judged_by_the_mean_or_median_over_repeats(bag_trial: Build) -> None:
    trials = [bag_trial(2, [1, 1], repeat=0), bag_trial(2, [1, 1], repeat=1), bag_trial(2, [2], repeat=2)]
    trials = [replace(trial, point=trials[0].point) for trial in trials]
    assert status(judge([requirement("workers_used >= 2")], trials)) is ExitStatus.OK  # the median, not the worst
    [answer] = judge([requirement("efficiency > 0.9")], trials)
    assert "efficiency is 0.794" in answer.line  # (1 * 1 * 0.5) ** (1 / 3)


@pytest.mark.parametrize(
    ("state", "expected"), [(TrialState.FAILED, ExitStatus.FAILED), (TrialState.INVALID, ExitStatus.INFRASTRUCTURE)]
)
def test_a_requirement_at_a_point_without_valid_trials_is_not_known(
    golden: Compare, bag_trial: Build, state: TrialState, expected: ExitStatus
) -> None:
    trials = [bag_trial(2, [1] * 8), spoilt(bag_trial(4, [1] * 8), state)]
    answers = judge([requirement("efficiency > 0.5"), requirement("efficiency > 2 at workers=2")], trials)
    assert [answer.status for answer in answers] == [expected, ExitStatus.FINDING]
    golden(answers[0].line)
    assert status(answers) is expected
    verdict = diagnose(Sweep("mine"), trials)
    assert status_of(trials[1:], verdict) is expected
    assert status_of(trials, verdict) in (ExitStatus.OK, ExitStatus.FINDING)
    few = [replace(bag_trial(8, [8]), state=state, reason="it ended early")]  # the graph says why, whatever the time
    known = ExitStatus.FINDING if state is TrialState.INVALID else expected
    assert status_of(few, diagnose(Sweep("mine"), few)) is known
    failed = replace(few[0], state=TrialState.FAILED, repeat=1)  # beside one that did not count
    both = [replace(few[0], state=TrialState.INVALID), failed]
    assert status_of(both, diagnose(Sweep("mine"), both)) is ExitStatus.FINDING


def test_a_requirement_at_a_point_that_is_not_in_the_sweep_is_refused(bag_trial: Build) -> None:
    trials = [bag_trial(workers, [1] * 8) for workers in (2, 4)]
    [answer] = judge([requirement("efficiency > 0.5 at workers=3")], trials)
    assert answer.status is ExitStatus.USAGE
    with pytest.raises(InvalidField, match="4 workers, 8 items"):
        check_points([requirement("efficiency > 0.5 at workers=3")], [trial.point for trial in trials])
    without = bag_trial(2, [1], params={"items": ...}).point
    with pytest.raises(InvalidField, match="has no items"):
        check_points([requirement("tasks >= items")], [without])


@pytest.mark.parametrize("text", ["", "efficiency", "efficiency = 0.6", "at workers=4", "eficiency > 1", "1 < 2"])
def test_an_invalid_requirement_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match="--require: expected"):
        requirement(text)
