"""What a real Kubernetes 1.34 adds to every pod is no change; what limit ranges and webhooks make of one is."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from scalescope.clusters.kubernetes import manifests
from scalescope.clusters.kubernetes.failures import FAILURES
from scalescope.clusters.kubernetes.pod_changes import _BEHIND, behind, changes
from scalescope.clusters.kubernetes.spec import KubernetesSpec

SPEC = KubernetesSpec(image="registry/image:1", cpu=1, node_selector=("pool=fast",), tolerations=("spot",))
ASKED = manifests.trial_pod(SPEC, manifests.worker_pod(SPEC, "scalescope-0123456789ab", "team", 1), "scalescope-1")


@pytest.fixture
def pod() -> dict[str, Any]:
    """As Kubernetes shows it."""
    found = deepcopy(ASKED)
    found["metadata"]["labels"] |= {"pod-template-hash": "74dd4d9d76", "dask.org/component": "worker"}
    found["metadata"]["labels"]["app.kubernetes.io/instance"] = "scalescope-1"
    not_well = {"effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 300}
    found["spec"]["tolerations"] += [
        {"key": f"node.kubernetes.io/{each}", **not_well} for each in ("not-ready", "unreachable")
    ]
    found["spec"] |= {"schedulerName": "default-scheduler", "nodeName": "cpu", "priority": 0, "restartPolicy": "Always"}
    found["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000m"
    return found


def test_defaults_that_kubernetes_adds_to_every_pod_count_as_no_change(pod: dict[str, Any]) -> None:
    assert changes(ASKED, pod) == {}
    assert changes(ASKED, ASKED) == {}


def test_each_field_that_differs_is_reported_with_both_values(pod: dict[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    container["image"] = "mirror/registry/image:1"
    container["resources"] = {
        "requests": {"cpu": "500m", "memory": "2048Mi"},
        "limits": {"cpu": "500m", "memory": "2048Mi", "ephemeral-storage": "100Mi"},
    }
    pod["spec"]["containers"] = [{"name": "istio-proxy", "image": "p"}, container]
    pod["spec"]["nodeSelector"] = {"pool": "slow"}
    pod["spec"]["tolerations"] = [{"key": "gpu", "value": "yes"}]
    pod["spec"] |= {"priorityClassName": "low", "schedulerName": "volcano"}
    del pod["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    assert changes(ASKED, pod) == {
        "cpu": "a request of 500m cpu in place of 1 and a limit of 500m cpu in place of 1",
        "ephemeral-storage": "a limit of 100Mi ephemeral-storage in place of none",
        "image": "the image mirror/registry/image:1 in place of registry/image:1",
        "priorityClassName": "the priority class low in place of none",
        "schedulerName": "the scheduler volcano in place of none",
        "nodeSelector": "the node selector pool=slow in place of pool=fast",
        "tolerations": "tolerations of gpu=yes in place of spot",
        "containers": "the containers istio-proxy, worker in place of worker",
        "labels": "other labels in place of app.kubernetes.io/managed-by=scalescope",
    }


def test_a_failure_names_only_changes_that_may_have_caused_it() -> None:
    changed = {"memory": "less memory", "image": "another image"}
    assert behind("out-of-memory", changed) == ["less memory"]
    assert behind("no-image", changed) == ["another image"]
    assert behind("drained", changed) == []
    assert _BEHIND.keys() <= {row.category for row in FAILURES} | {"other-versions"}
