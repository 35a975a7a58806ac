"""Every way in which a cluster fails on Kubernetes: how it is brought about there, and what the error must say."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalescope.clusters.kubernetes.cluster import KubernetesCluster
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from support.kubernetes import Kubernetes, until

SMALL = {"cpu": 0.05, "memory_mb": 400, "scheduler_cpu": 0.05, "scheduler_memory_mb": 400}
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
    """A cause: how it is brought about, and what must be in the error."""

    cause: str
    expect: tuple[str, ...]
    spec: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[FailureSite], object] = lambda place: None
    workers: int = 0
    """0: the cluster does not open; else it is open, and so many workers do not come."""
    act: Callable[[FailureSite], object] | None = None
    """Done while a trial with one worker runs."""
    task: Callable[[], object] = field(default=lambda: time.sleep(300))
    """What it does."""
    restore: Callable[[FailureSite], object] = lambda place: None
    own_s: float = 0.0
    """Seconds that Kubernetes takes to know, or that are configured."""
    seldom: bool = False
    """Found out as another row is: brought about only where the page is written."""


# ------------------------------------------------------------------ what is done


def quota(hard: str) -> Callable[[FailureSite], object]:
    """Has the namespace allow so much of something."""

    def prepare(place: FailureSite) -> None:
        place.apply(f"{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: few}}, spec: {{hard: {{{hard}}}}}}}")
        until(lambda: "hard" in place.kubectl("get", "quota", "few", "--output=jsonpath={.status}"))

    return prepare


def _limits(limit: str) -> Callable[[FailureSite], object]:
    def prepare(place: FailureSite) -> None:
        spec = f"{{limits: [{{type: Container, {limit}}}]}}"
        place.apply(f"{{apiVersion: v1, kind: LimitRange, metadata: {{name: limits}}, spec: {spec}}}")
        until(lambda: "limits:" in place.kubectl("run", "p", "--image=i", "--dry-run=server", "--output=yaml"))

    return prepare


_POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations:
    - expression: object.spec.containers.all(c, c.image.startsWith('registry.example/'))
      message: images must come from registry.example
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
"""


def _policy(place: FailureSite) -> None:
    """What a validating webhook is without a server."""
    place.apply(_POLICY.replace("NAMESPACE", place.namespace))
    run = ("run", "p", "--image=i", "--dry-run=server", f"--namespace={place.namespace}")
    until(lambda: "registry.example" in place.kubernetes.kubectl(*run, check=False))


def _being_deleted(place: FailureSite) -> None:
    place.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [test/held]}}")
    place.kubernetes.kubectl("delete", "namespace", place.namespace, "--wait=false")


