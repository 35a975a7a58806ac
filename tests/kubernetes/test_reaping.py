"""Reaping of clusters left by other hosts and pods, by the lease on the cluster itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kubernetes import ROLES, SMALL, Kubernetes, until

from scalescope import leases
from scalescope.clusters import reaping
from scalescope.clusters.kubernetes import manifests
from scalescope.clusters.kubernetes.cluster_lease import OWNER, UNTIL
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.clusters.reaping import Fate, Reaped

KINDS = "daskclusters,daskworkergroups,deployments,services,pods,secrets"
LIVES = """
import json, sys, time
from scalescope import clusters
from scalescope.clusters.kubernetes import cluster_lease
from scalescope.model.cluster import cluster_spec

cluster_lease.LEASE_S, cluster_lease.RENEW_S = 4.0, 0.5
cluster = clusters.build(cluster_spec(json.loads(sys.argv[1])))
cluster.open()
print(cluster.label, flush=True)
time.sleep(600)
"""


def reap(**options: Any) -> dict[str, Reaped]:
    return {each.label: each for each in reaping.reap(**options)}


@pytest.fixture(autouse=True)
def here(kubernetes: Kubernetes, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host with no lease, whose current context is of this namespace; returns its kubeconfig."""
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    for each in config["contexts"]:
        each["context"]["namespace"] = namespace
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    return path


def custom(namespace: str, name: str, labels: dict[str, str], holds_s: float | None) -> dict[str, Any]:
    """A cluster whose pods no node can hold."""
    nowhere = KubernetesSpec(node_selector=("no=where",), scheduler_node_selector=("no=where",))
    made = manifests.cluster(nowhere, name, namespace)
    made["metadata"]["labels"] = labels
    if holds_s is not None:
        until = datetime.now(UTC) + timedelta(seconds=holds_s)
        made["metadata"]["annotations"] = {UNTIL: until.isoformat(), OWNER: "process 7 on elsewhere"}
    return made


def test_only_clusters_with_an_expired_lease_and_orphans_are_removed(
    kubernetes: Kubernetes, namespace: str, here: Path
) -> None:
    over, holds, old, orphan, foreign = (leases.new_label() for _ in range(5))
    clusters = [
        custom(namespace, over, manifests.labels(over), -60),
        custom(namespace, holds, manifests.labels(holds), 600),
        custom(namespace, old, manifests.labels(old), None),
        custom(namespace, foreign, {}, -60),
        custom(namespace, f"{over}-0", manifests.labels(over), -60),  # a copy of our cluster by somebody else
        custom(namespace, f"{over[:-1]}x", {**manifests.labels(over), manifests.MANAGED_BY: "somebody"}, -60),
    ]
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "none"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": pod}
    parts = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": f"{name}-part", "labels": labels}, **more}
        for name, labels in ((orphan, manifests.labels(orphan)), ("mine", {manifests.MANAGED_BY: manifests.OURS}))
        for version, kind, more in (("apps/v1", "Deployment", {"spec": spec}), ("v1", "Secret", {}))
    ]
    kubernetes.apply(*clusters, *parts, namespace=namespace)

    def adopted() -> bool:
        groups = kubernetes.get("daskworkergroups", namespace=namespace)["items"]
        return len([each for each in groups if "ownerReferences" in each["metadata"]]) == len(clusters)

    until(adopted)

    def names() -> set[str]:
        found = kubernetes.get(KINDS, namespace=namespace)["items"]
        return {each["metadata"]["name"] for each in found if "ownerReferences" not in each["metadata"]}

    before = names()
    assert {label: each.fate for label, each in reap(dry_run=True).items()} == {
        over: Fate.WOULD_REMOVE,
        holds: Fate.OWNED,
        old: Fate.ELSEWHERE,
        orphan: Fate.WOULD_REMOVE,
    }
    assert names() == before

    as_user(kubernetes, namespace, here)
    told = reap()
    assert told[over].fate is Fate.REMOVED
    assert f"DaskCluster {over}" in told[over].removed
    assert "process 7 on elsewhere" in told[over].words
    assert "renewed its lease" in told[holds].words
    assert "idle for 900 s" in told[old].words
    assert told[orphan].fate is Fate.FAILED
    assert "cannot delete resource" in told[orphan].words
    assert names() == before - {over}

    as_user(kubernetes, namespace, here, "cluster-admin")
    assert {label: each.fate for label, each in reap().items()} == {
        holds: Fate.OWNED,
        old: Fate.ELSEWHERE,
        orphan: Fate.REMOVED,
    }
    assert names() == before - {over, f"{orphan}-part"}


def as_user(kubernetes: Kubernetes, namespace: str, kubeconfig: Path, role: str = "") -> None:
    """From now on the kubeconfig is of somebody who has our Role, or has a ClusterRole there."""
    kubernetes.kubectl("apply", "-n", namespace, "-f", ROLES)
    name = role or "scalescope"
    kubernetes.kubectl("create", "serviceaccount", name, f"--namespace={namespace}")
    given = f"--clusterrole={role}" if role else "--role=scalescope"
    account = f"--serviceaccount={namespace}:{name}"
    kubernetes.kubectl("create", "rolebinding", name, f"--namespace={namespace}", given, account)
    token = kubernetes.kubectl("create", "token", name, f"--namespace={namespace}").strip()
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    kubeconfig.write_text(yaml.safe_dump(config))


@pytest.mark.thorough
def test_a_lease_is_renewed_only_while_its_owner_lives(
    kubernetes: Kubernetes, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {"kind": "kubernetes", "image": kubernetes.image, "namespace": namespace, **SMALL}
    elsewhere = {**os.environ, leases.VARIABLE: str(tmp_path / "elsewhere")}
    owner = subprocess.Popen(
        [sys.executable, "-c", LIVES, json.dumps(given)], env=elsewhere, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        label = owner.stdout.readline().strip()
        with monkeypatch.context() as patch:  # the clock of this host must not matter
            real = time.time
            patch.setattr(time, "time", lambda: real() + 86400)
            deadline = time.monotonic() + 5  # seconds, longer than a lease is valid
            while time.monotonic() < deadline:
                assert {name: each.fate for name, each in reap().items()} == {label: Fate.OWNED}
                time.sleep(1)
    finally:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
    fates = until(lambda: [each.fate for each in reap().values() if each.fate is not Fate.OWNED], 30)
    assert fates == [Fate.REMOVED]
    until(lambda: kubernetes.kubectl("get", KINDS, f"--namespace={namespace}", "--output=name") == "")
