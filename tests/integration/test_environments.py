"""Drivers in other software environments, from the releases of 2023 on, with nothing in them but what a trial needs.

uv builds the environments once and keeps them. Where they cannot be had the tests are skipped, or fail if
SCALESCOPE_REQUIRE names environments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scalescope import environments, workloads
from scalescope.analysis.measure import measure
from scalescope.driver.process import Driver, TrialOutcome
from scalescope.errors import EnvironmentUnavailable
from scalescope.model.cluster import cluster_spec
from scalescope.model.environment import Environment
from scalescope.model.metrics import WORKER_TIME
from scalescope.model.sweep import PlannedTrial, Point, Sweep
from scalescope.model.trial import TrialState
from scalescope.run.trials import read_records

pytestmark = pytest.mark.timeout(280)

TEXTS = {
    "2023.5": "apache-beam==2.47.0 dask[distributed]==2023.5.0",
    "2023.9": "apache-beam==2.50.0 dask[distributed]==2023.9.1",
    "2024.8": "distributed==2024.8.0",
    "newest": "distributed",
}
WITH_BEAM = ("2023.5", "2023.9")
PLACES = (
    *(("2023.5", "simulated"), ("2023.5", "light"), ("2023.5", "local"), ("2023.9", "simulated")),
    *(("2023.9", "local"), ("2024.8", "simulated"), ("2024.8", "light"), ("newest", "simulated"), ("newest", "local")),
)
PARAMS: dict[str, dict[str, Any]] = {
    "futures-map": {"items": 6, "seconds": 0.05, "stages": 2},
    "bag-map": {"items": 6, "seconds": 0.05},
    "tree-reduce": {"items": 6, "seconds": 0.05},
    "beam-pardo": {"items": 6, "seconds": 0.05},
}
SLEPT_S = 0.04

OWN_WORKLOADS = """
def fail_at_three(number):
    if number == 3:
        raise ValueError("three is too many")
    return number

def failing(client, *, items: int = 6):
    client.gather(client.map(fail_at_three, range(items), pure=False))

def last_words(number):
    import os
    os._exit(17)

def deadly(client, *, items: int = 1):
    client.submit(last_words, 1, pure=False).exception()