def _let_go(place: FailureSite) -> None:
    place.kubectl("patch", "configmap", "held", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')


def _delete_secret(place: FailureSite) -> None:
    assert place.cluster is not None
    place.kept = place.kubernetes.get("secret", place.cluster.label, namespace=place.namespace)
    place.kubectl("delete", "secret", place.cluster.label)


def _restore_secret(place: FailureSite) -> None:
    for name in ("uid", "resourceVersion", "creationTimestamp"):
        del place.kept["metadata"][name]
    place.apply(json.dumps(place.kept))


def _evict(place: FailureSite) -> None:
    """What `kubectl drain` does to each pod."""
    made = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": place.pod()}}
    url = f"/api/v1/namespaces/{place.namespace}/pods/{place.pod()}/eviction"
    place.kubernetes.kubectl("create", "--raw", url, "-f", "-", stdin=json.dumps(made))


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


def _preempt(place: FailureSite) -> None:
    place.apply(_IMPORTANT.replace("IMAGE", place.kubernetes.image))


def _taint(place: FailureSite, sign: str = "") -> None:
    place.kubernetes.kubectl("taint", "nodes", "gpu", f"test/reclaimed=spot:NoExecute{sign}")


def _end_scheduler(place: FailureSite) -> None:
    """As when it crashes."""
    assert place.cluster is not None

    def end(dask_scheduler: Any) -> None:
        dask_scheduler.loop.call_later(0.1, os._exit, 3)

    place.cluster._open().run_on_scheduler(end)
    until(lambda: '"terminated"' in place.kubectl("get", "pods", "-o", "json"))  # Kubernetes learns of it late


def _stop_node(place: FailureSite) -> None:
    place.kubernetes.mini.stop_node("gpu")


def _start_node(place: FailureSite) -> None:
    lost = "{.status.conditions[?(@.type=='Ready')].status}"
    until(lambda: "Unknown" in place.kubectl("get", "node", "gpu", f"--output=jsonpath={lost}"))
    place.kubernetes.mini.start_node("gpu")


def _one_runs_then_its_node_dies(place: FailureSite) -> None:
    """Once the first of two workers runs."""
    cluster, stopped = place.cluster, []
    assert cluster is not None

    def stop(words: str) -> None:
        if words.startswith("1 of 2") and not stopped:
            stopped.append(_stop_node(place))

    cluster.scale(0, 1)  # so that none of before is counted
    cluster.report = stop


_OTHER_DASK = """DASK_DISTRIBUTED__SCHEDULER__PRELOAD=import os, sys
made = "/tmp/other/distributed-2020.1.0.dist-info"
os.makedirs(made, exist_ok=True)  # it is imported twice
open(made + "/METADATA", "w").write("Metadata-Version: 2.1\\nName: distributed\\nVersion: 2020.1.0\\n")
sys.path.insert(0, "/tmp/other")"""
OPENING = (
    FailureRow(
        "no node has so many CPUs", ("Insufficient cpu", "cluster.scheduler_cpu"), {"scheduler_cpu": 500}, seldom=True
    ),
    FailureRow(
        "no node has so much memory",
        ("Insufficient memory", "cluster.scheduler_memory_mb"),
        {"scheduler_memory_mb": 10**7},
        seldom=True,
    ),
    FailureRow(
        "no node has the labels",
        ("labels that the pod asks for", "cluster.scheduler_node_selector", "cluster.autoscale_timeout_s"),
        {"scheduler_node_selector": ("pool=none",)},
    ),
    FailureRow(
        "taint that is not tolerated",
        ("untolerated taint", "cluster.scheduler_tolerations"),
        {"scheduler_node_selector": ("nvidia.com/gpu.product=NVIDIA-H200",)},
        seldom=True,
    ),
    FailureRow(
        "autoscaling adds no node in time (here 8 s)",
        ("after 8 s", "cluster.autoscale_timeout_s"),
        {"scheduler_node_selector": ("pool=none",), "autoscale_timeout_s": 8.0},
        own_s=8,
        seldom=True,
    ),
    FailureRow("image is not there", ("ImagePull", "localhost/none:1", "cluster.image"), {"image": "localhost/none:1"}),
    FailureRow(
        "image name of 400 characters", ("InvalidImageName", "cluster.image"), {"image": "a" * 400}, seldom=True
    ),
    FailureRow(
        "image without Dask",
        ("executable file not found", "no program `dask`", "cluster.image"),
        {"image": "localhost/base:dev", "environment": ("PATH=/nowhere",)},
    ),
    FailureRow(
        "image without Dask, whose entrypoint is a script",
        ("exec: dask: not found", "no program `dask`", "use an image"),
        {"environment": ("PATH=/nowhere",)},
        seldom=True,
    ),
    FailureRow(
        "container ends again and again",
        ("No module named 'encodings'", "    | ", "packages"),
        {"environment": ("PYTHONHOME=/nowhere",)},
    ),
    FailureRow(
        "no such service account",
        ("FailedCreate", '"nobody" not found', "cluster.service_account"),
        {"service_account": "nobody"},
    ),
    FailureRow(
        "no such priority class",
        ("FailedCreate", "no PriorityClass with name nothing", "cluster.priority_class"),
        {"priority_class": "nothing"},
    ),
    FailureRow(
        "no such secret of variables",
        ("CreateContainerConfigError", 'secret "nothing" not found', "cluster.environment_secrets"),
        {"environment_secrets": ("nothing",)},
    ),
    FailureRow("no such namespace", ('namespaces "nowhere" not found', "cluster.namespace"), {"namespace": "nowhere"}),
    FailureRow(
        "namespace is being deleted",
        ("is being terminated", "cluster.namespace"),
        prepare=_being_deleted,
        restore=_let_go,
    ),
    FailureRow("no such context", ("nowhere", "cluster.context"), {"context": "nowhere"}),
    FailureRow(
        "API server refuses connections", ("Kubernetes does not answer", "cluster.context"), {"context": "closed"}
    ),
    FailureRow(
        "API server does not answer",
        ("Kubernetes does not answer", "cluster.context"),
        {"context": "silent"},
        own_s=10,
        seldom=True,
    ),
    FailureRow("token is not accepted", ("Unauthorized", "credentials have expired", "whoami"), {"context": "expired"}),
    FailureRow(
        "user may do nothing there",
        ("you may not get daskclusters, create daskclusters", "docs/kubernetes.md"),
        {"context": "nobody"},
    ),
    FailureRow(
        "quota allows no pod",
        ("FailedCreate", "exceeded quota: few", "describe quota"),
        prepare=quota("pods: '0'"),
    ),
    FailureRow(
        "limit range allows no such pod",
        ("a worker of", "worker big", "FailedCreate", "maximum memory usage per Container is 1Gi", "cluster.memory_mb"),
        {"groups": {"big": {"memory_mb": 2048}}},
        prepare=_limits("max: {memory: 1Gi}"),
    ),
    FailureRow(
        "policy or webhook refuses the pods",
        ("FailedCreate", "images must come from registry.example", "administrator"),
        prepare=_policy,
    ),
    FailureRow(
        "image has another version of Dask",
        ("other versions than the driver", "distributed 2020.1.0", "cluster.image"),
        {"environment": (_OTHER_DASK,)},
    ),
)
"""The cluster does not open."""

WORKERS = (
    FailureRow(
        "quota allows one worker of two",
        ("1 of 2 workers of", "exceeded quota: few", "describe quota"),
        prepare=quota("pods: '2'"),
        restore=lambda place: place.kubectl("delete", "quota", "few"),
        workers=2,
    ),
    FailureRow(
        "secret of the cluster was removed",
        ("FailedMount", "not found", "somebody deleted"),
        prepare=_delete_secret,
        restore=_restore_secret,
        workers=1,
        seldom=True,
    ),
    FailureRow(
        "scheduler's process ends in a trial",
        ("Error: exit code 3", "the scheduler of", "    | ", "its last words"),
        act=_end_scheduler,
    ),
)
"""The cluster is open, and its workers do not come."""

TRIALS = (
    FailureRow(
        "worker uses more disk than it may",
        ("Evicted", "ephemeral local storage", "more disk than it may", "describe limitrange"),
        prepare=_limits("default: {ephemeral-storage: 100Mi}"),
        task=lambda: (Path("/tmp/filled").write_bytes(bytes(200 << 20)), time.sleep(300)),
        restore=lambda place: place.kubectl("delete", "limitrange", "limits"),
        own_s=30,  # the node measures volumes each 10 to 20 s, and looks at that each 10 s
        seldom=True,
    ),
    FailureRow(
        "worker runs out of memory",
        ("OOMKilled", "more memory than its limit", "cluster.memory_mb"),
        task=lambda: len(bytearray(2**30)),
        seldom=True,
    ),
    FailureRow(
        "worker's pod is deleted",
        ("Deleted", "somebody deleted it"),
        act=lambda place: place.kubectl("delete", "pod", place.pod(), "--wait=false"),
        seldom=True,
    ),
    FailureRow("worker is evicted, as by `kubectl drain`", ("EvictionByEvictionAPI", "is drained"), act=_evict),
    FailureRow(
        "scheduler's pod is deleted",
        ("Deleted", "the scheduler of", "somebody deleted it"),
        act=lambda place: place.kubectl("delete", "pod", place.pod("scheduler"), "--wait=false"),
        seldom=True,
    ),
)
"""While a trial runs."""

GPU_NODE = (
    FailureRow(
        "no node has such GPUs",
        ("Unschedulable", "cluster.gpu_product", "cluster.autoscale_timeout_s"),
        {**GPU, "gpu_product": "NVIDIA-T4"},
        workers=1,
    ),
    FailureRow(
        "image without dask-cuda",
        ("No such command 'cuda'", "the image lacks dask-cuda", "cluster.cuda"),
        {**GPU, "cuda": True},
        workers=1,
        seldom=True,
    ),
    FailureRow(
        "no node has so many GPUs",
        ("Insufficient nvidia.com/gpu", "cluster.gpus"),
        {**GPU, "gpus": 8},
        workers=1,
        seldom=True,
    ),
    FailureRow(
        "GPUs stay in use (here for 5 s)",
        ("1 of 2 workers of", "after 5 s", "Insufficient nvidia.com/gpu", "cluster.queue_timeout_s"),
        {**GPU, "gpus": 4, "queue_timeout_s": 5.0},
        workers=2,
        own_s=5,
    ),
    FailureRow(
        "worker gives way to a pod of higher priority",
        ("Preempt", "cluster.priority_class"),
        GPU,
        act=_preempt,
        restore=lambda place: place.kubectl("delete", "pod", "important", "--wait=false"),
    ),
    FailureRow(
        "worker's node is tainted, as before a spot node goes",
        ("DeletionByTaintManager", "spot"),
        GPU,
        act=_taint,
        restore=lambda place: _taint(place, "-"),
        seldom=True,
    ),
    FailureRow(
        "worker's node dies while others are waited for",
        ("NodeLost", "node does not answer", "kubectl get nodes"),
        {**GPU, "gpus": 3},
        prepare=_one_runs_then_its_node_dies,
        restore=_start_node,
        workers=2,
        own_s=20,
        seldom=True,
    ),
    FailureRow(
        "worker's node dies",
        ("NodeLost", "node does not answer", "kubectl get nodes"),
        GPU,
        act=_stop_node,
        restore=_start_node,
        own_s=10,
    ),
)
"""One after the other, for they are about the same node."""

OPERATOR = (
    FailureRow(
        "quota allows no Deployment",
        ("exceeded quota: few", "count/deployments.apps=0"),
        prepare=quota("count/deployments.apps: '0'"),
        seldom=True,
    ),
    FailureRow(
        "quota allows no Deployment but the scheduler's",
        ("cannot make the parts", "exceeded quota: few", "count/deployments.apps=1", "describe quota"),
        prepare=quota("count/deployments.apps: '1'"),
        workers=1,
    ),
)
"""Last and alone: where the operator is refused something, it breaks off what it asks for others (kr8s 0.20)."""

GROUPS = {"opening": OPENING, "workers": WORKERS, "trial": TRIALS, "gpu": GPU_NODE, "operator": OPERATOR}
ROWS = {f"{group}: {row.cause}": row for group, rows in GROUPS.items() for row in rows}
