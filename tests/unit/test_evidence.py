"""Every command of evidence/ can be started and is named on its page; nothing of evidence/ is imported here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "evidence"
TABLE = re.compile(r'"([\w-]+)": \("evidence\.([\w.]+):(\w+)"')
COMMANDS = TABLE.findall((FOLDER / "__main__.py").read_text(encoding="utf-8"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FOLDER.rglob("*.py")}
MOST_LINES = 9_000


def test_each_command_of_the_evidence_names_an_existing_function() -> None:
    assert len(COMMANDS) > 20
    for _, module, function in COMMANDS:
        tree = TREES[FOLDER / f"{module.replace('.', '/')}.py"]
        assert function in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_the_page_of_the_evidence_names_each_command() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name, *_ in COMMANDS if not re.search(rf"`{name}\b|evidence {name}\b", page)] == ["all"]


def test_each_case_of_the_evidence_cites_its_source() -> None:
    cases = 0
    for path, tree in TREES.items():
        for each in tree.body if path.parent.name == "cases" else ():
            calls = [one.func for one in getattr(each, "decorator_list", ()) if isinstance(one, ast.Call)]
            if {"case", "script", "predicted"} & {call.id for call in calls if isinstance(call, ast.Name)}:
                assert isinstance(each, ast.FunctionDef)
                assert ast.get_docstring(each), each.name
                cases += 1
    assert cases >= 90


def test_the_evidence_stays_below_its_limit_of_lines() -> None:
    assert sum(path.read_bytes().count(b"\n") for path in TREES) <= MOST_LINES
