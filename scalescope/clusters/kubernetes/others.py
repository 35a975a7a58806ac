"""Removes from one namespace the clusters whose leases on themselves are over, and what has lost its cluster."""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from scalescope import leases
from scalescope.clusters import reaping
from scalescope.clusters.kubernetes.api import CONFLICT, NOT_FOUND, Api, Raw
from scalescope.clusters.kubernetes.cluster_lease import OWNER, holds_until
from scalescope.clusters.kubernetes.manifests import INSTANCE
from scalescope.clusters.kubernetes.removal import remains, remove_for_good
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.clusters.reaping import Fate, Reaped
from scalescope.errors import RequestRefused, ScalescopeError
from scalescope.leases import Lease
from scalescope.owner import Owner

SETTLE_S = 1.5
"""Seconds that Kubernetes has to collect what a cluster that was just closed consisted of."""

_AT_ONCE = 8  # clusters; each mostly waits


class NamespaceReaper:
    """One namespace.

    Args:
        api: Of the namespace.
        found: Leases of the ledger; those whose owner is of this host are left alone.
        dry_run: Whether nothing is to be touched.
    """

    def __init__(self, api: Api, found: Collection[Lease], dry_run: bool) -> None:
        self._api, self._dry_run = api, dry_run
        self._known = {lease.label: lease for lease in found}

    def reap(self) -> list[Reaped]:
        """What became of each cluster that is not one of this host's, and of what has lost its cluster.

        Raises:
            ClusterError: Kubernetes does not answer, or does not allow to look.
        """
        try:
            clusters = self._api.clusters()
        except RequestRefused as error:
            if error.status == NOT_FOUND:  # the operator is not installed there
                return []
            raise
        due = [each for each in clusters if each["metadata"]["labels"].get(INSTANCE) == each["metadata"]["name"]]
        if lost := self._lost():
            time.sleep(SETTLE_S)
            lost &= self._lost()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            judged = [pool.submit(self._judge, cluster["metadata"]["name"], cluster) for cluster in due]
            judged += [pool.submit(self._judge, label, None) for label in sorted(lost)]
            return [result for each in judged if (result := each.result()) is not None]

    def _lost(self) -> set[str]:
        """Labels of what neither has a cluster nor ends."""
        parts = [metadata for _, _, metadata in self._api.parts() if "deletionTimestamp" not in metadata]
        labels = {
            str(each["labels"].get(INSTANCE)) for each in parts
        }  # asked for first: a part is never before its cluster
        return set(filter(leases.is_label, labels)) - {each["metadata"]["name"] for each in self._api.clusters()}

    def _judge(self, label: str, cluster: Raw | None) -> Reaped | None:
        lease = self._known.get(label)
        if not leases.is_label(label) or (lease is not None and lease.owner.is_here):
            return None
        lease = lease or Lease(label, KubernetesSpec.kind, Owner("", 0, 0.0))
        try:
            return self._remove(lease, cluster)
        except ScalescopeError as error:
            return reaping.failed(lease.label, lease.backend, error)

    def _remove(self, lease: Lease, cluster: Raw | None) -> Reaped:
        version, words = "", "its DaskCluster is gone"
        if cluster is not None:
            until = holds_until(cluster)
            if until is None:
                idle_s = cluster["spec"].get("idleTimeout", 0)
                words = f"it has no lease on itself; the operator removes it when it has done nothing for {idle_s} s"
                return reaping.elsewhere(lease, words, f"`kubectl delete daskcluster {lease.label}`, if nobody uses it")
            now = datetime.fromtimestamp(self._api.now(), UTC)
            owner = cluster["metadata"]["annotations"].get(OWNER, "unknown")
            if now <= until:
                words = f"its owner, {owner}, renewed its lease, which holds {(until - now).seconds} s more"
                return Reaped(lease.label, lease.backend, Fate.OWNED, words=words)
            version = cluster["metadata"]["resourceVersion"]
            words = f"its lease was not renewed, and is over since {until:%Y-%m-%d %H:%M:%S} UTC; its owner was {owner}"
        left = remains(self._api, lease.label)
        if not self._dry_run:
            try:
                remove_for_good(self._api, lease.label, version)
            except RequestRefused as error:
                if error.status != CONFLICT:
                    raise
                return self._remove(lease, self._api.cluster(lease.label))  # renewed just now, or the operator wrote
        return reaping.removed(lease, self._dry_run, left, words)
