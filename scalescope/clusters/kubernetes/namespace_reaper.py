"""Removes from one namespace the clusters of dead owners, and parts whose cluster is gone."""

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

# Seconds before a second look: a killed process may have just requested a cluster, and Kubernetes may still be
# collecting the parts of one that was just closed.
SETTLE_S = 1.5

_AT_ONCE = 8  # clusters removed at the same time; most of the time is spent waiting


def reap_cluster(api: Api, lease: Lease, words: str, dry_run: bool) -> Reaped:
    """Remove the cluster of a lease in the ledger; `words`: the evidence that its owner is dead."""
    if not dry_run and not remains(api, lease.label):
        time.sleep(SETTLE_S)
    return _remove(api, lease, words, dry_run)


def reap_namespace(api: Api, found: Collection[Lease], dry_run: bool) -> list[Reaped]:
    """Reap clusters that have no lease on this host and whose owner is dead, and parts whose cluster is gone."""
    try:
        clusters = api.clusters()
    except RequestRefused as error:
        if error.status == NOT_FOUND:  # the operator is not installed in this Kubernetes
            return []
        raise
    names = {each["metadata"]["name"]: each for each in clusters}
    due: dict[str, Raw | None] = {
        name: each for name, each in names.items() if each["metadata"]["labels"].get(INSTANCE) == name
    }
    if lost := _orphans(api):
        time.sleep(SETTLE_S)
        due |= dict.fromkeys(sorted(lost & _orphans(api)))
    ledger = {lease.label: lease for lease in found}
    of_this_host = {label for label, lease in ledger.items() if lease.owner.is_here}

    def judge(label: str) -> Reaped:
        lease = ledger.get(label) or Lease(label, KubernetesSpec.kind, Owner("", 0, 0.0))
        try:
            return _judge(api, lease, due[label], dry_run)
        except ScalescopeError as error:
            return reaping.failed(lease.label, lease.backend, error)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(judge, (each for each in due if leases.is_label(each) and each not in of_this_host)))


def _orphans(api: Api) -> set[str]:
    """Labels of parts (pods, services ...) whose cluster is gone, and which are not being deleted."""
    parts = [metadata for _, _, metadata in api.parts() if "deletionTimestamp" not in metadata]
    labels = {str(each["labels"].get(INSTANCE)) for each in parts}
    clusters = {each["metadata"]["name"] for each in api.clusters()}  # read last: clusters are made before parts
    return set(filter(leases.is_label, labels)) - clusters


def _judge(api: Api, lease: Lease, cluster: Raw | None, dry_run: bool) -> Reaped:
    if cluster is None:
        return _remove(api, lease, "its DaskCluster is gone", dry_run)
    until = holds_until(cluster)
    if until is None:
        idle_s = cluster["spec"].get("idleTimeout", 0)
        words = f"the cluster has no lease; the operator removes it once it has been idle for {idle_s} s"
        command = f"kubectl delete daskcluster {lease.label} -n {api.namespace}"
        return reaping.elsewhere(lease, words, f"if nobody uses it: `{command}`")
    now = datetime.fromtimestamp(api.now(), UTC)
    owner = cluster["metadata"]["annotations"].get(OWNER, "unknown")
    if now <= until:
        words = f"its owner, {owner}, renewed its lease, which is valid for {(until - now).seconds} s more"
        return Reaped(lease.label, lease.backend, Fate.OWNED, words=words)
    words = f"its lease ended at {until:%Y-%m-%d %H:%M:%S} UTC and was not renewed; its owner was {owner}"
    try:
        return _remove(api, lease, words, dry_run, version=cluster["metadata"]["resourceVersion"])
    except RequestRefused as error:
        if error.status != CONFLICT:
            raise
        return _judge(api, lease, api.cluster(lease.label), dry_run)  # somebody has just changed it


def _remove(api: Api, lease: Lease, words: str, dry_run: bool, *, version: str = "") -> Reaped:
    found = remains(api, lease.label)
    if not dry_run:
        remove_for_good(api, lease.label, version)
    return reaping.removed(lease, dry_run, found, words)
