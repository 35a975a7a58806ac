"""Runs all benchmarks one after another: `python tests/benchmarks/run_all.py`. Minutes; wants a quiet machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMMANDS = (
    ("bench_first_verdict.py",),
    ("bench_clusters.py",),
    ("bench_simulated.py", "--local"),
    ("bench_recorder.py",),
    ("bench_script.py",),
    ("bench_analysis.py",),
    ("bench_report.py",),
    ("bench_scale.py", "--tasks", "100000"),  # a million take most of an hour
    ("bench_knee.py",),
    ("bench_comparison.py",),
    ("bench_suite.py",),
    ("bench_changes.py",),
    ("bench_year.py", "--times", "5"),
    ("bench_release.py", "300"),
    ("outside.py", "--prove"),
)


def main() -> int:
    worst = 0
    for name, *arguments in COMMANDS:
        print(f"\n# {name} {' '.join(arguments)}\n", flush=True)
        worst = max(worst, subprocess.call([sys.executable, str(Path(__file__).with_name(name)), *arguments]))
    return worst


if __name__ == "__main__":
    sys.exit(main())
