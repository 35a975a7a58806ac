"""How long the pages of a history take: `python tests/benchmarks/bench_history.py [nights] [workloads]`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.nights import made_up

from scalescope.nightly.site import write_site

MOST_S = 60.0
"""Seconds that 365 nights of 30 workloads may take on two cores."""


def main() -> int:
    nights, workloads = (int(given) for given in sys.argv[1:3]) if len(sys.argv) > 2 else (365, 30)
    begun = time.perf_counter()
    history = made_up(nights, workloads)
    judged = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        write_site(folder, history)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    written = time.perf_counter()
    print(f"{nights} nights of {workloads} workloads: changes found in {judged - begun:.1f} s, ", end="")
    print(f"pages written in {written - judged:.1f} s ({size / 2**20:.0f} MiB)")
    return int(written - begun > MOST_S)


if __name__ == "__main__":
    sys.exit(main())
