"""The documentation as a site: it is built without a network, has no broken link, and its search works."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.browser import chromium
from support.waiting import wait_for

from scalescope.run.sweep import run_sweep

jsonschema = pytest.importorskip("jsonschema")
mkdocs = pytest.importorskip("mkdocs.config")
build = pytest.importorskip("mkdocs.commands.build").build

CONFIG = str(Path(__file__).parents[2] / "mkdocs.yml")
FOUND = {
    "hang": "in-your-code.html",
    "idle": "index.html",
    "GIL": "gil-bound.html",
    "Prefect": "prefect",
    "how many workers": "studies.html",
}
"""What is typed, and a page that must be among the first four."""
EXTERNAL = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(mkdocs.load_config(CONFIG, site_dir=str(folder)))
    return folder


@pytest.fixture(scope="module")
def opened(site: Path, tmp_path_factory: pytest.TempPathFactory, missing: Any) -> Iterator[tuple[Any, str]]:
    """A browser, and the address of the site."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    folder = tmp_path_factory.mktemp("browser")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, chromium(missing, folder) as driver:
        Thread(target=server.serve_forever, daemon=True).start()
        yield driver, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.thorough
def test_the_search_of_the_site_finds_symptoms(opened: tuple[Any, str]) -> None:
    driver, address = opened
    for words, page in FOUND.items():
        driver.get(f"{address}/index.html")
        driver.find_element("css selector", "input.md-search__input").send_keys(words)
        hits = wait_for(
            lambda: driver.find_elements("css selector", ".md-search-result__item > a"),
            f"nothing is found for {words}",
        )
        found = [hit.get_attribute("href") for hit in hits[:4]]
        assert any(page in each for each in found), (words, found)


@pytest.mark.thorough
def test_each_symptom_on_the_start_page_links_to_its_explanation(opened: tuple[Any, str]) -> None:
    driver, address = opened
    driver.get(f"{address}/index.html")
    common = "//tr[td/strong]"
    rows = len(driver.find_elements("xpath", common))
    assert rows >= 10
    for row in range(1, rows + 1):
        driver.get(f"{address}/index.html")
        assert driver.find_element("xpath", f"({common})[{row}]/td[2]").text.startswith("scalescope ")
        link = driver.find_element("xpath", f"({common})[{row}]/td[3]//a")
        target = link.get_attribute("href")
        driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
        link.click()
        wait_for(lambda target=target: driver.current_url == target, f"{target} does not open")
        anchor = target.partition("#")[2]
        assert driver.find_elements("css selector", f"[id='{anchor}']" if anchor else "article h1"), target


def test_pages_of_the_site_load_no_external_resource(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert len(pages) > 40
    assert [page for page, text in pages.items() if EXTERNAL.search(text)] == []


def test_linked_repository_files_and_llms_txt_are_part_of_the_site(site: Path) -> None:
    assert 'href="repository/deployments/local.yaml.txt"' in (site / "tutorial.html").read_text(encoding="utf-8")
    assert (site / "repository" / "deployments" / "local.yaml.txt").is_file()
    listed = re.findall(r"^- \[.+\]\((.+)\): .", (site / "llms.txt").read_text(encoding="utf-8"), re.M)
    assert "reference/causes.html" in listed
    assert [each for each in listed if not (site / each).is_file()] == []


def test_the_start_page_links_to_a_sample_report_and_a_sample_history(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    for sample in ("sample/report.html", "sample/history/index.html"):
        assert f'href="{sample}"' in start
        assert (site / sample).is_file()
    assert "too-few-partitions" in (site / "sample" / "report.html").read_text(encoding="utf-8")


def test_json_of_a_run_fits_its_published_schema(site: Path, tmp_path: Path) -> None:
    schema = json.loads((site / "reference" / "run.schema.json").read_text(encoding="utf-8"))
    sweep = {"workload": "futures-map", "axes": {"workers": [2, 4]}, "store": str(tmp_path / "results.db")}
    shown = run_sweep(sweep).to_json()
    assert set(shown) == set(schema["properties"])
    jsonschema.validate(json.loads(json.dumps(shown)), schema)


def test_a_broken_link_fails_the_build_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Here\n\n[there](nowhere.md)\n")
    config = mkdocs.load_config(
        CONFIG, docs_dir=str(tmp_path / "docs"), site_dir=str(tmp_path / "site"), hooks=[], nav=["index.md"]
    )
    with pytest.raises(SystemExit):  # mkdocs raises Abort as an exit
        build(config)
