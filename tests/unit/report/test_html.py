from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.pages import Page

from scalescope.errors import StoreError, UsageError
from scalescope.model.finding import Evidence, Finding, Severity, Verdict
from scalescope.model.records import from_rows
from scalescope.model.trial import TrialState
from scalescope.model.words import size
from scalescope.report.html import charts, check, render, write
from scalescope.report.html.embed import coded, policy, raw, safe_link, script_json
from scalescope.report.html.theme import DARK, LIGHT
from scalescope.store.schema import RunState


class Document(Page):
    """With all its words as one text."""

    @property
    def shown(self) -> str:
        return re.sub(r" (?=[,:;.])", "", " ".join(" ".join(self.words).split()))


def scripts(text: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def data(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture(scope="module")
def page(recorded_run: Callable[..., Any]) -> str:
    made = recorded_run((2, 4, 8, 12, 16))
    return render(made.run, made.read)


# ------------------------------------------------------------------ what it says


def test_the_verdict_and_the_remedy_come_first(page: str, recorded_run: Callable[..., Any]) -> None:
    finding = Finding("slow", Severity.HIGH, "It is slow.", "make it fast", (Evidence("tasks", 12345, "table tasks"),))
    made = recorded_run((4,))
    shown = Document(render(replace(made.run, verdict=Verdict("x", (finding,))), made.read)).shown
    places = [shown.index(text) for text in ("It is slow.", "make it fast.", "What ran", "Inside one trial", "12,345")]
    assert places == sorted(places)


def test_every_part_is_there(page: str) -> None:
    shown = Document(page).shown
    for text in (
        "What ran", "randomised and interleaved from seed 0", "2026-01-01 00:00:00 to 2026-01-01 00:01:00 UTC",
        "Where the worker time went", "busy 50 %, no runnable task 50 %", "How it scales", "Inside one trial",
        "Parallelism", "Busy workers", "1 of 2 workers never ran a task", "What each thread ran", "Memory", "Stages",
        "2 items → 2 partitions in the widest stage → 4 tasks", "Critical path", "100 % of the makespan",
        "Findings and what they rest on", "How to read it",
    ):  # fmt: skip
        assert text in shown, text


def test_it_can_be_sent_to_anyone(recorded_run: Any) -> None:
    made = recorded_run()
    run = replace(made.run, where="/home/me/results.db")
    page = render(run, made.read)
    assert run.id in page
    assert "/home/me" not in page
    assert run.trials[0].facts["host"]["hostname"] == "host"
    assert "<dd>host" not in page


def test_every_chart_has_its_place_and_says_in_words_what_it_shows(page: str) -> None:
    document = Document(page)
    places = {each["id"]: each for each in document.all("div") if (each.get("id") or "").startswith("chart-")}
    assert set(places) == {f"chart-{name}" for name in ["knee-0", "blame", "parallelism", "heat", "gantt", "memory"]}
    assert set(data(page)["items"][0]["roots"].values()) == set(places)
    for place in places.values():
        assert place["role"] == "img"
        assert len(place["aria-label"] or "") > 20


def test_the_efficiency_is_divided_by_size(page: str) -> None:
    shown = Document(page).shown
    assert "Factors of the efficiency: " in shown
    assert "= efficiency" in shown
    assert "Their product is the efficiency." in shown


def test_gpus_have_a_chart_and_their_time_by_task_prefix(recorded_run: Callable[..., Any]) -> None:
    made = recorded_run((4,))
    sample = {"gpu": "GPU-1", "utilisation": 0.5, "memory": 2**33, "prefix": "load", "doing": "loading", "cpu": 1.0}
    times = [(f"tcp://10.0.0.{i}:1", 1000.5 + second) for i in range(2) for second in range(4)]
    rows = [{"worker": worker, "time": when, **sample} for worker, when in times]
    tables = {key: found | {"gpu": from_rows("gpu", rows)} for key, found in made.tables.items()}
    page = render(made.run, lambda trial: tables[trial.key])
    assert "chart-gpu" in data(page)["items"][0]["roots"].values()
    shown = Document(page).shown
    assert "A kernel ran 50 % of the time on 1 GPU" in shown
    assert f"load 50 % {size(2**33)}" in shown


def test_the_charts_of_a_trial_share_one_time_axis(page: str) -> None:
    models = json.dumps(data(page)["documents"])
    assert models.count(f'"id": "{data(page)["reading"]["range"]}"') >= 4


def test_the_worst_trial_is_shown_or_the_one_that_was_asked_for(recorded_run: Callable[..., Any]) -> None:
    made = recorded_run((2, 16))
    first, last = made.run.trials
    assert "2 workers, 2 items: chosen by its key" in Document(render(made.run, made.read, trial=first.key)).shown
    assert "16 workers, 16 items: chosen by its key" in Document(render(made.run, made.read, trial=last.key)).shown
    with pytest.raises(UsageError, match="has no trial 'nonsense'"):
        render(made.run, made.read, trial="nonsense")


def test_every_part_of_worker_time_has_a_colour_and_an_explanation() -> None:
    from scalescope.model.metrics import PARTS, WORKER_TIME
    from scalescope.report.terminal import INKS

    assert all(part.title and part.help for part in PARTS.values())
    assert set(WORKER_TIME) <= set(LIGHT)
    assert set(WORKER_TIME) == set(INKS)


def test_the_time_of_another_cluster_is_explained_only_where_there_is_some(recorded_run: Callable[..., Any]) -> None:
    from scalescope.model.metrics import OTHER_CLUSTER, PARTS

    made = recorded_run((2,))
    [trial] = made.run.trials
    assert trial.metrics.worker_time_s[OTHER_CLUSTER] == 0
    assert PARTS[OTHER_CLUSTER].help not in render(made.run, made.read)
    metrics = replace(trial.metrics, worker_time_s={**trial.metrics.worker_time_s, OTHER_CLUSTER: 5.0})
    run = replace(made.run, trials=(replace(trial, metrics=metrics),))
    assert PARTS[OTHER_CLUSTER].help in render(run, made.read)


def test_versions_are_those_of_the_environments_that_trials_ran_in(recorded_run: Callable[..., Any]) -> None:
    """The run itself knows those of the present process alone."""
    made = recorded_run((2, 4))
    run = replace(made.run, facts={"packages": {"apache-beam": "2.75.0", "dask": "2026.1"}})

    def facts(beam: str) -> dict[str, Any]:
        return {"dask": "2023.9.1", "packages": {"apache-beam": beam}}

    def versions(*environments: tuple[str, str]) -> str:
        trials = [
            replace(trial, point=replace(trial.point, environment=environment), facts={**trial.facts, **facts(beam)})
            for trial, (environment, beam) in zip(run.trials, environments, strict=True)
        ]
        return Document(render(replace(run, trials=tuple(trials)), made.read)).shown

    shown = versions(("apache-beam==2.50.0", "2.50.0"), ("apache-beam==2.50.0", "2.50.0"))
    assert "Versions python 3.11, dask 2023.9.1, apache-beam 2.50.0" in shown
    assert "All 1 packages apache-beam 2.50.0" in shown
    assert "2.75.0" not in shown
    shown = versions(("old = apache-beam==2.50.0", "2.50.0"), ("", "2.60.0"))
    assert "Versions, old python 3.11, dask 2023.9.1, apache-beam 2.50.0" in shown
    assert "Versions, present python 3.11, dask 2023.9.1, apache-beam 2.60.0" in shown
    assert "All 1 packages of present apache-beam 2.60.0" in shown
    assert "2.75.0" not in shown
    assert "apache-beam 2.75.0" in Document(render(replace(run, trials=()), made.read)).shown  # nothing else is known


def test_it_says_which_point_is_looked_at_and_why(recorded_run: Callable[..., Any]) -> None:
    made = recorded_run((2, 16))
    first, last = (trial.point.id for trial in made.run.trials)
    blamed = Finding("slow", Severity.HIGH, "It is slow.", "mend it", points=(last,))
    shown = Document(render(replace(made.run, verdict=Verdict("x", (blamed,))), made.read)).shown
    assert shown.count("16 workers, 16 items: the point that the verdict rests on") == 2
    healthy = Finding("healthy", Severity.INFO, "No fault found.", "", points=(first, last))
    shown = Document(render(replace(made.run, verdict=Verdict("x", (healthy,))), made.read)).shown
    assert shown.count("2 workers, 2 items: the point with the smallest busy share of its worker time") == 2


# ------------------------------------------------------------------ in all circumstances


def test_a_sweep_of_one_point(recorded_run: Callable[..., Any]) -> None:
    made = recorded_run((3,))
    document = Document(render(made.run, made.read))
    assert "What was measured, a row per point" in document.shown
    assert [each for each in document.all("div") if (each.get("id") or "").startswith("chart-knee")] == []


def test_no_valid_trial_at_all(recorded_run: Callable[..., Any]) -> None:
    made = recorded_run((4,), state=TrialState.INVALID, reason="lost 1 of 4 workers\n  cause: none")
    shown = Document(render(made.run, made.read)).shown
    assert "The only trial did not count: lost 1 of 4 workers" in shown
    assert "a trial that was excluded, invalid: lost 1 of 4 workers" in shown
    assert "1 × invalid at 4 workers, 4 items: lost 1 of 4 workers" in shown
    assert "What each thread ran" in shown


def test_a_failed_run_that_was_never_judged(recorded_run: Callable[..., Any]) -> None:
    made = recorded_run((4,), state=TrialState.FAILED, reason="ValueError: no")
    run = replace(made.run, state=RunState.FAILED, verdict=None, finished_at="", planned=9)
    shown = Document(render(run, made.read)).shown
    assert "This run has not finished" in shown
    assert "a trial that failed, failed: ValueError: no" in shown
    assert "0 of 9 planned trials count" in shown
    assert "the run is failed" in shown


def test_a_run_without_any_trial(recorded_run: Callable[..., Any]) -> None:
    made = recorded_run((4,))
    text = render(replace(made.run, trials=(), verdict=None), made.read)
    assert "No trial of this run has records" in Document(text).shown
    assert scripts(text) == []
    assert len(text) < 100_000
    shown = Document(render(recorded_run((4,), records="").run, made.read)).shown
    assert "No trial of this run has records" in shown
    assert "Where the worker time went" in shown


def test_records_that_are_gone(recorded_run: Callable[..., Any]) -> None:
    made = recorded_run((4,))

    def gone(trial: Any) -> Any:
        raise StoreError("Could not read the records: nothing is there", next_step="Look where it was run.")

    shown = Document(render(made.run, gone)).shown
    assert "Could not read the records: nothing is there next: Look where it was run." in shown
    assert "Where the worker time went" in shown


def test_old_records_lack_tables_and_columns(recorded_run: Callable[..., Any]) -> None:
    made = recorded_run((4,), waves=3)
    [tables] = made.tables.values()
    tasks = {name: column for name, column in tables["tasks"].items() if name != "allowed"}
    shown = Document(render(made.run, lambda trial: {"tasks": tasks, "workers": tables["workers"]})).shown
    assert "What each thread ran" in shown
    assert "dependencies were not recorded" in shown
    assert "Memory over time" not in shown


def test_a_trial_in_which_everything_failed(recorded_run: Callable[..., Any]) -> None:
    made = recorded_run((4,), state=TrialState.FAILED, reason="ValueError: no")
    [tables] = made.tables.values()
    tables["tasks"]["status"] = [1] * len(tables["tasks"]["key"])
    assert "no task finished" in Document(render(made.run, made.read)).shown


# ------------------------------------------------------------------ one file, and nothing from outside

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}$$x$$\u2028]]>"


