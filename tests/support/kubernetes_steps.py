"""Next steps of failures on Kubernetes: how each failure is brought about, and what its error says to do."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import distributed

from scalescope import leases
from support import registry
from support.kubernetes import ROLES, until, with_token
from support.kubernetes_failures import (
    GPU,
    FailureSite,
    being_deleted,
    delete_pod,
    delete_secret,
    evict,
    let_go,
    limits,
    policy,
    preempt,
    quota,
    start_node,
    stop_node,
    taint,
)

Hook = Callable[[FailureSite], object]


@dataclass(frozen=True)
class Step:
    """A failure that its next step ends."""

    category: str
    asked: dict[str, Any] = field(default_factory=dict)
    change: dict[str, Any] = field(default_factory=dict)  # fields that the next step changes; None: leave it out
    before: Hook = lambda site: None
    opened: Hook | None = None  # once the cluster is open, and before workers are asked for
    trial: Hook | None = None  # while a trial runs
    act: Hook = lambda site: None  # the part of the next step outside of the specification
    after: Hook = lambda site: None
    mini: bool = False  # True if it needs a node of infra/kubernetes/mini.py


def _admin(*arguments: str) -> Hook:
    """Run kubectl for the whole cluster."""
    return lambda site: site.kubernetes.kubectl(*arguments)


def _later(hook: Hook, seconds: float = 3.0) -> Hook:
    return lambda site: threading.Timer(seconds, hook, [site]).start()


# ------------------------------------------------------------------ the operator and its resources


def _operators(number: int) -> Hook:
    def scale(site: FailureSite) -> None:
        where = ("-n", "dask-operator", "deployment")
        site.kubernetes.kubectl("scale", *where, "--all", f"--replicas={number}")
        site.kubernetes.kubectl("rollout", "status", *where, "--timeout=90s")
        known = ("get", "pods", "-n", "dask-operator", "-o", "name")
        until(lambda: len(site.kubernetes.kubectl(*known).split()) == number)

    return scale


def _crds(*patch: dict[str, Any]) -> Hook:
    """Change the first version of the custom resource definitions of clusters."""
    made = json.dumps([{**each, "path": f"/spec/versions/0/{each['path']}"} for each in patch])
    return _admin("patch", "crd", "daskclusters.kubernetes.dask.org", "--type=json", "-p", made)


def _in_turn(*hooks: Hook) -> Hook:
    return lambda site: [hook(site) for hook in hooks]


_IDLE = "schema/openAPIV3Schema/properties/spec/properties/idleTimeout"
_SERVED = _crds({"op": "replace", "path": "served", "value": True})
_DEFINED = _crds({"op": "add", "path": _IDLE, "value": {"type": "integer"}})
_RESTARTED = _in_turn(_operators(0), _operators(1))


def _unserved(site: FailureSite) -> None:
    _crds({"op": "replace", "path": "served", "value": False})(site)
    until(lambda: "daskclusters" not in site.kubernetes.kubectl("api-resources", "--api-group=kubernetes.dask.org"))


def _without_right(site: FailureSite) -> None:
    """The operator may not make Deployments."""
    names = site.kubernetes.kubectl("get", "clusterroles", "-o", "name").split()
    [name] = [each for each in names if "dask" in each]
    site.kept = json.loads(site.kubernetes.kubectl("get", name, "-o", "json"))
    for each in ("uid", "resourceVersion", "creationTimestamp"):
        del site.kept["metadata"][each]
    other = json.dumps(site.kept).replace('"deployments', '"replicasets')
    site.kubernetes.kubectl("replace", "-f", "-", stdin=other)


def _with_right(site: FailureSite) -> None:
    site.kubernetes.kubectl("replace", "-f", "-", stdin=json.dumps(site.kept))


# ------------------------------------------------------------------ who asks


def _as(site: FailureSite, token: str) -> None:
    os.environ["KUBECONFIG"] = with_token(site.kubernetes, token, Path(os.environ[leases.VARIABLE]).parent)


def _expired(site: FailureSite) -> None:
    _as(site, "expired")


def _log_in(site: FailureSite) -> None:
    os.environ["KUBECONFIG"] = str(site.kubernetes.kubeconfig)


def _without_role(site: FailureSite) -> None:
    site.kubectl("apply", "-f", ROLES)
    site.kubectl("create", "serviceaccount", "someone")
    _as(site, site.kubectl("create", "token", "someone").strip())


def _bind_roles(site: FailureSite) -> None:
    for name in ("scalescope", "scalescope-outside"):
        account = f"--serviceaccount={site.namespace}:someone"
        site.kubectl("create", "rolebinding", name, f"--role={name}", account)


# ------------------------------------------------------------------ objects


_VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: NAMESPACE-NAME}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  capacity: {storage: 1Mi}
  SOURCE
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: NAME}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  volumeName: NAMESPACE-NAME
  resources: {requests: {storage: 1Mi}}
"""
_SOURCES = {
    "files": "hostPath: {path: /tmp/files, type: DirectoryOrCreate}",
    "elsewhere": """local: {path: /tmp}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [none]}]}]}}""",
}


