"""Names of runs for an orchestrator, made from their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scalescope.model.sweep import DEFAULT_CLUSTER

MAX_LISTED = 3  # most values of an axis that are listed; more are only counted. Numbers are shown as a range


def sweep(given: Mapping[str, Any]) -> str:
    """Such as `futures-map on local: workers 1..8`."""
    return brief_sweep(given) + axes(given.get("axes"))


def brief_sweep(given: Mapping[str, Any]) -> str:
    """Such as `futures-map on local`."""
    cluster = given.get("cluster")
    kind = cluster.get("kind") if isinstance(cluster, Mapping) else cluster
    return f"{workload(given.get('workload'))} on {kind or DEFAULT_CLUSTER}"


def study(kind: str, given: Mapping[str, Any]) -> str:
    """Such as `comparison of beam-pardo: partition_size 1 against partition_size 4`."""
    what = brief_study(kind, given)
    if "a" in given or "b" in given:
        return f"{what}: {_settings(given.get('a'))} against {_settings(given.get('b'))}"
    if package := given.get("package"):
        return f"{what}: {package}"
    return what + axes(given.get("axes"))


def brief_study(kind: str, given: Mapping[str, Any]) -> str:
    """Such as `comparison of beam-pardo`."""
    names = given.get("workloads") or [given.get("workload") or given.get("run") or "a sweep"]
    what = names if isinstance(names, Sequence) and not isinstance(names, str) else [names]
    return f"{kind} of {', '.join(map(workload, what))}"


def workload(name: object) -> str:
    return Path(str(name)).name


def axes(given: object) -> str:
    """Such as `: workers 1..8, items 64`; empty without axes."""
    if not isinstance(given, Mapping) or not given:
        return ""
    return ": " + ", ".join(f"{name} {_values(values)}" for name, values in given.items())


def _settings(given: object) -> str:
    return axes(given).removeprefix(": ") or "as it is"


def _values(values: object) -> str:
    if not isinstance(values, Sequence) or isinstance(values, str):
        return str(values)
    if all(isinstance(value, int | float) for value in values) and len(set(values)) > 1:
        return f"{min(values)}..{max(values)}"
    return ", ".join(map(str, values)) if len(values) <= MAX_LISTED else f"{len(values)} values"