@pytest.fixture(scope="module")
def attacked(recorded_run: Callable[..., Any]) -> str:
    made = recorded_run((4, 8), rename=lambda name: HOSTILE + name)
    evidence = Evidence(HOSTILE, HOSTILE, HOSTILE)
    finding = Finding(HOSTILE, Severity.HIGH, HOSTILE, HOSTILE, (evidence,), link="javascript:alert(3)")
    trials = (*made.run.trials, replace(made.run.trials[0], key="f", state=TrialState.FAILED, reason=HOSTILE))
    trials = (*trials, replace(made.run.trials[0], key="g", warnings=(HOSTILE,)))
    run = replace(made.run, trials=trials, verdict=Verdict(HOSTILE, (finding,)))
    return render(run, lambda trial: made.tables.get(trial.key) or next(iter(made.tables.values())))


def test_names_from_outside_add_no_element_and_no_script(attacked: str) -> None:
    document = Document(attacked)
    assert document.all("img") == []
    assert len(document.all("script")) == 3
    assert attacked.count(HOSTILE) == 0
    assert "{{7*7}}" in document.shown
    assert not [name for _, attributes in document.elements for name in attributes if name.startswith("on")]


def test_names_from_outside_reach_the_charts_data_only_as_text(attacked: str) -> None:
    reading = data(attacked)["reading"]
    assert any(HOSTILE in name for name in reading["workers"])
    assert any("alert(1)" in name for name in reading["stages"])
    assert "alert" not in json.dumps(data(attacked)["documents"]), "Bokeh would look for markup and formulas in it"


