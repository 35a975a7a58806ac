"""The pages that `make docs` writes name everything that is declared."""

from __future__ import annotations

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

PAGES: dict[str, Callable[[], str]] = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "generate.py"))["PAGES"]
DECLARED = {
    "causes": [f"| [`{code}`](causes/{code}.md) |" for code in by_code()],
    "metrics": [f"| `{name}`" for name in METRICS],
    "clusters": [f"## `{kind}`\n" for kind in kinds()],
    "workloads": [f"## {each.name}\n" for each in workloads.builtin()],
    "commands": [f"## `scalescope {name}`" for name in typer.main.get_command(app).commands],  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_all_that_is_declared(page: str) -> None:
    text = PAGES[page]()
    assert [each for each in DECLARED[page] if each not in text] == []
