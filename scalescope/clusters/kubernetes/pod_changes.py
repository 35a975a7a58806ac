"""What differs between a pod and the manifest that was sent: limit ranges, webhooks and plugins change pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scalescope.clusters.kubernetes.pod_problems import Raw
from scalescope.clusters.kubernetes.quantity import amount

_ROOM = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "nodeSelector", "tolerations", "priorityClassName")
_IMAGE = ("image",)
# By category of a failure: the changed fields that may have caused it.
_BEHIND = {
    "out-of-memory": ("memory",),
    "out-of-disk": ("ephemeral-storage",),
    "preempted": ("priorityClassName",),
    "gated": ("schedulerName",),
    "policy": ("labels",),
    **dict.fromkeys(("no-room", "no-label", "taint", "no-gpu", "node-not-ready", "unschedulable"), _ROOM),
    **dict.fromkeys(
        ("image-pull", "image-denied", "no-image", "no-registry", "registry-limit", "image-never-pulled"), _IMAGE
    ),
    **dict.fromkeys(("no-dask", "no-package", "old-dask", "no-dask-cuda", "other-versions", "architecture"), _IMAGE),
}
_OF_POD = {"priorityClassName": "priority class", "schedulerName": "scheduler", "runtimeClassName": "runtime class"}
_USUAL = {"schedulerName": "default-scheduler"}  # values that Kubernetes fills in by default
_TAINT_OF_NODE = "node.kubernetes.io/"  # prefix of taints; Kubernetes itself adds tolerations for them to every pod


def changes(asked: Raw, pod: Raw) -> dict[str, str]:
    """Fields in which a pod differs from its manifest, each with the difference in words.

    Added labels and annotations are left out, because they have no effect.
    """
    found = _resources(_main(asked), _main(pod))
    wanted, has = asked["spec"], pod["spec"]
    if (image := _main(pod).get("image", "")) != _main(asked)["image"]:
        found["image"] = f"the image {image} in place of {_main(asked)['image']}"
    for name, title in _OF_POD.items():
        before, after = wanted.get(name, ""), has.get(name, "")
        if after != before and after != _USUAL.get(name):
            found[name] = f"the {title} {_or_none([after])} in place of {_or_none([before])}"
    pairs = (
        ("nodeSelector", "the node selector", _labels(wanted, "nodeSelector"), _labels(has, "nodeSelector")),
        ("tolerations", "tolerations of", _tolerated(wanted), _tolerated(has)),
        ("containers", "the containers", _containers(wanted), _containers(has)),
    )
    for name, title, before, after in pairs:
        if before != after:
            found[name] = f"{title} {_or_none(after)} in place of {_or_none(before)}"
    given = pod["metadata"].get("labels", {})
    lost = [each for each in _labels(asked["metadata"], "labels") if each not in _labels({"labels": given}, "labels")]
    if lost:
        found["labels"] = f"other labels in place of {_or_none(lost)}"
    return found


def behind(category: str, changed: Mapping[str, str]) -> list[str]:
    """The changes (in words) that may have caused a failure of this category."""
    return [words for name, words in changed.items() if name in _BEHIND.get(category, ())]


def _resources(asked: Raw, given: Raw) -> dict[str, str]:
    """Differences of requests and limits in words, by resource."""
    words: dict[str, list[str]] = {}
    for kind, title in (("requests", "request"), ("limits", "limit")):
        before, after = (each.get("resources", {}).get(kind, {}) for each in (asked, given))
        for name in sorted({*before, *after}):
            if amount(before.get(name, "0")) != amount(after.get(name, "0")):
                told = f"a {title} of {after.get(name, 'no')} {name} in place of {before.get(name, 'none')}"
                words.setdefault(name, []).append(told)
    return {name: " and ".join(told) for name, told in words.items()}


def _main(pod: Raw) -> Mapping[str, Any]:
    """Our container, which need not be the first: webhooks add others."""
    ours = {"scheduler", "worker"}
    containers = pod["spec"]["containers"]
    return next((each for each in containers if each["name"] in ours), containers[0])


def _labels(holder: Raw, name: str) -> list[str]:
    return sorted(f"{key}={value}" for key, value in holder.get(name, {}).items())


def _tolerated(spec: Raw) -> list[str]:
    given = [each for each in spec.get("tolerations", ()) if not each.get("key", "").startswith(_TAINT_OF_NODE)]
    return sorted({each.get("key", "every taint") + (f"={each['value']}" if "value" in each else "") for each in given})


def _containers(spec: Raw) -> list[str]:
    return sorted(each["name"] for name in ("containers", "initContainers") for each in spec.get(name, ()))


def _or_none(names: Iterable[str]) -> str:
    return ", ".join(filter(None, names)) or "none"
