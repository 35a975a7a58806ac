"""Logs, events and facts of pods that are kept with a trial."""

from __future__ import annotations

from typing import Any

import pytest

from scalescope.clusters.kubernetes import pod_record
from scalescope.clusters.kubernetes.manifests import COMPONENT
from scalescope.clusters.kubernetes.pod_record import PodRecord, facts_of_pod
from scalescope.clusters.kubernetes.quantity import amount

WORKER = "tls://10.0.0.1:4000"


class Kube:
    """Answers as the API of Kubernetes does."""

    def __init__(self) -> None:
        self.found = [pod("w")]
        self.logs: dict[bool, list[str]] = {False: [], True: []}
        self.told: list[dict[str, Any]] = []
        self.rights = {"nodes", "events"}

    def pods(self, label: str) -> list[dict[str, Any]]:
        return self.found

    def events(self, label: str) -> list[dict[str, Any]]:
        return self.told

    def node(self, name: str) -> dict[str, Any]:
        labels = {"node.kubernetes.io/instance-type": "g2-standard-8", "cloud.google.com/gke-spot": "true"}
        status = {"allocatable": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"}, "nodeInfo": {}}
        return {"metadata": {"labels": labels}, "status": status}

    def may(self, verb: str, group: str, resource: str) -> bool:
        return resource in self.rights

    def log(self, pod: str, lines: int, *, previous: bool = False, timestamps: bool = False) -> str:
        assert timestamps
        return "\n".join(self.logs[previous][-lines:])

    def say(self, *texts: str, previous: bool = False) -> None:
        for text in texts:
            second = len(self.logs[False]) + len(self.logs[True])
            self.logs[previous].append(f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000000Z {text}")


def pod(name: str, ended: str = "", component: str = "worker", **metadata: Any) -> dict[str, Any]:
    state = {"terminated": {"reason": ended, "exitCode": 137, "finishedAt": "2026-01-01T00:09:00Z"}} if ended else {}
    container = {
        "name": "c",
        "ready": True,
        "restartCount": int(bool(ended)),
        "state": {"running": {}},
        "lastState": state,
    }
    requests = {"cpu": "1500m", "memory": "8Gi", "nvidia.com/gpu": "2"}
    return {
        "metadata": {"name": name, "labels": {COMPONENT: component}, **metadata},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": requests}}]},
        "status": {
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [container],
        },
    }


@pytest.fixture
def kube() -> Kube:
    return Kube()


@pytest.fixture
def kept(kube: Kube) -> PodRecord:
    made = PodRecord(kube, "w")  # type: ignore[arg-type]
    made.place(kube.found, [WORKER])
    return made


def texts(kept: PodRecord) -> list[tuple[str, str, str]]:
    rows = kept.of_trial()
    assert list(rows["time"]) == sorted(rows["time"])
    return list(zip(rows["worker"], rows["level"], rows["text"], strict=True))


def test_each_log_line_of_a_pod_is_kept_with_exactly_one_trial(kube: Kube, kept: PodRecord) -> None:
    kube.say("2026-01-01 00:00:00,000 - distributed.worker - INFO - Start worker at: here", "printed by a task")
    first = [(WORKER, "INFO", "distributed.worker Start worker at: here"), (WORKER, "", "printed by a task")]
    assert texts(kept) == first
    kube.say("more")
    assert texts(kept) == [(WORKER, "", "more")]
    assert texts(kept) == []


def test_a_container_that_died_is_recorded_with_its_log(kube: Kube, kept: PodRecord) -> None:
    kube.say("before")
    texts(kept)
    kube.say("last words")
    kube.logs = {True: kube.logs[False], False: []}
    kube.say("again")
    kube.found = [pod("w", ended="OOMKilled")]
    rows = [(WORKER, "", "last words"), (WORKER, "", "again")]
    assert texts(kept) == [*rows, (WORKER, "CRITICAL", "Kubernetes: OOMKilled: exit code 137")]


def test_the_log_of_a_pod_that_is_being_deleted_is_read_before_it_goes(kube: Kube, kept: PodRecord) -> None:
    kube.say("terminated")
    kept.read_ending([pod("other")])
    kept.read_ending([pod("w", deletionTimestamp="2026-01-01T00:00:00Z")])
    kube.found = []
    said = texts(kept)
    assert said[0] == (WORKER, "", "terminated")
    assert said[1] == (WORKER, "CRITICAL", "Kubernetes: Deleted: the pod does not exist any more")


def test_a_log_that_was_cut_says_so(kube: Kube, kept: PodRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_record, "POD_BYTES", 4096)
    kube.say(*(f"line {number}" for number in range(500)))
    said = texts(kept)
    assert said[0] == (WORKER, "INFO", "(earlier lines are not kept: at most 4 KiB of each pod and trial)")
    assert said[-1] == (WORKER, "", "line 499")
    assert len(said) == 52
    kube.say("x" * 5000, "short")
    assert [text for _, _, text in texts(kept)] == [said[0][2], "short"]


def test_events_of_pods_are_kept_once_for_each_time_they_happen(kube: Kube, kept: PodRecord) -> None:
    event = {
        "metadata": {"uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "involvedObject": {"name": "s"},
        "type": "Warning",
        "reason": "Unhealthy",
        "message": "probe\n failed",
    }
    kube.told = [event]
    kube.found.append(pod("s", component="scheduler"))
    assert texts(kept) == [("scheduler", "Warning", "Kubernetes: Unhealthy: probe failed")]
    assert texts(kept) == []
    kube.told = [{**event, "count": 2}]
    assert len(texts(kept)) == 1
    kube.told = [{**event, "count": 3}]
    kube.rights = set()
    assert texts(kept) == []


def test_the_node_and_the_node_share_of_a_pod_are_recorded(kube: Kube) -> None:
    [facts] = PodRecord(kube, "w").place(kube.found, [WORKER])  # type: ignore[arg-type]
    assert facts == {
        "pod": "w",
        "worker": WORKER,
        "node": "n1",
        "instance_type": "g2-standard-8",
        "spot": True,
        "node_share": 0.5,  # two of four GPUs; a fifth of the CPUs and a quarter of the memory
    }
    kube.rights = set()
    selected = kube.found[0]["spec"]["nodeSelector"] = {"eks.amazonaws.com/capacityType": "SPOT"}
    assert facts_of_pod(kube.found[0], {}) == {"node": "n1", "spot": True}
    selected.clear()
    assert facts_of_pod(kube.found[0], {}) == {"node": "n1"}


@pytest.mark.parametrize(
    ("quantity", "value"), [("2", 2), ("500m", 0.5), ("1Ki", 1024), ("2Gi", 2**31), ("1.5G", 1.5e9), ("?", 0)]
)
def test_quantities_of_kubernetes_are_read_with_their_suffixes(quantity: str, value: float) -> None:
    assert amount(quantity) == value
