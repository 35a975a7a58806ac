"""The report in a real browser without a network: charts are drawn, with no console message and no request.

If SCALESCOPE_SCREENSHOT names a file, the picture for the README is written there.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.browser import chromium
from support.nights import made_up
from support.requests import finished_run

from scalescope.model.finding import Finding, Severity, Verdict
from scalescope.nightly.site import page_name, write_site
from scalescope.report.html import write
from scalescope.report.html.difference import write_difference
from scalescope.report.run_difference import RunDifference
from scalescope.store.store import Store, SweepRun
from scalescope.studies.report.html import write_study

pytestmark = pytest.mark.timeout(240)

FLAGS = ("--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1200,900")
SCREENSHOT = "SCALESCOPE_SCREENSHOT"
SWEEP: dict[str, Any] = {
    "workload": "beam-pardo",
    "axes": {"workers": [1, 2, 10, 50, 100, 200, 300], "items_per_worker": [1]},
    "params": {"stages": 3, "seconds": 10},
}
DRAWN = """
const done = arguments[0];
const roots = () => [...document.querySelectorAll('.chart')];
const wait = () => roots().every((each) => each.querySelector('.bk-Figure')) && Bokeh.documents.length
  && Bokeh.documents.every((each) => each.is_idle) ? done(roots().map((each) => each.id)) : setTimeout(wait, 50);
wait();
"""
SHADES = """
const canvas = document.querySelector('#chart-' + arguments[0] + ' .bk-Figure').shadowRoot
  .querySelector('.bk-Canvas').shadowRoot.querySelector('canvas');
const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
const counts = {};
for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] === 255) {
  const shade = '#' + [0, 1, 2].map((c) => pixels[i + c].toString(16).padStart(2, '0')).join('');
  counts[shade] = (counts[shade] ?? 0) + 1;
}
return counts;
"""


@dataclass
class Browser:
    """Chromium, with its requests and console messages since the last call."""

    driver: Any

    def open(self, path: Path, *, scheme: str = "light", width: int = 1200) -> list[str]:
        """Open a file and wait until all charts are drawn; returns the ids of its charts."""
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        self.resize(width, 900)
        self.driver.get(path.as_uri())
        drawn: list[str] = self.driver.execute_async_script(DRAWN)
        return drawn

    def resize(self, width: int, height: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def complaints(self) -> list[str]:
        """Warnings and errors on the console, including those of the security policy."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requests(self) -> list[str]:
        """Addresses of everything that was requested."""
        said = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [each["params"]["request"]["url"] for each in said if each["method"] == "Network.requestWillBeSent"]

    def open_plain(self, path: Path, width: int) -> list[str]:
        """Open a page without charts."""
        self.resize(width, 900)
        self.driver.get(path.as_uri())
        return []

    @contextmanager
    def quiet(self, path: Path) -> Iterator[None]:
        """Asserts that the page requests only itself, writes nothing on the console, and runs no injected code."""
        self.requests()
        self.complaints()
        yield
        assert self.complaints() == []
        assert [address for address in self.requests() if not address.startswith("data:")] == [path.as_uri()]
        assert self.script("return window.stolen ?? null") is None

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def picture(self, **clip: float) -> bytes:
        found = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"format": "png", "clip": {"x": 0, "y": 0, "scale": 1, **clip}}
        )
        return base64.b64decode(found["data"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, missing: Any) -> Iterator[Browser]:
    """Chromium without a network, or a skip (a failure if SCALESCOPE_REQUIRE names browser)."""
    logs = {"browser": "ALL", "performance": "ALL"}
    with chromium(missing, tmp_path_factory.mktemp("chromium"), *FLAGS, logs=logs) as driver:
        driver.set_script_timeout(60)
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
        )
        yield Browser(driver)