def _volumes(site: FailureSite) -> None:
    """Claims of volumes that are on the nodes (`files`) and on none of them (`elsewhere`)."""
    for name, source in _SOURCES.items():
        made = _VOLUME.replace("NAMESPACE", site.namespace).replace("NAME", name).replace("SOURCE", source)
        site.apply(made)
        until(lambda name=name: "Bound" in site.kubectl("get", "pvc", name, "-o", "jsonpath={.status.phase}"))


def _no_volumes(site: FailureSite) -> None:
    names = [f"{site.namespace}-{name}" for name in _SOURCES]
    site.kubectl("delete", "persistentvolume", *names, "--ignore-not-found", "--wait=false")


_WEBHOOK = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAMESPACE}
webhooks:
  - name: pods.example.org
    clientConfig: {service: {name: none, namespace: NAMESPACE}}
    rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
    sideEffects: None
    admissionReviewVersions: [v1]
"""


def _webhook(site: FailureSite) -> None:
    site.apply(_WEBHOOK.replace("NAMESPACE", site.namespace))
    run = ("run", "p", "--image=i", "--dry-run=server", f"--namespace={site.namespace}")
    until(lambda: "failed calling webhook" in site.kubernetes.kubectl(*run, check=False))


def _no_webhook(site: FailureSite) -> None:
    site.kubectl("delete", "validatingwebhookconfiguration", site.namespace, "--ignore-not-found")


def _ending(hook: Hook) -> Hook:
    return lambda site: hook(FailureSite(site.kubernetes, ENDING))


ENDING = "ending"  # a namespace that is being deleted
_MAKE_ENDING = _in_turn(_admin("create", "namespace", ENDING), _ending(being_deleted))
_SECOND = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: second}, value: 2000}"
_NO_CLASSES = _admin("delete", "priorityclass", "first", "second", "--ignore-not-found")
_NOT_WELL = ("taint", "nodes", "cpu", "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule")
_RESERVED = ("taint", "nodes", "cpu", "test/reserved:NoSchedule")


# ------------------------------------------------------------------ images


Files = Mapping[str, tuple[str, int] | None]  # text and mode by path in an image; None: it lacks the file


def _served(name: str, files: Files = MappingProxyType({}), **config: Any) -> Hook:
    """Serve Scalescope's image with other files as `one:NAME`, and as it is as `whole:NAME`, in the node `cpu`.

    In paths, PACKAGES and LIBRARIES are the folders of the image.
    """

    def serve(site: FailureSite) -> None:
        mini = site.kubernetes.mini
        folder = mini.folder / "registry"
        base = mini._image.parent / "base"
        places = {word: str(getattr(sys.modules["mini_image"], word)) for word in ("PACKAGES", "LIBRARIES")}
        changed = {"/".join(places.get(part, part) for part in path.split("/")): file for path, file in files.items()}
        registry.derive(mini._image, folder, f"whole:{name}", {})
        registry.derive(mini._image, folder, f"one:{name}", changed, **config)
        if not (folder / "runs").exists():
            (folder / "runs").touch()
            command = [sys.executable, registry.__file__, *map(str, (folder, mini._image, base))]
            mini._order(node="cpu", name="registry", command=command)
        for secret, word in (("right", registry.WORD), ("wrong", "wrong")):
            who = (f"--docker-server={registry.ADDRESS}", f"--docker-username={registry.USER}")
            site.kubectl("create", "secret", "docker-registry", secret, *who, f"--docker-password={word}")

    return serve


def _image(name: str, repository: str = "open/one") -> dict[str, Any]:
    return {"image": f"{registry.ADDRESS}/{repository}:{name}"}


def _broken(category: str, name: str, files: Files, **config: Any) -> Step:
    """An image that lacks something, in place of which a whole one is used."""
    return Step(category, _image(name), {"image": None}, before=_served(name, files, **config), mini=True)


_DASK = "usr/local/bin/dask"
_COMMANDS = "[dask_cli]\nscheduler = distributed.cli.dask_scheduler:main\nworker = distributed.cli.dask_worker:main\n"
ON_GPU_NODE = {"node_selector": ("kubernetes.io/hostname=gpu",), "tolerations": ("nvidia.com/gpu",)}
GPU_SELECTOR = {"scheduler_node_selector": ("nvidia.com/gpu.product=NVIDIA-H200",)}

STEPS = {
    "account": Step("no-service-account", {"service_account": "nobody"}, {"service_account": None}),
    "priority": Step("no-priority-class", {"priority_class": "nothing"}, {"priority_class": None}),
    "secret": Step("no-secret", {"environment_secrets": ("nothing",)}, {"environment_secrets": None}),
    "image name": Step("image-name", {"image": "a" * 400}, {"image": None}),
    "namespace": Step("no-namespace", {"namespace": "nowhere"}, {"namespace": None}),
    "ending namespace": Step(
        "namespace-ending", {"namespace": ENDING}, {"namespace": None}, before=_MAKE_ENDING, after=_ending(let_go)
    ),
    "context": Step("unreachable", {"context": "nowhere"}, {"context": None}),
    "token": Step("credentials", before=_expired, act=_log_in, after=_log_in),
    "role": Step("not-allowed", before=_without_role, act=_bind_roles, after=_log_in),
    # rules of the namespace
    "quota": Step("quota", {"memory_mb": 800}, {"memory_mb": 400}, before=quota("requests.memory: 900Mi")),
    "quota of limits": Step(
        "quota-needs-limits", {"memory_mb": 0}, {"memory_mb": 400}, before=quota("limits.memory: 4Gi")
    ),
    "most CPUs": Step("limit-range", {}, {"cpu_limit": 0.5}, before=limits("max: {cpu: 500m}")),
    "fewest CPUs": Step(
        "limit-range", {}, {"scheduler_cpu": 0.1, "cpu": 0.1}, before=limits("min: {cpu: 100m}, default: {cpu: '1'}")
    ),
    "most memory": Step("limit-range", {"memory_mb": 600}, {"memory_mb": 400}, before=limits("max: {memory: 500Mi}")),
    "policy": Step(
        "policy", {}, {"labels": ("cost-centre=c7",)}, before=policy("'cost-centre' in object.metadata.labels")
    ),
    "webhook": Step("webhook-silent", before=_webhook, act=_no_webhook, after=_no_webhook),
    "label of a pod": Step("create-refused", {"labels": ("a..b/c=d",)}, {"labels": None}),
    # nodes
    "label": Step("no-label", {"scheduler_node_selector": ("pool=none",)}, {"scheduler_node_selector": None}),
    "GPU product": Step("no-label", {**GPU, "gpu_product": "NVIDIA-T4"}, {"gpu_product": "NVIDIA-H200"}, mini=True),
    "taint of one node": Step("no-label", GPU_SELECTOR, {"scheduler_tolerations": ("nvidia.com/gpu",)}, mini=True),
    "taints": Step(
        "taint",
        {},
        {"scheduler_tolerations": ("test/reserved",), "tolerations": ("test/reserved",)},
        before=_admin(*_RESERVED),
        after=_admin(*_RESERVED[:-1], f"{_RESERVED[-1]}-"),
        mini=True,
    ),
    "node not ready": Step(
        "node-not-ready",
        {"queue_timeout_s": 3.0},
        {"queue_timeout_s": 60.0},
        before=_admin(*_NOT_WELL),
        act=_later(_admin(*_NOT_WELL[:-1], f"{_NOT_WELL[-1]}-")),
        mini=True,
    ),
    "cordoned nodes": Step(
        "cordoned",
        {"queue_timeout_s": 3.0, "scheduler_tolerations": ("nvidia.com/gpu",)},
        before=_admin("cordon", "cpu", "gpu"),
        act=_admin("uncordon", "cpu", "gpu"),
        after=_admin("uncordon", "cpu", "gpu"),
        mini=True,
    ),
    "memory": Step("no-room", {"scheduler_memory_mb": 10**7}, {"scheduler_memory_mb": 400}),
    "CPUs": Step("no-room", {"cpu": 500.0}, {"cpu": 0.05}),
    "GPUs": Step("no-gpu", {**GPU, "gpus": 8}, {"gpus": 1}, mini=True),
    "claim": Step(
        "no-claim", {"volumes": ("nothing:/data",)}, {"volumes": ("files:/data",)}, before=_volumes, after=_no_volumes
    ),
    "volume elsewhere": Step(
        "no-volume",
        {"volumes": ("elsewhere:/data",), "tolerations": ("nvidia.com/gpu",), "queue_timeout_s": 10.0},
        {"volumes": ("files:/data",)},
        before=_volumes,
        after=_no_volumes,
    ),
    # images
    "registry": Step("no-registry", {"image": "localhost/none:1"}, {"image": None}),
    "tag": Step("no-image", _image("none"), _image("tag", "open/whole"), before=_served("tag"), mini=True),
    "password": Step(
        "image-denied",
        {**_image("password", "closed/whole"), "pull_secrets": ("wrong",)},
        {"pull_secrets": ("right",)},
        before=_served("password"),
        mini=True,
    ),
    "no credentials": Step(
        "image-denied",
        _image("denied", "closed/whole"),
        {"pull_secrets": ("right",)},
        before=_served("denied"),
        mini=True,
    ),
    "pull secret": Step(
        "no-pull-secret",
        {**_image("pull", "closed/whole"), "pull_secrets": ("nothing",)},
        {"pull_secrets": ("right",)},
        before=_served("pull"),
        mini=True,
    ),
    "rate limit": Step(
        "registry-limit",
        {**_image("rate", "limited/whole"), "start_timeout_s": 10.0},
        {**_image("rate", "open/whole"), "start_timeout_s": None},
        before=_served("rate"),
        mini=True,
    ),
    "broken registry": Step(
        "image-pull",
        {**_image("pulled", "broken/whole"), "start_timeout_s": 10.0},
        {**_image("pulled", "open/whole"), "start_timeout_s": None},
        before=_served("pulled"),
        mini=True,
    ),
    "no dask": _broken("no-dask", "dask", {_DASK: None}),
    "no package": _broken("no-package", "package", {"PACKAGES/msgpack": None}),
    "no library": _broken("no-system-library", "library", {"LIBRARIES/libssl.so.3": None}),
    "rights of a file": _broken("no-permission", "rights", {_DASK: ("#!/bin/sh\n", 0o600)}),
    "command of old releases": _broken(
        "old-dask", "old", {_DASK: ("#!/bin/sh\necho \"Error: No such command '$1'.\"\nexit 2\n", 0o755)}
    ),
    "other release": _broken(
        "other-versions",
        "other",
        {
            f"PACKAGES/distributed-{distributed.__version__}.dist-info": None,
            "PACKAGES/distributed-2020.1.0.dist-info/METADATA": ("Name: distributed\nVersion: 2020.1.0\n", 0o644),
            "PACKAGES/distributed-2020.1.0.dist-info/entry_points.txt": (_COMMANDS, 0o644),
        },
    ),
    "processor": _broken("architecture", "processor", {_DASK: ("of another kind", 0o755)}, Entrypoint=[]),
    "CUDA": Step("no-dask-cuda", {**GPU, "cuda": True}, {"cuda": None}, mini=True),
    # the operator
    "operator off": Step("operator-silent", before=_operators(0), act=_operators(1), after=_operators(1)),
    "two operators": Step("two-operators", before=_operators(2), act=_operators(1), after=_operators(1)),
    "no operator": Step(
        "no-operator",
        before=_unserved,
        act=_in_turn(_SERVED, _RESTARTED),
        after=_SERVED,
    ),
    "older definitions": Step(
        "operator-version",
        before=_crds({"op": "remove", "path": _IDLE}),
        act=_in_turn(_DEFINED, _RESTARTED),
        after=_DEFINED,
    ),
    "right of the operator": Step("operator-not-allowed", before=_without_right, act=_with_right, after=_with_right),
    # the cluster is open, or a trial runs
    "own secret": Step("own-secret-deleted", opened=delete_secret),
    "memory of a worker": Step("out-of-memory", {"memory_mb": 30}, {"memory_mb": 400}),
    "program that ends": Step(
        "crashed",
        {"environment": ("DASK_DISTRIBUTED__SCHEDULER__PRELOAD=raise SystemExit('no licence')",)},
        {"environment": None},
    ),
    "program that stands still": Step(
        "unready",
        {
            "environment": ("DASK_DISTRIBUTED__SCHEDULER__PRELOAD=import time; time.sleep(600)",),
            "start_timeout_s": 15.0,
        },
        {"environment": None, "start_timeout_s": None},
    ),
    "deleted pod": Step("deleted", trial=delete_pod()),
    "eviction": Step("drained", trial=evict),
    "tainted node": Step(
        "node-tainted",
        ON_GPU_NODE,
        {"node_selector": None},
        trial=taint,
        after=lambda site: taint(site, "-"),
        mini=True,
    ),
    "priority of others": Step(
        "preempted",
        GPU,
        {"priority_class": "second"},
        before=lambda site: site.apply(_SECOND),
        trial=preempt,
        after=_NO_CLASSES,
        mini=True,
    ),
    "lost node": Step("node-lost", ON_GPU_NODE, {"node_selector": None}, trial=stop_node, after=start_node, mini=True),
}

_ADMINISTRATOR = "only an administrator can take it"
_CLOUD = "needs nodes of a cloud, which take their leave"
_NODE = "needs a node that is broken"
_WORDS = "stands for texts that no other category knows"
# Categories whose next step no test takes: the reason.
UNTRIED = {
    **dict.fromkeys(("no-name", "no-route", "pod-network", "volume", "container-not-created"), _ADMINISTRATOR),
    **dict.fromkeys(("gpu-driver", "image-inspect", "node-refused", "claim", "disk-full"), _NODE),
    **dict.fromkeys(("container-not-ended", "container-lost", "node-not-synced", "evicted", "request-failed"), _NODE),
    **dict.fromkeys(("node-shutdown", "node-gone"), _CLOUD),
    **dict.fromkeys(("unschedulable", "scheduler-error"), _WORDS),
    **dict.fromkeys(("no-trust", "connection-reset"), "needs a service mesh"),
    "no-connection": "needs a network that enforces policies",
    "invalid": "what it is about is refused for a pod before",
    "no-answer": "a server that is silent is waited for; tests of trials see it come back",
    "node-full": "needs 110 pods on a node",
    "pod-security": "our pods keep the strictest standard",
    "gated": "needs a job queue that sets gates",
    "deadline": "needs a webhook that sets time limits",
    "image-never-pulled": "needs a webhook that changes the pull policy",
    "image-signature": "needs nodes that check signatures",
    "out-of-disk": "its step is in the workload",
    "not-removed": "no workers are to come: `reap` is repeated",
}
