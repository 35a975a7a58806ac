"""The documentation as a site: built without a network, no link is broken, and its search finds symptoms."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scalescope.run.sweep import run_sweep

jsonschema = pytest.importorskip("jsonschema")
mkdocs = pytest.importorskip("mkdocs.config")
build = pytest.importorskip("mkdocs.commands.build").build

CONFIG = str(Path(__file__).parents[2] / "mkdocs.yml")
EXTERNAL = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(mkdocs.load_config(CONFIG, site_dir=str(folder)))
    return folder


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("hang", "in-your-code.html"),
        ("idle", "index.html"),
        ("GIL", "reference/causes.html"),
        ("Prefect", "prefect-on-dask.html"),
        ("how many workers", "index.html"),
    ],
)
def test_search_finds(site: Path, words: str, page: str) -> None:
    sections = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    found = {
        section["location"].partition("#")[0]
        for section in sections
        if all(re.search(rf"\b{word}", f"{section['title']} {section['text']}", re.I) for word in words.split())
    }
    assert page in found


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert len(pages) > 40
    assert [page for page, text in pages.items() if EXTERNAL.search(text)] == []


def test_files_outside_the_pages_and_the_list_for_machines_are_there(site: Path) -> None:
    assert 'href="repository/deployments/local.yaml.txt"' in (site / "tutorial.html").read_text(encoding="utf-8")
    assert (site / "repository" / "deployments" / "local.yaml.txt").is_file()
    listed = re.findall(r"^- \[.+\]\((.+)\): .", (site / "llms.txt").read_text(encoding="utf-8"), re.M)
    assert "reference/causes.html" in listed
    assert [each for each in listed if not (site / each).is_file()] == []


def test_a_sample_report_and_a_sample_history_open_from_the_start_page(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    for sample in ("sample/report.html", "sample/history/index.html"):
        assert f'href="{sample}"' in start
        assert (site / sample).is_file()


def test_what_json_prints_fits_its_schema(site: Path, tmp_path: Path) -> None:
    schema = json.loads((site / "reference" / "run.schema.json").read_text(encoding="utf-8"))
    sweep = {"workload": "futures-map", "axes": {"workers": [2, 4]}, "store": str(tmp_path / "results.db")}
    shown = run_sweep(sweep).to_json()
    assert set(shown) == set(schema["properties"])
    jsonschema.validate(json.loads(json.dumps(shown)), schema)


def test_a_broken_link_fails(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Here\n\n[there](nowhere.md)\n")
    config = mkdocs.load_config(
        CONFIG, docs_dir=str(tmp_path / "docs"), site_dir=str(tmp_path / "site"), hooks=[], nav=["index.md"]
    )
    with pytest.raises(SystemExit):  # click turns Abort into an exit, mkdocs raises it as one
        build(config)
