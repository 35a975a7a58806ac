"""How often is a comparison right, on real light workers? Some of equals, and as many of a slower B.

    python tests/benchmarks/bench_compare.py [--times 20] [--effect 0.05]

Each comparison is the study `compare` as users have it, but for Prefect: interleaved pairs of trials of four workers
that sleep for half a second, on one light cluster that stays open. About twelve seconds each.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from scalescope.run.drivers import Drivers
from scalescope.run.sweep import begin
from scalescope.run.trials import run_trials
from scalescope.studies.comparison import plan as comparison

SECONDS = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--effect", type=float, default=0.05)
    asked = parser.parse_args()
    counts: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "results.db")
        session: Drivers | None = None
        try:
            for name, effect in (("equal", 0.0), (f"slower by {asked.effect:.0%}", asked.effect)):
                decisions: Counter[str] = Counter()
                for seed in range(asked.times):
                    session, result = compare(store, session, SECONDS * (1 + effect), seed)
                    decisions[result["decision"]] += 1
                    print(f"{name}, {seed + 1}/{asked.times}: {result['line']}", flush=True)
                counts[name] = dict(decisions)
        finally:
            if session is not None:
                session.close()
    print("\n| B | decisions |\n| --- | --- |")
    for name, found in counts.items():
        print(f"| {name} | {', '.join(f'{count} {decision}' for decision, count in found.items())} |")


def compare(store: str, session: Drivers | None, seconds: float, seed: int) -> tuple[Drivers, dict[str, Any]]:
    given = {
        "workloads": ["futures-map"],
        "cluster": "light",
        "values": {"workers": 4, "items": 4},
        "a": {"seconds": SECONDS},
        "b": {"seconds": seconds},
        "seed": seed,
    }
    inquiry = comparison.ask(given, store)
    [request] = inquiry.requests
    with request.open_store() as opened:
        run, waiting = begin(request, opened)
        session = session or Drivers(request, run.id, opened)
        session.request, session.run_id, session.store = request, run.id, opened
        run_trials(session, waiting, more=lambda: request.grown(opened, run.id), hold=True)
        return session, dict(inquiry.answer([opened.run(run.id)]).result)


if __name__ == "__main__":
    main()
