"""How often `pull-request` comments where nothing changed, and how often it finds planted changes of 10 %.

Each comparison is a repository with a job that was drawn, and runs the command as a whole. Simulated comparisons run
four at a time, local ones one after another. Every result is a line of `--output`; the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

JOB = """\
import time


def spend(seconds):
    time.sleep(seconds)


def compute(seconds):
    for _ in range(int(3e7 * seconds)):
        pass


def run(client):
    for seconds, tasks in {stages}:
        client.gather(client.map({function}, [seconds] * tasks, pure=False))
"""
_OURS = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def compared(number: int, cluster: str, change: float) -> dict[str, Any]:
    """Answer about one repository; all that is drawn follows from `number`."""
    draw = random.Random(number)
    workers = draw.choice((1, 2)) if cluster == "local" else draw.choice((2, 4, 8, 16))
    stages = [(round(draw.uniform(0.05, 0.3), 3), workers * draw.randint(1, 4)) for _ in range(draw.randint(1, 3))]
    function = draw.choice(("spend", "spend", "compute"))
    with tempfile.TemporaryDirectory(prefix="scalescope-evidence-") as folder:
        environ = {**os.environ, **_OURS, "SCALESCOPE_STORE": f"sqlite:///{folder}/store.db"}
        repository = Path(folder, "repository")
        subprocess.run(["git", "init", "--quiet", "-b", "main", repository], check=True)
        for side, factor in (("base", 1.0), ("head", 1 + change)):
            own = [(seconds * factor, tasks) for seconds, tasks in stages]
            Path(repository, "job.py").write_text(f"# {side}\n{JOB.format(stages=own, function=function)}")
            subprocess.run(["git", "-C", repository, "add", "."], check=True)
            subprocess.run(["git", "-C", repository, "commit", "--quiet", "-m", side], env=environ, check=True)
        command = [
            str(Path(sys.executable).parent / "scalescope"),
            "pull-request",
            "-w",
            "job.py:run",
            "--base",
            "HEAD~1",
        ]
        command += ["-c", cluster, "-a", f"workers={workers}", "--json"]
        done = subprocess.run(command, cwd=repository, env=environ, capture_output=True, text=True, timeout=1800)
    if done.returncode not in (0, 1):
        return {"number": number, "failed": done.stderr[-500:]}
    found = json.loads(done.stdout)
    pairs = int(found["table"].splitlines()[-1].split("|")[-4].split(",")[0])
    seconds = sum(seconds * tasks / workers for seconds, tasks in stages)
    kept = {"changed": found["changed"], "line": found["line"], "remarks": found["remarks"], "pairs": pairs}
    return {"number": number, "job": f"{function} {seconds:.2f} s, {workers} workers", **kept}


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--cluster", choices=("simulated", "local"), default="simulated")
    asked.add_argument("--change", type=float, default=0.0, help="0.1 plants 10 %%; 0 compares equals")
    asked.add_argument("--times", type=int, default=100, help="comparisons")
    asked.add_argument("--output", type=Path, default=Path("pull_requests.jsonl"))
    given = asked.parse_args()
    key = f"{given.cluster} {given.change:g}"
    lines = given.output.read_text().splitlines() if given.output.exists() else []
    known = {each["number"]: each for each in map(json.loads, lines) if each["key"] == key}
    missing = [number for number in range(given.times) if number not in known]
    with ThreadPoolExecutor(1 if given.cluster == "local" else 4) as pool, given.output.open("a") as output:
        running = [pool.submit(compared, number, given.cluster, given.change) for number in missing]
        for found in (each.result() for each in as_completed(running)):
            known[found["number"]] = found
            output.write(json.dumps({"key": key, **found}) + "\n")
            output.flush()
            print(found, flush=True)
    valid = [each for each in known.values() if "failed" not in each]
    word = "Slower" if given.change else ""  # any change of equals is wrong
    told = sum(each["changed"] and each["line"].startswith(word) for each in valid)
    pairs = sum(each["pairs"] for each in valid)
    print(f"{key}: {told} of {len(valid)} comparisons commented, {pairs} pairs; {len(known) - len(valid)} failed")
    return int(told > len(valid) / 100 if not given.change else told < 0.9 * len(valid))
