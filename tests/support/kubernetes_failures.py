"""Every way in which a cluster fails on Kubernetes: how it is brought about there, and the category of the error."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from scalescope.clusters.kubernetes.cluster import KubernetesCluster
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from support.kubernetes import SMALL, Kubernetes, until

WORKERS_ONLY = "dask.org/component=worker"
GPU = {"gpus": 1, "gpu_product": "NVIDIA-H200"}


@dataclass
class FailureSite:
    """A namespace, and the cluster that is open there."""

    kubernetes: Kubernetes
    namespace: str
    cluster: KubernetesCluster | None = None
    kept: dict[str, Any] = field(default_factory=dict)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.kubernetes.kubectl(*arguments, f"--namespace={self.namespace}", stdin=stdin)

    def apply(self, text: str) -> None:
        self.kubectl("apply", "--filename=-", stdin=text)

    def build(self, **spec: Any) -> KubernetesCluster:
        fields = {"image": self.kubernetes.image, "namespace": self.namespace, **SMALL, **spec}
        return KubernetesCluster(KubernetesSpec(**fields))

    def pod(self, component: str = "worker") -> str:
        """The name of a pod of the cluster."""
        assert self.cluster is not None
        pods = self.cluster._scheduler if component == "scheduler" else self.cluster._pods
        return str(pods[0]["metadata"]["name"])


@dataclass(frozen=True)
class FailureRow:
    """A way to fail: what is done, and the category of the error."""

    done: str
    category: str
    spec: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[FailureSite], object] = lambda site: None
    workers: int = 0  # 0: the cluster does not open; else it is open, and so many workers do not come
    act: Callable[[FailureSite], object] | None = None  # while a trial with one worker runs
    task: Callable[[], object] = lambda: time.sleep(300)  # of that trial
    restore: Callable[[FailureSite], object] = lambda site: None
    own_s: float = 0.0  # seconds that Kubernetes takes to notice, or that are configured
    seldom: bool = False  # found as another row is: only where the page is written


# ------------------------------------------------------------------ what is done


def quota(hard: str) -> Callable[[FailureSite], object]:
    """Has the namespace allow so much of something."""

    def prepare(site: FailureSite) -> None:
        site.apply(f"{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: few}}, spec: {{hard: {{{hard}}}}}}}")
        until(lambda: "hard" in site.kubectl("get", "quota", "few", "--output=jsonpath={.status}"))

    return prepare


def limits(limit: str) -> Callable[[FailureSite], object]:
    def prepare(site: FailureSite) -> None:
        spec = f"{{limits: [{{type: Container, {limit}}}]}}"
        site.apply(f"{{apiVersion: v1, kind: LimitRange, metadata: {{name: limits}}, spec: {spec}}}")
        until(lambda: "limits:" in site.kubectl("run", "p", "--image=i", "--dry-run=server", "--output=yaml"))

    return prepare


_POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "EXPRESSION", message: this is wanted}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
"""


def policy(expression: str) -> Callable[[FailureSite], object]:
    """Has the namespace refuse pods for which this is false, as a validating webhook does."""

    def prepare(site: FailureSite) -> None:
        site.apply(_POLICY.replace("NAMESPACE", site.namespace).replace("EXPRESSION", expression))
        run = ("run", "p", "--image=i", "--dry-run=server", f"--namespace={site.namespace}")
        until(lambda: "this is wanted" in site.kubernetes.kubectl(*run, check=False))

    return prepare


def being_deleted(site: FailureSite) -> None:
    site.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [test/held]}}")
    site.kubernetes.kubectl("delete", "namespace", site.namespace, "--wait=false")


