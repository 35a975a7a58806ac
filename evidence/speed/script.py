"""What a script notices of `scalescope run`, in seconds and bytes, beside the same script under plain Python.

    python -m evidence script [--pairs 30] [--verdicts 10000,100000] [--memory 100000]

Every round runs a script twice under plain Python (A/A) and once under `scalescope run`, in turns. The script itself
tells what it took: seconds of `import distributed`, CPU seconds of its process and its workers, its greatest resident
memory, and when it ended. From there to the end of the command is the time to the verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from evidence.speed.trials import table

SCRIPT = """
import json, os, resource, sys, time
began = time.perf_counter()
import distributed
imported = time.perf_counter() - began

def work(number, rounds):
    found = 0
    for each in range(rounds):
        found += each * number
    return found

if __name__ == "__main__":
    tasks, rounds, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if tasks:
        with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
            for first in range(0, tasks, 10_000):
                numbers = range(first, min(first + 10_000, tasks))
                client.gather(client.map(work, numbers, rounds=rounds, pure=False))
    told = {
        "import_s": imported,
        "cpu_s": sum(os.times()[:4]),
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "ended": time.time(),
    }
    with open(f"{folder}/told.json", "w") as stream:
        json.dump(told, stream)
"""
PLAIN = (sys.executable,)
RUN = (sys.executable, "-c", "from scalescope.cli.main import main; main()", "run", "--no-save")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--verdicts", default="10000", help="numbers of tasks after which the verdict is timed")
    parser.add_argument("--memory", type=int, default=100_000, help="tasks whose record the memory is measured with")
    asked = parser.parse_args()
    print(table(["", "plain", "under run", "ratio", "range", "A/A", "range"], []), flush=True)
    for row in (
        ("import distributed", "import_s", asked.pairs, 0, 0, 1.0, " s"),
        ("CPU, 300 tasks of 40 ms", "cpu_s", asked.pairs, 300, 400_000, 1.0, " s"),
        ("CPU, 300 tasks of 100 ms", "cpu_s", asked.pairs, 300, 1_000_000, 1.0, " s"),
        (f"memory, {asked.memory:,} tasks", "rss", 3, asked.memory, 0, 2**-20, " MiB"),
    ):
        print(f"| {' | '.join(compared(*row))} |", flush=True)
    for tasks in map(int, asked.verdicts.split(",")):
        seconds = [once(RUN, tasks, 0)["verdict_s"] for _ in range(3)]
        told = ", ".join(f"{each:.2f}" for each in seconds)
        print(f"from the script's end to the verdict, {tasks:,} tasks: {told} s", flush=True)


def compared(what: str, name: str, pairs: int, tasks: int, rounds: int, scale: float, unit: str) -> list[str]:
    found: dict[str, list[float]] = {"plain": [], "run": [], "again": []}
    commands = {"plain": PLAIN, "run": RUN, "again": PLAIN}
    for number in range(pairs + 1):
        for kind in list(commands) if number % 2 else list(commands)[::-1]:
            told = once(commands[kind], tasks, rounds)
            if number:  # the first round fills the caches of files
                found[kind].append(told[name] * scale)

    def ratio(kind: str) -> list[str]:
        ratios = [one / other for one, other in zip(found[kind], found["plain"], strict=True)]
        return [f"{statistics.median(ratios):.3f}", f"{min(ratios):.2f} to {max(ratios):.2f}"]

    median = {kind: statistics.median(values) for kind, values in found.items()}
    return [what, f"{median['plain']:.3g}{unit}", f"{median['run']:.3g}{unit}", *ratio("run"), *ratio("again")]


def once(command: Sequence[str], tasks: int, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        environ = {**os.environ, "XDG_STATE_HOME": folder, "DASK_LOGGING__DISTRIBUTED": "error"}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile Scalescope anew
        arguments = [*command, str(script), str(tasks), str(rounds), folder]
        done = subprocess.run(arguments, env=environ, capture_output=True, text=True, check=False)
        ended = time.time()
        if done.returncode:
            raise RuntimeError(done.stderr)
        told: dict[str, float] = json.loads((Path(folder) / "told.json").read_text())
        return {**told, "verdict_s": ended - told["ended"]}
