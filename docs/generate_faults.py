"""Writes the matrix in `docs/faults.md` from test results; `python -m evidence faults` calls it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("faults.md")
BEGIN, END = "<!-- matrix: begin, written by docs/generate_faults.py -->", "<!-- matrix: end -->"
HEAD = "| hit | fault | stages | the trial | what you see | left after one reap | finished trials lost | finished by |"
RULE = "| --- " * 8 + "|"

# Processes that faults hit, in the order of the rows
HIT = (
    *("flow", "driver", "scheduler", "host of workers", "worker", "nanny", "worker of a Prefect pool"),
    *("Prefect server", "PostgreSQL of Prefect", "TMPDIR", "records", "store", "database"),
    *("PostgreSQL of the store", "object storage", "network to scheduler and workers"),
    *(f"{each} (Slurm)" for each in ("flow", "driver", "node", "job", "slurmctld")),
    *("qmaster (Grid Engine)", "server of Dask Gateway", "API server (Kubernetes)"),
)
FAULTS = ("SIGKILL", "SIGTERM", "SIGSTOP")
STAGES = ("provisioning", "waiting", "scaling", "warm-up", "measuring", "flushing", "storing", "teardown")


def page(text: str, cells: list[dict[str, Any]]) -> str:
    """The page with these cells in its matrix; rows of faults that were not tested this time stay unchanged."""
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    hit = {(cell["process"], cell["fault"]) for cell in cells}
    kept = [line.strip("| ").split(" | ") for line in old.splitlines() if line.startswith("| ")][2:]
    rows = {(*row[:2], *row[3:]): row[2].split(", ") for row in kept if tuple(row[:2]) not in hit}
    for cell in cells:
        key = (cell["process"], cell["fault"], _trial(cell), _seen(cell), _left(cell), str(cell["lost"]), _by(cell))
        stages = rows.setdefault(key, [])
        if cell["stage"] not in stages:
            stages.append(cell["stage"])
    for stages in rows.values():
        stages.sort(key=STAGES.index)
    lines = [
        f"| {' | '.join([*key[:2], ', '.join(stages), *key[2:]])} |"
        for key, stages in sorted(rows.items(), key=lambda row: _place(*row[0][:2], row[1][0]))
    ]
    count = sum(map(len, rows.values()))
    return f"{before}{BEGIN}\n{count} cells.\n\n{HEAD}\n{RULE}\n" + "\n".join(lines) + f"\n{END}{after}"


def _place(process: str, fault: str, stage: str) -> tuple[int, int, float, int]:
    """Sort key of a row; shorter standstills come first."""
    seconds = re.search(r"(\d+) s$", fault)
    kind = FAULTS.index(fault) if fault in FAULTS else len(FAULTS)
    return HIT.index(process), kind, int(seconds[1]) if seconds else 0, STAGES.index(stage)


def _trial(cell: dict[str, Any]) -> str:
    noted = dict.fromkeys(text for text in cell["trials"] if text != "valid")
    if noted:
        return "; ".join(text.replace("|", "\\|") for text in noted)
    return "none: run again" if cell["again"] and len(cell["trials"]) < 3 else "valid"


def _seen(cell: dict[str, Any]) -> str:
    ended = str(cell["ended"])
    return f"{ended}; `{cell['error'].removeprefix('error: ')}`" if cell["error"] else ended


def _left(cell: dict[str, Any]) -> str:
    return "; ".join(cell["leaks"]) or "nothing"


def _by(cell: dict[str, Any]) -> str:
    if not cell["finished"]:
        return "**not finished**"
    return "the same command" if cell["again"] else "itself"


if __name__ == "__main__":
    seen = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), seen), encoding="utf-8")
