"""Clusters of real pods, made by the real operator on a real Kubernetes of two nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import distributed
import pytest
import yaml
from support import monitoring
from support.kubernetes import ROLES, SMALL, until, with_token
from support.kubernetes_failures import FailureSite
from support.kubernetes_steps import STEPS, Hook

from scalescope import clusters, leases
from scalescope.clusters import reaping
from scalescope.clusters.kubernetes import metrics_route
from scalescope.clusters.kubernetes.cluster import KubernetesCluster
from scalescope.clusters.kubernetes.manifests import RUN, STAYS
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.clusters.reaping import Fate
from scalescope.errors import ClusterError
from scalescope.model.sweep import Point
from scalescope.run.sweep import run_sweep
from scalescope.workloads import load

pytestmark = pytest.mark.usefixtures("in_kubernetes", "collected")
PATIENCE_S = 60.0

OWNER = """
import json, sys, time
from scalescope import clusters
from scalescope.model.cluster import cluster_spec

cluster = clusters.build(cluster_spec(json.loads(sys.argv[1])))
cluster.open()
cluster.scale(1, 1)
print(cluster.label, flush=True)
time.sleep(600)
"""


@pytest.fixture
def given(kubernetes: Any, namespace: str) -> dict[str, Any]:
    return {"kind": "kubernetes", "image": kubernetes.image, "namespace": namespace, **SMALL, "start_timeout_s": 90.0}


@pytest.fixture
def build(given: dict[str, Any]) -> Iterator[Callable[..., KubernetesCluster]]:
    made: list[KubernetesCluster] = []

    def build(**more: Any) -> KubernetesCluster:
        fields = {name: value for name, value in {**given, **more}.items() if name != "kind"}
        cluster = clusters.build(KubernetesSpec(**fields))
        assert isinstance(cluster, KubernetesCluster)
        made.append(cluster)
        return cluster

    yield build
    for cluster in made:
        cluster.close()


SCRAPE = """
import urllib.error, urllib.request
request = urllib.request.Request("http://127.0.0.1:8787/metrics")
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    print(error.code)
request.add_header("Authorization", "Bearer t0ken")
print(urllib.request.urlopen(request).read().decode())
"""


def pods(kubernetes: Any, namespace: str) -> list[dict[str, Any]]:
    found = json.loads(kubernetes.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def everything(kubernetes: Any, namespace: str) -> str:
    kinds = "daskclusters,daskworkergroups,deployments,services,pods,secrets"
    return str(kubernetes.kubectl("get", kinds, "-n", namespace, "-o", "name", "--ignore-not-found"))


def test_a_kubernetes_cluster_opens_scales_and_leaves_nothing(
    build: Any, kubernetes: Any, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(leases.RUN, "run-1")
    secret = ("create", "secret", "generic", "scraped", f"--namespace={namespace}")
    kubernetes.kubectl(*secret, f"--from-literal={metrics_route.TOKEN}=t0ken")
    cluster = build(environment_secrets=["scraped"])
    cluster.open()
    [lease] = leases.read_all()[0]
    assert (lease.backend, lease.label) == ("kubernetes", cluster.label)
    for other in (distributed.Security.temporary(), None):  # no connection without the cluster's certificates
        with pytest.raises((OSError, TypeError)):
            distributed.Client(cluster._address, security=other, timeout=3, set_as_default=False)
    cluster.scale(2, 1)
    with cluster.client() as client:
        assert client.scheduler.address.startswith("tls://127.0.0.1:")
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        first = client.nthreads()
        assert list(first.values()) == [1, 1]
        assert client.run(os.getuid) == dict.fromkeys(first, 1000)
        cluster.scale(3, 1)
        assert first.keys() < client.nthreads().keys()
        held = client.scatter({"kept": 7}, broadcast=False)["kept"]
        cluster.scale(1, 1)
        assert held.result(timeout=30) == 7  # the operator retires the worker, which hands over its data
        assert len(client.nthreads()) == 1
        assert len(kubernetes.get("pods", namespace=namespace)["items"]) == 2  # or their containers may come back
        cluster.scale(1, 2)
        assert list(client.nthreads().values()) == [2]
    facts = cluster.facts()
    [where] = facts["pods"]
    node = kubernetes.get("pod", where["pod"], namespace=namespace)["spec"]["nodeName"]
    assert (where["node"], where["spot"], where["architecture"]) == (node, False, "amd64")
    assert 0 < where["node_share"] < 0.5
    measured: set[str] = set()
    for pod in pods(kubernetes, namespace):
        name, [container] = pod["metadata"]["name"], pod["spec"]["containers"]
        assert "http-dashboard" in {each["name"] for each in container["ports"]}
        scraped = kubernetes.kubectl("exec", "-n", namespace, name, "--", "python", "-c", SCRAPE)
        assert scraped.startswith("401\n")
        measured |= monitoring.exported(scraped)
        assert {"dask.org/cluster-name", "dask.org/component"} <= pod["metadata"]["labels"].keys()
        assert pod["metadata"]["labels"][RUN] == "run-1"
        assert STAYS.items() <= pod["metadata"]["annotations"].items()
    assert monitoring.used() <= measured  # the dashboard shows these metrics
    _, workers = yaml.safe_load_all(facts["manifest"])
    assert workers["spec"]["worker"]["replicas"] == 1
    cluster.close()
    cluster.close()
    kubernetes.kubectl("delete", "secret", "scraped", f"--namespace={namespace}")
    until(lambda: everything(kubernetes, namespace) == "")
    assert leases.read_all() == ([], [])


# ------------------------------------------------------------------ worker groups

GPU = {"gpus": 1, "gpu_product": "NVIDIA-H200"}
ON_GPUS = """
import time
import dask

