"""Prints the base job template of the work pool: the one of prefect-kubernetes, with additions for our flows' pods.

python infra/kubernetes/team/work_pool.py |
    prefect work-pool create --type kubernetes --overwrite --base-job-template /dev/stdin POOL
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from prefect_kubernetes.worker import KubernetesWorker

KUSTOMIZATION = Path(__file__).with_name("kustomization.yaml")
DATA = "/data"
"""Where the claim of namespace.yaml is mounted. Leases are not there: a pod's processes end with the pod, and each
cluster carries its own lease."""

DEFAULTS: dict[str, Any] = {
    "service_account_name": "scalescope",
    "finished_job_ttl": 24 * 3600,
    "cpu_request": "1",
    "memory_request": "2Gi",
    "memory_limit": "2Gi",
}
GPUS = "GPUs of the flow's own pod, for flows that compute by themselves; `cluster.gpus` sets those of Dask's workers."
SELECTOR = "Labels of the nodes for the flow's own pod."
TOLERATIONS = "Taints that the flow's own pod tolerates, as Kubernetes writes them."


def template() -> dict[str, Any]:
    made: dict[str, Any] = KubernetesWorker.get_default_base_job_template()
    known = made["variables"]["properties"]
    namespace = yaml.safe_load(KUSTOMIZATION.read_text())["namespace"]
    for name, default in {**DEFAULTS, "namespace": namespace}.items():
        known[name]["default"] = default
    known |= {
        "gpus": {"title": "GPUs", "type": "integer", "minimum": 0, "default": 0, "description": GPUS},
        "node_selector": {"title": "Node selector", "type": "object", "default": {}, "description": SELECTOR},
        "tolerations": {"title": "Tolerations", "type": "array", "default": [], "description": TOLERATIONS},
    }
    pod = made["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    pod |= {
        "nodeSelector": "{{ node_selector }}",
        "tolerations": "{{ tolerations }}",
        "terminationGracePeriodSeconds": 120,  # seconds; a cancelled flow removes its cluster first
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "scalescope"}}],
    }
    container = pod["containers"][0]
    container["resources"]["limits"]["nvidia.com/gpu"] = "{{ gpus }}"
    container |= {
        "env": [{"name": "XDG_DATA_HOME", "value": DATA}],  # the worker adds more variables
        "envFrom": [{"secretRef": {"name": "scalescope"}}],
        "volumeMounts": [{"name": "data", "mountPath": DATA}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return made


if __name__ == "__main__":
    print(json.dumps(template(), indent=2))