def test_links_lead_to_the_web_or_into_the_page(attacked: str, page: str) -> None:
    for text in (attacked, page):
        for link in Document(text).all("a"):
            assert re.match(r"https?://|#[a-z]", link["href"] or "")


def test_the_policy_lets_only_the_scripts_of_the_file_run(page: str) -> None:
    document = Document(page)
    policies = [meta["content"] for meta in document.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert policies[0] is not None
    assert policies[0].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policies[0]
    assert len(scripts(page)) == 2
    for script in scripts(page):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policies[0]


def test_nothing_in_the_page_refers_to_another_file(page: str) -> None:
    document = Document(page)
    assert [attributes for _, attributes in document.elements if "src" in attributes] == []
    assert [link["href"] for link in document.all("link")] == ["data:,"]
    css = "".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL))
    assert "url(" not in css
    assert "@import" not in css


def test_escaping() -> None:
    assert json.loads(script_json(json.dumps({"a": HOSTILE}, ensure_ascii=False))) == {"a": HOSTILE}
    assert "<" not in script_json('"<!--"')
    with pytest.raises(ValueError, match="end the element"):
        raw("</SCRIPT >")
    assert safe_link("https://example.org/x") == "https://example.org/x"
    assert safe_link("javascript:alert(1)") == safe_link("data:text/html,x") == safe_link("") == ""
    assert policy(["a"]) != policy(["b"])
    assert coded("use `a<b` & <i>") == "use <code>a&lt;b</code> &amp; &lt;i&gt;"
    assert coded("one ` only <") == "one ` only &lt;"


