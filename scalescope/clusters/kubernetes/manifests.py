"""The manifests of a cluster, from its specification: pure functions.

The operator makes a Deployment and a Service for the scheduler of a `DaskCluster`, and a Deployment for each worker of
a `DaskWorkerGroup`. The default group of the cluster stays empty, because a group is replaced when its threads change.
"""

from __future__ import annotations

import base64
import inspect
import io
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import dask
import distributed
import yaml

import scalescope
from scalescope.clusters.kubernetes.spec import TOLERATION, VOLUME, KubernetesSpec

GROUP = "kubernetes.dask.org/v1"  # API version of the operator's resources

# Labels of every object of a cluster: the label of its lease, this package, and the id of the run, if known.
INSTANCE, MANAGED_BY, OURS = "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "scalescope"
RUN = "scalescope/run"

# Annotations of all pods: keep autoscalers from emptying their nodes, which would end the trial.
STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}

# Labels from the operator: `scheduler` or `worker`, and the name of a worker's group.
COMPONENT, WORKER_GROUP = "dask.org/component", "dask.org/workergroup-name"

COMM_PORT, HTTP_PORT = 8786, 8787
_PORTS = {"tcp-comm": COMM_PORT, "http-dashboard": HTTP_PORT}
USER = 1000  # user and group of all processes: never root, whatever the image says
GRACE_S = 5  # seconds for processes to end by themselves
DEATH_TIMEOUT_S = 60  # seconds after which a worker that finds no scheduler ends

_FOLDER = "/etc/scalescope"
_CONFIG, _PACKAGE = "dask.config", "scalescope.zip"
# Parts of this package that the secret brings to the pods: HTTP routes, and what built-in workloads need in tasks.
_ROUTES = tuple(f"scalescope.clusters.kubernetes.{name}" for name in ("metrics_route", "http_routes"))
_SHIPPED: tuple[str, ...] = ("workloads/", "model/", "__init__.py", "errors.py", "redaction.py", "clusters/__init__.py")
_SHIPPED += (
    "clusters/kubernetes/__init__.py",
    *(f"clusters/kubernetes/{each.rpartition('.')[2]}.py" for each in _ROUTES),
)
_LOCAL = ("jobqueue", "kubernetes", "temporary-directory")  # sections of Dask's configuration for this machine only


def labels(label: str) -> dict[str, str]:
    return {INSTANCE: label, MANAGED_BY: OURS}


def scheduler_address(spec: KubernetesSpec, label: str, namespace: str) -> str:
    return f"{'tls' if spec.tls else 'tcp'}://{label}-scheduler.{namespace}.svc:{COMM_PORT}"


def group_name(label: str, serial: int, group: str = "") -> str:
    return "-".join(filter(None, (label, group, str(serial))))


def cluster(spec: KubernetesSpec, label: str, namespace: str) -> dict[str, Any]:
    """The custom resource of a cluster, without workers; `label` is its name, and the label of its lease."""
    return {
        "apiVersion": GROUP,
        "kind": "DaskCluster",
        "metadata": {"name": label, "namespace": namespace, **_marks(spec, label)},
        "spec": {
            "idleTimeout": spec.idle_timeout_s,
            "worker": {"replicas": 0, "spec": worker_pod(spec, label, namespace, 1)},
            "scheduler": {
                "spec": scheduler_pod(spec, label),
                "service": {
                    "type": "ClusterIP",
                    "selector": {"dask.org/cluster-name": label, COMPONENT: "scheduler"},
                    "ports": [
                        {"name": name, "protocol": "TCP", "port": port, "targetPort": name}
                        for name, port in _PORTS.items()
                    ],
                },
            },
        },
    }


def workers(
    spec: KubernetesSpec,
    label: str,
    namespace: str,
    *,
    number: int,
    threads: int,
    group: str = "",
    serial: int = 1,  # number of the group in its cluster
    owner: str = "",  # UID of the cluster; the group is deleted with it
) -> dict[str, Any]:
    """The custom resource of a group of workers; the main group has no name."""
    name = group_name(label, serial, group)
    metadata = {"name": name, "namespace": namespace, **_marks(spec, label)}
    return {
        "apiVersion": GROUP,
        "kind": "DaskWorkerGroup",
        "metadata": {**metadata, "ownerReferences": _owned(label, owner)} if owner else metadata,
        "spec": {
            "cluster": label,
            "worker": {"replicas": number, "spec": worker_pod(spec, label, namespace, threads, group)},
        },
    }


def secret(spec: KubernetesSpec, label: str, owner: str, security: distributed.Security | None) -> dict[str, Any]:
    """Certificates, Dask's configuration and the built-in workloads, for all pods; deleted with the cluster `owner`."""
    entries = {_CONFIG: dask.config.serialize(_config(spec)).encode(), _PACKAGE: _package()}
    if security is not None:
        proof = {"ca": security.tls_ca_file, "cert": security.tls_worker_cert, "key": security.tls_worker_key}
        entries |= {f"{name}.pem": text.encode() for name, text in proof.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": label, "labels": labels(label), "ownerReferences": _owned(label, owner)},
        "type": "Opaque",
        "data": {name: base64.b64encode(content).decode() for name, content in entries.items()},
    }


