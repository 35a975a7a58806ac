"""Reads log records of dead workers from the files that `BlackBox` wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from scalescope.model.records import Columns, from_rows

TAIL_BYTES = 256 * 1024


def read(folder: Path, workers: Collection[str]) -> Columns:
    """The last log records of these workers, as rows of `records.LOGS`.

    Lines that are no records come from `faulthandler` or C code; they get the level `FAULT` and the last record's time.
    """
    rows = []
    for path in sorted(folder.glob("*.log")):
        first, lines = _tail(path)
        worker = str(first.get("worker", ""))
        if worker not in workers:
            continue
        when = float(first.get("time", 0.0))
        for entry in lines:
            when = float(entry.get("time", when))
            rows.append({"worker": worker, "time": when, "level": str(entry["level"]), "text": str(entry["text"])})
    return from_rows("logs", rows)


def _tail(path: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    # the first line, and the lines in the last `TAIL_BYTES`
    with path.open("rb") as stream:
        first = stream.readline()
        begin = stream.tell()
        size = stream.seek(0, os.SEEK_END)
        start = max(begin, size - TAIL_BYTES)
        stream.seek(start)
        if start > begin:
            stream.readline()  # skip the rest of a cut line
        rest = stream.read()
    return _entry(first), (_entry(line) for line in rest.splitlines())


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    if isinstance(entry, dict) and ("worker" in entry or {"level", "text"} <= entry.keys()):
        return entry
    return {"level": "FAULT", "text": line.decode("utf-8", "replace")}
