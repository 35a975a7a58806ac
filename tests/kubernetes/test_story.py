"""The first sweep of docs/kubernetes.md with its own commands: from a terminal, from Python, in a work pool.

Apache Beam puts 128 items in a partition, so most workers have nothing to do. The first two sweeps share a namespace
at the same time. SCALESCOPE_KUBERNETES_STORY=full runs all sizes, one sweep after the other.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import site
from support.kubernetes import Kubernetes, until, with_token
from support.pool import NAMESPACE, SMALL, Pool

from scalescope.errors import ExitStatus
from scalescope.model.trial import TrialState
from scalescope.run.sweep import run_sweep
from scalescope.store.store import Store, SweepRun

pytestmark = pytest.mark.timeout(3600)
FULL = os.environ.get("SCALESCOPE_KUBERNETES_STORY") == "full"
SIZES = [(cpus, gpus) for cpus in ((2, 4, 8, 16) if FULL else (2, 4)) for gpus in ((1, 2, 4) if FULL else (1,))]
PAGE = (site.ROOT / "docs/kubernetes.md").read_text().partition("## A first sweep")[2]
MADE, TERMINAL, PYTHON, WORK_POOL, LEFT = PAGE.partition("```\n")[2].partition("```")[0].splitlines()
COMMANDS = {"terminal": TERMINAL, "python": PYTHON, "work pool": WORK_POOL}
ALONE = list(COMMANDS) if FULL else ["work pool"]
ASKED = json.loads(shlex.split(MADE)[1])
BEAM = {"workload": ASKED["workload"], "params": {"items": 512 if FULL else 256, "seconds": 0.015}}
CLI = "from scalescope.cli.main import main; main()"


@dataclass(frozen=True)
class Told:
    """The outcome of a command."""

    said: str
    run: SweepRun
    report: str
    workers_with_logs: dict[str, set[str]]

    @property
    def finding(self) -> tuple[str, str]:
        """Code of the first finding, and its summary after the first colon."""
        assert self.run.verdict is not None, self.said
        first = self.run.verdict.findings[0]
        return first.code, first.summary.partition(": ")[2]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The outcome of the same sweep on the simulated cluster, which has no groups."""
    store = str(tmp_path_factory.mktemp("simulated") / "store.db")
    run_sweep({**BEAM, "points": [{"workers": cpus + gpus} for cpus, gpus in SIZES], "store": store})
    with Store.open(store) as opened:
        return Told("", opened.run("latest"), "", {})


@pytest.fixture(scope="module")
def told(kubernetes: Kubernetes, pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """The outcome of each command; the user has the two Roles and no other right."""
    pytest.importorskip("apache_beam")
    pool.kubectl("create", "serviceaccount", "ann")
    for role, name in (("scalescope", "ann"), ("scalescope-outside", "ann-outside")):
        pool.kubectl("create", "rolebinding", name, f"--role={role}", f"--serviceaccount={NAMESPACE}:ann")
    token = pool.kubectl("create", "token", "ann", "--duration=2h").strip()
    cluster = {**ASKED["cluster"], **SMALL, "image": kubernetes.image, "start_timeout_s": 600, "queue_timeout_s": 600}
    points = [{"workers": cpus + gpus, "workers@gpu": gpus} for cpus, gpus in SIZES]
    asked = json.dumps({**ASKED, **BEAM, "axes": {}, "points": points, "cluster": cluster})
    started: dict[str, subprocess.Popen[str]] = {}
    folders: dict[str, Path] = {}
    try:
        for name, command in COMMANDS.items():
            if name in ALONE:
                for each in started.values():
                    each.wait()
            folder = folders[name] = tmp_path_factory.mktemp("story")
            (folder / "beam.json").write_text(asked)
            own = {"KUBECONFIG": with_token(kubernetes, token, folder), "XDG_DATA_HOME": str(folder)}
            environment = {**pool.site.environ, **own, "SCALESCOPE_STORE": ""}
            if name == "terminal":
                environment["PREFECT_API_URL"] = ""
            with (folder / "log").open("w") as log:
                started[name] = subprocess.Popen(
                    ["bash", "-c", command], cwd=folder, env=environment, stdout=log, stderr=log, text=True
                )
        status = {name: each.wait() for name, each in started.items()}
    finally:
        for each in started.values():
            each.kill()
    said = {name: (folder / "log").read_text() for name, folder in folders.items()}
    assert status == {"terminal": ExitStatus.FINDING, "python": 0, "work pool": 0}, said
    found = {name: ("", folder) for name, folder in folders.items()} | {"work pool": (pool.results, pool.files)}
    return {name: read(said[name], store, data) for name, (store, data) in found.items()}


def read(said: str, address: str, data: Path) -> Told:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(data))
        store = Store.open(address)
    with store:
        [run] = [each for each in store.runs() if each.sweep.workload == BEAM["workload"]]
        logs = {trial.key: set(store.tables(trial, "logs")["logs"]["worker"]) for trial in run.trials}
    reports = [data / "beam.html", data / f"scalescope/records/{run.id}/report.html"]
    [report] = [path.read_text() for path in reports if path.exists()]
    return Told(said, run, report, logs)


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_a_sweep_on_kubernetes_has_the_finding_of_the_simulated_cluster_however_it_is_started(
    told: dict[str, Told], elsewhere: Told, name: str
) -> None:
    done = told[name]
    assert done.finding == elsewhere.finding
    assert elsewhere.finding[0] == "too-few-partitions"
    assert "128 items" in done.finding[1]
    assert "128 items" in done.report
    assert [trial.state for trial in done.run.trials] == [TrialState.VALID] * len(SIZES)
    for trial in done.run.trials:
        pods, gpus = trial.facts["cluster"]["pods"], trial.point.groups["gpu"]
        nodes = sorted(("-gpu-" in pod["pod"], pod["node"]) for pod in pods)
        assert nodes == [(False, "cpu")] * (trial.point.workers - gpus) + [(True, "gpu")] * gpus
        assert {pod["worker"] for pod in pods} | {"scheduler"} <= done.workers_with_logs[trial.key]
        counted = trial.facts["cluster"]["counters"]
        assert "dask_scheduler_gc_collection_seconds_total" in counted["scheduler"]
        assert "dask_worker_transfer_outgoing_bytes_total" in counted["workers"]


