"""Runs all labelled cases of `tests/causes/cases.py` and prints how often the cause was named first."""

from __future__ import annotations

import argparse
import fnmatch
import pickle
import sys
import time
from dataclasses import replace
from pathlib import Path

import cases as labelled
from matrix import Rates, Result, count, run, shows_its_label

from scalescope.analysis.events import Tables
from scalescope.analysis.measure import measure
from scalescope.diagnosis import causes
from scalescope.diagnosis.observation import Observation
from scalescope.diagnosis.verdict import diagnose
from scalescope.model.sweep import Sweep
from scalescope.model.trial import Trial

RECALL, FALSE_ALARMS = 0.95, 0.01
"""What is asked of the whole set: recall at least, and healthy cases accused at most."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", help="names of cases, with * and ?")
    parser.add_argument("--cases", action="store_true", help="print what each case lost instead of the matrix")
    parser.add_argument("--save", type=Path, help="keep the records in this file")
    parser.add_argument("--load", type=Path, help="judge the records in this file again, instead of running anything")
    arguments = parser.parse_args()
    began = time.monotonic()
    if arguments.load:
        results = [rejudged(result) for result in pickle.loads(arguments.load.read_bytes())]
        results = [result for result in results if fnmatch.fnmatch(result.case.name, arguments.only)]
    else:
        chosen = [case for case in labelled.all_cases() if fnmatch.fnmatch(case.name, arguments.only)]
        results = run(chosen, at_once=2, finished=lambda result: print(line(result), file=sys.stderr, flush=True))
    if arguments.save:
        arguments.save.write_bytes(pickle.dumps(results))
    rates = count(results)
    if arguments.cases:
        print("\n".join(line(result) for result in results))
    else:
        print(text(results, rates))
    print(f"{len(results)} cases in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0 if rates.overall >= RECALL and rates.false_alarms <= FALSE_ALARMS else 1


def rejudged(result: Result) -> Result:
    trials = tuple(anew(trial, tables) for trial, tables in zip(result.trials, result.tables, strict=True))
    verdict = diagnose(Sweep.from_mapping(result.case.sweep()), trials)
    return replace(result, trials=trials, verdict=verdict)


def anew(trial: Trial, tables: Tables) -> Trial:
    """The trial as it would be measured and judged now."""
    if trial.metrics is not None:
        elapsed_s = trial.metrics.elapsed_s
        trial = replace(trial, metrics=measure(tables, threads=trial.point.threads, elapsed_s=elapsed_s))
    return replace(trial, findings=causes.find(Observation.of(trial, tables)))


def line(result: Result) -> str:
    mark = "host" if result.spoilt else "ok  " if result.right else "MISS"
    parts: dict[str, float] = {}
    for trial in result.trials:
        if trial.metrics is not None:
            whole = sum(trial.metrics.worker_time_s.values())
            parts = {k: v / whole for k, v in trial.metrics.worker_time_s.items() if v / whole > 0.02}
    shares = " ".join(f"{name}={share:.0%}" for name, share in parts.items())
    states = ",".join(dict.fromkeys(str(trial.state) for trial in result.trials))
    return (
        f"{mark} {result.case.name:52} {result.real_s:5.1f} s  lost {result.lost:4.0%} {doubt(result):8} "
        f"{states:8} -> {', '.join(result.codes[:4])}   [{shares}]"
    )


def doubt(result: Result) -> str:
    if result.case.quiet_loss:
        return "(quiet)"
    return "" if shows_its_label(result) else "DOUBTFUL"


def text(results: list[Result], rates: Rates) -> str:
    lines = [f"{'expected':28} {'cases':>5} {'right':>5} {'recall':>7}  named first instead"]
    for code, (cases, right) in rates.recall.items():
        others = {named: n for (expected, named), n in rates.confusions.items() if expected == code}
        wrong = ", ".join(f"{named} x{n}" for named, n in sorted(others.items(), key=lambda item: -item[1]))
        lines.append(f"{code:28} {cases:5} {right:5} {right / cases:7.0%}  {wrong}")
    alarms = ", ".join(f"{named} x{n}" for (code, named), n in rates.confusions.items() if code == labelled.HEALTHY)
    lines += [
        f"{'healthy':28} {rates.healthy:5} {rates.healthy - rates.accused:5} {1 - rates.false_alarms:7.0%}  {alarms}",
        "",
        f"recall {rates.overall:.1%} (at least {RECALL:.0%})",
        f"healthy accused {rates.false_alarms:.1%} (at most {FALSE_ALARMS:.0%})",
        f"left out, since the host was too busy to tell: {rates.spoilt}",
    ]
    missed = [line(result) for result in results if not (result.right or result.spoilt)]
    return "\n".join([*lines, "", *missed])
