"""Hits a sweep with every fault at every stage, and writes the outcome into `docs/faults.md`.

    python -m evidence faults [sweep | control_planes | pool | slurm | kubernetes ...] [options of pytest]

Rows of the page that were not hit this time stay, and with options of pytest, which may leave out stages of a row, all
of it. What a machine lacks is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
MATRICES = ("sweep", "control_planes", "pool", "slurm", "kubernetes")


def main() -> int:
    if {"-h", "--help"} & {*sys.argv}:
        print(__doc__)
        return 0
    chosen = [each for each in sys.argv[1:] if each in MATRICES] or MATRICES
    options = [each for each in sys.argv[1:] if each not in MATRICES]
    lines = ROOT / ".faults.jsonl"
    lines.unlink(missing_ok=True)
    os.environ["SCALESCOPE_FAULTS"] = str(lines)
    together = [str(FOLDER / f"test_{name}.py") for name in chosen if name != "kubernetes"]
    status = pytest("--numprocesses=2", *together, *options) if together else 0
    if "kubernetes" in chosen:  # its sweeps share one cluster
        status = pytest(str(FOLDER / "test_kubernetes.py"), *options) or status
    if lines.exists() and not options:
        subprocess.run([sys.executable, ROOT / "docs" / "generate_faults.py", lines], check=True)
    return status


def pytest(*arguments: str) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *arguments], cwd=ROOT)
