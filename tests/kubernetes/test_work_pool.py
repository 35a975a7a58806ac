"""deployments/kubernetes.yaml used as its header tells, on a real Kubernetes: flows run in pods under our Roles."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import dask_kubernetes
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from support import site, waiting
from support.kubernetes import INFRA, Kubernetes, until, with_token
from support.pool import NAMESPACE, SECRET, SMALL, TEAM, Pool
from support.postgresql import PASSWORD

from scalescope.clusters.kubernetes.cluster import KubernetesCluster
from scalescope.clusters.kubernetes.preflight import ALLOWED, FROM_OUTSIDE
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.errors import ClusterError
from scalescope.model.trial import TrialState
from scalescope.store.store import Store

pytestmark = pytest.mark.timeout(900)
wait_for = partial(waiting.wait_for, seconds=480.0)


@pytest.fixture(scope="module")
def client(pool: Pool) -> Iterator[SyncPrefectClient]:
    with pool.site.client() as made:
        yield made


@pytest.fixture(scope="module")
def start(client: SyncPrefectClient) -> Any:
    """Starts a run of the sweep, as the UI does."""
    deployment = client.read_deployment_by_name("scale-sweep/scale-sweep-kubernetes")

    def start(variables: dict[str, Any] | None = None, **parameters: Any) -> UUID:
        made = client.create_flow_run_from_deployment(deployment.id, parameters=parameters, job_variables=variables)
        return made.id

    return start


@pytest.fixture(scope="module")
def runs(pool: Pool, client: SyncPrefectClient, start: Any) -> dict[str, UUID]:
    """Flow runs by name, which all begin at once, since they mostly wait."""
    soon = (datetime.now(UTC) + timedelta(seconds=15)).isoformat()
    own = f"--interval 300 --anchor-date {soon} --replace -y"
    found = {"broken": start({"command": "false"}), "deleted": start({"node_selector": {"pool": "none"}})}
    pool.site.give(f"prefect deployment schedule create nightly/nightly-kubernetes {own}")
    return found


def ended(client: SyncPrefectClient, run: UUID) -> FlowRun:
    def final() -> FlowRun | None:
        found = client.read_flow_run(run)
        return found if found.state is not None and found.state.is_final() else None

    found: FlowRun = wait_for(final, f"run {run} does not end")
    return found


def rules(name: str) -> set[tuple[str, str, str]]:
    """What a Role of the kustomization allows."""
    roles = yaml.safe_load_all((TEAM / "roles.yaml").read_text())
    [role] = [each for each in roles if each["metadata"]["name"] == name]
    return {
        (verb, group, what)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for what in rule["resources"]
    }


# ------------------------------------------------------------------ what is fine


@pytest.mark.thorough
def test_a_night_in_a_pod_leaves_only_verdict_report_and_trials(
    pool: Pool, client: SyncPrefectClient, runs: dict[str, UUID]
) -> None:
    def over() -> FlowRun | None:
        found = site.runs_of(client, "nightly/nightly-kubernetes")
        done = [run for run in found if run.auto_scheduled and run.state and run.state.is_final()]
        return next((run for run in done if run.state_name != "Cancelled"), None)  # a later run is cancelled

    run = wait_for(over, "the schedule does not fire, or the night does not end")
    assert run.state.is_completed(), run.state
    with Store.open(pool.results) as store:
        night = store.studies.get("nightly")
        [kept] = [store.run(each) for each in night.runs]
    assert [trial.state for trial in kept.trials] == [TrialState.VALID] * 8  # four sizes, each with a warm-up
    assert night.line == run.state.message
    assert night.line.endswith("4 series measured.")  # a warning about a loaded host may precede it
    facts = [trial.facts["cluster"] for trial in kept.trials]
    assert {pod["node"] for each in facts for pod in each["pods"]} == {"gpu"}
    [pod] = json.loads(pool.kubectl("get", "pods", f"-lprefect.io/flow-run-id={run.id}", "--output=json"))["items"]
    assert pod["spec"]["nodeName"] == "cpu"
    [report] = pool.files.glob(f"scalescope/records/{night.id}/report.html")
    assert "futures-map" in report.read_text()
    assert list(pool.files.glob(f"scalescope/records/{kept.id}/*/tasks.parquet"))
    wait_for(lambda: facts[0]["label"] not in pool.left(), "not all of the cluster is gone")


def test_no_job_or_pod_contains_a_password(pool: Pool, runs: dict[str, UUID]) -> None:
    said = pool.kubectl("get", "jobs,pods", "--output=json")
    assert "PREFECT_API_AUTH_STRING" in said
    assert SECRET not in said
    assert PASSWORD not in said


# ------------------------------------------------------------------ what breaks


@pytest.mark.thorough
def test_a_flow_run_whose_pod_is_deleted_or_broken_is_set_to_crashed(
    pool: Pool, client: SyncPrefectClient, runs: dict[str, UUID]
) -> None:
    wait_for(lambda: pool.pods_of(runs["deleted"], "Pending"), "there is no pod")
    pool.kubectl("delete", "jobs", f"--selector=prefect.io/flow-run-id={runs['deleted']}")
    for name in ("broken", "deleted"):
        assert ended(client, runs[name]).state_name == "Crashed"
    assert not pool.pods_of(runs["deleted"])


def test_a_cluster_without_dask_in_its_image_is_reported_as_no_dask_with_only_our_roles(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster is opened from outside, with the service account of the flows."""
    account = f"--serviceaccount={NAMESPACE}:scalescope"
    pool.kubectl("create", "rolebinding", "outside", "--role=scalescope-outside", account)
    token = pool.kubectl("create", "token", "scalescope").strip()
    monkeypatch.setenv("KUBECONFIG", with_token(pool.kubernetes, token, tmp_path))
    spec = KubernetesSpec(namespace=NAMESPACE, image=pool.kubernetes.image, environment=("PATH=/nowhere",), **SMALL)
    cluster = KubernetesCluster(spec)
    with pytest.raises(ClusterError) as caught:
        cluster.open()
    assert caught.value.category == "no-dask"
    pool.kubectl("delete", "rolebinding", "outside")
    assert cluster.label not in pool.left()


