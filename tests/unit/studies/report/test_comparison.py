"""The report of a comparison on the terminal and as data."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from scalescope.studies.comparison import report as comparison
from scalescope.studies.report import sheet
from scalescope.studies.report.sheet import Tone
from scalescope.studies.report.terminal import render


def pairs(ratio, count=20, noise=0.02, seed=1):
    rng = random.Random(seed)
    return [(10 * rng.gauss(1, noise), 10 * ratio * rng.gauss(1, noise)) for _ in range(count)]


@pytest.fixture(scope="module")
def many(comparison_study):
    return comparison_study(
        {"worse": pairs(1.1), "much-better": pairs(0.7), "same": pairs(1.0), "unclear": pairs(1.05, 8, 0.06)}
    )


def test_the_report_of_one_comparison_shows_all_its_numbers(comparison_study, printed):
    made = comparison_study({"bag-map": pairs(1.1)})
    lines = printed(render(made.study, made.runs), width=140).splitlines()
    assert lines[0].startswith("B (partition_size=4) is slower")
    [row] = [line.split() for line in lines if line.startswith("bag-map")]
    found = made.study.result
    assert row[1] == f"{found['ratio']:.3f}"
    assert row[2:5] == [f"{found['low']:.3f}", "to", f"{found['high']:.3f}"]
    assert row[5:] == [f"{found['p']:.2g}", "20", f"{100 * found['minimal_effect']:.2g}", "%", "slower"]
    assert " q " not in "\n".join(lines)


def test_the_report_of_many_comparisons_shows_differences_and_counts_the_rest(many, printed):
    table = sheet(many.study, many.runs).table
    assert [row.cells[0] for row in table.rows] == ["much-better", "worse"]
    assert [row.tone for row in table.rows] == [Tone.GOOD, Tone.BAD]
    assert "q" in table.heads
    assert "Not shown: 1 same, 1 undecided" in printed(render(many.study, many.runs))
    assert [row.cells[0] for row in comparison.whole_table(comparison.members(many.study)).rows] == [
        "much-better",
        "worse",
        "same",
        "unclear",
    ]


def test_each_workload_that_differs_is_shown_with_its_reason(many):
    study = replace(many.study, result={**many.study.result, "whys": {"worse": {"reason": "1 s of 1 s: transfers"}}})
    assert [note.text for note in sheet(study, many.runs).notes if "1 s of 1 s: transfers" in note.text]


def test_many_comparisons_without_a_difference_have_no_table(comparison_study, printed):
    made = comparison_study({"one": pairs(1.0), "two": pairs(1.0, seed=2)})
    assert not made.study.alarm
    assert sheet(made.study, made.runs).table is None
    assert "Not shown: 2 same" in printed(render(made.study, made.runs))


def test_a_single_undecided_comparison_is_shown(comparison_study):
    made = comparison_study({"bag-map": pairs(1.05, 8, 0.06)})
    [row] = sheet(made.study, made.runs).table.rows
    assert row.cells[-1] == "undecided"
    assert row.tone is Tone.DOUBT


def test_a_comparison_without_valid_pairs_shows_dashes_and_the_reason(comparison_study):
    made = comparison_study({"bag-map": [(None, 1.0)] * 7})
    [row] = sheet(made.study, made.runs).table.rows
    assert row.cells[1:] == ("–", "–", "–", "0, 7 not valid", "–", "undecided")
    assert "lost a worker" in dict(sheet(made.study, made.runs).sure)["Excluded trials"]


def test_a_metric_that_is_zero_only_on_side_a_has_an_infinite_ratio(comparison_study):
    made = comparison_study({"spill": [(0.0, 3.0)] * 8})
    [member] = comparison.members(made.study)
    assert member.ratio == math.inf
    [row] = sheet(made.study, made.runs).table.rows
    assert row.cells[1:3] == ("∞", "exact")


def test_a_comparison_keeps_its_measured_pairs_in_order(comparison_study):
    measured = [*pairs(1.1, 9), (None, 1.0)]
    [member] = comparison.members(comparison_study({"bag-map": measured}).study)
    assert member.measured == tuple(measured)


def test_outliers_are_counted_next_to_the_number_of_pairs(comparison_study):
    made = comparison_study({"bag-map": [*pairs(1.1, 13), (10.0, 90.0)]})
    [row] = sheet(made.study, made.runs).table.rows
    assert row.cells[4] == "14, 1 set aside"


def test_a_shared_environment_is_named_once_and_different_ones_per_side(many):
    assert dict(sheet(many.study, many.runs).asked)["Environment"] == "present"
    question = {**many.study.question, "a": {"environment": "dask==1"}, "b": {"environment": "dask==2"}}
    asked = dict(sheet(replace(many.study, question=question), many.runs).asked)
    assert "Environment" not in asked
    assert asked["B"] == "environment=dask==2"
