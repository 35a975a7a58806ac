"""The report of a search for a release on the terminal and as data."""

from __future__ import annotations

import pytest

from scalescope.studies.release import report as release
from scalescope.studies.release.judge import CandidateState, Mode
from scalescope.studies.report import sheet
from scalescope.studies.report.sheet import Tone
from scalescope.studies.report.terminal import render

LABELS = [f"2.{number}.0" for number in range(50, 78)]
EXTRA = {"also_changed": "dask 2023.5.0 → 2023.9.1", "changelog": "https://example.org/changes"}


@pytest.fixture(scope="module")
def found(release_study):
    """A search in which one release in the middle cannot be installed."""
    return release_study(LABELS, lambda place: None if place == 13 else 404 if place >= 18 else 804, extra=EXTRA)


def test_the_report_of_a_release_search_has_boundary_changes_and_changelog(found, printed):
    lines = printed(render(found.study, found.runs), width=140).splitlines()
    assert "Last good: 2.67.0 → first bad: 2.68.0." in lines
    assert "dask 2023.5.0 → 2023.9.1" in "\n".join(lines)
    assert "Changelog: https://example.org/changes" in lines
    untried = len(LABELS) - len(found.study.result["tried"])
    assert f"{untried} of 28 candidates were not tried." in lines


def test_candidates_are_listed_in_release_order_with_their_measurements(found):
    table = sheet(found.study, found.runs).table
    assert table.heads == ("mypackage", "is", "tasks", "trials", "what was seen")
    rows = {row.cells[0]: row for row in table.rows}
    assert list(rows) == sorted(rows)
    assert rows["2.67.0"].cells[1:3] == ("good, the last", "804")
    assert rows["2.68.0"].cells[1:3] == ("bad, the first", "404")
    assert rows["2.68.0"].cells[4] == found.study.result["first_bad"]["words"]
    assert (rows["2.67.0"].tone, rows["2.68.0"].tone) == (Tone.GOOD, Tone.BAD)


def test_a_release_that_could_not_be_installed_is_listed_with_the_reason(found):
    rows = {row.cells[0]: row for row in sheet(found.study, found.runs).table.rows}
    assert rows["2.63.0"].cells[1:] == ("could not be installed", "–", "0", "lost a worker")
    assert rows["2.63.0"].tone is Tone.DOUBT


def test_undecided_candidates_between_last_good_and_first_bad_are_named(release_study, printed):
    made = release_study(
        ["1", "2", "3", "4", "5"], lambda place: None if place in (1, 2) else 404 if place > 2 else 804
    )
    text = printed(render(made.study, made.runs))
    assert "Last good: 1 → first bad: 4." in text
    assert "nor bad: 2, 3." in text


def test_a_release_search_without_a_difference_is_an_alarm_without_boundary(release_study, printed):
    made = release_study(["1", "2", "3"], lambda place: 404)
    assert made.study.alarm
    assert not any(each.boundary for each in release.candidates(made.study, made.runs))
    assert "first bad" not in printed(render(made.study, made.runs))
    assert "nothing was searched" in dict(sheet(made.study, made.runs).sure)["How it ended"]


def test_a_release_search_for_a_finding_counts_trials_that_show_it(release_study):
    made = release_study(
        ["1", "2", "3"], lambda place: place > 0, mode=Mode.FINDING, symptom="shows too-few-partitions", metric=""
    )
    table = sheet(made.study, made.runs).table
    assert table.heads == ("mypackage", "is", "trials", "what was seen")
    assert {row.cells[0]: row.cells[3] for row in table.rows} == {
        "1": "shown by 0 of 3 trials",
        "2": "shown by 2 of 2 trials",
        "3": "shown by 3 of 3 trials",
    }


def test_a_search_between_lock_files_is_headed_by_change_instead_of_package(release_study):
    made = release_study(["all of before", "dask 1 → 2"], lambda place: 404 if place else 804, subject="")
    shown = sheet(made.study, made.runs)
    assert shown.table.heads[0] == "with the change of"
    assert dict(shown.asked)["Which"].startswith("a change between two")


def test_every_state_of_a_candidate_has_a_word():
    assert set(release.WORDS) == set(CandidateState)
