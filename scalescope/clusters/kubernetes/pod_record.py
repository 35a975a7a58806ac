"""What a trial keeps of its pods: where they ran, their logs, and events."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from operator import itemgetter
from typing import Any
from urllib.parse import urlsplit

from scalescope.clusters.kubernetes.api import Api, Raw, event_time
from scalescope.clusters.kubernetes.manifests import COMPONENT
from scalescope.clusters.kubernetes.pod_problems import problem_of_ended, problem_of_pod, restarts
from scalescope.clusters.kubernetes.quantity import amount
from scalescope.model.node_labels import INSTANCE_TYPE, is_spot
from scalescope.model.records import KUBERNETES, Columns, from_rows

# Most bytes of logs kept per trial and per pod; LEAST_BYTES of each pod are kept even if there are many pods.
LOGS_BYTES, POD_BYTES, LEAST_BYTES = 4 * 2**20, 256 * 1024, 4096
READERS = 8  # threads that read logs at the same time
_LINE = 80  # bytes of a typical line

# A log record as Dask writes it.
_RECORD = re.compile(r"\S+ \S+ - (?P<name>\S+) - (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) - (?P<text>.*)")
# The timestamp that starts every log line, but not the kubelet's message that a log is gone.
_TIMED = re.compile(r"\d{4}-\d\d-\d\dT\S+ ")

_GPU = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name")

_Row = tuple[float, str, str, str]  # time, worker, level, text


class PodRecord:
    """Records of the pods of one cluster; each log line belongs to exactly one trial."""

    def __init__(self, api: Api, label: str) -> None:
        self._api, self._label = api, label
        self._rows: list[_Row] = []
        self._last: dict[tuple[str, int], str] = {}
        self._ending: set[str] = set()
        self._events: dict[str, int] = {}
        self._nodes: dict[str, Raw] = {}
        self._workers: dict[str, str] = {}
        self._restarts: dict[str, int] = {}

    def place(self, pods: Sequence[Raw], addresses: Sequence[str]) -> list[dict[str, Any]]:
        """Note the pods of the present workers; returns `facts_of_pod` of each."""
        by_host = {urlsplit(address).hostname: address for address in addresses}
        self._workers |= {each["metadata"]["name"]: by_host.get(each["status"].get("podIP"), "") for each in pods}
        self._restarts = {each["metadata"]["name"]: restarts(each) for each in pods}
        names = {str(each["spec"].get("nodeName", "")) for each in pods} - self._nodes.keys() - {""}
        if names and self._api.may("get", "", "nodes"):  # reading nodes needs a ClusterRole, which the user may lack
            self._nodes |= {name: self._api.node(name) for name in sorted(names)}
        return [
            {
                "pod": (name := each["metadata"]["name"]),
                "worker": self._workers[name],
                **facts_of_pod(each, self._nodes.get(str(each["spec"].get("nodeName", "")), {})),
            }
            for each in pods
        ]

    def read_ending(self, pods: Sequence[Raw]) -> None:
        """Read the logs of pods that are being deleted, before they go with the pods."""
        ending = [each for each in pods if "deletionTimestamp" in each["metadata"]]
        self._read([each for each in ending if each["metadata"]["name"] not in self._ending])
        self._ending |= {each["metadata"]["name"] for each in ending}

    def of_trial(self) -> Columns:
        """Rows of `records.LOGS` since the last call, by time: logs, events, and why containers ended.

        Events and ends begin with `Kubernetes`. `worker`: a worker's address, `scheduler`, or another pod's name.
        """
        pods = {each["metadata"]["name"]: each for each in self._api.pods(self._label)}
        schedulers = (name for name, each in pods.items() if each["metadata"]["labels"].get(COMPONENT) == "scheduler")
        self._workers |= dict.fromkeys(schedulers, "scheduler")
        self._read(list(pods.values()))
        for name, count in self._restarts.items():
            if ended := problem_of_ended(pods.get(name), name, count):
                when = _ended_at(pods.get(name, {}))
                self._rows.append((when, self._who(name), "CRITICAL", KUBERNETES + str(ended)))
        self._rows += self._new_events()
        rows, self._rows = sorted(self._rows, key=itemgetter(0)), []
        return from_rows("logs", (dict(zip(("time", "worker", "level", "text"), row, strict=True)) for row in rows))

    # ---------------------------------------------------------------- parts

    def _read(self, pods: Sequence[Raw]) -> None:
        most = max(min(LOGS_BYTES // max(len(pods), 1), POD_BYTES), LEAST_BYTES)
        with ThreadPoolExecutor(READERS) as readers:
            for rows in readers.map(lambda pod: self._read_pod(pod, most), pods):
                self._rows += rows

    def _read_pod(self, pod: Raw, most: int) -> list[_Row]:
        name, count = pod["metadata"]["name"], restarts(pod)
        found = problem_of_pod(pod)
        if not pod["spec"].get("nodeName") or (found and found.reason == "NodeLost"):
            return []
        rows: list[_Row] = []
        for number in range(max(count - 1, 0), count + 1):
            text = self._api.log(name, most // _LINE, previous=number < count, timestamps=True)
            lines = [line for line in text.split("\n") if _TIMED.match(line)]  # progress bars have \r in a line
            rows += self._new_lines((name, number), self._who(name), lines, most)
        return rows

    def _new_lines(self, key: tuple[str, int], who: str, lines: Sequence[str], most: int) -> list[_Row]:
        """Rows of the new lines; only the last `most` bytes of them."""
        before, rows, size = self._last.get(key), list[_Row](), 0
        for line in reversed(lines):
            if line == before:
                break
            size += len(line)
            if size > most:
                rows.append((rows[-1][0] if rows else time.time(), who, "INFO", _cut(most)))
                break
            rows.append(_row(who, line))
        else:
            if len(lines) >= most // _LINE:
                rows.append((rows[-1][0], who, "INFO", _cut(most)))
        if lines:
            self._last[key] = lines[-1]
        return rows[::-1]

    def _new_events(self) -> list[_Row]:
        if not self._api.may("list", "", "events"):
            return []
        rows = []
        for each in self._api.events(self._label):
            uid, count = each["metadata"]["uid"], int(each.get("count") or 1)
            if self._events.get(uid, 0) < count:
                self._events[uid] = count
                level = str(each.get("type") or "Normal")  # `Warning` here, but `WARNING` in a worker's own log
                text = f"{KUBERNETES}{each['reason']}: {' '.join(str(each.get('message', '')).split())}"
                rows.append((_seconds(event_time(each)), self._who(each["involvedObject"]["name"]), level, text))
        return rows

    def _who(self, name: str) -> str:
        return self._workers.get(name) or name


def facts_of_pod(pod: Raw, node: Raw) -> dict[str, Any]:
    """Where a pod runs, as JSON: from its node or, if `node` is empty (not readable), from the pod's node selector."""
    labels = {**pod["spec"].get("nodeSelector", {}), **node.get("metadata", {}).get("labels", {})}
    info, allocatable = (node.get("status", {}).get(name, {}) for name in ("nodeInfo", "allocatable"))
    spot = is_spot(labels)
    known = {
        "node": pod["spec"].get("nodeName"),
        "instance_type": labels.get(INSTANCE_TYPE),
        "zone": labels.get("topology.kubernetes.io/zone"),
        "gpu": next((labels[name] for name in _GPU if name in labels), None),
        "spot": spot if spot or node else None,
        "kernel": info.get("kernelVersion"),
        "architecture": info.get("architecture"),
        "node_share": node_share(pod, allocatable) if allocatable else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def node_share(pod: Raw, allocatable: Mapping[str, str]) -> float:
    """The largest share of a node's CPU, memory or GPUs that a pod requests, from 0 to 1.

    This dominant share (Ghodsi et al., Dominant Resource Fairness, NSDI 2011) limits how many such pods fit on a node.
    """
    asked: dict[str, float] = {}
    for each in pod["spec"]["containers"]:
        resources = each.get("resources", {})
        for name, quantity in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
            asked[name] = asked.get(name, 0.0) + amount(quantity)
    shares = (
        number / amount(allocatable[name]) for name, number in asked.items() if amount(allocatable.get(name, "0"))
    )
    return round(min(max(shares, default=0.0), 1.0), 4)


def _row(who: str, line: str) -> _Row:
    when, _, text = line.partition(" ")
    if found := _RECORD.fullmatch(text):
        return _seconds(when), who, found["level"], f"{found['name']} {found['text']}"
    return _seconds(when), who, "", text


def _cut(most: int) -> str:
    return f"(earlier lines are not kept: at most {most // 1024} KiB of each pod and trial)"


def _ended_at(pod: Raw) -> float:
    """When the pod's last container ended, in seconds since the epoch; the present time if that is unknown."""
    states = (
        each.get(name, {}).get("terminated", {}).get("finishedAt")
        for each in pod.get("status", {}).get("containerStatuses", ())
        for name in ("state", "lastState")
    )
    return max((_seconds(when) for when in states if when), default=time.time())


def _seconds(when: str) -> float:
    return datetime.fromisoformat(when).timestamp()
