"""A coding agent without a mind: it reads nothing but brief answers, does what they say, and keeps what is faster.

`change` is measured by the sweep that `next` names; else the patch of the `fix` that `next` names is applied. Its share
is the part of the expert's gain (the case's own remedy) that it got; a healthy case must be left as it is.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from declare import FOLDER, HEALTHY, Case, functions, scripts

from evidence.speed.trials import table

SCALESCOPE = str(Path(sys.executable).parent / "scalescope")
LIMIT_S = 560.0  # seconds in which a command must be over
CHARACTERS = 4  # characters of a token


@dataclass
class Agent:
    """Works in a copy of the cases, with a store of its own."""

    folder: Path
    commands: int = 0
    characters: int = 0  # characters of all answers that it read
    tried: str = ""  # outcome of the first command that it followed

    def ask(self, words: list[str]) -> dict[str, Any]:
        self.commands += 1
        said = self._run([words[0], "--brief", "--json", *words[1:]])
        self.characters += len(said)
        found: dict[str, Any] = json.loads(said or "{}")
        return found

    def seconds(self) -> float | None:
        """Measured time of the last run at its last point; the agent itself does not see this answer."""
        points = json.loads(self._run(["show", "latest", "--json"]) or "{}").get("points") or [{}]
        found: float | None = points[-1].get("elapsed_s")
        return found

    def solve(self, words: list[str]) -> tuple[float | None, float | None, str]:
        """Seconds before and after, and what it did; nothing where the answer names neither change nor fix."""
        answer = self.ask(words)
        before = self.seconds()
        first = (answer.get("findings") or [{}])[0]
        named = [shlex.split(each)[1:] for each in answer.get("next", ())]
        sweeps, fixes = ([each for each in named if each[0] == name] for name in ("sweep", "fix"))
        if first.get("change") and sweeps:
            self.ask(sweeps[0])
            done = json.dumps(first["change"])
        elif fixes:
            answer = self.ask(["fix", "--yes", "--apply", *fixes[0][1:]])
            self.tried = done = "; ".join(answer.get("notes", ())) or "no answer in time"
            sweeps = [shlex.split(each)[1:] for each in answer.get("next", ()) if each.startswith("scalescope sweep")]
            if "Patched" not in done and not sweeps:
                return before, before, ""
            self.ask(sweeps[0] if sweeps else words)
        else:
            return before, before, ""
        after = self.seconds()
        kept = before is not None and after is not None and after < 0.95 * before
        return before, (after if kept else before), (done if kept else "")

    def _run(self, words: list[str]) -> str:
        environ = {**os.environ, "SCALESCOPE_STORE": f"sqlite:///{self.folder.parent}/store.db"}
        try:
            done = subprocess.run(
                [SCALESCOPE, *words], cwd=self.folder, env=environ, capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout


def words_of(case: Case) -> list[str]:
    """The command by which a user diagnoses the case."""
    if not case.cluster:
        return ["run", case.file.name, case.title]
    axes = {"workers": ",".join(map(str, case.workers)), "threads_per_worker": case.threads, **case.params}
    options = [f"{name}={value}" for name, value in case.cluster.items() if name != "kind"]
    limits = ["--timeout", str(case.timeout_s)]
    words = ["sweep", "-w", f"{case.file.name}:{case.title}", "-c", case.cluster["kind"], *limits]
    words += [each for name, value in axes.items() for each in ("-a", f"{name}={value}")]
    return words + [each for option in options for each in ("--cluster-option", option)]


def tried(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="scalescope-agent-") as kept:
        agent = Agent(Path(kept, "cases"))
        shutil.copytree(FOLDER, agent.folder, ignore=shutil.ignore_patterns("__pycache__"))
        before, after, did = agent.solve(words_of(case))
        expert = None
        if case.expect != HEALTHY and (case.lever or case.mended_by):
            other = Agent(agent.folder)
            shutil.copytree(FOLDER, agent.folder, dirs_exist_ok=True)
            other.ask(words_of(case.mended()))
            expert = other.seconds()
    share = None
    if before and after and expert and expert < before:
        share = min((before - after) / (before - expert), 1.0)
    row = {"case": case.name, "label": case.expect, "before": before, "after": after, "expert": expert, "did": did}
    read = {"tokens": agent.characters // CHARACTERS, "commands": agent.commands}
    return {**row, **read, "tried": agent.tried, "share": share}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", help="names of cases, with * and ?")
    parser.add_argument("--kind", default="*", help="kind of cluster, or script")
    parser.add_argument("--save", type=Path, default=Path("agent.jsonl"), help="a line for each case; goes on from it")
    asked = parser.parse_args()
    known = [json.loads(line) for line in asked.save.read_text().splitlines()] if asked.save.exists() else []
    done = {each["case"] for each in known}
    cases = [each for each in (*functions(), *scripts()) if fnmatch.fnmatch(each.name, asked.only)]
    cases = [each for each in cases if fnmatch.fnmatch(each.cluster.get("kind", "script"), asked.kind)]
    with ThreadPoolExecutor(2) as pool, asked.save.open("a") as stream:
        for row in pool.map(tried, [each for each in cases if each.name not in done]):
            known.append(row)
            stream.write(json.dumps(row) + "\n")
            stream.flush()
            print(row, flush=True)
    healthy = [each for each in known if each["label"] == HEALTHY]
    slow = [each for each in known if each["share"] is not None]
    acted = [each for each in slow if each["did"]]
    rows = [["all with a gain", len(slow), f"{mean([each['share'] for each in slow] or [0]):.0%}"]]
    rows += [["of these, where it could act", len(acted), f"{mean([each['share'] for each in acted] or [0]):.0%}"]]
    print(table(["cases", "number", "share of the expert's gain"], rows))
    for name in ("tokens", "commands"):
        print(f"{name}: {median(each[name] for each in known)} in the median, {max(e[name] for e in known)} at most")
    print(f"healthy and left alone: {sum(not each['did'] for each in healthy)} of {len(healthy)}")
    return 0
