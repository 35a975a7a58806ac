"""The pages that `make docs` writes name everything that is declared."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main

from scalescope import workloads
from scalescope.cli.main import app
from scalescope.diagnosis.causes import by_code
from scalescope.model.cluster import kinds
from scalescope.model.metrics import METRICS

DOCS = Path(__file__).parents[2] / "docs"
GENERATE = runpy.run_path(str(DOCS / "generate.py"))
PAGES: dict[str, Callable[[], str]] = GENERATE["PAGES"]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")  # not those to other hosts
DECLARED = {
    "causes": [f"| [`{code}`](causes/{code}.md) |" for code in by_code()],
    "metrics": [f"| `{name}`" for name in METRICS],
    "clusters": [f"## `{kind}`\n" for kind in kinds()],
    "workloads": [f"## {each.name}\n" for each in workloads.builtin()],
    "commands": [f"## `scalescope {name}`" for name in typer.main.get_command(app()).commands],  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_names_everything_that_is_declared(page: str) -> None:
    text = PAGES[page]()
    assert [each for each in DECLARED[page] if each not in text] == []


def test_the_pages_of_the_reference_are_up_to_date() -> None:
    folder = DOCS / "reference"
    found = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in _files(folder)}
    assert found == GENERATE["pages"](), "renew them: python docs/generate.py"


def test_every_relative_link_leads_to_a_file_of_the_repository() -> None:
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    links = [(page, target) for page in pages for target in LINK.findall(page.read_text(encoding="utf-8"))]
    assert len(links) > 200
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_new_cells_of_the_fault_table_replace_only_the_same_cells() -> None:
    module = runpy.run_path(str(DOCS / "generate_faults.py"))
    good = {"trials": ["valid"] * 3, "ended": "status 0", "error": "", "leaks": [], "lost": 0, "finished": True}
    cells = [
        {**good, "process": process, "fault": "SIGKILL", "stage": stage, "again": False}
        for process in ("flow", "store")
        for stage in ("teardown", "measuring")
    ]
    first = module["page"](f"before\n{module['BEGIN']}\n{module['END']}\nafter\n", cells)
    assert "4 cells." in first
    assert first.index("| flow | SIGKILL | measuring, teardown | valid |") < first.index("| store | SIGKILL |")
    again = module["page"](first, [{**cells[0], "trials": ["invalid: lost"]}])
    assert "| flow | SIGKILL | teardown | invalid: lost |" in again
    assert "3 cells." in again
    assert again.startswith("before\n")
    assert again.endswith("\nafter\n")