def step(number):
    time.sleep(0.5)

def run(client):
    with dask.annotate(resources={"gpu": 1}):
        client.gather(client.map(step, range(6), pure=False))
run.modelled = True
"""


def names(found: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in found}


@pytest.mark.thorough
def test_groups_of_workers_are_scaled_and_replaced_separately(build: Any) -> None:
    cluster = build(groups={"gpu": {**GPU, "shm_mb": 64}, "cuda": {**GPU, "cuda": True}}, tls=False)
    cluster.open()
    cluster.groups = {"gpu": 1}
    cluster.scale(3, 1)
    pods = cluster.facts()["pods"]
    assert [(pod["node"], pod.get("gpu")) for pod in pods] == [("cpu", None), ("cpu", None), ("gpu", "NVIDIA-H200")]
    first, cluster.groups = names(cluster._pods), {"gpu": 2}
    cluster.scale(3, 1)  # the operator asks for any worker to be retired: it must be one of the main group
    second = names(cluster._pods)
    assert sorted("-gpu-" in name for name in first & second) == [False, True]
    point = Point(workers=3, groups={"gpu": 2})
    with cluster.client() as client, cluster.running(load("futures-map"), point):
        assert client.scheduler.address.startswith("tcp://")
        found = client.map(lambda _: distributed.get_worker().name, range(4), resources={"gpu": 1}, pure=False)
        on = set(client.gather(found))
        assert {name.split("-")[2] for name in on} == {"gpu"}
        with pytest.raises(CancelledError):
            client.submit(lambda: os._exit(1), workers=[on.pop()]).result(timeout=PATIENCE_S)
    assert "were lost" in cluster.losses()
    cluster.scale(3, 1)
    assert ["-gpu-" in name for name in second & names(cluster._pods)] == [False]
    cluster.groups = {"cuda": 1}
    with pytest.raises(ClusterError, match=r"1 of 2 workers") as caught:
        cluster.scale(2, 1)
    assert caught.value.category == "no-dask-cuda"


@pytest.mark.thorough
def test_a_sweep_varies_the_size_of_one_group_of_workers(
    given: dict[str, Any], kubernetes: Any, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "pipeline.py"
    path.write_text(ON_GPUS)
    asked = {"workload": f"{path}:run", "axes": {"workers": [3], "workers@gpu": [1, 2]}}
    where = {"cluster": {**given, "groups": {"gpu": GPU}}, "store": str(tmp_path / "store")}
    result = run_sweep({**asked, **where, "report": str(tmp_path / "report.html")})
    assert (result.valid, result.failed, result.invalid) == (2, 0, 0)
    assert "resources (gpu=1)" in result.verdict
    assert "workers@gpu" in (tmp_path / "report.html").read_text()
    until(lambda: everything(kubernetes, namespace) == "")


def test_our_roles_are_sufficient_for_a_user_outside_the_cluster(
    build: Any, kubernetes: Any, namespace: str, tmp_path: Path
) -> None:
    """The user has these Roles and no other right."""
    kubernetes.kubectl("apply", "-n", namespace, "-f", ROLES)
    kubernetes.kubectl("create", "serviceaccount", "someone", "-n", namespace)
    token = kubernetes.kubectl("create", "token", "someone", "-n", namespace).strip()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", with_token(kubernetes, token, tmp_path))
        with pytest.raises(ClusterError, match="get daskclusters, create daskclusters"):
            build().open()
        account = f"--serviceaccount={namespace}:someone"
        for name in ("scalescope", "scalescope-outside"):
            kubernetes.kubectl("create", "rolebinding", name, "-n", namespace, f"--role={name}", account)
        cluster = build()
        cluster.open()
        cluster.scale(1, 1)
        assert cluster.facts()["pods"][0].keys() == {"pod", "worker", "node"}  # no right to read nodes
        cluster.close()
    assert leases.read_all() == ([], [])


INSIDE = """
import json, sys
from scalescope import clusters
from scalescope.model.cluster import cluster_spec