def scheduler_pod(spec: KubernetesSpec, label: str) -> dict[str, Any]:
    command = ["scheduler", "--port", str(COMM_PORT), "--protocol", "tls" if spec.tls else "tcp"]
    command += ["--no-dashboard", "--dashboard-address", f":{HTTP_PORT}"]
    pod = _pod(spec, label, "scheduler", command, {}, _resources(spec, spec.scheduler_cpu, 0, spec.scheduler_memory_mb))
    container = pod["containers"][0]
    container["ports"] = [_port(name, number) for name, number in _PORTS.items()]
    health = {"path": "/health", "port": "http-dashboard"}
    container["readinessProbe"] = {"httpGet": health, "periodSeconds": 1, "timeoutSeconds": 10}
    return pod | _placed(spec.scheduler_node_selector, spec.scheduler_tolerations)


def worker_pod(spec: KubernetesSpec, label: str, namespace: str, threads: int, group: str = "") -> dict[str, Any]:
    """The pod of a worker; in a named group, it has a Dask resource of that name, one for each thread.

    Without a nanny (dask-cuda always has one), a dead process ends the container, and Kubernetes tells why.
    """
    spec = spec.group(group)
    command = ["cuda", "worker"] if spec.cuda else ["worker", "--no-nanny"]
    command += ["--no-dashboard", "--name", "$(DASK_WORKER_NAME)", "--nthreads", str(threads)]
    command += ["--memory-limit", f"{spec.memory_mb}MiB" if spec.memory_mb else "0"]
    command += ["--death-timeout", str(DEATH_TIMEOUT_S), "--dashboard-address", f":{HTTP_PORT}"]  # serves metrics
    command += ["--resources", f"{group}={threads}"] if group else []
    command += spec.cuda_options
    own = {name: str(value) for name, value in dask.config.get("distributed.nanny.pre-spawn-environ").items()}
    own["DASK_SCHEDULER_ADDRESS"] = scheduler_address(spec, label, namespace)  # the operator's is plain TCP
    resources = _resources(spec, spec.cpu or float(threads), float(threads), spec.memory_mb, spec.gpus)
    pod = _pod(spec, label, "worker", command, own, resources)
    pod["containers"][0]["ports"] = [_port("http-dashboard", HTTP_PORT)]
    if spec.shm_mb:
        pod["volumes"].append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{spec.shm_mb}Mi"}})
        pod["containers"][0]["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108
    for each in spec.volumes:
        found = VOLUME.fullmatch(each)
        assert found is not None, each  # the specification has checked it
        claim = {"claimName": found["claim"]}
        name = f"volume-{len(pod['volumes'])}"
        pod["volumes"].append({"name": name, "persistentVolumeClaim": claim})
        mount = {"name": name, "mountPath": found["path"], "readOnly": bool(found["only"])}
        pod["containers"][0]["volumeMounts"].append(mount)
    if spec.spread:
        key = {"node": "kubernetes.io/hostname", "zone": "topology.kubernetes.io/zone"}[spec.spread]
        of_whom = {"labelSelector": {"matchLabels": {INSTANCE: label, COMPONENT: "worker"}}}
        spread = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", **of_whom}
        pod["topologySpreadConstraints"] = [spread]
    product = [f"nvidia.com/gpu.product={spec.gpu_product}"] if spec.gpu_product else []
    gpu = ["nvidia.com/gpu:NoSchedule"] if spec.gpus else []
    return pod | _placed([*spec.node_selector, *product], [*spec.tolerations, *gpu])


def image(spec: KubernetesSpec) -> str:
    """The requested image, or Dask's own image with the versions of this process."""
    if spec.image:
        return spec.image
    from dask_kubernetes.operator import make_cluster_spec

    repository = inspect.signature(make_cluster_spec).parameters["image"].default.rpartition(":")[0]
    return f"{repository}:{dask.__version__}-py{sys.version_info.major}.{sys.version_info.minor}"


def text(spec: KubernetesSpec, sizes: Mapping[str, int], threads: int) -> str:
    """The custom resources of a cluster as YAML, with placeholders for unknown values; `sizes`: workers by group."""
    label, namespace = "scalescope-LABEL", spec.namespace or "NAMESPACE"
    shown = [cluster(spec, label, namespace)]
    for group, number in sizes.items():
        shown.append(workers(spec, label, namespace, number=number, threads=threads, group=group))
    return str(yaml.safe_dump_all(shown, sort_keys=False))


def trial_pod(spec: KubernetesSpec, pod: dict[str, Any], label: str) -> dict[str, Any]:
    """A pod for a dry run; with an owner like a Deployment's pod, because some sites refuse pods without owners."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": label, "uid": label}
    metadata = {"generateName": f"{label}-", **_marks(spec, label), "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


# ------------------------------------------------------------------ parts


def _marks(spec: KubernetesSpec, label: str) -> dict[str, dict[str, str]]:
    """Labels and annotations of a custom resource; the operator copies them to its pods."""
    own, notes = (dict(each.split("=", 1) for each in given) for given in (spec.labels, spec.annotations))
    return {"labels": {**own, **labels(label)}, "annotations": {**STAYS, **notes}}


def _port(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _owned(label: str, owner: str) -> list[dict[str, str]]:
    return [{"apiVersion": GROUP, "kind": "DaskCluster", "name": label, "uid": owner}]


def _pod(
    spec: KubernetesSpec,
    label: str,
    name: str,
    command: Iterable[str],
    own: Mapping[str, str],
    resources: Mapping[str, Any],
) -> dict[str, Any]:
    """What the pods of scheduler and workers have in common; the user's environment variables override `own`."""
    own = {"HOME": "/tmp", "PYTHONPATH": f"{_FOLDER}/{_PACKAGE}", "PYTHONFAULTHANDLER": "1", **own}  # noqa: S108
    variables = {**own, **dict(each.split("=", 1) for each in spec.environment)}
    config = {"secretKeyRef": {"name": label, "key": _CONFIG}}
    container: dict[str, Any] = {
        "name": name,
        "image": image(spec),
        "imagePullPolicy": "IfNotPresent",
        "args": ["dask", *command],  # not `command`, which would skip the entrypoint of Dask's images
        "env": [
            *({"name": key, "value": value} for key, value in variables.items()),
            {"name": "DASK_INTERNAL_INHERIT_CONFIG", "valueFrom": config},
        ],
        "resources": resources,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            {"name": "scalescope", "mountPath": _FOLDER, "readOnly": True},
        ],
    }
    user = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    pod: dict[str, Any] = {
        "containers": [container],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "scalescope", "secret": {"secretName": label, "defaultMode": 0o440}},
        ],
        "securityContext": {**user, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": GRACE_S,
        "enableServiceLinks": False,
        "automountServiceAccountToken": bool(spec.service_account),
    }
    if spec.environment_secrets:
        container["envFrom"] = [{"secretRef": {"name": each}} for each in spec.environment_secrets]
    if spec.service_account:
        pod["serviceAccountName"] = spec.service_account
    if spec.priority_class:
        pod["priorityClassName"] = spec.priority_class
    if spec.pull_secrets:
        pod["imagePullSecrets"] = [{"name": each} for each in spec.pull_secrets]
    return pod


