"""How the work of Scalescope itself grows: `python -m evidence scale [--tasks 1000000]`.

Each row is measured at n and at n/10: ten times is linear growth, a hundred times is quadratic. Seconds are those of
the CPU; a command's are with the start of its process. The trial runs on the simulated cluster, in batches of 10,000
tasks as a long workload would have them: `beyond` are seconds on the wall before its workload is called and after that
has returned, and the memory is the peak of the driver (scheduler, 100 workers and client in one process) and of its
parent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from evidence.speed.trials import table
from scalescope.model.sweep import PlannedTrial, axis_values
from scalescope.model.trial import Trial
from scalescope.run.drivers import Drivers
from scalescope.run.request import check
from scalescope.run.runner import Runner
from scalescope.run.sweep import begin, run_sweep
from scalescope.run.trials import PROVISION, _refusal
from scalescope.store import row_conversion
from scalescope.store.schema import PointRow, RunState, TrialRow
from scalescope.store.store import Store

BATCH = 10_000
OF_A_RUN = 100
BUDGETED = 100

MOST_BEYOND_S, MOST_MIB = 60.0, 1536
"""What a trial of a million tasks may take beyond its workload, and of memory."""

WORKLOAD = f"""
from pathlib import Path
def run(client, items: int = 10):
    Path(__file__).with_name("called").touch()
    for done in range(0, items, {BATCH}):
        count = min({BATCH}, items - done)
        assert sum(client.gather(client.map(bool, range(1, count + 1), pure=False))) == count
    Path(__file__).with_name("returned").touch()
