"""Writes the matrix in `docs/faults.md` from what was seen: `make faults` calls it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("faults.md")
BEGIN, END = "<!-- matrix: begin, written by docs/generate_faults.py -->", "<!-- matrix: end -->"
HEAD = "| hit | fault | stages | the trial | what you see | left after one reap | finished trials lost | finished by |"
RULE = "| --- " * 8 + "|"

# The order of the rows
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
    rows: dict[tuple[str, ...], list[str]] = {}
    for cell in sorted(cells, key=_place):
        key = (cell["process"], cell["fault"], _trial(cell), _seen(cell), _left(cell), str(cell["lost"]), _by(cell))
        rows.setdefault(key, []).append(cell["stage"])
    lines = [
        f"| {' | '.join([*key[:2], ', '.join(dict.fromkeys(stages)), *key[2:]])} |" for key, stages in rows.items()
    ]
    before, _, rest = text.partition(BEGIN)
    return (
        f"{before}{BEGIN}\n{len(cells)} cells.\n\n{HEAD}\n{RULE}\n"
        + "\n".join(lines)
        + f"\n{END}{rest.partition(END)[2]}"
    )


def _place(cell: dict[str, Any]) -> tuple[int, int, int]:
    """Where it stands among others, whose order is that in which they were seen."""
    fault = FAULTS.index(cell["fault"]) if cell["fault"] in FAULTS else len(FAULTS)
    return HIT.index(cell["process"]), fault, STAGES.index(cell["stage"])


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