cluster = clusters.build(cluster_spec(json.loads(sys.argv[1])))
cluster.open()
cluster.scale(1, 1)
with cluster.client() as client:
    print(client.scheduler.address, client.submit(sum, [1, 2]).result(timeout=30), flush=True)
cluster.close()
"""


@pytest.mark.thorough  # the nights of test_work_pool.py cover this too
def test_a_driver_in_a_pod_reaches_the_scheduler_directly(
    given: dict[str, Any], kubernetes: Any, namespace: str
) -> None:
    kubernetes.kubectl("apply", "-n", namespace, "-f", ROLES)
    kubernetes.kubectl("create", "serviceaccount", "driver", "-n", namespace)
    account = f"--serviceaccount={namespace}:driver"
    kubernetes.kubectl("create", "rolebinding", "driver", "-n", namespace, "--role=scalescope", account)
    container = {
        "name": "driver",
        "image": kubernetes.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["python", "-c", INSIDE, json.dumps({**given, "namespace": ""})],
    }
    spec = {"restartPolicy": "Never", "serviceAccountName": "driver", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver"}, "spec": spec}
    kubernetes.apply(pod, namespace=namespace)
    ended = ("Succeeded", "Failed")
    until(lambda: kubernetes.get("pod", "driver", namespace=namespace)["status"]["phase"] in ended, 120)
    log = kubernetes.kubectl("logs", "driver", "-n", namespace)
    assert f"-scheduler.{namespace}.svc:8786 3" in log, log
    assert kubernetes.kubectl("get", "daskclusters", "-n", namespace, "-o", "name") == ""


# ------------------------------------------------------------------ what goes wrong; test_failures.py has all errors


def said(cluster: KubernetesCluster) -> dict[str, str]:
    """The text in the table of logs, by worker."""
    rows = cluster.records()["logs"]
    found: dict[str, str] = {}
    for worker, text in zip(rows["worker"], rows["text"], strict=True):
        found[worker] = f"{found.get(worker, '')}{text}\n"
    return found


def test_a_lost_worker_ends_its_trial_with_the_reason_and_its_log(build: Any, kubernetes: Any, namespace: str) -> None:
    cluster = build()
    cluster.open()
    cluster.scale(2, 1)
    point = Point(workers=2, threads_per_worker=1, params={}, dask_config={})
    with cluster.client() as client, cluster.running(load("futures-map"), point):
        client.run(print, "1 of 2\r2 of 2\u2028as a progress bar writes", flush=True)
        one = next(iter(client.scheduler_info()["workers"]))  # the log of the other lasts, however often this ends
        hog = client.submit(lambda: len(bytearray(2**30)), pure=False, workers=[one])
        with pytest.raises((CancelledError, distributed.KilledWorker)):
            hog.result(timeout=PATIENCE_S)
    assert "OOMKilled" in cluster.losses()
    assert cluster.facts()["lost"] == "out-of-memory"
    first = said(cluster)
    assert sum("Start worker at" in text for text in first.values()) == 2
    assert any("1 of 2\r2 of 2\u2028as a progress bar writes" in text for text in first.values())
    assert any("Kubernetes: OOMKilled" in text for text in first.values())
    cluster.scale(2, 1)
    assert cluster.losses() == ""
    deleted = cluster.facts()["pods"][0]
    with cluster.client() as client, cluster.running(load("futures-map"), point):
        running = client.submit(time.sleep, 300, pure=False)
        kubernetes.kubectl("delete", "pod", deleted["pod"], "-n", namespace, "--wait=false")
        with pytest.raises(CancelledError):
            running.result(timeout=PATIENCE_S)
    second = said(cluster)
    assert "Kubernetes: Deleted" in second[deleted["worker"]]  # its log can be gone before it is read


@pytest.mark.thorough
def test_an_idle_cluster_is_removed_by_the_operator(build: Any, kubernetes: Any, namespace: str) -> None:
    cluster = build()
    cluster.open()
    cluster.scale(1, 1)
    soon = json.dumps({"spec": {"idleTimeout": 3}})  # below the minimum of the specification
    kubernetes.kubectl("patch", "daskcluster", cluster.label, "-n", namespace, "--type=merge", "-p", soon)
    until(lambda: cluster.label not in kubernetes.kubectl("get", "daskclusters", "-n", namespace, "-o", "name"))
    with pytest.raises(ClusterError) as caught:
        cluster.scale(2, 1)
    assert caught.value.category == "deleted"


# ------------------------------------------------------------------ what a dead driver leaves


@pytest.fixture
def killed(given: dict[str, Any]) -> str:
    """The label of a cluster whose driver was killed with SIGKILL."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, json.dumps(given)], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        label = owner.stdout.readline().strip()
        assert [each.fate for each in reaping.reap()] == [Fate.OWNED]
    finally:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
    assert leases.is_label(label)
    return label