@pytest.mark.thorough
def test_flows_and_worker_use_only_verbs_that_our_roles_allow(
    pool: Pool, client: SyncPrefectClient, runs: dict[str, UUID]
) -> None:
    for run in runs.values():
        ended(client, run)
    entries = map(json.loads, (pool.kubernetes.mini.folder / "log/audit.log").read_text().splitlines())
    used: dict[str, set[tuple[str, str, str]]] = {}
    for entry in entries:
        what = entry.get("objectRef", {})
        if what.get("namespace") == NAMESPACE:
            name = "/".join(filter(None, (what["resource"], what.get("subresource"))))
            account = entry["user"]["username"].rpartition(":")[2]
            used.setdefault(account, set()).add((entry["verb"], what.get("apiGroup", ""), name))
    assert used["scalescope"] <= rules("scalescope")
    assert used["prefect-worker"] == rules("prefect-worker")


def test_kubernetes_accepts_our_manifests_and_the_chart_of_the_operator(kubernetes: Kubernetes, namespace: str) -> None:
    """Clusters, and the operator's chart with our values; the kustomization is really applied."""
    chart = Path(dask_kubernetes.__path__[0]) / "operator/deployment/helm/dask-kubernetes-operator"
    options = ["--values", str(INFRA / "operator-values.yaml"), "--set", "image.name=REGISTRY/scalescope,image.tag=TAG"]
    helm = [str(Path(kubernetes.program).with_name("helm")), "template", "--include-crds", "operator", str(chart)]
    operator = subprocess.run([*helm, *options], check=True, capture_output=True, text=True).stdout
    assert "REGISTRY/scalescope:TAG" in operator
    spec = KubernetesSpec(namespace=namespace, gpus=1, gpu_product="NVIDIA-H200", image=kubernetes.image)
    shown = KubernetesCluster(spec).submission(8, 1).replace("LABEL", "label")
    apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "--filename=-"]
    for manifests in (operator, shown):
        said = kubernetes.kubectl(*apply, "--namespace", namespace, stdin=manifests)
        assert said.count("serverside-applied") == manifests.count("\nkind: ")


@pytest.mark.thorough
def test_a_missing_verb_of_a_role_is_named_in_the_error(
    kubernetes: Kubernetes, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster is opened once without each verb."""
    everything = rules("scalescope") | rules("scalescope-outside")
    assert set(ALLOWED) <= rules("scalescope")
    objects: list[dict[str, Any]] = []
    for i, without in enumerate((*ALLOWED, *FROM_OUTSIDE)):
        metadata, ref = {"name": f"without-{i}"}, {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role"}
        kept = [
            {"apiGroups": [group], "resources": [what], "verbs": [verb]} for verb, group, what in everything - {without}
        ]
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata}
        subject = {"kind": "ServiceAccount", "namespace": namespace, **metadata}
        objects += [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
            {**rbac, "kind": "Role", "rules": kept},
            {**rbac, "kind": "RoleBinding", "roleRef": {**ref, **metadata}, "subjects": [subject]},
        ]
    kubernetes.apply(*objects, namespace=namespace)
    known = ("auth", "can-i", "list", "pods", "--namespace", namespace, "--as")
    until(lambda: "yes" in kubernetes.kubectl(*known, f"system:serviceaccount:{namespace}:without-0", check=False))
    for i, (verb, _, what) in enumerate((*ALLOWED, *FROM_OUTSIDE)):
        token = kubernetes.kubectl("create", "token", f"without-{i}", f"--namespace={namespace}").strip()
        monkeypatch.setenv("KUBECONFIG", with_token(kubernetes, token, tmp_path))
        with pytest.raises(ClusterError) as caught:
            KubernetesCluster(KubernetesSpec(namespace=namespace, image=kubernetes.image)).open()
        assert caught.value.what == f"you may not {verb} {what}"
