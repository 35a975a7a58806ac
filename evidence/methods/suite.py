"""The whole suite at small size on two workers: what every workload takes, and whether its result is right.

    python -m evidence suite [WORKLOAD ...]

The exit status is 1 if a trial is not valid.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from evidence.speed.trials import table
from scalescope import workloads
from scalescope.driver.process import Driver
from scalescope.errors import ScalescopeError
from scalescope.model.cluster import cluster_spec
from scalescope.model.sweep import PlannedTrial, Sweep
from scalescope.workloads.suite import SUITE, SuiteEntry


def trial(driver: Driver, number: int, entry: SuiteEntry) -> list[object]:
    workload, began = workloads.load(entry.workload), time.monotonic()
    try:
        workloads.check_installed(workload)
        (point,) = Sweep.from_mapping({"workload": entry.workload, "points": [{"workers": 2, **entry.small}]}).expand(
            workload
        )
        outcome = driver.run(PlannedTrial(number, point, 0), entry.workload, timeout_s=300)
    except ScalescopeError as error:
        return [entry.workload, workload.version, "", "", "not run", str(error).splitlines()[0]]
    elapsed = "" if outcome.elapsed_s is None else f"{outcome.elapsed_s:.1f}"
    took = f"{time.monotonic() - began:.1f}"
    return [entry.workload, workload.version, elapsed, took, outcome.state.value, outcome.reason or outcome.result]


def main() -> int:
    names = sys.argv[1:]
    chosen = [entry for entry in SUITE if not names or entry.workload in names]
    began, rows = time.monotonic(), []
    for fields in {tuple(entry.cluster.items()) for entry in chosen}:
        with (
            tempfile.TemporaryDirectory() as folder,
            Driver.start(cluster_spec({"kind": "local", **dict(fields)}), folder=Path(folder)) as driver,
        ):
            for number, entry in enumerate(entry for entry in chosen if tuple(entry.cluster.items()) == fields):
                rows.append(trial(driver, number, entry))
                print(*rows[-1], flush=True)
    print(table(["workload", "version", "call, s", "trial, s", "state", "result"], sorted(rows, key=str)))
    print(f"\n{len(rows)} workloads in {time.monotonic() - began:.0f} s")
    return int(any(row[4] != "valid" for row in rows))