@pytest.mark.thorough
def test_two_sweeps_in_one_namespace_do_not_count_or_remove_pods_of_each_other(
    told: dict[str, Told], kubernetes: Kubernetes
) -> None:
    for done in told.values():
        clusters = [trial.facts["cluster"] for trial in done.run.trials]
        [label] = {each["label"] for each in clusters}  # one cluster for all trials
        pods = {pod["pod"]: pod["worker"] for each in clusters for pod in each["pods"]}
        assert all(name.startswith(label) for name in pods)
        logged = set.union(*done.workers_with_logs.values())
        assert {name for name in logged if not name.startswith(label)} == {"scheduler", *pods.values()}
    if not FULL:
        begun = [[trial.started_at for trial in told[name].run.trials] for name in ("terminal", "python")]
        assert max(map(min, begun)) < min(map(max, begun))  # both ran at the same time
    until(lambda: not kubernetes.kubectl(*shlex.split(LEFT)[1:]))


@pytest.mark.thorough
def test_a_point_beyond_the_quota_of_the_namespace_is_invalid(
    kubernetes: Kubernetes, namespace: str, tmp_path: Path
) -> None:
    quota: dict[str, Any] = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "half"}}
    kubernetes.apply({**quota, "spec": {"hard": {"pods": "3"}}}, namespace=namespace)
    options = {**SMALL, "namespace": namespace, "image": kubernetes.image}
    command = [sys.executable, "-c", CLI, "sweep", "-w", "futures-map", "-c", "kubernetes", "-a", "workers=1,2,4"]
    command += ["-p", "items=8", "-p", "seconds=0.2", "--store", store_at := str(tmp_path / "store.db")]
    command += [f"--cluster-option={name}={value}" for name, value in options.items()]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **kubernetes.environment})
    assert done.returncode in (ExitStatus.OK, ExitStatus.FINDING), done.stdout + done.stderr  # a busy host may stall
    with Store.open(store_at) as store:
        trials = store.run("latest").trials
    assert {trial.point.workers: trial.state for trial in trials} == {
        1: TrialState.VALID,
        2: TrialState.VALID,
        4: TrialState.INVALID,
    }
    [refused] = [trial for trial in trials if trial.state is TrialState.INVALID]
    assert refused.started_at < max(trial.started_at for trial in trials)  # the sweep continued after the refusal
    assert "exceeded quota: half" in refused.reason
    assert "quota of the namespace" in done.stdout
    until(lambda: not kubernetes.kubectl(*shlex.split(LEFT)[1:]))
