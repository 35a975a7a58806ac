"""The bar of a run on a terminal; tests/integration/test_notebook.py has those of notebooks and real terminals."""

from __future__ import annotations

import io

import pytest

from scalescope.model.sweep import Point
from scalescope.model.trial import Trial, TrialState
from scalescope.report.screen import Screen
from scalescope.run.progress import Progress
from scalescope.run.progress_bar import bar, shown
from scalescope.run.runner import Runner

TRIAL = Trial("k", Point(1), 0, False, TrialState.VALID)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_bar_shows_finished_trials_and_the_time_left() -> None:
    terminal = Terminal()
    screen = Screen(file=terminal, force_terminal=True, width=120)
    assert screen.is_watched
    with bar(screen) as listener:
        for number in range(1, 13):
            listener(Progress(number, 12, f"trial {number}", TRIAL, left_s=(12 - number) * 20.0))
        listener(Progress(0, 0, "Report: report.html\nand more", notable=True))
        drawn = terminal.getvalue()
    assert "2/12" in drawn
    assert "about 3 min left" in drawn
    assert "about 40 s left" in drawn
    assert "about 20 s left" not in drawn  # too short to be told
    last = drawn.rpartition("Report: report.html")[0].rpartition("\r")[2]
    assert "12/12" in last  # progress without a trial does not change the count
    assert "and more" not in drawn


def test_a_kept_message_stays_above_the_progress_bar() -> None:
    terminal = Terminal()
    with bar(Screen(file=terminal, force_terminal=True, width=120)) as listener:
        listener(Progress(1, 2, "trial 1", TRIAL))
        listener(Progress(0, 0, "8 workers: 5 s", notable=True, kept=True))
        listener(Progress(0, 0, "8 workers: 6 s", notable=True))
        listener(Progress(2, 2, "trial 2", TRIAL))
    lines = [line.rpartition("\x1b[2K")[2] for line in terminal.getvalue().splitlines()]
    assert "8 workers: 5 s" in lines
    assert "8 workers: 6 s" not in lines


def test_the_line_of_a_trial_shows_the_time_left_if_it_is_long() -> None:
    assert Progress(1, 12, "makespan 2 s", TRIAL, left_s=220).line == "makespan 2 s (about 4 min left)"
    assert Progress(1, 12, "makespan 2 s", TRIAL, left_s=20).line == "makespan 2 s"
    assert Progress(1, 12, "opening the cluster", left_s=220).line == "opening the cluster"


def test_no_progress_bar_is_drawn_into_files_or_for_a_given_runner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a file is still no terminal
    assert not Screen(file=io.StringIO()).is_watched
    given = Runner()
    with shown(given) as runner, shown(None) as own:
        assert runner is given
        own.tell(Progress(1, 2, "trial 1", TRIAL))
    assert capsys.readouterr() == ("", "")
