"""The report of a study as one HTML file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.pages import Page

from scalescope.errors import UsageError
from scalescope.report.html import render
from scalescope.studies.report.html import render_study, write_study

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}$$x$$"


class Document(Page):
    """A parsed page with all its words as one text."""

    @property
    def shown(self) -> str:
        return " ".join(" ".join(self.words).replace("\u00a0", " ").split())


def charts(text: str) -> list[str]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return [name for item in json.loads(found[1])["items"] for name in item["roots"].values()]


@pytest.fixture(scope="module")
def studies(threshold_study, release_study, comparison_study):
    labels = [f"2.{number}.0" for number in range(50, 60)]
    pairs = [(1.0 + i % 3 / 100, 2.0 + i % 5 / 100) for i in range(9)]
    return {
        "threshold": threshold_study(lambda items, repeat: 4 * items if items < 200 else 404),
        "release": release_study(
            labels,
            lambda place: None if place == 4 else 404 if place > 6 else 804,
            extra={"also_changed": "dask 1 → 2", "changelog": "https://example.org/changes"},
        ),
        "comparison": comparison_study({"bag-map": pairs}),
        "comparisons": comparison_study({"bag-map": pairs, "array-sum": [(1.0, 1.0)] * 7}),
    }


def test_the_page_of_a_threshold_has_its_curve_and_table(studies):
    made = studies["threshold"]
    text = render_study(made.study, made.runs)
    document = Document(text)
    assert charts(text) == ["chart-curve"]
    [place] = [each for each in document.all("div") if each.get("id") == "chart-curve"]
    assert "796 to 404" in (place["aria-label"] or "")
    assert "▼ 796 → 404, × 0.508, between 199 and 200" in document.shown
    assert "a jump" in document.shown


def test_the_page_of_a_release_search_has_a_strip_with_its_boundary(studies):
    made = studies["release"]
    text = render_study(made.study, made.runs)
    document = Document(text)
    assert charts(text) == []
    states = [each["class"] for each in document.all("li") if each.get("class")]
    assert len([each for each in states if each and each.split()[0] in ("good", "bad", "unavailable", "open")]) == 10
    assert [each for each in states if "boundary" in (each or "")] == ["bad boundary"]
    assert "https://example.org/changes" in [link["href"] for link in document.all("a")]
    assert "dask 1 → 2" in document.shown


def test_the_page_of_comparisons_has_a_forest_plot_or_a_chart_of_pairs(studies):
    single = render_study(studies["comparison"].study, studies["comparison"].runs)
    assert charts(single) == ["chart-pairs"]
    several = Document(text := render_study(studies["comparisons"].study, studies["comparisons"].runs))
    assert charts(text) == []
    rows = [each for each in several.all("tr") if each.get("class")]
    assert [each["class"] for each in rows] == ["bad", "plain hidden"]
    assert "Not significant" in several.shown


@pytest.mark.parametrize("kind", ["threshold", "release", "comparison", "comparisons"])
def test_every_study_page_has_its_question_certainty_and_runs(studies, kind):
    made = studies[kind]
    study = replace(made.study, follows="20251231-000000-abcdef", followed_by=("release-x",))
    document = Document(render_study(study, made.runs))
    assert study.line.replace("\u00a0", " ") in document.shown
    for text in ("What was asked", "How sure", "scalescope show release-x", "Follows run 20251231-000000-abcdef"):
        assert text in document.shown
    for run in made.runs:
        assert f"scalescope report {run.id} --output {run.id}.html" in document.shown
    assert len(document.all("h1")) == 1
    ids = {attributes["id"] for _, attributes in document.elements if attributes.get("id")}
    assert {each["aria-labelledby"] for each in document.all("section")} <= ids
    assert len(document.all("caption")) == len(document.all("table"))
    assert all(cell.get("scope") for cell in document.all("th"))


@pytest.mark.parametrize("kind", ["threshold", "release", "comparison", "comparisons"])
def test_the_page_of_an_unfinished_study_shows_that_it_is_not_finished(studies, kind):
    made = studies[kind]
    empty = replace(made.study, line="", result={}, finished_at="", runs=())
    shown = Document(render_study(empty, [])).shown
    assert "Not finished" in shown
    assert "Nothing has been measured" in shown
    assert "None has begun." in shown
    stopped = Document(render_study(empty, made.runs)).shown
    assert "None has begun." not in stopped


def test_the_page_of_a_study_shows_its_outcome_in_a_word(studies, threshold_study, comparison_study):
    def word(made):
        found = re.search(r'<p class="level">(.*?)</p>', render_study(made.study, made.runs))
        assert found is not None
        return found[1]

    assert word(studies["threshold"]) == "Found"
    assert word(threshold_study(lambda items, repeat: 4 * items if items < 200 else 404, max_points=4)) == "Not certain"
    assert word(studies["comparison"]) == "Slower"
    assert word(comparison_study({"same": [(1.0, 1.0)] * 7})) == "Not slower"
    assert word(comparison_study({"none": [(None, 1.0)] * 7})) == "Undecided"


@pytest.mark.parametrize("kind", ["threshold", "release", "comparison", "comparisons"])
def test_hostile_names_add_no_element_and_no_script_to_a_study_page(
    kind, studies, threshold_study, release_study, comparison_study
):
    made = {
        "threshold": lambda: threshold_study(lambda items, repeat: items, workload=HOSTILE, axis="items"),
        "release": lambda: release_study(
            [HOSTILE, "2"],
            lambda place: 1 + place,
            subject=HOSTILE,
            extra={"also_changed": HOSTILE, "changelog": "javascript:alert(3)"},
        ),
        "comparison": lambda: comparison_study({HOSTILE: [(1.0, 2.0)] * 7}),
        "comparisons": lambda: comparison_study({HOSTILE: [(1.0, 2.0)] * 7, HOSTILE + "2": [(1.0, 1.0)] * 7}),
    }[kind]()
    runs = [
        replace(run, trials=tuple(replace(trial, facts={"cluster": {"kind": HOSTILE}}) for trial in run.trials))
        for run in made.runs
    ]
    text = render_study(replace(made.study, line=HOSTILE, where=HOSTILE, follows=HOSTILE), runs)
    document = Document(text)
    healthy = Document(render_study(studies[kind].study, studies[kind].runs))
    assert len(document.all("script")) == len(healthy.all("script"))
    assert document.all("img") == []
    assert HOSTILE not in text
    assert "{{7*7}}" in document.shown
    assert not [name for _, attributes in document.elements for name in attributes if name.startswith("on")]
    assert not [link for link in document.all("a") if (link["href"] or "").startswith("javascript")]


def test_an_axis_name_with_formula_markup_does_not_reach_the_chart(studies):
    made = studies["threshold"]
    question = {**made.study.question, "axis": "$$x$$"}
    trial = made.runs[0].trials[0]
    point = replace(trial.point, params={"$$x$$": 60})
    run = replace(made.runs[0], trials=(replace(trial, point=point),))
    text = render_study(replace(made.study, question=question), [run])
    found = re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert "$$x$$" not in found[1]
    assert '"value"' in found[1]


def test_a_study_page_is_written_completely_or_refused(studies, tmp_path: Path):
    made = studies["release"]
    path = write_study(tmp_path / "study.html", made.study, made.runs)
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UsageError, match="There is no folder"):
        write_study(tmp_path / "no" / "study.html", made.study, made.runs)


def test_the_report_of_a_run_names_its_study_and_later_studies(recorded_run):
    made = recorded_run((4,))
    assert "Part of study" not in Document(render(made.run, made.read)).shown
    run = replace(made.run, study="threshold-20260101-000000-abcdef")
    shown = Document(render(run, made.read, followed_by=("release-x",))).shown
    assert "Part of study threshold-20260101-000000-abcdef" in shown
    assert "scalescope show release-x" in shown
