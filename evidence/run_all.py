"""Runs what measures speed and methods, one after another. Minutes; wants a quiet machine."""

from __future__ import annotations

import subprocess
import sys

COMMANDS = (
    *("clusters", "simulated --local", "recorder", "script", "analysis", "report"),
    "scale --tasks 100000",  # a million take most of an hour
    *("knee", "comparison", "changes", "year --times 5", "release 300", "outside --prove"),
)


def main() -> int:
    worst = 0
    for command in COMMANDS:
        print(f"\n# {command}\n", flush=True)
        worst = max(worst, subprocess.call([sys.executable, "-m", "evidence", *command.split()]))
    return worst
