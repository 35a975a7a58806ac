"""Lines of a report about the clusters, jobs, nodes and pods on which the trials ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scalescope.model.sweep import Sweep
from scalescope.model.trial import RAN, Trial
from scalescope.model.words import number, plural, seconds

# cAdvisor's counter of the seconds for which a container was stopped by its CPU limit
THROTTLED = "container_cpu_cfs_throttled_seconds_total"
_UNKNOWN = "of unknown type"  # a node without the label of instance types


def cluster_lines(sweep: Sweep, trials: Sequence[Trial]) -> tuple[str, ...]:
    """A line per distinct cluster, with what its results show and cannot show; then lines on jobs, nodes and GPUs."""
    found = [facts for trial in trials if isinstance(facts := trial.facts.get("cluster"), Mapping)]
    lines = tuple(dict.fromkeys(_cluster(facts, sweep) for facts in found)) or (f"Cluster: {sweep.cluster.kind}.",)
    if any(trial.facts.get(RAN) for trial in trials):  # the user's script made the cluster: no need to describe it
        lines = ()
    return (*lines, *_jobs(found), *_nodes(found), *_changes(found), *_gpus(trials))


def _changes(clusters: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """A line on what the batch system or Kubernetes changed in our requests; empty if nothing."""
    words = dict.fromkeys(each for facts in clusters for each in facts.get("changed", ()))
    return (f"Not as requested: {'; '.join(words)}.",) if words else ()


def _gpus(trials: Iterable[Trial]) -> tuple[str, ...]:
    hours, idle, money, currency = 0.0, 0.0, 0.0, ""
    for trial in trials:
        if trial.metrics and trial.metrics.gpus:
            hours += trial.metrics.gpus * trial.metrics.elapsed_s / 3600
            unused = (1 - (trial.metrics.gpu_busy or 0.0)) * trial.metrics.elapsed_s / 3600
            idle += trial.metrics.gpus * unused
            price = trial.facts.get("price") or {"worker_hour": 0.0, "currency": ""}
            money += trial.point.workers * unused * price["worker_hour"]
            currency = currency or price["currency"]
    cost = f", for {money:,.2f} {currency}" if money else ""
    return (f"GPUs: {number(hours)} GPU-hours in trials, {number(idle)} of them idle{cost}.",) if hours else ()


def _jobs(clusters: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    # The facts about a cluster's jobs are stored under the name of its kind.
    clusters = [facts for facts in clusters if isinstance(facts.get(facts.get("kind", "")), Mapping)]
    each = {job["id"]: job for facts in clusters for job in facts[facts["kind"]].get("jobs", ())}
    if not each:
        return ()
    most = max(len(facts["jobs"]) for facts in clusters)
    nodes = {job["nodes"] for job in each.values() if job.get("nodes")}
    waits = [job["queue_wait_s"] for job in each.values() if job.get("queue_wait_s") is not None]
    text = f"Jobs: up to {most} at a time, {len(each)} in all, on {plural(len(nodes), 'node')}"
    text += f"; the longest waited {seconds(max(waits))} s in the queue" if waits else ""
    replaced: dict[str, int] = {}  # replaced jobs by cluster; its trials continue one count: the largest is the total
    for facts in clusters:
        replaced[facts["label"]] = max(facts["jobs_replaced"], replaced.get(facts["label"], 0))
    text += f"; replaced after losses: {sum(replaced.values())}" if any(replaced.values()) else ""
    return (f"{text}.",)


def _nodes(clusters: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    nodes = {pod["node"]: pod for facts in clusters for pod in facts.get("pods", ()) if pod.get("node")}
    if not nodes:
        return ()
    kinds = Counter(
        " ".join([str(each.get("instance_type", _UNKNOWN))] + ["spot"] * bool(each.get("spot")))
        for each in nodes.values()
    )
    text = f"Pods: on {plural(len(nodes), 'node')}"
    if kinds.keys() != {_UNKNOWN}:
        text += f", {', '.join(f'{number} {kind}' for kind, number in kinds.items())}"
    counted = [facts["counters"]["workers"] for facts in clusters if "counters" in facts]
    throttled = sum(each[THROTTLED]["sum"] for each in counted if THROTTLED in each)
    text += f"; CPU limits stopped workers for {seconds(throttled)} s in all" if throttled else ""
    return (f"{text}.",)


def _cluster(facts: Mapping[str, Any], sweep: Sweep) -> str:
    parts = [f"Cluster: {facts.get('kind', sweep.cluster.kind)}"]
    if facts.get("clock"):
        parts[0] += f", {facts['clock']} clock"
    for name, verb in (("shows", "Shows"), ("cannot_show", "Cannot show")):
        if facts.get(name):
            parts.append(f"{verb} {facts[name]}")
    return ". ".join(str(part).rstrip(".") for part in parts) + "."
