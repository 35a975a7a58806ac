"""Runs `scalescope fix` on others' scripts, by name or all (`evidence/cases/fixes.yaml` says what is right)."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import yaml

import scalescope
from evidence.speed.trials import table

FILE = Path(__file__).parents[1] / "cases" / "fixes.yaml"


def main() -> int:
    rows, right = [], True
    for name, case in yaml.safe_load(FILE.read_text(encoding="utf-8")).items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, f"{name}.py").write_text(case["script"], encoding="utf-8")
            os.chdir(folder)
            found = scalescope.fix(f"{name}.py")
        patched = [each.rewrite for each in found.proven]
        tried = [f"{each.rewrite}: {each.proof.reason}" for each in found.withdrawn]
        right &= patched[:1] == case["patched"] and not any(each.proof.changed for each in found.withdrawn)
        rows.append([name, " ".join(patched) or "-", f"{found.times:.2f}", "; ".join(tried)])
    print(table(["script", "patched by", "times as fast", "withdrawn"], rows))
    return int(not right)
