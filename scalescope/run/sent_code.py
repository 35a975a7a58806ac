"""Finds lines of the user's script that a worker knows without their file, since it got the function by value."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

_LINE = re.compile(r"line (\d+) in (\w+)")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def with_file(where: str) -> str:
    """`my_job.py:4 in load` for `line 4 in load`, where the running script has that function at that line."""
    found, file = _LINE.fullmatch(where), getattr(sys.modules["__main__"], "__file__", None)
    if found is None or not file:
        return where
    line, name = int(found[1]), found[2]
    if any(begin <= line <= end for begin, end in _functions(file).get(name, ())):
        return f"{Path(file).name}:{line} in {name}"
    return where


@cache
def _functions(file: str) -> dict[str, list[tuple[int, int]]]:
    lines: dict[str, list[tuple[int, int]]] = {}
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return lines
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            lines.setdefault(node.name, []).append((node.lineno, node.end_lineno or node.lineno))
    return lines