# ------------------------------------------------------------------ for everybody


def test_headings_are_in_order_and_sections_are_named(page: str) -> None:
    document = Document(page)
    levels = [int(tag[1]) for tag, _ in document.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = {attributes["id"] for _, attributes in document.elements if attributes.get("id")}
    named = [each["aria-labelledby"] for tag in ("section", "article") for each in document.all(tag)]
    assert named
    assert set(named) <= ids
    assert {(link["href"] or "#")[1:] for link in document.all("a") if (link["href"] or "").startswith("#")} <= ids
    for landmark in ("header", "nav", "main", "footer"):
        assert len(document.all(landmark)) == 1


def test_tables_have_captions_and_headings_with_a_scope(page: str) -> None:
    document = Document(page)
    assert len(document.all("caption")) == len(document.all("table"))
    assert all(cell.get("scope") in ("row", "col") for cell in document.all("th"))
    assert all(each.get("tabindex") == "0" for each in document.all("div") if each.get("class") == "scroll")


def contrast(one: str, other: str) -> float:
    """By WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast(theme: dict[str, str]) -> None:
    assert set(theme) == set(LIGHT)
    for name in ("ink", "muted", "link", "high", "medium", "low", "info", "good"):
        for background in ("page", "surface"):
            assert contrast(theme[name], theme[background]) >= 4.5, (name, background)
    faint = {"page", "surface", "rule", "no_runnable_task", "heat-low"}
    for name in set(theme) - faint:
        assert contrast(theme[name], theme["page"]) >= 3, name


# ------------------------------------------------------------------ writing it


def test_writing_replaces_the_whole_file(recorded_run: Callable[..., Any], tmp_path: Path) -> None:
    made = recorded_run((2,))
    path = tmp_path / "report.html"
    path.write_text("old")
    assert write(path, made.run, made.read) == path
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        check(tmp_path)
    with pytest.raises(UsageError, match="There is no folder"):
        check(tmp_path / "no" / "report.html")
    check(tmp_path / "report.html")


def test_a_disk_that_refuses(recorded_run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recorded_run((2,))

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StoreError, match="No space left on device"):
        write(tmp_path / "report.html", made.run, made.read)
    assert list(tmp_path.iterdir()) == []


def test_bokeh_is_as_small_as_can_be() -> None:
    assert len(charts.bokeh_script()) < 1_500_000
