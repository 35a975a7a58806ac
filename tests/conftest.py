"""Fixtures that several packages need: a Prefect server, and runs with records."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from scalescope.analysis.measure import measure
from scalescope.analysis.verdict import diagnose
from scalescope.model.records import TABLES
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.store.schema import RunState
from scalescope.store.store import SweepRun


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """One temporary Prefect server for the whole session; a start costs many seconds."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with (
        prefect_test_harness(server_startup_timeout=120),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),  # a second at the end of every flow
    ):
        yield


# ------------------------------------------------------------------ runs with records


@dataclass(frozen=True)
class RecordedRun:
    """A run as the store would return it, and the records of its trials by key."""

    run: SweepRun
    tables: dict[str, dict[str, Any]]

    def read(self, trial: Trial) -> dict[str, Any]:
        return self.tables[trial.key]


Rename = Callable[[str], str]


def _records(workers: int, waves: int, rename: Rename) -> dict[str, Any]:
    """Each worker runs a task a second, one after the other, in two stages; the last worker never does."""
    tasks: list[dict[str, Any]] = []
    needs: list[tuple[int, int]] = []
    for wave in range(waves):
        for i in range(max(workers - 1, 1)):
            row = {name: "" if kind == "str" else 0 for name, kind in TABLES["tasks"].items()}
            stage = "load" if wave < waves / 2 else "sum"
            begin = 1000.0 + wave
            if wave:
                needs.append((len(tasks), len(tasks) - max(workers - 1, 1)))
            row |= {"key": rename(f"{stage}-{wave}-{i}"), "prefix": rename(stage), "group": rename(f"{stage}-abcdef")}
            row |= {"worker": rename(f"tcp://10.0.0.{i}:1"), "thread": i + 1, "assigned": begin, "runnable": begin}
            tasks.append(row | {"start": begin, "stop": begin + 1, "done": begin + 1, "span": wave + 1.0})
    tables = {
        "tasks": tasks,
        "dependencies": [{"task": task, "needs": need} for task, need in needs],
        "workers": [
            {"worker": rename(f"tcp://10.0.0.{i}:1"), "name": rename(f"{i}"), "host": "h", "nthreads": 1}
            | {"joined": 990.0, "left": 0.0, "reason": ""}
            for i in range(workers)
        ],
        "memory": [
            {"worker": name, "time": 1000.0 + second, "rss": 2**30, "managed": 2**20, "spilled": 0, "cpu": 1.0}
            for name in (rename("tcp://10.0.0.0:1"), "scheduler")
            for second in range(waves)
        ],
    }
    return {
        name: {
            column: [row[column] for row in tables.get(name, ())]
            if kind == "str"
            else array(kind, [row[column] for row in tables.get(name, ())])
            for column, kind in TABLES[name].items()
        }
        for name in TABLES
    }


@pytest.fixture(scope="session")
def recorded_run() -> Callable[..., RecordedRun]:
    """Builds a run of one trial for each number of workers; `rename` changes every name from outside."""

    def build(workers: Sequence[int] = (4,), *, waves: int = 4, rename: Rename = str, **given: Any) -> RecordedRun:
        tables, trials = {}, []
        for count in workers:
            point = Point(count, 1, {"items": count, "label": rename("text")})
            records = _records(count, waves, rename)
            metrics = measure(records, threads=count, elapsed_s=float(waves))
            facts = {"cluster": {"kind": "simulated", "clock": "virtual", "shows": rename("shows")}, "python": "3.11"}
            facts |= {"packages": {rename("dask"): rename("2026.1")}, "host": {"hostname": rename("host")}}
            trial = Trial(f"{point.id}-r0", point, 0, False, TrialState.VALID, metrics=metrics, facts=facts)
            trial = replace(trial, **{"records": "somewhere", **given})
            if trial.state is not TrialState.VALID:
                trial = replace(trial, metrics=None)
            trials.append(trial)
            tables[trial.key] = records
        sweep = Sweep(rename("mine"), params={"label": rename("text")})
        run = SweepRun(
            id="20260101-000000-abcdef",
            sweep=sweep,
            workload_version=1,
            state=RunState.COMPLETE,
            planned=len(trials),
            trials=tuple(trials),
            verdict=diagnose(sweep, trials),
            created_at="2026-01-01T00:00:00.5+00:00",
            finished_at="2026-01-01T00:01:00+00:00",
            where=rename("store.db"),
        )
        return RecordedRun(run, tables)

    return build
