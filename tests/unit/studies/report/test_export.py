"""A study as JSON, Markdown and rows, and its links."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from scalescope.report import links
from scalescope.studies.report.export import to_json, to_markdown, to_rows

HOSTILE = "<img src=x onerror=alert(1)>|`code`[x](javascript:alert(2))"


@pytest.fixture(scope="module")
def beam(threshold_study):
    return threshold_study(lambda items, repeat: 4 * items if items < 200 else 404)


def test_json_of_a_study_has_its_id_question_result_and_links(beam):
    study = replace(beam.study, follows="20251231-000000-abcdef", followed_by=("release-20260102-000000-abcdef",))
    data = json.loads(json.dumps(to_json(study), allow_nan=False))
    assert data["study"] == study.id
    assert (data["kind"], data["finished"], data["alarm"]) == ("threshold", True, False)
    assert data["question"] == study.question
    assert data["result"]["jumps"][0]["left"] == 199
    assert data["runs"] == list(study.runs)
    assert (data["follows"], data["followed_by"]) == (study.follows, list(study.followed_by))


def test_markdown_of_a_study_has_its_answer_table_and_commands(beam):
    text = to_markdown(beam.study, beam.runs)
    assert text.startswith("**tasks falls")
    assert "| 200 | 404 | ▼ 796 → 404, × 0.508, between 199 and 200 |" in text
    assert f"- Run {beam.runs[0].id}: `scalescope show {beam.runs[0].id}`" in text
    assert "**How sure**" in text


def test_rows_of_a_study_are_the_table_on_the_terminal(beam):
    rows = to_rows(beam.study, beam.runs)
    assert rows[0] == {"items": "50", "tasks": "200", "note": ""}
    assert len(rows) == len(beam.runs[0].trials)
    assert to_rows(replace(beam.study, result={}), []) == []


@pytest.mark.parametrize("kind", ["threshold", "release", "comparison"])
def test_hostile_texts_are_escaped_in_markdown_and_rows(kind, threshold_study, release_study, comparison_study):
    made = {
        "threshold": lambda: threshold_study(lambda items, repeat: items, workload=HOSTILE, max_points=2),
        "release": lambda: release_study([HOSTILE, "2"], lambda place: 1 + place, extra={"changelog": HOSTILE}),
        "comparison": lambda: comparison_study({HOSTILE: [(1.0, 2.0)] * 7, "other": [(1.0, 1.0)] * 7}),
    }[kind]()
    text = to_markdown(made.study, made.runs)
    assert "<img" not in text
    assert "`code`" not in text
    assert "[x](" not in text
    rows = to_rows(made.study, made.runs)
    assert rows
    assert "<img" not in json.dumps(rows)


# ------------------------------------------------------------------ links


def test_a_study_links_to_its_runs_and_to_related_studies(beam):
    study = replace(beam.study, follows="20251231-000000-abcdef", followed_by=("release-20260102-000000-abcdef",))
    assert links.lines(links.of_study(study)) == [
        f"Run {study.runs[0]} (scalescope show {study.runs[0]})",
        "Follows run 20251231-000000-abcdef (scalescope show 20251231-000000-abcdef)",
        "Led to release-20260102-000000-abcdef (scalescope show release-20260102-000000-abcdef)",
    ]
    follows = links.of_study(replace(beam.study, follows="threshold-20251231-000000-abcdef"))
    assert follows[-1].what == "Follows study"


def test_a_run_links_to_its_study_and_to_later_studies(beam):
    run = beam.runs[0]
    found = links.lines(links.of_run(run, ("comparison-20260102-000000-abcdef",)))
    assert found == [
        f"Part of study {run.study} (scalescope show {run.study})",
        "Led to comparison-20260102-000000-abcdef (scalescope show comparison-20260102-000000-abcdef)",
    ]
    assert links.of_run(replace(run, study="")) == ()


def test_only_the_first_of_many_links_are_shown_and_the_rest_counted(beam):
    found = links.lines(links.of_study(replace(beam.study, runs=tuple(f"run-{i}" for i in range(30)))))
    assert len(found) == links.MOST_LINKS + 1
    assert found[-1] == "and 18 more (--json has all)"
