"""Workloads of each kind on every cluster, through the driver, recorded and measured; the suite is in test_suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scalescope import workloads
from scalescope.analysis.measure import measure
from scalescope.driver.process import Driver, TrialOutcome
from scalescope.model.cluster import cluster_spec
from scalescope.model.metrics import WORKER_TIME, Metrics
from scalescope.model.sweep import PlannedTrial, Sweep
from scalescope.model.trial import TrialState
from scalescope.run.trials import read_records

pytestmark = pytest.mark.timeout(240)

PARAMS: dict[str, dict[str, Any]] = {
    "futures-map": {"items": 6, "seconds": 0.1},
    "bag-map": {"items": 6, "seconds": 0.1},
    "beam-pardo": {"items": 6, "seconds": 0.05, "npartitions": "items"},
    "beam-files": {"items": 4, "size": 16, "kib": 4, "npartitions": "items"},
    "array-matmul": {"items": 2, "chunk": 32},
    "dataframe-shuffle": {"items": 4, "rows": 100},
    "tree-reduce": {"items": 6, "seconds": 0.1},
}
OWN_PIPELINE = """
def run(client, items: int = 6):
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.dask.dask_runner import DaskRunner

    options = PipelineOptions([f"--dask_client_address={client.scheduler.address}", "--dask_npartitions=3"])
    with beam.Pipeline(runner=DaskRunner(), options=options) as pipeline:
        squares = pipeline | beam.Create(range(items)) | beam.Map(square)
        squares | beam.CombineGlobally(sum) | beam.Map(check, sum(map(square, range(items))))


def square(item):
    return item * item


def check(total, expected):
    if total != expected:
        raise ValueError(f"{total} instead of {expected}")
"""
CLUSTERS = ("simulated", "light", "local")


# What `make test` runs: these kinds of work on simulated workers, and Beam on light ones; test_suite has real workers
SHORT = {("simulated", name) for name in ("futures-map", "dataframe-shuffle", "beam-files", "beam-pardo")}
SHORT |= {("light", "futures-map")}


@pytest.fixture(scope="module", params=CLUSTERS)
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    spec = cluster_spec({"kind": request.param, **({"check_limit": False} if request.param == "light" else {})})
    with Driver.start(spec, folder=tmp_path_factory.mktemp(request.param)) as driver:
        yield driver


def run(driver: Driver, name: str, **point: Any) -> tuple[Metrics, TrialOutcome]:
    (planned,) = Sweep.from_mapping({"workload": name, "points": [point]}).expand(workloads.load(name))
    outcome = driver.run(PlannedTrial(0, planned, 0), name, timeout_s=200)
    assert outcome.state is TrialState.VALID, outcome.reason
    tables = read_records(outcome.spool)
    return measure(tables, threads=planned.threads, elapsed_s=outcome.elapsed_s or 0.0), outcome


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        pytest.param(kind, name, marks=[] if (kind, name) in SHORT else [pytest.mark.thorough], id=f"{kind}-{name}")
        for kind in CLUSTERS
        for name in PARAMS
    ],
    indirect=["driver"],
)
def test_a_workload_runs_on_every_cluster_kind_and_has_metrics(driver: Driver, name: str) -> None:
    metrics, outcome = run(driver, name, workers=2, **PARAMS[name])
    assert outcome.elapsed_s is not None
    assert metrics.tasks > 0
    assert 1 <= metrics.workers_used <= 2
    assert metrics.ideal_s <= metrics.makespan_s * (1 + 1e-9)
    assert set(metrics.worker_time_s) == set(WORKER_TIME)
    assert sum(metrics.worker_time_s.values()) == pytest.approx(2 * outcome.elapsed_s)


@pytest.mark.parametrize(
    "driver", ["simulated", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in CLUSTERS[1:])], indirect=True
)
def test_a_beam_pipeline_of_the_user_runs_on_every_cluster_kind(driver: Driver, tmp_path: Path) -> None:
    """The pipeline combines over partitions, so each partition must have only its own items."""
    pytest.importorskip("apache_beam")
    path = tmp_path / "pipeline.py"
    path.write_text(OWN_PIPELINE)
    run(driver, f"{path}:run", workers=2, items=6)


@pytest.mark.parametrize("driver", ["simulated"], indirect=True)
@pytest.mark.parametrize(("items", "partitions"), [(100, 100), (101, 51)])
def test_one_more_item_can_halve_the_parallelism_of_a_bag(driver: Driver, items: int, partitions: int) -> None:
    """dask.bag.from_sequence: one item more can halve the parallelism."""
    metrics, _ = run(driver, "bag-map", workers=100, items=items)
    assert metrics.widest_stage == partitions
    assert metrics.peak_runnable == partitions


@pytest.mark.thorough
@pytest.mark.parametrize("driver", ["simulated"], indirect=True)
def test_the_shortest_task_with_half_efficiency_lasts_4_to_8_ms(driver: Driver) -> None:
    """The minimum effective task granularity (METG) of docs/reference/metrics.md."""
    found = [run(driver, "futures-map", workers=16, items=800, seconds=each)[0] for each in (0.004, 0.008)]
    assert [round(each.efficiency, 2) for each in found] == [0.43, 0.61]
