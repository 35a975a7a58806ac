"""Removes everything of a cluster from Kubernetes, with or without the operator."""

from __future__ import annotations

import time
from contextlib import suppress

from scalescope.clusters.kubernetes.api import Api, Raw
from scalescope.clusters.kubernetes.manifests import GROUP
from scalescope.clusters.kubernetes.pod_problems import is_on_silent_node
from scalescope.errors import ClusterError, RequestRefused

OPERATOR_S = 4.0  # seconds for the operator to release a deleted cluster; then we remove its finalizer
# Seconds within which Kubernetes starts to delete objects whose owner is gone; after that, it never will. It takes over
# 10 s if custom resources were just installed, or CPU is short.
COLLECTED_S = 20.0
GONE_S = 60.0  # seconds for everything to be gone
ENDING = " (ending)"  # marks an object that is deleted, but whose node is slow to stop it
LOST = " (its node does not answer)"  # marks a deleted pod that Kubernetes keeps until its node is back or removed
_LOOK_S = 0.2  # seconds between two looks


def remove(api: Api, label: str, timeout_s: float, version: str = "") -> list[str]:
    """Delete a cluster and wait until nothing is left; returns what is left after `timeout_s` seconds, in words.

    If the operator is away, its finalizer (needed only for its timers) would keep the cluster forever.
    Raises `RequestRefused` with status 409 if the custom resource has another version than `version`.
    """
    began = time.monotonic()
    own_group = f"daskworkergroups/{label}-default"  # may outlive a cluster that is deleted early
    api.delete_cluster(label, version)
    while left := remains(api, label):
        waited_s = time.monotonic() - began
        held = _cluster(label) in left
        uncollected = not held and not all(each.endswith((ENDING, LOST)) for each in left)
        if waited_s > (COLLECTED_S if uncollected else timeout_s) or all(each.endswith(LOST) for each in left):
            break
        if not held:
            api.delete(GROUP, own_group)
        elif waited_s > OPERATOR_S:
            api.drop_finalizers(label)
        time.sleep(_LOOK_S)
    api.delete(GROUP, own_group)
    return left


def remove_for_good(api: Api, label: str, version: str = "") -> None:
    """Remove a cluster whose owner is dead, and parts that Kubernetes does not collect, or raise `ClusterError`."""
    remove(api, label, GONE_S, version)
    lost = [part for part in api.parts(label) if "deletionTimestamp" not in part[2]]
    if lost and api.cluster(label) is None:
        for kind, what, metadata in lost:
            api.delete(kind, f"{what}/{metadata['name']}")
        remove(api, label, GONE_S)
    with suppress(RequestRefused):  # if the user may not delete pods, the error below names what stays
        _forget_lost_pods(api, label)
    if left := remains(api, label):
        raise ClusterError(
            f"still there after the deletion: {', '.join(left)}",
            where=f"namespace {api.namespace} at {api.server}",
            cause="a node that does not answer keeps its pods, or a finalizer of another program keeps an object",
            next_step="look at `kubectl get nodes`; run `scalescope reap` again once the node is back or removed, or "
            "with the right to delete pods: then the command also removes the pods of lost nodes",
            category="not-removed",
        )


def _forget_lost_pods(api: Api, label: str) -> None:
    """Force the removal of deleted pods on lost nodes; if such a node comes back, it ends its pods itself."""
    if api.cluster(label) is None:
        for each in api.pods(label):
            if "deletionTimestamp" in each["metadata"] and is_on_silent_node(each):
                api.delete("v1", f"pods/{each['metadata']['name']}", {"gracePeriodSeconds": 0})


def remains(api: Api, label: str) -> list[str]:
    """The objects of a cluster, in words."""
    kinds = (("Deployment", api.deployments(label)), ("pod", api.pods(label)))
    found = [f"{kind} {each['metadata']['name']}{_mark(each)}" for kind, objects in kinds for each in objects]
    return ([_cluster(label)] if api.cluster(label) is not None else []) + found


def _mark(found: Raw) -> str:
    if "deletionTimestamp" not in found["metadata"]:
        return ""
    return LOST if is_on_silent_node(found) else ENDING


def _cluster(label: str) -> str:
    return f"DaskCluster {label}"
