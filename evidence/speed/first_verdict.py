"""How long the first verdict on a trivial workload takes, beside an import of distributed, which no trial does without.

    python -m evidence first-verdict [--pairs 7] [--most 5]

In every round `scalescope sweep` on the light cluster, with a store of its own, is timed twice (A/A), and
`python -c "import distributed"` once, in turns and in real time. Printed are seconds, and the ratio of the sweep to the
import: on another machine, or a busy one, both take longer. The ratio of the two sweeps says how much of that is noise.
Fails where the median of the seconds is above `--most`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from evidence.speed.trials import table

SWEEP = "-w futures-map -a workers=2 -p items=4 -p seconds=0.1 -c light --no-prefect --fresh"
COMMANDS = {
    "sweep": ("-c", "from scalescope.cli.main import main; main()", "sweep", *SWEEP.split()),
    "import": ("-c", "import distributed"),
    "same": ("-c", "from scalescope.cli.main import main; main()", "sweep", *SWEEP.split()),
}
FINE = (0, 1)
"""Exit statuses of a sweep that has a verdict."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--most", type=float, default=5.0, help="seconds that the median may take")
    asked = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "SCALESCOPE_STORE": str(Path(folder) / "results.db")}
        for command in COMMANDS.values():  # caches of files, the schema of the store
            seconds(command, environ)
        for number in range(asked.pairs):
            names = list(COMMANDS)
            for name in names if number % 2 else names[::-1]:
                found[name].append(seconds(COMMANDS[name], environ))
    median = statistics.median(found["sweep"])
    print(shown(found))
    if median > asked.most:
        raise SystemExit(f"the first verdict takes {median:.1f} s, more than {asked.most:g} s")


def seconds(command: Sequence[str], environ: Mapping[str, str]) -> float:
    began = time.monotonic()
    done = subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    if done.returncode not in FINE:
        raise RuntimeError(done.stderr)
    return took


def shown(found: Mapping[str, Sequence[float]]) -> str:
    def row(name: str, values: Sequence[float], unit: str) -> list[str]:
        return [name, *(f"{value:.2f}{unit}" for value in (statistics.median(values), min(values), max(values)))]

    def ratios(one: str, other: str) -> list[float]:
        return [first / second for first, second in zip(found[one], found[other], strict=True)]

    rows = [
        row("first verdict", found["sweep"], " s"),
        row("import distributed", found["import"], " s"),
        row("verdict / import", ratios("sweep", "import"), ""),
        row("verdict / the same again (A/A)", ratios("sweep", "same"), ""),
    ]
    return table(["", "median", "least", "most"], rows)