@pytest.fixture(scope="module")
def story(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the reported Beam case, measured now on this machine."""
    folder = tmp_path_factory.mktemp("story")
    address = str(folder / "s.db")
    run = finished_run(SWEEP, address)
    with Store.open(address) as store:
        return write(folder / "report.html", _without_this_machine(run), store.tables)


def _without_this_machine(run: SweepRun) -> SweepRun:
    """The picture for the README names no machine."""
    kept = ("usable_cpus", "memory_bytes")
    trials = [
        replace(trial, facts={**trial.facts, "host": {name: trial.facts["host"][name] for name in kept}})
        for trial in run.trials
    ]
    return replace(run, trials=tuple(trials), where="scalescope.db")


def test_the_report_draws_its_charts_without_console_messages_or_requests(browser: Browser, story: Path) -> None:
    with browser.quiet(story):
        drawn = browser.open(story)
    assert drawn == ["chart-knee-0", "chart-blame", "chart-parallelism", "chart-heat", "chart-gantt"]
    if name := os.environ.get(SCREENSHOT):
        browser.resize(1080, 1000)
        height = browser.script("return document.getElementById('points').getBoundingClientRect().top + scrollY - 24")
        browser.resize(1080, int(height))  # parts outside the window are not painted
        Path(name).write_bytes(browser.picture(width=1080, height=int(height)))


def test_charts_follow_a_change_of_the_colour_scheme(browser: Browser, story: Path) -> None:
    browser.open(story, scheme="light")
    light = [browser.script(SHADES, name) for name in ("heat", "gantt")]
    assert light[0].get("#eceeec", 0) > 10_000
    assert light[1].get("#2b7d64", 0) > 1_000
    browser.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    browser.driver.execute_async_script(DRAWN)
    browser.driver.execute_async_script("setTimeout(arguments[0], 300)")
    dark = [browser.script(SHADES, name) for name in ("heat", "gantt")]
    assert dark[0].get("#20262a", 0) > 10_000
    assert dark[1].get("#46b391", 0) > 1_000
    assert browser.script("return getComputedStyle(document.body).color") == "rgb(230, 233, 234)"
    browser.complaints()  # drop Chromium's advice on reading pixels faster


@pytest.mark.parametrize("width", [360, 800])
def test_a_narrow_window_scrolls_only_downwards(browser: Browser, story: Path, width: int) -> None:
    browser.open(story, width=width)
    assert browser.script("return document.documentElement.scrollWidth") <= width
    assert browser.script("return document.querySelector('#chart-gantt').getBoundingClientRect().width") <= width
    assert browser.complaints() == []


def test_all_controls_are_reached_with_the_keyboard_in_page_order(browser: Browser, story: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(story)
    reached = []
    for _ in range(60):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        place = browser.script(
            "const it = document.activeElement, top = it.getBoundingClientRect().top + scrollY;"
            "return [it.tagName, it.textContent.trim().slice(0, 40), it.id, top, it.matches(':focus-visible')]"
        )
        if place[0] == "BODY" or place in reached:
            break
        reached.append(place)
    texts = [text for _, text, *_ in reached]
    assert texts[0] == "Skip to the report"
    for wanted in ("What ran", "All", "Zoom in", "Whole trial", "Parallelism as a table", "Busy workers as a table"):
        assert any(text.startswith(wanted) for text in texts), wanted
    assert "cursor" in [name for _, _, name, _, _ in reached]
    assert [place for place in reached if not place[-1]] == []
    tops = [top for _, _, name, top, _ in reached if name != "cursor"][1:]
    assert all(after >= before - 60 for before, after in pairwise(tops))


def test_the_keyboard_moves_the_cursor_and_zooms_the_time_axis(browser: Browser, story: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.open(story)
    slider = browser.driver.find_element(By.ID, "cursor")
    slider.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    text = browser.script("return document.getElementById('reading').textContent")
    assert "300 threads" in text
    assert "3 tasks runnable, 3 running" in text
    slider.send_keys(Keys.END)
    # In the last microseconds no task runs, since the call returns.
    assert "no task runs" in browser.script("return document.getElementById('reading').textContent")
    shown = "const m = Bokeh.documents[0].get_model_by_name('time'); return [m.start, m.end]"
    begin, end = browser.script(shown)
    browser.driver.find_element(By.CSS_SELECTOR, "[data-zoom=in]").send_keys(Keys.ENTER)
    nearer = browser.script(shown)
    assert begin < nearer[0] < nearer[1] < end
    browser.driver.find_element(By.CSS_SELECTOR, "[data-zoom=all]").send_keys(Keys.SPACE)
    assert browser.script(shown) == [begin, end]


def test_the_bar_under_the_mouse_is_named(browser: Browser, story: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    browser.open(story)
    reading = browser.driver.find_element(By.ID, "reading")

    def rest_on(chart_id: str, named: str) -> None:
        """Move the mouse down the chart until the reading names it: where its rows are depends on fonts."""
        chart = browser.driver.find_element(By.ID, chart_id)
        browser.script("arguments[0].scrollIntoView({block: 'center'})", chart)
        half = chart.size["height"] // 2
        downs = itertools.cycle([-30, 0, *range(2 - half, half, 3)])

        def is_named(driver: Any) -> bool:
            ActionChains(driver).move_to_element_with_offset(chart, 0, next(downs)).perform()
            return named in reading.text

        WebDriverWait(browser.driver, 40, poll_frequency=0.05).until(is_named)

    rest_on("chart-gantt", "from_sequence, ")
    assert "to 3,840 s." in reading.text
    rest_on("chart-blame", "idle, ")
    assert "298 threads" in reading.text
    assert " of the worker time." in reading.text


LAID_OUT = """
const box = (selector) => [...document.querySelectorAll(selector)].map((each) => each.getBoundingClientRect())
  .map((it) => [it.left, it.right, it.top]);
return {wide: document.documentElement.scrollWidth, strip: box('.strip li'), marks: box('.forest .mark'),
  spans: box('.forest .span'), one: box('.forest .one'), ticks: box('.forest .tick')};
"""


def test_pages_of_studies_fit_wide_and_narrow_screens(
    browser: Browser, threshold_study: Any, release_study: Any, comparison_study: Any, tmp_path: Path
) -> None:
    labels = [f"2.{number}.0" for number in range(50, 78)]
    close, slower = ([(1.0 + i % 3 / 100, ratio + i % 4 / 100) for i in range(9)] for ratio in (1.0, 1.2))
    made = {
        "threshold": threshold_study(lambda items, repeat: 4 * items if items < 200 else 404),
        "release": release_study(labels, lambda place: None if place == 13 else 404 if place > 17 else 804),
        "comparison": comparison_study({"one": slower}),
        "comparisons": comparison_study({"one": slower, "two": close, HOSTILE: [(2.0, 1.0)] * 7}),
    }
    expected = {"threshold": ["chart-curve"], "comparison": ["chart-pairs"]}
    for name, each in made.items():
        path = write_study(tmp_path / f"{name}.html", each.study, each.runs)
        for width, scheme in ((1200, "light"), (420, "dark")):
            with browser.quiet(path):
                if name in expected:
                    assert browser.open(path, scheme=scheme, width=width) == expected[name]
                else:  # the page has no script
                    browser.open_plain(path, width)
            found = browser.script(LAID_OUT)
            assert found["wide"] <= width
            if name == "release":
                assert len(found["strip"]) == len(labels)
                assert all(right <= width for _, right, _ in found["strip"])
            if name == "comparisons":
                [faster, slow, same] = [(left + right) / 2 for left, right, _ in found["marks"]]
                assert faster < found["one"][0][0] < slow
                assert abs(same - found["one"][0][0]) < abs(slow - found["one"][0][0])
                assert all(
                    left <= mark <= right
                    for (left, right, _), mark in zip(found["spans"], (faster, slow, same), strict=True)
                )
                assert all(after[0] >= before[1] for before, after in pairwise(found["ticks"]))


STEPS = """
const boxes = [...document.querySelectorAll('.step')].map((each) => each.getBoundingClientRect());
return {wide: document.documentElement.scrollWidth, bars: boxes.map((it) => [it.left, it.right])};
"""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_each_bar_between_two_runs_begins_where_the_one_above_ends(
    browser: Browser, two_runs: Callable[..., RunDifference], tmp_path: Path, width: int, scheme: str
) -> None:
    path = write_difference(tmp_path / "difference.html", two_runs(lambda name: HOSTILE + name))
    with browser.quiet(path):
        assert browser.open(path, scheme=scheme, width=width) == ["chart-threads-a", "chart-threads-b"]
    found = browser.script(STEPS)
    assert found["wide"] <= width
    a, *parts, b = found["bars"]
    assert (a[0], a[1], b[1]) == pytest.approx((b[0], parts[0][0], parts[-1][1]), abs=1)
    assert all(after[0] == pytest.approx(before[1], abs=1) for before, after in pairwise(parts))


HOSTILE = '</script><script>window.stolen = 1</script><img src=x onerror="window.stolen = 2">$$x$$@{y}'


def test_hostile_names_run_no_script_in_the_browser(
    browser: Browser, recorded_run: Callable[..., Any], tmp_path: Path
) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    made = recorded_run((2, 4, 8, 12, 16), rename=lambda name: HOSTILE + name)
    finding = Finding(HOSTILE, Severity.HIGH, HOSTILE, HOSTILE, link="javascript:window.stolen = 3")
    run = replace(made.run, verdict=Verdict(HOSTILE, (finding,)))
    path = write(tmp_path / "hostile.html", run, made.read)
    with browser.quiet(path):
        drawn = browser.open(path)
        assert "chart-memory" in drawn
        for name in drawn:
            chart = browser.driver.find_element(By.ID, name)
            browser.script("arguments[0].scrollIntoView({block: 'center'})", chart)
            ActionChains(browser.driver).move_to_element_with_offset(chart, 0, -20).perform()
        assert HOSTILE in browser.script("return document.body.innerText")


def test_a_report_without_javascript_still_shows_its_text_and_tables(browser: Browser, story: Path) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get(story.as_uri())
        text = browser.driver.find_element("tag name", "body").text
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "The charts need JavaScript" in text
    assert "too-few-partitions" in text
    assert "about 3 threads" in text


def test_the_site_of_a_history_fits_narrow_screens_and_compares_nights(browser: Browser, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    history = made_up(text=HOSTILE)
    write_site(tmp_path, history)
    for name, charts in (("index.html", []), (page_name(history.series[0]), ["chart-nights"]), ("compare.html", [])):
        path = tmp_path / name
        with browser.quiet(path):
            assert (browser.open(path, width=420) if charts else browser.open_plain(path, 420)) == charts
        assert browser.script("return document.documentElement.scrollWidth") <= 420
    first = "return document.querySelector('#compared tr').innerText"
    Select(browser.driver.find_element(By.ID, "a")).select_by_index(19)
    Select(browser.driver.find_element(By.ID, "b")).select_by_index(20)
    slower = browser.script(first)
    assert f"{HOSTILE.rpartition('/')[2]}workload-0" in slower  # text before a slash is shortened as a folder
    assert 15 < float(slower.split("+")[-1].split()[0]) < 25
    Select(browser.driver.find_element(By.ID, "b")).select_by_index(19)
    assert "+0.0" in browser.script(first)
    browser.driver.find_element(By.LINK_TEXT, f"{HOSTILE}suite").click()
    assert browser.script("return location.pathname").endswith("/index.html")
