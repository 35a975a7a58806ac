"""Finds the file of a line of the user's code where a worker got the function by value, and knows the line alone."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

SENT = "<dynamic-code>"  # file of a function that cloudpickle sent by value, from its release 3.1.3 on
_LINE = re.compile(r"line (\d+) in ([\w<>]+)")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def with_file(where: str, files: Iterable[str] = ()) -> str:
    """`my_job.py:4 in load` for `line 4 in load`, where one of these files has that function at that line.

    By default, the file is the script that runs.
    """
    if found := _LINE.fullmatch(where):
        line, name = int(found[1]), found[2]
        for file in files or filter(None, [getattr(sys.modules["__main__"], "__file__", None)]):
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
            own = lines.setdefault(getattr(node, "name", "<lambda>"), [])
            own.append((node.lineno, node.end_lineno or node.lineno))
    return lines
