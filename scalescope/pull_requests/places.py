"""The line of a pull request that explains why it is slower."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LINE = re.compile(r"([^\s:()]+\.py):(\d+)")  # `job.py:61` in a text


def place(why: Mapping[str, Any], folder: Path, changed: Mapping[str, Sequence[int]], workload: str) -> tuple[str, int]:
    """File and line in the checkout `folder`; `why`: the result of `RunDifference.to_mapping`, or empty.

    It is the changed line of the function whose tasks take longer, else the line that the difference or its cause
    names, else the workload's function (`FILE:FUNCTION`).
    """
    parts = [each for each in why.get("parts", ()) if each["named"]][:1]
    for each in parts:
        if found := _changed_in(str(each["name"]), folder, changed):
            return found
    cause = (why.get("cause") or {}).get("place") or {}
    texts = [text for each in parts for text in (each["where"], each["name"])]
    for text in [*texts, f"{cause.get('file', '')}:{cause.get('line', '')}"]:
        if (line := LINE.search(text)) and (file := _file(line[1], folder, changed)):
            return file, int(line[2])
    file, _, function = workload.rpartition(":")
    return file, min(_span(folder / file, function), default=1)


def _changed_in(function: str, folder: Path, changed: Mapping[str, Sequence[int]]) -> tuple[str, int] | None:
    for file, lines in changed.items():
        within = _span(folder / file, function) if file.endswith(".py") else ()
        if found := [line for line in lines if line in within]:
            return file, found[0]
    return None


def _span(path: Path, function: str) -> range:
    """The lines of a function; empty if the file has none of that name."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return range(0)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function:
            return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


def _file(name: str, folder: Path, changed: Mapping[str, Sequence[int]]) -> str:
    """Path in the checkout of the file whose path ends with `name`; changed files are preferred."""
    every = [*changed, *sorted(str(each.relative_to(folder)) for each in folder.rglob(Path(name).name))]
    ends = name.removeprefix(f"{folder}/")
    return next((each for each in every if f"/{each}".endswith(f"/{ends}") and (folder / each).is_file()), "")