"""


@dataclass(frozen=True)
class Place:
    """A driver with its environment and its kind of cluster."""

    environment: str
    kind: str
    driver: Driver


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Place]]:
    """Opens one driver per environment and kind of cluster, which all tests share in any order."""
    with ExitStack() as stack:

        @cache
        def place(environment: str, kind: str) -> Place:
            built = environments.ensure(Environment.parse(TEXTS[environment]))
            spec = cluster_spec({"kind": kind, **({"check_limit": False} if kind == "light" else {})})
            driver = Driver.start(spec, folder=tmp_path_factory.mktemp(kind), python=built.python)
            return Place(environment, kind, stack.enter_context(driver))

        yield place


@pytest.fixture
def place(request: pytest.FixtureRequest, places: Callable[[str, str], Place], missing: Any) -> Place:
    environment, kind = request.param
    if environment != "newest" and sys.version_info >= (3, 12):
        pytest.skip("these releases have wheels for Python 3.11 alone")
    try:
        return places(environment, kind)
    except EnvironmentUnavailable as error:
        missing("environments", f"{error.what}: {(error.cause.splitlines() or [error.next_step])[0]}")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN_WORKLOADS)
    return path


def run(place: Place, workload: str, workers: int = 2, **params: Any) -> tuple[Point, TrialOutcome, dict[str, Any]]:
    sweep = Sweep.from_mapping({"workload": workload, "points": [{"workers": workers, **params}]})
    (point,) = sweep.expand(workloads.load(workload))
    outcome = place.driver.run(PlannedTrial(0, point, 0), workload, timeout_s=100)
    return point, outcome, read_records(outcome.spool)


def variant(place: tuple[str, str]) -> Any:
    """`make test` runs only the oldest and the newest release."""
    return [] if {"2023.5", "newest"} & {*place} and "light" not in place else [pytest.mark.thorough]


everywhere = pytest.mark.parametrize(
    "place", [pytest.param(each, marks=variant(each), id="-".join(each)) for each in PLACES], indirect=True
)


@everywhere
def test_the_driver_runs_in_the_requested_environment(place: Place) -> None:
    versions = place.driver.versions
    assert place.environment == "newest" or versions["distributed"].startswith(place.environment)
    assert ("apache-beam" in place.driver.packages) == (place.environment in WITH_BEAM)
    assert "prefect" not in place.driver.packages
    assert "scalescope" not in place.driver.packages


@pytest.mark.parametrize(
    ("place", "name"),
    [
        pytest.param(place, name, marks=variant(place), id=f"{'-'.join(place)}-{name}")
        for place in PLACES
        for name in PARAMS
        if name != "beam-pardo" or place[0] in WITH_BEAM
    ],
    indirect=["place"],
)
def test_a_workload_runs_in_an_older_environment_and_has_metrics(place: Place, name: str) -> None:
    point, outcome, tables = run(place, name, **PARAMS[name])
    assert outcome.state is TrialState.VALID, outcome.reason
    assert not outcome.warnings
    assert outcome.elapsed_s is not None
    metrics = measure(tables, threads=point.threads, elapsed_s=outcome.elapsed_s)
    assert metrics.tasks == {"futures-map": 12, "bag-map": 13, "tree-reduce": 7, "beam-pardo": 28}[name]
    assert metrics.workers_used == 2
    assert metrics.ideal_s <= metrics.makespan_s * (1 + 1e-9)
    assert set(metrics.worker_time_s) == set(WORKER_TIME)
    assert sum(metrics.worker_time_s.values()) == pytest.approx(
        2 * max(outcome.elapsed_s, metrics.makespan_s), rel=0.01
    )
    assert metrics.worker_time_s["busy"] >= 6 * 0.05
    assert sum(tables["graphs"]["tasks"]) >= metrics.tasks


@everywhere
def test_a_failing_function_in_an_older_environment_is_recorded(place: Place, own: Path) -> None:
    _, outcome, tables = run(place, f"{own}:failing")
    assert outcome.state is TrialState.FAILED
    assert "three is too many" in outcome.reason
    assert list(tables["tasks"]["status"]).count(1) == 1
    assert any("three is too many" in message for message in tables["events"]["message"])


@pytest.mark.thorough
@pytest.mark.parametrize("place", [("2024.8", "simulated")], indirect=True, ids="-".join)
def test_a_workload_with_missing_packages_names_the_interpreter(place: Place) -> None:
    _, outcome, _ = run(place, "beam-pardo", items=4, seconds=0.05)
    assert outcome.state is TrialState.FAILED
    assert "needs apache-beam" in outcome.reason
    assert place.driver.host["executable"] in outcome.reason


@pytest.mark.parametrize("place", [("2023.5", "local")], indirect=True, ids="-".join)
def test_facts_that_an_old_release_does_not_provide_are_noted(place: Place, own: Path) -> None:
    _, outcome, tables = run(place, f"{own}:deadly")
    assert outcome.state is TrialState.INVALID
    assert "lost" in outcome.reason
    assert any("why a worker left" in note for note in outcome.facts["capture"]["notes"])
    assert any('"exitcode": 17' in message for message in tables["events"]["message"])


@pytest.mark.thorough
@pytest.mark.parametrize("place", [("2023.5", "simulated"), ("2024.8", "simulated")], indirect=True, ids="-".join)
def test_simulated_trials_of_old_releases_are_exactly_repeatable(place: Place) -> None:
    runs = [run(place, "tree-reduce", 10, items=60, seconds=0.2)[1:] for _ in range(2)]
    (first, tables), (second, again) = runs
    assert first.elapsed_s == second.elapsed_s
    for recorded in (tables, again):
        recorded["tasks"].pop("thread")  # thread ids of the operating system differ
    assert tables == again


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("place", "name", "items", "tasks", "workers"),
    [
        # apache/beam#26669 and dask/dask#10291: from 200 items on, 100 partitions
        (("2023.5", "simulated"), "beam-pardo", 199, 800, 199),
        pytest.param(("2023.5", "simulated"), "bag-map", 200, 201, 100, marks=pytest.mark.thorough),
        pytest.param(("2023.5", "simulated"), "beam-pardo", 200, 404, 100, marks=pytest.mark.thorough),
        # the first fix: a sawtooth
        pytest.param(("2023.9", "simulated"), "beam-pardo", 101, 208, 51, marks=pytest.mark.thorough),
        pytest.param(("2023.9", "simulated"), "bag-map", 101, 103, 51, marks=pytest.mark.thorough),
    ],
    indirect=["place"],
)
def test_old_releases_make_as_many_partitions_as_their_bug_reports_say(
    place: Place, name: str, items: int, tasks: int, workers: int
) -> None:
    _, outcome, tables = run(place, name, items + 5, items=items, seconds=0.05)
    assert outcome.state is TrialState.VALID, outcome.reason
    recorded = tables["tasks"]
    assert len(recorded["key"]) == tasks
    slept = zip(recorded["worker"], recorded["start"], recorded["stop"], strict=True)
    assert len({worker for worker, start, stop in slept if stop - start > SLEPT_S}) == workers
