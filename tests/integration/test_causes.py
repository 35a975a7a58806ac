"""A user's own functions on a real scheduler and real workers: recorded, diagnosed, and the cause named first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scalescope import workloads
from scalescope.diagnosis.verdict import diagnose
from scalescope.driver.process import Driver
from scalescope.model.cluster import cluster_spec
from scalescope.model.finding import Severity, Verdict
from scalescope.model.sweep import PlannedTrial, Sweep
from scalescope.model.trial import Trial
from scalescope.run.engine import judged

pytestmark = pytest.mark.timeout(240)

SOURCE = """
import random
import time


def work(seconds):
    time.sleep(seconds)


def pair(*parts):
    time.sleep(1)


def fine(client):
    client.gather(client.map(work, [1] * 80, pure=False))


def fine_submit(client):
    client.gather([client.submit(work, 1, pure=False) for _ in range(80)])


def reduction_tree(client):
    layer = client.map(work, [1] * 80, pure=False)
    while len(layer) > 1:
        layer = [client.submit(pair, *layer[i : i + 2], pure=False) for i in range(0, len(layer), 2)]
    layer[0].result()


def loop(client):
    for _ in range(30):
        client.submit(work, 1, pure=False).result()


def slow_client(client):
    futures = []
    for _ in range(60):
        futures.append(client.submit(work, 1, pure=False))
        time.sleep(0.5)
    client.gather(futures)


def leftover(client):
    worker = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
    client.gather(client.map(work, [1] * 60, pure=False, workers=[worker]))


def straggler(client):
    client.gather(client.map(work, [1] * 59 + [10], pure=False))


def skewed(client):
    draw = random.Random(3)
    client.gather(client.map(work, [draw.expovariate(1) for _ in range(20)], pure=False))


def tiny(client):
    client.gather(client.map(work, [0.001] * 2000, pure=False))


def chain(client):
    last = None
    for _ in range(40):
        last = client.submit(pair, last, pure=False)
    last.result()


for function in list(globals().values()):
    if callable(function) and getattr(function, "__module__", None) == __name__:
        function.modelled = True
"""
EXPECTED = {
    "fine": "healthy",
    "fine_submit": "healthy",
    "reduction_tree": "healthy",
    "loop": "results-awaited-in-loop",
    "slow_client": "slow-submission",
    "leftover": "worker-restriction",
    "straggler": "straggler",
    "skewed": "skewed-tasks",
    "tiny": "tiny-tasks",
    "chain": "sequential-graph",
}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver.start(cluster_spec("simulated"), folder=tmp_path_factory.mktemp("simulated")) as driver:
        yield driver


def judge(driver: Driver, workload: str, workers: int) -> Verdict:
    sweep = Sweep.from_mapping({"workload": workload, "points": [{"workers": workers}]})
    (point,) = sweep.expand(workloads.load(workload))
    outcome = driver.run(PlannedTrial(0, point, 0), workload, timeout_s=200)
    facts = {**outcome.facts, "cluster": {**driver.facts, **outcome.facts.get("cluster", {})}}
    trial = Trial("own", point, 0, False, outcome.state, outcome.reason, facts=facts, real_s=outcome.real_s)
    trial, _ = judged(trial, outcome.spool, outcome.elapsed_s)
    assert trial.metrics is not None, outcome.reason
    return diagnose(sweep, [trial])


@pytest.mark.parametrize("name", EXPECTED)
def test_the_cause_is_named_first_and_alone(driver: Driver, script: Path, name: str) -> None:
    verdict = judge(driver, f"{script}:{name}", workers=10)
    codes = [finding.code for finding in verdict.findings if finding.severity is not Severity.INFO] or ["healthy"]
    assert codes == [EXPECTED[name]], verdict.line
