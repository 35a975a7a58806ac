"""The section `kubernetes` of Dask's configuration, which sites write for dask-kubernetes, as defaults of fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scalescope.clusters.kubernetes.quantity import amount
from scalescope.model import site_config
from scalescope.model.cluster import ClusterSpec
from scalescope.model.site_config import SiteConfig

# Keys of the `KubeCluster` of dask-kubernetes, and the fields that they set.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "namespace": ("namespace",),
    "image": ("image",),
    "env": ("environment",),
    "idle-timeout": ("idle_timeout_s",),
    "resources.limits.cpu": ("cpu_limit",),
    "resources.requests.cpu": ("cpu",),
    "resources.limits.memory": ("memory_mb",),
    "resources.requests.memory": ("memory_mb",),
    "resources.limits.nvidia.com/gpu": ("gpus",),
    "resources.requests.nvidia.com/gpu": ("gpus",),
}
_REACHED = "Scalescope reaches the scheduler through the API server, or inside Kubernetes directly"
_DESCRIBED = "the fields of `cluster` describe the pods"
LEFT_OUT: Mapping[str, str] = {
    "name": "Scalescope names each cluster itself",
    "count": "the axis workers sets the number of workers",
    "worker-command": "Scalescope starts the workers itself; with cluster.cuda as `dask cuda worker`",
    "custom-cluster-spec": _DESCRIBED,
    **dict.fromkeys(("worker-template", "worker-template-path", "scheduler-template"), _DESCRIBED),
    **dict.fromkeys(("scheduler-service-type", "scheduler-forward-port", "port-forward-cluster-ip"), _REACHED),
    **dict.fromkeys(("create-mode", "shutdown-on-close"), "each run creates and removes its clusters"),
    "resource-timeout": "queue_timeout_s and start_timeout_s say how long pods may take",
    "controller": "only the operator reads it",
}


def read(spec: type[ClusterSpec]) -> SiteConfig:
    found = site_config.settings("kubernetes")
    found.pop("resources", None)
    for kind in ("limits", "requests"):
        own = site_config.settings("kubernetes", "resources", kind)
        found |= {f"resources.{kind}.{name}": told for name, told in own.items()}
    unknown = "dask-kubernetes has no such key, or Scalescope has no field for it"
    return site_config.read(spec, found, FIELDS, LEFT_OUT, unknown=unknown, convert=_read)


def _read(key: str, value: Any) -> Any:
    """The value in the form of its field: quantities as numbers, variables as NAME=VALUE."""
    if key == "env":
        pairs = value.items() if isinstance(value, Mapping) else map(_pair, value) if isinstance(value, list) else ()
        return tuple(str(name) if text is None else f"{name}={text}" for name, text in pairs) or value
    if not key.startswith("resources."):
        return value
    number = amount(str(value))
    if key.endswith(".memory"):
        return math.ceil(number / 2**20) or value
    return (int(number) if key.endswith("gpu") else number) or value


def _pair(variable: Any) -> tuple[Any, Any]:
    """Name and value of a variable as Kubernetes writes it; the value is None if it comes from a secret or the like."""
    return (variable.get("name"), variable.get("value")) if isinstance(variable, Mapping) else (variable, None)
