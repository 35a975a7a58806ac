"""Counts what remedies of labelled cases did: help, nothing or harm; by the last proven runs, and those in FILES.

FILES are those that `scripts --prove --save` wrote. A remedy of a wrong cause is not tried, and counts apart.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from evidence.diagnosis.outside import PAGE
from evidence.speed.trials import table

KINDS = ("help", "nothing", "harm", "another cause named")
HELPS, HARMS = 1.1, 1 / 1.1  # times as fast from which a remedy helps, and below which it harms
FASTER = re.compile(r"([\d.,]+) x faster")


def main() -> int:
    sets = {"functions, last proven run": Counter(of_functions())}
    sets |= {name: Counter(of_scripts(Path(name))) for name in sys.argv[1:]}
    print(
        table(["set", "tried", *KINDS], [[name, sum(n.values()), *(n[k] for k in KINDS)] for name, n in sets.items()])
    )
    return int(any(found["harm"] for found in sets.values()))


def of_functions() -> Iterator[str]:
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("| `") and len(cells) == 10 and cells[4]:
            faster = FASTER.search(cells[8])
            valid = 2.0 * ("valid mended" in cells[8])  # it failed before, and counts now
            yield kind(cells[6] == "yes", float(faster[1].replace(",", "")) if faster else valid)


def of_scripts(file: Path) -> Iterator[str]:
    for line in file.read_text(encoding="utf-8").splitlines():
        _, right, _, _, before_s, after_s = json.loads(line)
        if after_s:
            yield kind(right, before_s / after_s if before_s else 2.0)


def kind(right: bool, times: float) -> str:
    if not right:
        return "another cause named"
    return "help" if times >= HELPS else "nothing" if times >= HARMS else "harm"
