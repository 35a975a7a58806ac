"""Runs scripts that others wrote, whose causes are known, by `scalescope run`.

`--prove` runs each with its remedy, too. One Prefect server serves all flows but those that are to have none.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from declare import HEALTHY, Case, scripts
from support import prefect_home

from scalescope.model.finding import Severity

LIMIT_S = 200.0  # seconds in which a script must be over
WORSE = (Severity.HIGH, Severity.MEDIUM, Severity.LOW)


@dataclass(frozen=True)
class Outcome:
    script: Case
    codes: tuple[str, ...]  # findings that are worse than information
    line: str  # the verdict
    elapsed_s: float | None  # of the call; None where nothing was measured
    problem: str = ""

    @property
    def named(self) -> str:
        return self.codes[0] if self.codes else HEALTHY

    @property
    def right(self) -> bool:
        busy = [code for code in self.codes if code != "host-overloaded"]  # of this machine, not of the script
        return (busy[0] if busy else HEALTHY) in self.script.labels and not self.problem


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=["*"], help="names of scripts, with * and ?")
    parser.add_argument("--prove", action="store_true", help="run each with its remedy, too")
    parser.add_argument("--save", type=Path, help="append what came out, as JSON lines")
    arguments = parser.parse_args()
    chosen = [s for s in scripts() if any(fnmatch.fnmatch(s.name, only) for only in arguments.only)]
    with tempfile.TemporaryDirectory() as folder:
        server = server_for(chosen, Path(folder))
        try:
            outcomes = [told(each, environment(each, server, Path(folder)), arguments) for each in chosen]
        finally:
            if server is not None:
                server.stop()
    for label, of in (("causes", lambda s: s.expect != HEALTHY), ("healthy", lambda s: s.expect == HEALTHY)):
        found = [outcome for outcome in outcomes if of(outcome.script)]
        print(f"{label}: {sum(outcome.right for outcome in found)} of {len(found)} right")
    return 0


def server_for(chosen: list[Case], folder: Path) -> Any:
    if not any("from prefect" in each.file.read_text(encoding="utf-8") for each in chosen):
        return None
    from scalescope_flows.server import Server

    os.environ["PREFECT_HOME"] = str(prefect_home.fill(folder / "prefect"))
    server = Server()
    server.wait()
    return server


def environment(script: Case, server: Any, folder: Path) -> Mapping[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    plain |= {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",  # of the servers that workers start themselves
    }
    return plain if server is None else {**plain, **server.client}


def told(script: Case, variables: Mapping[str, str], arguments: argparse.Namespace) -> Outcome:
    alone = {name: value for name, value in variables.items() if not name.startswith("PREFECT_API")}
    outcome = run(script, alone if script.without_server else variables)
    proof, after_s = "", None
    if arguments.prove and script.mended_by:
        mended = run(script.mended(), variables)
        after_s = mended.elapsed_s
        if outcome.elapsed_s and after_s:
            proof = f"; mended {outcome.elapsed_s / after_s:.2f} x faster (wanted {script.factor:g})"
        proof += f"; mended says {', '.join(mended.codes) or HEALTHY} {mended.problem}"
    mark = "right" if outcome.right else "WRONG"
    print(f"{mark} {script.name}: {', '.join(outcome.codes) or HEALTHY}; wanted {' or '.join(script.labels)}{proof}")
    print(f"      {outcome.line} {outcome.problem}", flush=True)
    if arguments.save:
        with arguments.save.open("a") as stream:
            stream.write(
                json.dumps([script.name, outcome.right, outcome.codes, outcome.line, outcome.elapsed_s, after_s]) + "\n"
            )
    return outcome


def run(script: Case, variables: Mapping[str, str]) -> Outcome:
    main = "from scalescope.cli.main import main; main()"
    command = [sys.executable, "-c", main, "run", "--no-save", "--json", str(script.file), script.title]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env=dict(variables),
            cwd=script.file.parent,
        )
    except subprocess.TimeoutExpired:
        return Outcome(script, (), "", None, f"not over in {LIMIT_S:g} s")
    try:
        told = json.loads(done.stdout)
        (cluster,) = told["clusters"]
    except ValueError:
        return Outcome(script, (), "", None, f"status {done.returncode}: {done.stdout[-300:]} {done.stderr[-1500:]}")
    findings = cluster["verdict"]["findings"]
    codes = tuple(each["code"] for each in findings if Severity(each["severity"]) in WORSE)
    elapsed_s = cluster["points"][0].get("elapsed_s") if cluster["points"] else None
    return Outcome(script, codes, cluster["verdict"]["line"], elapsed_s, "; ".join(told["problems"]))
