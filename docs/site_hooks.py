"""Adds to the MkDocs site: pages generated from declarations, linked files outside docs/, and llms.txt."""

from __future__ import annotations

import os
import re
import runpy
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from scalescope.nightly.site import write_site
from scalescope.run.sweep import run_sweep

DOCS = Path(__file__).parent
ROOT = DOCS.parent
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
SAMPLES = re.compile(r"`site/(sample/[^`]+)`")  # samples exist only on the site, so only the site links to them
# Weights in the site's search: pages for beginners come first, tables of cases and decisions last
BOOST = {
    "index.md": 30,
    "prefect-on-dask.md": 3,
    "studies.md": 2,
    "outside-set.md": 0.2,
    "prediction.md": 0.2,
    "accuracy.md": 0.2,
    "decisions": 0.2,
    "reference": 0.7,
    "repository": 0.2,
}
SAMPLE = {"workload": "bag-map", "params": {"items": 250}, "axes": {"workers": [50, 100, 150, 200, 250]}}
COPIES = "repository/"  # folder of the site for linked files that are not in docs/


def on_pre_build(config: MkDocsConfig) -> None:
    runpy.run_path(str(DOCS / "generate.py"))["write"]()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        write_samples(Path(folder))
        for path in Path(folder).rglob("*.html"):
            name = f"sample/{path.relative_to(folder).as_posix()}"
            files.append(File.generated(config, name, content=path.read_text(encoding="utf-8")))
    waiting = [Path(str(each.abs_src_path)) for each in files.documentation_pages()]
    while waiting:
        for target in outside(waiting.pop()):
            if not files.get_file_from_path(place(target)):
                inclusion = InclusionLevel.NOT_IN_NAV
                files.append(File.generated(config, place(target), abs_src_path=str(target), inclusion=inclusion))
                waiting += [target] * (target.suffix == ".md")
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = Path(str(page.file.abs_src_path)).parent
    page.meta["search"] = {"boost": BOOST.get(page.file.src_uri.partition("/")[0], 1)}

    def link(found: re.Match[str]) -> str:
        target = (here / found[2]).resolve()
        if here.is_relative_to(DOCS) and target.is_relative_to(DOCS):
            return found[0]
        if target.is_dir():
            return found[1]
        return f"[{found[1]}]({os.path.relpath(place(target), Path(page.file.src_uri).parent)}{found[3] or ''})"

    return SAMPLES.sub(r"[\1](\1)", LINK.sub(link, markdown))


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt: each page and its first sentences."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for path in sorted(DOCS.glob("*.md")) + sorted((DOCS / "reference").rglob("*.md")):
        title, _, text = path.read_text(encoding="utf-8").partition("\n")
        first = " ".join(text.strip().split("\n\n")[0].split())
        lines.append(f"- [{title.lstrip('# ')}]({path.relative_to(DOCS).with_suffix('.html').as_posix()}): {first}")
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_samples(folder: Path) -> None:
    """Write the report of a sweep on the simulated cluster, and the pages of a made-up history of nights."""
    run_sweep({**SAMPLE, "store": f"{folder}/results.db", "report": f"{folder}/report.html"})
    nights = runpy.run_path(str(ROOT / "tests" / "support" / "nights.py"))
    write_site(folder / "history", nights["made_up"](60, 3))


def outside(page: Path) -> Iterator[Path]:
    """Files outside docs/ that a page links to."""
    for found in LINK.finditer(page.read_text(encoding="utf-8")):
        target = (page.parent / found[2]).resolve()
        if target.is_file() and not target.is_relative_to(DOCS):
            yield target


def place(target: Path) -> str:
    """Path of a file in the sources of the site; copied text files get the suffix .txt, so that browsers show them."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    return COPIES + target.relative_to(ROOT).as_posix() + ("" if target.suffix == ".md" else ".txt")
