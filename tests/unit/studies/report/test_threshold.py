"""The report of a search for thresholds on the terminal and as data."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from scalescope.model.sweep import Point
from scalescope.studies.report import headline, sheet
from scalescope.studies.report.sheet import Tone
from scalescope.studies.report.terminal import render
from scalescope.studies.threshold import report as threshold


@pytest.fixture(scope="module")
def beam(threshold_study):
    return threshold_study(lambda items, repeat: 4 * items if items < 200 else 404)


def test_the_report_of_a_threshold_has_its_answer_and_marks_the_jump(beam, printed):
    lines = printed(render(beam.study, beam.runs)).splitlines()
    assert lines[0].startswith("tasks falls from 796 to")
    marked = [line.split(None, 2) for line in lines if "▼" in line]
    assert marked == [["200", "404", "▼ 796 → 404, × 0.508, between 199 and 200"]]
    points = len(beam.runs[0].trials)
    assert f"{points} of 351 points measured in {points} trials." in lines


def test_values_are_in_order_and_only_the_jump_is_marked_bad(beam):
    table = sheet(beam.study, beam.runs).table
    values = [int(row.cells[0]) for row in table.rows]
    assert values == sorted(values)
    assert {199, 200} <= set(values)
    assert [row.cells[0] for row in table.rows if row.tone is Tone.BAD] == ["200"]


def test_a_value_with_repeats_shows_their_number_and_median(threshold_study):
    noise = random.Random(1)
    made = threshold_study(lambda items, repeat: 1000 * noise.gauss(1, 0.01), noisy=True, max_points=4)
    table = sheet(made.study, made.runs).table
    assert table.heads[:3] == ("items", "tasks", "trials")
    assert sum(int(row.cells[2]) for row in table.rows) == len(made.runs[0].trials)
    assert all(950 < float(row.cells[1].replace(",", "")) < 1050 for row in table.rows)


def test_an_unresolved_part_is_named_with_its_reason(threshold_study, printed):
    made = threshold_study(lambda items, repeat: 4 * items if items < 200 else 404, max_points=4)
    assert made.study.alarm
    text = printed(render(made.study, made.runs))
    assert "Not resolved: items" in text
    assert "budget of 4 points" in " ".join(text.split())


def test_values_without_a_valid_trial_are_shown_as_such(threshold_study, printed):
    made = threshold_study(lambda items, repeat: None if items == 200 else 4 * items if items < 200 else 404)
    table = sheet(made.study, made.runs).table
    [row] = [row for row in table.rows if row.cells[0] == "200"]
    assert row.cells[1] == "–"
    assert row.cells[-1] == "no valid trial"
    assert row.tone is Tone.DOUBT
    text = printed(render(made.study, made.runs))
    assert "at items 200." in text
    assert "not exact: 200 " in " ".join(text.split())


def test_an_interrupted_search_shows_its_measured_values(beam, printed):
    stopped = replace(beam.study, line="", result={}, finished_at="")
    text = printed(render(stopped, beam.runs))
    assert text.startswith("Not finished")
    assert "▼" not in text
    assert threshold.spots(stopped, beam.runs)[0].x == 50


def test_a_search_that_has_not_begun_has_no_table(beam, printed):
    empty = replace(beam.study, line="", result={}, finished_at="", runs=())
    assert sheet(empty, []).table is None
    assert printed(render(empty, [])).startswith(headline(empty))


def test_items_per_worker_are_computed_and_rounded_to_the_steps_of_the_axis(beam):
    question = {**beam.study.question, "axis": "items_per_worker", "low": 0.5, "high": 2, "step": 0.5}
    trials = [
        replace(trial, point=Point(3, 1, {"items": items}))
        for trial, items in zip(beam.runs[0].trials[:3], (2, 4, 6), strict=True)
    ]
    run = replace(beam.runs[0], trials=tuple(trials))  # 0.5 and 1.5 for 3 workers are rounded to whole items
    found = threshold.spots(replace(beam.study, question=question), [run])
    assert [spot.x for spot in found] == [0.5, 1.5, 2.0]


def test_a_long_table_keeps_the_values_next_to_jumps(threshold_study):
    made = threshold_study(lambda items, repeat: 4 * items if items < 200 else 404)
    trials = [replace(made.runs[0].trials[0], point=Point(300, 1, {"items": items})) for items in range(50, 401)]
    table = sheet(made.study, [replace(made.runs[0], trials=tuple(trials))]).table
    values = {int(row.cells[0]) for row in table.rows}
    assert len(values) < threshold.MOST_ROWS
    assert {50, 197, 198, 199, 200, 201, 202, 400} <= values
    assert f"left out: {351 - len(values)}" in table.caption


def test_the_certainty_of_a_threshold_depends_on_its_noise(beam, threshold_study):
    noisy = threshold_study(lambda items, repeat: 1000, noisy=True, max_points=4)
    assert dict(sheet(beam.study, beam.runs).sure)["Noise"] == "Two trials of a value are equal, so one is enough."
    assert "95 % confidence" in dict(sheet(noisy.study, noisy.runs).sure)["Noise"]
