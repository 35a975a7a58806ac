from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.nights import made_up

from scalescope.nightly.history import History
from scalescope.nightly.site import page_name, script_name, share, spark, write_site

pytest.importorskip("bokeh")


def text_of(path: Path) -> str:
    """What a reader sees, without scripts and styles."""
    page = re.sub(r"<(script|style).*?</\1>", "", path.read_text("utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)).replace("\u00a0", " ")


def test_every_series_has_a_page_and_all_links_lead_to_a_page(tmp_path: Path) -> None:
    history = made_up()
    write_site(tmp_path / "site", history)
    pages = {path.name for path in (tmp_path / "site").iterdir()}
    scripts = {script_name(alert) for alert in history.alerts}
    assert pages == {"index.html", "compare.html", *scripts, *map(page_name, history.series)}
    linked = set()
    for path in (tmp_path / "site").glob("*.html"):
        linked |= set(re.findall(r'href="([^"#][^"]*)"', path.read_text("utf-8")))
    assert {target for target in linked if not target.startswith("data:")} == pages
    assert (tmp_path / "site" / script_name(history.alerts[0])).read_text() == "# slower"


def test_the_overview_lists_changes_decisions_and_nights(tmp_path: Path) -> None:
    history = made_up()
    write_site(tmp_path, history)
    seen = text_of(tmp_path / "index.html")
    assert "1 confirmed change" in seen
    assert "open, night-29" in seen
    assert "Settled before: 1" in seen
    assert "workload-1 muted until 2027-01-31 ann" in seen
    assert re.search(
        r"workload-0, version 1, 20 workers, local, 2 cores, makespan_s night-20 \+(19|20|21)\S* % worse", seen
    )
    assert "night-29 2026-01-30 02:00:00 UTC 50 88 of 90 1 1" in seen


def test_the_overview_of_a_quiet_history_says_that_nothing_changed(tmp_path: Path) -> None:
    nights = [replace(night, record=replace(night.record, alerts=())) for night in made_up(nights=5).nights]
    write_site(tmp_path, History.of("suite", nights))
    seen = text_of(tmp_path / "index.html")
    assert "No unexplained change" in seen
    assert "no new change point" in seen


def test_the_page_of_a_series_lists_its_changes_and_the_run_of_each_night(tmp_path: Path) -> None:
    history = made_up()
    write_site(tmp_path, history)
    path = tmp_path / page_name(history.series[0])
    assert re.search(r"night-20 (99\d ms|1(\.0\d)? s) 1\.\d+ s \+(19|2[01])\S* % \+1", text_of(path))
    assert text_of(path).count("UTC run ") == 30
    assert "no change point" in text_of(tmp_path / page_name(history.series[1]))


def test_an_empty_history_still_has_an_overview(tmp_path: Path) -> None:
    write_site(tmp_path, History.of("suite", []))
    assert "No night" in text_of(tmp_path / "index.html")


def test_markup_in_names_and_texts_is_escaped(tmp_path: Path) -> None:
    write_site(tmp_path, made_up(text="<img src=x onerror=alert(1)>"))
    for path in tmp_path.glob("*.html"):
        page = path.read_text("utf-8")
        assert "<img src=x" not in page


def test_a_slow_drift_is_shown_on_the_overview_and_the_page_of_its_series(tmp_path: Path) -> None:
    history = made_up(workloads=3)
    write_site(tmp_path, history)
    assert re.search(
        r"workload-2, version 1, 20 workers, local, 2 cores, makespan_s \+[6-9]\S* % worse",
        text_of(tmp_path / "index.html"),
    )
    pages = [text_of(tmp_path / page_name(series)) for series in history.series]
    assert ["slow drift" in page for page in pages] == [False, False, True]


def test_sparklines_and_relative_changes_are_formatted() -> None:
    assert spark([1.0]) == ""
    assert "0.0,26.0 75.0,13.0 150.0,0.0" in spark([1.0, 2.0, 3.0])
    assert 'x1="37.5"' in spark([1.0, 2.0, 2.0], [1])
    assert "nan" not in spark([2.0] * 5)
    assert [share(value) for value in (0.1, -0.25, 0.0)] == ["+10 %", "−25 %", "+0 %"]
    assert share(float("inf")) == "from 0"
