"""Removes the clusters of dead owners from Kubernetes, and parts whose cluster is gone.

Two leases tell whether an owner is dead: the one in its host's ledger (`scalescope.leases`) and, for other hosts and
pods, the one on the cluster itself (`cluster_lease`).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalescope.clusters import reaping
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.clusters.reaping import Fate, Reaped
from scalescope.errors import ClusterError
from scalescope.leases import Lease

if TYPE_CHECKING:
    from scalescope.clusters.kubernetes.api import Api


def reap(lease: Lease, words: str, dry_run: bool) -> Reaped:
    """Remove the cluster of a lease of the ledger; see `reaping.Reaper`."""
    KubernetesSpec().require()
    from scalescope.clusters.kubernetes.namespace_reaper import reap_cluster

    server = str(lease.details.get("server", ""))
    with _connect(lease.details) as api:
        if api.server != server:
            words = f"{words}; its pods are in the Kubernetes at {server}, but the current context is for {api.server}"
            return reaping.elsewhere(lease, words, f"run `scalescope reap` with a context for {server}")
        return reap_cluster(api, lease, words, dry_run)


def reap_others(found: Collection[Lease], dry_run: bool) -> list[Reaped]:
    """Remove the clusters of dead owners elsewhere; see `reaping.ReaperOfOthers`.

    Looks into the namespaces of this host's leases, and into the namespace of the current context or of this pod.
    """
    if any(importlib.util.find_spec(name) is None for name in KubernetesSpec.packages):
        return []
    places = [lease.details for lease in found if lease.backend == KubernetesSpec.kind]
    results: list[Reaped] = []
    seen: set[tuple[str, str]] = set()
    for details in [*places, *([{}] if _is_configured() else [])]:
        asked = str(details.get("server", "")), str(details.get("namespace", ""))
        if asked in seen:
            continue
        seen.add(asked)
        from scalescope.clusters.kubernetes.namespace_reaper import reap_namespace  # late: it loads kr8s

        try:
            with _connect(details) as api:
                here = (api.server, api.namespace)
                if asked[0] in ("", api.server) and (here == asked or here not in seen):
                    seen.add(here)
                    results += reap_namespace(api, found, dry_run)
        except ClusterError as error:
            what = "could not look for clusters of other hosts"
            words = ": ".join(filter(None, (what, error.what, error.cause)))
            label = error.where or asked[0]
            results.append(Reaped(label, KubernetesSpec.kind, Fate.ELSEWHERE, (), words, error.next_step))
    return results


def _connect(details: Mapping[str, Any]) -> Api:
    """Connect to the API server of a lease; without details, to that of the current context."""
    from scalescope.clusters.kubernetes.api import Api

    kubeconfig = str(details.get("kubeconfig", ""))
    return Api(
        str(details.get("context", "")),
        str(details.get("namespace", "")),
        kubeconfig=kubeconfig if os.path.exists(kubeconfig) else "",
    )


def _is_configured() -> bool:
    """Whether this user has a kubeconfig, or this is a pod."""
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(map(os.path.exists, files.split(os.pathsep)))
