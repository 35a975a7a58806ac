"""Runs one trial after another on the real clusters, for the benchmarks beside this file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalescope import workloads
from scalescope.analysis.measure import measure
from scalescope.driver.process import Driver
from scalescope.model import spool
from scalescope.model.cluster import cluster_spec
from scalescope.model.metrics import Metrics
from scalescope.model.sweep import PlannedTrial, Sweep


class Bench:
    """A driver whose trials are measured but not kept."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._count = 0

    def run(self, workload: str, workers: int, params: Mapping[str, Any]) -> Metrics:
        sweep = Sweep.from_mapping({"workload": workload, "points": [{"workers": workers, **params}]})
        (point,) = sweep.expand(workloads.load(workload))
        self._count += 1
        outcome = self.driver.run(PlannedTrial(0, point, self._count), workload, timeout_s=300)
        if outcome.state.value != "valid":
            raise RuntimeError(f"{workload} {dict(params)} on {workers} workers: {outcome.reason}")
        assert outcome.elapsed_s is not None
        tables = spool.read(next(outcome.spool.glob("*.spool")))
        return measure(tables, threads=point.threads, elapsed_s=outcome.elapsed_s)


@contextmanager
def bench(cluster: str | Mapping[str, Any]) -> Iterator[Bench]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Driver.start(cluster_spec(cluster), seed=0, folder=Path(folder)) as driver,
    ):
        yield Bench(driver)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
