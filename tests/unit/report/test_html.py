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

from scalescope import __version__
from scalescope.errors import StoreError, UsageError
from scalescope.model.finding import Evidence, Finding, Severity, Verdict
from scalescope.model.records import from_rows
from scalescope.model.trial import TrialState
from scalescope.report.html import charts, check, render, write
from scalescope.report.html.embed import coded, policy, raw, safe_link, script_json
from scalescope.report.html.theme import DARK, LIGHT
from scalescope.store.schema import RunState


def lines(text: str) -> list[str]:
    """Lines of text that a reader of the page sees, without the version."""
    return [" ".join(words.split()) for words in Page(text.replace(__version__, "VERSION")).words if words.strip()]


def scripts(text: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def data(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def named(text: str) -> dict[str, str]:
    """Ids of Bokeh models by their name."""
    found: dict[str, str] = {}

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if (name := (value.get("attributes") or {}).get("name")) and "id" in value:
                assert name not in found
                found[name] = value["id"]
            for each in value.values():
                look(each)
        elif isinstance(value, list):
            for each in value:
                look(each)

    look(data(text)["documents"])
    return found


@pytest.fixture(scope="module")
def page(recorded_run: Callable[..., Any]) -> str:
    made = recorded_run((2, 4, 8, 12, 16))
    return render(made.run, made.read)


@pytest.fixture
def own(page: str, golden: Callable[..., Any]) -> Callable[..., Any]:
    """Compares the lines that the usual page lacks with the golden page."""
    usual = set(lines(page))
    return lambda *pages: golden(*("\n".join(line for line in lines(each) if line not in usual) for each in pages))


# ------------------------------------------------------------------ what it says


def test_the_text_of_the_whole_report_matches_its_golden_page(page: str, golden: Callable[..., Any]) -> None:
    golden("\n".join(lines(page)))


def test_a_report_begins_with_the_verdict_and_the_remedy(recorded_run: Callable[..., Any]) -> None:
    finding = Finding("slow", Severity.HIGH, "It is slow.", "make it fast", (Evidence("tasks", 12345, "table tasks"),))
    made = recorded_run((4,))
    said = lines(render(replace(made.run, verdict=Verdict("x", (finding,))), made.read))
    places = [said.index(text) for text in ("It is slow.", "make it fast.", "What ran", "Inside one trial", "12,345")]
    assert places == sorted(places)


def test_a_report_shows_neither_the_path_of_the_store_nor_the_host_name(recorded_run: Any) -> None:
    made = recorded_run()
    run = replace(made.run, where="/home/me/results.db")
    page = render(run, made.read)
    assert run.id in page
    assert "/home/me" not in page
    assert run.trials[0].facts["host"]["hostname"] == "host"
    assert "<dd>host" not in page


def test_every_chart_has_an_element_with_a_description_in_words(page: str) -> None:
    document = Page(page)
    places = {each["id"]: each for each in document.all("div") if (each.get("id") or "").startswith("chart-")}
    assert set(places) == {f"chart-{name}" for name in ["knee-0", "blame", "parallelism", "heat", "gantt", "memory"]}
    assert set(data(page)["items"][0]["roots"].values()) == set(places)
    for place in places.values():
        assert place["role"] == "img"
        assert len(place["aria-label"] or "") > 20


def test_a_run_with_gpus_has_a_gpu_chart_and_gpu_time_by_task_prefix(
    recorded_run: Callable[..., Any], own: Any
) -> None:
    made = recorded_run((4,))
    sample = {"gpu": "GPU-1", "utilisation": 0.5, "memory": 2**33, "prefix": "load", "doing": "loading", "cpu": 1.0}
    times = [(f"tcp://10.0.0.{i}:1", 1000.5 + second) for i in range(2) for second in range(4)]
    rows = [{"worker": worker, "time": when, **sample} for worker, when in times]
    tables = {key: found | {"gpu": from_rows("gpu", rows)} for key, found in made.tables.items()}
    page = render(made.run, lambda trial: tables[trial.key])
    assert "chart-gpu" in data(page)["items"][0]["roots"].values()
    own(page)


def test_the_charts_of_a_trial_share_one_time_axis(page: str) -> None:
    models = json.dumps(data(page)["documents"])
    assert models.count(f'"id": "{named(page)["time"]}"') >= 4


def test_every_bokeh_model_that_the_script_looks_up_is_in_the_page(page: str) -> None:
    text = scripts(page)[1]
    of_each = {
        f"{what}-{name}" for what in re.findall(r"named\(`(\w+)-\$", text) for name in data(page)["reading"]["figures"]
    }
    sources = set(re.findall(r'(?:named|columns|level)\("(\w+)"\)', text))
    assert {"time", "blame", "running", "memory"} < sources
    assert sources | of_each <= set(named(page))


def test_a_report_shows_the_requested_trial(recorded_run: Callable[..., Any], own: Any) -> None:
    made = recorded_run((2, 16))
    own(*(render(made.run, made.read, trial=trial.key) for trial in made.run.trials))
    with pytest.raises(UsageError, match="'nonsense'") as refused:
        render(made.run, made.read, trial="nonsense")
    assert made.run.trials[0].key in refused.value.next_step


def test_every_part_of_worker_time_has_a_colour_and_an_explanation() -> None:
    from scalescope.model.metrics import PARTS, WORKER_TIME
    from scalescope.report.terminal import INKS

    assert all(part.title and part.help for part in PARTS.values())
    assert set(WORKER_TIME) <= set(LIGHT)
    assert set(WORKER_TIME) == set(INKS)


def test_the_time_of_another_cluster_is_explained_only_if_it_is_not_zero(recorded_run: Callable[..., Any]) -> None:
    from scalescope.model.metrics import OTHER_CLUSTER, PARTS

    made = recorded_run((2,))
    [trial] = made.run.trials
    assert trial.metrics.worker_time_s[OTHER_CLUSTER] == 0
    assert PARTS[OTHER_CLUSTER].help not in render(made.run, made.read)
    metrics = replace(trial.metrics, worker_time_s={**trial.metrics.worker_time_s, OTHER_CLUSTER: 5.0})
    run = replace(made.run, trials=(replace(trial, metrics=metrics),))
    assert PARTS[OTHER_CLUSTER].help in render(run, made.read)


def test_a_report_shows_the_package_versions_of_the_environments_of_its_trials(recorded_run: Any, own: Any) -> None:
    """The facts of the run have only the versions of the present process."""
    made = recorded_run((2, 4))
    run = replace(made.run, facts={"packages": {"apache-beam": "2.75.0", "dask": "2026.1"}})

    def versions(*environments: tuple[str, str]) -> str:
        trials = [
            replace(
                trial,
                point=replace(trial.point, environment=environment),
                facts={**trial.facts, "dask": "2023.9.1", "packages": {"apache-beam": beam}},
            )
            for trial, (environment, beam) in zip(run.trials, environments, strict=True)
        ]
        return render(replace(run, trials=tuple(trials)), made.read)

    own(
        versions(("apache-beam==2.50.0", "2.50.0"), ("apache-beam==2.50.0", "2.50.0")),
        versions(("old = apache-beam==2.50.0", "2.50.0"), ("", "2.60.0")),
        render(replace(run, trials=()), made.read),  # without trials, only the facts of the run are known
    )


def test_a_report_tells_which_point_it_examines_and_why(recorded_run: Callable[..., Any], own: Any) -> None:
    made = recorded_run((2, 16))
    first, last = (trial.point.id for trial in made.run.trials)
    blamed = Finding("slow", Severity.HIGH, "It is slow.", "mend it", points=(last,))
    healthy = Finding("healthy", Severity.INFO, "No fault found.", "", points=(first, last))
    own(*(render(replace(made.run, verdict=Verdict("x", (each,))), made.read) for each in (blamed, healthy)))


# ------------------------------------------------------------------ in all circumstances


@pytest.fixture
def circumstances(recorded_run: Callable[..., Any]) -> dict[str, str]:
    def gone(trial: Any) -> Any:
        raise StoreError("Could not read the records: nothing is there", next_step="Look where it was run.")

    def shown(made: Any, read: Any = None, **given: Any) -> str:
        return render(replace(made.run, **given), read or made.read)

    lost = "lost 1 of 4 workers\n  cause: none"
    raised = {"state": TrialState.FAILED, "reason": "ValueError: no"}
    old, failed = recorded_run((4,), waves=3), recorded_run((4,), **raised)
    [tables], [erred] = old.tables.values(), failed.tables.values()
    tasks = {name: column for name, column in tables["tasks"].items() if name != "allowed"}
    erred["tasks"]["status"] = [1] * len(erred["tasks"]["key"])
    unfinished = {"state": RunState.FAILED, "verdict": None, "finished_at": "", "planned": 9}
    return {
        "one point": shown(recorded_run((3,))),
        "no valid trial": shown(recorded_run((4,), state=TrialState.INVALID, reason=lost)),
        "failed and never judged": shown(recorded_run((4,), **raised), **unfinished),
        "no trial": shown(recorded_run((4,)), trials=(), verdict=None),
        "no records": shown(recorded_run((4,), records="")),
        "records that are gone": shown(recorded_run((4,)), gone),
        "an old release": shown(old, lambda trial: {"tasks": tasks, "workers": tables["workers"]}),
        "every task failed": shown(failed),
    }


def test_a_report_of_incomplete_or_failed_trials_shows_the_known_facts(circumstances: dict[str, str], own: Any) -> None:
    own(*circumstances.values())
    assert scripts(circumstances["no trial"]) == []
    assert len(circumstances["no trial"]) < 100_000
    charts = {name: text.count('id="chart-') for name, text in circumstances.items()}
    assert charts == {**dict.fromkeys(charts, 0), **dict.fromkeys(("one point", "no valid trial"), 5)} | {
        "failed and never judged": 5,
        "an old release": 4,  # without the memory chart
    }


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


def test_hostile_names_add_no_element_and_no_script_to_a_report(attacked: str) -> None:
    document = Page(attacked)
    assert document.all("img") == []
    assert len(document.all("script")) == 3
    assert attacked.count(HOSTILE) == 0
    assert any("{{7*7}}" in line for line in lines(attacked))
    assert not [name for _, attributes in document.elements for name in attributes if name.startswith("on")]


def test_hostile_names_reach_the_data_of_charts_only_as_text(attacked: str) -> None:
    reading = data(attacked)["reading"]
    assert any(HOSTILE in name for name in reading["workers"])
    assert any("alert(1)" in name for name in reading["stages"])
    assert "alert" not in json.dumps(data(attacked)["documents"]), "Bokeh would look for markup and formulas in it"


def test_links_lead_to_a_web_address_or_into_the_page(attacked: str, page: str) -> None:
    for text in (attacked, page):
        for link in Page(text).all("a"):
            assert re.match(r"https?://|#[a-z]", link["href"] or "")


def test_the_content_security_policy_allows_only_the_scripts_of_the_page(page: str) -> None:
    document = Page(page)
    policies = [meta["content"] for meta in document.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert policies[0] is not None
    assert policies[0].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policies[0]
    assert len(scripts(page)) == 2
    for script in scripts(page):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policies[0]


def test_a_report_loads_no_other_file(page: str) -> None:
    document = Page(page)
    assert [attributes for _, attributes in document.elements if "src" in attributes] == []
    assert [link["href"] for link in document.all("link")] == ["data:,"]
    css = "".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL))
    assert "url(" not in css
    assert "@import" not in css


def test_json_links_and_code_are_escaped_for_html() -> None:
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


def test_headings_are_in_order_and_sections_have_labels(page: str) -> None:
    document = Page(page)
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
    document = Page(page)
    assert len(document.all("caption")) == len(document.all("table"))
    assert all(cell.get("scope") in ("row", "col") for cell in document.all("th"))
    assert all(each.get("tabindex") == "0" for each in document.all("div") if each.get("class") == "scroll")


def contrast(one: str, other: str) -> float:
    """Contrast ratio by WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_have_enough_contrast_with_their_background(theme: dict[str, str]) -> None:
    assert set(theme) == set(LIGHT)
    for name in ("ink", "muted", "link", "high", "medium", "low", "info", "good"):
        for background in ("page", "surface"):
            assert contrast(theme[name], theme[background]) >= 4.5, (name, background)
    faint = {"page", "surface", "rule", "no_runnable_task", "heat-low"}
    for name in set(theme) - faint:
        assert contrast(theme[name], theme["page"]) >= 3, name


# ------------------------------------------------------------------ writing it


def test_writing_a_report_replaces_the_whole_file(recorded_run: Callable[..., Any], tmp_path: Path) -> None:
    made = recorded_run((2,))
    path = tmp_path / "report.html"
    path.write_text("old")
    assert write(path, made.run, made.read) == path
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_or_a_path_in_a_missing_folder_is_refused_as_output(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no" / "report.html"):
        with pytest.raises(UsageError):
            check(place)
    check(tmp_path / "report.html")


def test_a_full_disk_raises_store_error_and_leaves_no_file(
    recorded_run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recorded_run((2,))

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StoreError, match="No space left"):
        write(tmp_path / "report.html", made.run, made.read)
    assert list(tmp_path.iterdir()) == []


def test_the_bokeh_script_is_smaller_than_1_5_megabytes() -> None:
    assert len(charts.bokeh_script()) < 1_500_000