def let_go(site: FailureSite) -> None:
    site.kubectl("patch", "configmap", "held", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')


def delete_secret(site: FailureSite) -> None:
    assert site.cluster is not None
    site.kept = site.kubernetes.get("secret", site.cluster.label, namespace=site.namespace)
    site.kubectl("delete", "secret", site.cluster.label)


def _restore_secret(site: FailureSite) -> None:
    for name in ("uid", "resourceVersion", "creationTimestamp"):
        del site.kept["metadata"][name]
    site.apply(json.dumps(site.kept))


def evict(site: FailureSite) -> None:
    """What `kubectl drain` does to each pod."""
    made = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": site.pod()}}
    url = f"/api/v1/namespaces/{site.namespace}/pods/{site.pod()}/eviction"
    site.kubernetes.kubectl("create", "--raw", url, "-f", "-", stdin=json.dumps(made))


_IMPORTANT = """
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: first}, value: 1000}
---
apiVersion: v1
kind: Pod
metadata: {name: important}
spec:
  priorityClassName: first
  containers: [{name: main, image: IMAGE, args: [sleep, "600"], resources: {limits: {nvidia.com/gpu: 4}}}]
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  terminationGracePeriodSeconds: 0
"""


def preempt(site: FailureSite) -> None:
    site.apply(_IMPORTANT.replace("IMAGE", site.kubernetes.image))


def taint(site: FailureSite, sign: str = "") -> None:
    site.kubernetes.kubectl("taint", "nodes", "gpu", f"test/reclaimed=spot:NoExecute{sign}")


def _end_scheduler(site: FailureSite) -> None:
    """As when it crashes."""
    assert site.cluster is not None

    def end(dask_scheduler: Any) -> None:
        dask_scheduler.loop.call_later(0.1, os._exit, 3)

    site.cluster._open().run_on_scheduler(end)
    until(lambda: '"terminated"' in site.kubectl("get", "pods", "-o", "json"))  # Kubernetes learns of it late


def stop_node(site: FailureSite) -> None:
    site.kubernetes.mini.stop_node("gpu")


def start_node(site: FailureSite) -> None:
    lost = "{.status.conditions[?(@.type=='Ready')].status}"
    until(lambda: "Unknown" in site.kubectl("get", "node", "gpu", f"--output=jsonpath={lost}"))
    site.kubernetes.mini.start_node("gpu")


def _one_runs_then_its_node_dies(site: FailureSite) -> None:
    """Once the first of two workers runs."""
    cluster, stopped = site.cluster, []
    assert cluster is not None

    def stop(words: str) -> None:
        if words.startswith("1 of 2") and not stopped:
            ready = "{.items[*].status.conditions[?(@.type=='Ready')].status}"  # a busy node tells it late
            until(lambda: "True" in site.kubectl("get", "pods", "-l", WORKERS_ONLY, f"--output=jsonpath={ready}"))
            stopped.append(stop_node(site))

    cluster.scale(0, 1)  # so that none of before is counted
    cluster.report = stop


_OTHER_DASK = """DASK_DISTRIBUTED__SCHEDULER__PRELOAD=import os, sys
made = "/tmp/other/distributed-2020.1.0.dist-info"
os.makedirs(made, exist_ok=True)  # it is imported twice
open(made + "/METADATA", "w").write("Metadata-Version: 2.1\\nName: distributed\\nVersion: 2020.1.0\\n")
sys.path.insert(0, "/tmp/other")"""


def _delete(kind: str, name: str) -> Callable[[FailureSite], object]:
    return lambda site: site.kubectl("delete", kind, name, "--wait=false")


def delete_pod(component: str = "worker") -> Callable[[FailureSite], object]:
    return lambda site: site.kubectl("delete", "pod", site.pod(component), "--wait=false")


_seldom = partial(FailureRow, seldom=True)
NO_POOL = {"scheduler_node_selector": ("pool=none",)}
OPENING = (  # the cluster does not open
    _seldom("no node has so many CPUs", "no-room", {"scheduler_cpu": 500}),
    _seldom("no node has so much memory", "no-room", {"scheduler_memory_mb": 10**7}),
    FailureRow("no node has the labels", "no-label", NO_POOL),
    _seldom(
        "nodes with the labels have a taint",
        "no-label",
        {"scheduler_node_selector": ("nvidia.com/gpu.product=NVIDIA-H200",)},
    ),
    _seldom(
        "autoscaling adds no node in time (here 8 s)", "no-label", {**NO_POOL, "autoscale_timeout_s": 8.0}, own_s=8
    ),
    FailureRow("image is not there", "no-registry", {"image": "localhost/none:1"}),
    _seldom("image name of 400 characters", "image-name", {"image": "a" * 400}),
    _seldom("image without Dask", "no-dask", {"image": "localhost/base:dev", "environment": ("PATH=/nowhere",)}),
    _seldom("image without Dask, its entrypoint a script", "no-dask", {"environment": ("PATH=/nowhere",)}),
    FailureRow("container ends again and again", "no-package", {"environment": ("PYTHONHOME=/nowhere",)}),
    FailureRow("no such service account", "no-service-account", {"service_account": "nobody"}),
    _seldom("no such priority class", "no-priority-class", {"priority_class": "nothing"}),
    FailureRow("no such secret of variables", "no-secret", {"environment_secrets": ("nothing",)}),
    FailureRow("no such namespace", "no-namespace", {"namespace": "nowhere"}),
    FailureRow("namespace is being deleted", "namespace-ending", prepare=being_deleted, restore=let_go),
    FailureRow("no such context", "unreachable", {"context": "nowhere"}),
    FailureRow("API server refuses connections", "unreachable", {"context": "closed"}),
    _seldom("API server does not answer", "unreachable", {"context": "silent"}, own_s=10),
    FailureRow("token is not accepted", "credentials", {"context": "expired"}),
    FailureRow("user may do nothing there", "not-allowed", {"context": "nobody"}),
    FailureRow("quota allows no pod", "quota", prepare=quota("pods: '0'")),
    FailureRow(
        "limit range allows no such pod",
        "limit-range",
        {"groups": {"big": {"memory_mb": 2048}}},
        prepare=limits("max: {memory: 1Gi}"),
    ),
    FailureRow(
        "policy or webhook refuses the pods",
        "policy",
        prepare=policy("object.spec.containers.all(c, c.image.startsWith('registry.example/'))"),
    ),
    FailureRow("image has another version of Dask", "other-versions", {"environment": (_OTHER_DASK,)}),
)

WORKERS = (  # the cluster is open, and its workers do not come
    FailureRow(
        "quota allows one worker of two",
        "quota",
        prepare=quota("pods: '2'"),
        restore=_delete("quota", "few"),
        workers=2,
    ),
    _seldom(
        "secret of the cluster was removed",
        "own-secret-deleted",
        prepare=delete_secret,
        restore=_restore_secret,
        workers=1,
    ),
    _seldom("claim of a volume does not exist", "no-claim", {"volumes": ("nothing:/data",)}, workers=1),
    FailureRow("scheduler's process ends in a trial", "crashed", act=_end_scheduler),
)

TRIALS = (  # while a trial runs
    _seldom(
        "worker uses more disk than it may",
        "out-of-disk",
        prepare=limits("default: {ephemeral-storage: 100Mi}"),
        task=lambda: (Path("/tmp/filled").write_bytes(bytes(200 << 20)), time.sleep(300)),
        restore=_delete("limitrange", "limits"),
        own_s=30,  # the node measures volumes each 10 to 20 s, and looks at that each 10 s
    ),
    _seldom("worker runs out of memory", "out-of-memory", task=lambda: len(bytearray(2**30))),
    _seldom("worker's pod is deleted", "deleted", act=delete_pod()),
    FailureRow("worker is evicted, as by `kubectl drain`", "drained", act=evict),
    _seldom("scheduler's pod is deleted", "deleted", act=delete_pod("scheduler")),
)

GPU_NODE = (  # one after the other, for they are about the same node
    FailureRow("no node has such GPUs", "no-label", {**GPU, "gpu_product": "NVIDIA-T4"}, workers=1),
    _seldom("image without dask-cuda", "no-dask-cuda", {**GPU, "cuda": True}, workers=1),
    _seldom("no node has so many GPUs", "no-gpu", {**GPU, "gpus": 8}, workers=1),
    _seldom(
        "GPUs stay in use (here for 5 s)", "no-gpu", {**GPU, "gpus": 4, "queue_timeout_s": 5.0}, workers=2, own_s=5
    ),
    FailureRow(
        "worker gives way to a pod of higher priority",
        "preempted",
        GPU,
        act=preempt,
        restore=_delete("pod", "important"),
    ),
    _seldom(
        "worker's node is tainted, as before a spot node goes",
        "node-tainted",
        GPU,
        act=taint,
        restore=lambda site: taint(site, "-"),
    ),
    _seldom(
        "worker's node dies while others are waited for",
        "node-lost",
        {**GPU, "gpus": 3},
        prepare=_one_runs_then_its_node_dies,
        restore=start_node,
        workers=2,
        own_s=20,
    ),
    _seldom("worker's node dies", "node-lost", GPU, act=stop_node, restore=start_node, own_s=10),
)

# Last and alone: where the operator is refused something, it breaks off what it asks for others (kr8s 0.20).
OPERATOR = (
    _seldom("quota allows no Deployment", "quota", prepare=quota("count/deployments.apps: '0'")),
    _seldom(
        "quota allows no Deployment but the scheduler's",
        "quota",
        prepare=quota("count/deployments.apps: '1'"),
        workers=1,
    ),
)

GROUPS = {"opening": OPENING, "workers": WORKERS, "trial": TRIALS, "gpu": GPU_NODE, "operator": OPERATOR}
ROWS = {f"{group}: {row.done}": row for group, rows in GROUPS.items() for row in rows}