def _resources(spec: KubernetesSpec, cpu: float, most_cpu: float, memory_mb: int, gpus: int = 0) -> dict[str, Any]:
    """Requests and limits, as text: the operator's schema refuses numbers."""
    hard = {"memory": f"{memory_mb}Mi"} if memory_mb else {}
    hard |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
    requested, limit = (min(each, spec.cpu_limit or each) for each in (cpu, max(cpu, most_cpu, 1)))
    return {"requests": {"cpu": _cpus(requested), **hard}, "limits": {"cpu": _cpus(limit), **hard}}


def _cpus(number: float) -> str:
    thousandths = max(round(number * 1000), 1)  # Kubernetes has no smaller unit
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


def _placed(selector: Iterable[str], tolerations: Iterable[str]) -> dict[str, Any]:
    chosen = dict(each.split("=", 1) for each in selector)
    tolerated = [_toleration(each) for each in dict.fromkeys(tolerations)]
    return {name: value for name, value in (("nodeSelector", chosen), ("tolerations", tolerated)) if value}


def _toleration(given: str) -> dict[str, str]:
    found = TOLERATION.fullmatch(given)
    assert found is not None, given  # the specification has checked it
    parts = {name: value for name in ("key", "value", "effect") if (value := found[name]) is not None}
    return {**parts, "operator": "Equal" if "value" in parts else "Exists"}


def _package() -> bytes:
    root, packed = Path(scalescope.__file__).parent, io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*.py")):
            if path.relative_to(root).as_posix().startswith(_SHIPPED):
                archive.write(path, path.relative_to(root.parent))
    return packed.getvalue()


def _config(spec: KubernetesSpec) -> dict[str, Any]:
    """This process's Dask configuration, with certificates, and with no HTTP routes except the necessary ones."""
    mine = {name: value for name, value in dask.config.config.items() if name not in _LOCAL}
    routes = {"scheduler": list(_ROUTES), "worker": list(_ROUTES[:1])}
    more: dict[str, Any] = {"distributed": {name: {"http": {"routes": each}} for name, each in routes.items()}}
    if spec.tls:
        proof = {"cert": f"{_FOLDER}/cert.pem", "key": f"{_FOLDER}/key.pem"}
        tls = {"ca-file": f"{_FOLDER}/ca.pem", **dict.fromkeys(("scheduler", "worker", "client"), proof)}
        more["distributed"]["comm"] = {"require-encryption": True, "tls": tls}
    merged: dict[str, Any] = dask.config.merge(mine, more)
    return merged
