"""Removes from Kubernetes what dead drivers left: what carries the label of a lease of ours, and nothing else.

What drivers of this host left is found by the ledger; what those of other hosts and in pods left, by the lease on each
cluster itself.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalescope.clusters import reaping
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.errors import ClusterError
from scalescope.leases import Lease
from scalescope.slurm.jobs import Run

if TYPE_CHECKING:
    from scalescope.clusters.kubernetes.api import Api

SETTLE_S = 1.5
"""Seconds after which one looks a second time: the process that was killed may have just asked for a cluster."""


def reap(lease: Lease, words: str, dry_run: bool, run: Run | None) -> reaping.Reaped:
    """Remove the cluster of a lease; see `reaping.Reaper`.

    Raises:
        ClusterError: Kubernetes does not answer or does not allow it, or something does not go away.
        StoreError: The lease could not be removed.
        UsageError: kr8s is not installed here.
    """
    KubernetesSpec().require()
    from scalescope.clusters.kubernetes.removal import remains, remove_for_good

    server = str(lease.details.get("server", ""))
    with _api(lease.details) as api:
        if api.server != server:
            words = f"{words}; its pods are in the Kubernetes at {server}, and here is {api.server}"
            return reaping.elsewhere(lease, words, "run `scalescope reap` where that one is the current context")
        found = remains(api, lease.label)
        if not dry_run:
            if not found:
                time.sleep(SETTLE_S)
            remove_for_good(api, lease.label)
    return reaping.removed(lease, dry_run, found, words)


def reap_others(found: Collection[Lease], dry_run: bool) -> list[reaping.Reaped]:
    """Remove the clusters of owners elsewhere that are dead; see `reaping.ReaperOfOthers`.

    Looks where leases of this host are, and into the namespace of the current context or of this pod.
    """
    if any(importlib.util.find_spec(name) is None for name in KubernetesSpec.packages):
        return []
    known = [lease.details for lease in found if lease.backend == KubernetesSpec.kind]
    results: list[reaping.Reaped] = []
    seen: set[tuple[str, str]] = set()
    for details in [*known, *([{}] if _is_configured() else [])]:
        place = str(details.get("server", "")), str(details.get("namespace", ""))
        if place in seen:
            continue
        try:
            with _api(details) as api:
                if (api.server, api.namespace) not in seen and api.server == (place[0] or api.server):
                    from scalescope.clusters.kubernetes.others import NamespaceReaper

                    results += NamespaceReaper(api, found, dry_run).reap()
                seen |= {place, (api.server, api.namespace)}
        except ClusterError as error:
            seen.add(place)
            words = ": ".join(text for text in ("what others left is not looked for", error.what, error.cause) if text)
            label = error.where or place[0]
            results.append(
                reaping.Reaped(label, KubernetesSpec.kind, reaping.Fate.ELSEWHERE, (), words, error.next_step)
            )
    return results


def _api(details: Mapping[str, Any]) -> Api:
    """Where a cluster was asked for; without details that of the current context."""
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
