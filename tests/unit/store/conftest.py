from __future__ import annotations

import os
import shutil
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scalescope.model.metrics import METRICS, WORKER_TIME, Combine, Metrics
from scalescope.model.records import TABLES
from scalescope.model.sweep import Point, Sweep
from scalescope.model.trial import Trial, TrialState
from scalescope.store import Store


@pytest.fixture(scope="session")
def child_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of child processes: they share bytecode even where this one writes none, and so start in a third of the time."""
    cache = str(tmp_path_factory.mktemp("bytecode"))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": cache}


@pytest.fixture
def sweep() -> Sweep:
    return Sweep.from_mapping({"workload": "bag-map", "cluster": "light", "axes": {"workers": [1, 2, 4]}, "seed": 7})


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    def make(number: int = 0, **changes: Any) -> Trial:
        params = {"items": 100 + number, "name": "ü"}
        point = Point(number + 1, 2, params, {"distributed.scheduler.work-stealing": False})
        counts = {name for name, metric in METRICS.items() if metric.combine is Combine.LOWER_MEDIAN}
        measured: dict[str, Any] = {name: 50 if name in counts else 0.125 for name in METRICS}
        measured |= {"makespan_s": 10.25 + number, "worker_time_s": dict.fromkeys(WORKER_TIME, 1.5)}
        given: dict[str, Any] = {
            "key": f"{point.id}-r{number}",
            "point": point,
            "repeat": number,
            "warmup": False,
            "state": TrialState.VALID,
            "metrics": Metrics(**measured),
            "started_at": "2026-11-21T14:30:05.123456+00:00",
            "real_s": 0.125,
            "facts": {"cluster": {"kind": "light", "limit": 300}, "packages": {"dask": "2026.8.0"}},
            "warnings": ("one sentence.", "another."),
        }
        return Trial(**{**given, **changes})

    return make


@pytest.fixture
def make_tables() -> Callable[..., dict[str, dict[str, Any]]]:
    """Two tables of raw records; `rows` tells trials apart."""

    def make(rows: int = 3) -> dict[str, dict[str, Any]]:
        tables: dict[str, dict[str, Any]] = {}
        for name in ("tasks", "events"):
            tables[name] = {
                column: [f"{column}-{i}" for i in range(rows)]
                if kind == "str"
                else array(kind, [i + 0.5 if kind in "df" else i % 100 for i in range(rows)])
                for column, kind in TABLES[name].items()
            }
        return tables

    return make


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store: each test that takes it runs on both databases."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    server: Any = request.getfixturevalue("postgresql")
    return server.create()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite store without runs, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "store.db"
    Store.open(str(path)).close()
    return path


@pytest.fixture
def store(url: str, migrated: Path, tmp_path: Path) -> Iterator[Store]:
    if "://" not in url:
        shutil.copy(migrated, url)
    with Store.open(url, str(tmp_path / "raw")) as opened:
        yield opened