@pytest.mark.thorough  # test_reaping.py kills an owner too
def test_reap_removes_everything_that_a_killed_driver_left(
    killed: str, build: Any, kubernetes: Any, namespace: str
) -> None:
    another = build()
    another.open()
    [dry] = [each for each in reaping.reap(dry_run=True) if each.label == killed]
    assert dry.fate is Fate.WOULD_REMOVE
    assert f"DaskCluster {killed}" in dry.removed
    results = {each.label: each for each in reaping.reap()}
    assert results[killed].fate is Fate.REMOVED
    assert results[another.label].fate is Fate.OWNED
    assert killed not in everything(kubernetes, namespace)
    another.scale(1, 1)
    another.close()
    until(lambda: everything(kubernetes, namespace) == "")


@pytest.mark.thorough
def test_reap_works_without_the_operator(killed: str, kubernetes: Any, namespace: str) -> None:
    def scale(number: int) -> None:
        kubernetes.kubectl("scale", "deployment", "-n", "dask-operator", "--all", f"--replicas={number}")

    scale(0)
    try:
        [result] = reaping.reap()
        assert result.fate is Fate.REMOVED
        assert everything(kubernetes, namespace) == ""
        with pytest.raises(ClusterError) as caught:
            clusters.build(KubernetesSpec(namespace=namespace)).open()
        assert caught.value.category == "operator-silent"
    finally:
        scale(1)
        kubernetes.kubectl("rollout", "status", "deployment", "-n", "dask-operator", "--timeout=60s")


@pytest.mark.thorough
def test_the_pod_of_a_dead_node_is_named_at_the_end_and_removed_by_one_reap(
    build: Any, kubernetes: Any, namespace: str
) -> None:
    if kubernetes.mini is None:
        pytest.skip("only a node of infra/kubernetes/mini.py can be taken away")
    cluster = build(**GPU)
    cluster.open()
    cluster.scale(1, 1)
    [pod] = [each["pod"] for each in cluster.facts()["pods"]]
    kubernetes.mini.stop_node("gpu")
    try:
        until(lambda: pod not in {each["metadata"]["name"] for each in pods(kubernetes, namespace)})
        cluster.close()
        assert pod in cluster.left
        assert "scalescope reap" in cluster.left
        assert pod in everything(kubernetes, namespace)
        [lease] = leases.read_all()[0]
        assert lease.label == cluster.label
        assert [each.fate for each in reaping.reap()] == [Fate.REMOVED]
        assert everything(kubernetes, namespace) == ""
        assert leases.read_all() == ([], [])
    finally:
        kubernetes.mini.start_node("gpu")


def _come(site: FailureSite, asked: dict[str, Any], opened: Hook | None = None, trial: Hook | None = None) -> str:
    """Open a cluster with one worker; returns the category of the loss that `trial` brings about while one runs."""
    point = Point(workers=1, threads_per_worker=1, params={}, dask_config={})
    site.cluster = site.build(**{name: value for name, value in asked.items() if value is not None})
    with closing(site.cluster) as cluster:
        cluster.open()
        if opened:
            opened(site)
        cluster.scale(1, 1)
        if trial is None:
            return ""
        with cluster.client() as client, cluster.running(load("futures-map"), point):
            waited_for = client.submit(time.sleep, 300, pure=False)
            trial(site)
            with suppress(CancelledError):
                waited_for.result(timeout=PATIENCE_S)
        return str(cluster.facts()["lost"])


@pytest.mark.thorough
@pytest.mark.parametrize("name", STEPS)
def test_workers_arrive_once_the_next_step_named_by_the_error_is_taken(
    kubernetes: Any, namespace: str, name: str
) -> None:
    step, site = STEPS[name], FailureSite(kubernetes, namespace)
    if step.mini and kubernetes.mini is None:
        pytest.skip("only nodes of infra/kubernetes/mini.py can be changed")
    try:
        step.before(site)
        if step.trial is None:
            with pytest.raises(ClusterError) as caught:
                _come(site, step.asked, step.opened)
            assert caught.value.category == step.category, str(caught.value)
            said = ("above", "log of", f"cluster.{next(iter(step.change), '')}")
            assert not step.change or any(each in caught.value.next_step for each in said)
        else:
            assert _come(site, step.asked, trial=step.trial) == step.category
        step.act(site)
        _come(site, {**step.asked, **step.change})
    finally:
        step.after(site)