"""


class Stop(Exception):
    """The trial that comes next would begin."""


class Until(Runner):
    """Stops where the first cluster would be opened."""

    def do(self, step: Any, *arguments: Any) -> Any:
        if step is PROVISION:
            raise Stop
        return super().do(step, *arguments)


def seconds(call: Callable[[], object]) -> float:
    before = cpu_s()
    call()
    return cpu_s() - before


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def parse(n: int) -> float:
    values = list(range(n))
    text = ",".join(map(str, values))
    return max(min(seconds(partial(axis_values, "items", each)) for _ in range(3)) for each in (values, text))


def template(folder: Path) -> Trial:
    given = {"workload": "futures-map", "axes": {"workers": [2], "items": [4]}, "store": str(folder / "template.db")}
    return run_sweep(given).run.trials[0]


def fill(store: Store, run_id: str, plan: Sequence[PlannedTrial], like: Trial) -> None:
    def values(row: PointRow | TrialRow) -> dict[str, Any]:
        return {column.name: getattr(row, column.name) for column in type(row).__table__.columns}

    made = [replace(like, key=each.key, point=each.point, repeat=each.repeat, warmup=False) for each in plan]
    at = datetime.now(UTC)
    with store.writing("fill the store") as session:
        session.execute(
            insert(PointRow).prefix_with("OR IGNORE"), [values(row_conversion.point_row(each.point)) for each in made]
        )
        session.execute(
            insert(TrialRow), [values(row_conversion.trial_row(run_id, each, saved_at=at, records="")) for each in made]
        )


def stopped(folder: Path, n: int) -> dict[str, Any]:
    return {"workload": "futures-map", "axes": {"workers": 2, "items": f"1..{n}"}, "store": str(folder / f"{n}.db")}


def resume(folder: Path, n: int, like: Trial) -> float:
    request = check(stopped(folder, n))
    with request.open_store() as store:
        run, _ = begin(request, store)
        fill(store, run.id, request.plan[:-1], like)
        store.finish(run.id, RunState.STOPPED)

    def again() -> None:
        with contextlib.suppress(Stop):
            run_sweep(stopped(folder, n), Until())

    return seconds(again)


def budget(folder: Path, n: int) -> float:
    """What a budget costs 100 trials of the run that `resume` left."""
    request = check({**stopped(folder, n), "budget": {"hours": 1e6}})
    with request.open_store() as store:
        (run,) = store.runs()
        drivers = Drivers(request, run.id, store)
        _refusal(drivers, request.plan[-1])  # reads all trials, once in a run
        return seconds(lambda: [_refusal(drivers, request.plan[-1]) for _ in range(BUDGETED)])


def filled(folder: Path, n: int, like: Trial, runs: int = 0) -> tuple[Path, str, str]:
    """A store of n trials in so many runs, by default of 100 each, and the ids of the newest two."""
    path, runs = folder / f"many-{n}-{runs}.db", runs or n // OF_A_RUN
    request = check({"workload": "futures-map", "axes": {"items": f"1..{n // runs}"}})
    with Store.open(str(path)) as store:
        for _ in range(runs):
            facts = {"packages": like.facts["packages"]}
            run = store.begin(request.sweep, request.plan, workload_version=request.workload.version, facts=facts)
            fill(store, run.id, request.plan, like)
            store.finish(run.id, RunState.COMPLETE)
        found = store.runs(limit=2)
    return path, found[0].id, found[-1].id


def command(path: Path, *arguments: str) -> float:
    line = [sys.executable, "-c", "from scalescope.cli.main import main; main()", "show", *arguments]
    return seconds(lambda: subprocess.run([*line, "--store", str(path)], check=False, stdout=subprocess.DEVNULL))


def trial(n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "million.py")
        path.write_text(WORKLOAD)
        given = {"workload": f"{path}:run", "axes": {"workers": [100], "items": [n]}, "trial_timeout_s": 86400}
        began = time.time()
        result = run_sweep({**given, "store": str(Path(folder, "store.db"))})
        ended = time.time()
        (found,) = result.run.trials
        if found.state.value != "valid":
            raise SystemExit(found.reason)
        called, returned = (os.stat(path.with_name(name)).st_mtime for name in ("called", "returned"))
    driver, parent = (
        resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)
    )
    beyond_s = (called - began) + (ended - returned)
    print(json.dumps({"beyond_s": beyond_s, "within_s": returned - called, "driver_mib": driver, "parent_mib": parent}))


def trial_elsewhere(n: int) -> dict[str, Any]:
    line = [sys.executable, "-m", "evidence", "scale", "--trial", str(n)]
    found: dict[str, Any] = json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000, help="of the trial; 0 leaves it out")
    parser.add_argument("--trial", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trial:
        trial(arguments.trial)
        return 0
    found: list[tuple[str, int, float, float, float]] = []

    def row(what: str, n: int, most_s: float, measured: Callable[[int], float]) -> None:
        small, large = measured(n // 10), measured(n)
        found.append((what, n, large, small, most_s))
        print(f"{what}: {large:.3f} s", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        like = template(folder)
        row("values of an axis are read", 10_000, 0.05, parse)
        row("a run is resumed, of so many trials", 10_000, 5.0, lambda n: resume(folder, n, like))
        row(f"a budget looks {BUDGETED} times at so many trials", 10_000, 1.0, lambda n: budget(folder, n))
        stores = {n: filled(folder, n, like) for n in (10_000, 100_000)}
        row("show list, of so many trials", 100_000, 2.0, lambda n: command(stores[n][0], "list"))
        row("show RUN", 100_000, 2.0, lambda n: command(stores[n][0], stores[n][1]))
        row(
            "show RUN, of one run with so many points", 10_000, 15.0, lambda n: command(*filled(folder, n, like, 1)[:2])
        )
        row("show compare RUN RUN", 100_000, 2.0, lambda n: command(stores[n][0], "compare", *stores[n][1:3]))
    print(table(["what", "n", "seconds", "at n/10", "at most"], [[*map(shown, each)] for each in found]))
    within = all(each[2] <= each[-1] for each in found)
    if arguments.tasks:
        small, large = trial_elsewhere(arguments.tasks // 10), trial_elsewhere(arguments.tasks)
        print(f"\nA trial of {arguments.tasks:,} tasks, and of a tenth, on the simulated cluster:\n")
        lines = [[name.replace("_", ", "), round(large[name], 1), round(small[name], 1)] for name in large]
        print(table(["what", "n", "n/10"], lines))
        within &= large["beyond_s"] <= MOST_BEYOND_S and max(large["driver_mib"], large["parent_mib"]) <= MOST_MIB
    return int(not within)


def shown(value: float | str) -> str:
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
