"""How long each problem of pods is waited for, on a fake clock."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from scalescope.clusters.kubernetes.manifests import COMPONENT, WORKER_GROUP
from scalescope.clusters.kubernetes.pod_watch import (
    ENDING_S,
    LOG_AFTER_S,
    OPERATOR_S,
    OUTAGE_SETTLE_S,
    RETRY_S,
    SETTLE_S,
    PodWatch,
)
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.errors import ClusterError, told

BUSY = (
    "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found."
)
NO_NODE = (
    "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful"
)


class Kube:
    """Answers as the API of Kubernetes does."""

    namespace = "team"

    def __init__(self) -> None:
        self.now = 0.0
        self.found: list[dict[str, Any]] = []
        self.logs: dict[bool, str] = {False: "", True: ""}
        self.made: list[dict[str, Any]] = []
        self.notes: dict[str, str] = {}
        self.notes_of_group: dict[str, str] = {}
        self.rights: set[str] = set()
        self.events: list[dict[str, Any]] = []
        self.operates: list[dict[str, Any]] = []
        self.node_ready = "True"
        self.back_since = 0.0
        self.known_nodes: list[dict[str, Any]] = [{"metadata": {"name": "n1"}, "spec": {"unschedulable": True}}]

    def pods(self, label: str) -> list[dict[str, Any]]:
        return self.found

    def deployments(self, label: str) -> list[dict[str, Any]]:
        return self.made or [{"metadata": pod["metadata"]} for pod in self.found]

    def cluster(self, label: str) -> dict[str, Any]:
        return {"metadata": {"annotations": self.notes}}

    def groups(self, label: str) -> list[dict[str, Any]]:
        return [{"metadata": {"annotations": self.notes_of_group}}]

    def events_of(self, pod: str) -> list[dict[str, Any]]:
        return self.events

    def node(self, name: str) -> dict[str, Any]:
        ready = {"type": "Ready", "status": self.node_ready, "message": "Kubelet stopped posting node status."}
        return {"status": {"conditions": [ready]}}

    def nodes(self) -> list[dict[str, Any]]:
        return self.known_nodes

    def operators(self) -> list[dict[str, Any]]:
        return self.operates

    def may(self, verb: str, group: str, resource: str) -> bool:
        return resource in self.rights

    def log(self, pod: str, lines: int, *, previous: bool = False) -> str:
        return self.logs[previous]


def pod(name: str = "w", ready: str = "True", **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}, *status.pop("conditions", ())]
    metadata = {"name": name, "labels": {COMPONENT: "worker"}}
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"conditions": conditions, **status}}


def waiting(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod(ready="False", conditions=[condition])


@pytest.fixture
def kube() -> Kube:
    return Kube()


def watch(kube: Kube, groups: tuple[str, ...] | None = None, most: float = math.inf, **given: Any) -> PodWatch:
    spec = KubernetesSpec(**given)
    return PodWatch(kube, "scalescope-1", "worker", spec, groups, lambda: kube.now, most)  # type: ignore[arg-type]


def look(kube: Kube, watching: PodWatch, at: float) -> str:
    kube.now = at
    watching.look()
    return watching.check(2, {"10.0.0.1"})


def refused(kube: Kube, watching: PodWatch, at: float) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        look(kube, watching, at)
    return caught.value


def test_running_pods_are_waited_for_until_dask_knows_them(kube: Kube) -> None:
    watching, kube.found = watch(kube, start_timeout_s=60), [pod()]
    assert look(kube, watching, 59)
    caught = refused(kube, watching, 61)
    assert caught.category == "no-connection"


def test_scheduler_pods_and_ending_pods_do_not_count_as_workers(kube: Kube) -> None:
    scheduler, ending = pod("s"), pod("e")
    scheduler["metadata"]["labels"] = {COMPONENT: "scheduler"}
    ending["metadata"]["deletionTimestamp"] = "now"
    kube.found, watching = [scheduler, pod(), ending], watch(kube)
    assert [each["metadata"]["name"] for each in watching.look()] == ["w"]
    assert watching.check(1, {"10.0.0.1"})
    kube.now = ENDING_S
    assert not watching.is_ending  # its node does not answer


def test_pods_of_a_deleted_group_are_waited_for_and_raise_no_error(kube: Kube) -> None:
    """Kubernetes deletes a pod only some time after its group."""
    state = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 2}
    last = {"lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}
    broken, new = pod("broken", "False", containerStatuses=[{**state, **last}]), pod("new")
    broken["metadata"]["labels"][WORKER_GROUP], new["metadata"]["labels"][WORKER_GROUP] = "first", "second"
    kube.found, watching = [broken, new], watch(kube, groups=("second",))
    assert [each["metadata"]["name"] for each in watching.look()] == ["new"]
    assert watching.problems == []
    assert watching.is_ending
    assert watching.check(1, {"10.0.0.1"})
    caught = refused(kube, watch(kube, groups=("first", "second")), 0)
    assert caught.category == "crashed"


def test_pods_wait_for_room_until_the_queue_timeout_before_their_start_is_timed(kube: Kube) -> None:
    watching, kube.found = watch(kube, queue_timeout_s=100, start_timeout_s=10), [waiting(BUSY)]
    words = look(kube, watching, 50)
    assert "Unschedulable: 0/2 nodes" in words
    assert "100 s (cluster.queue_timeout_s)" in words
    assert look(kube, watching, 99)
    kube.found = [pod(ready="False", phase="Pending")]
    assert look(kube, watching, 105)
    kube.found = [waiting(BUSY)]
    assert look(kube, watching, 106)  # again, and from the beginning
    caught = refused(kube, watching, 206)
    assert caught.category == "no-room"
    assert "cluster.queue_timeout_s" in caught.next_step


def test_a_pod_that_no_node_can_hold_is_waited_for_only_with_autoscaling(kube: Kube) -> None:
    kube.found = [waiting(NO_NODE)]
    without = watch(kube)
    assert look(kube, without, 0)
    with pytest.raises(ClusterError) as caught:
        look(kube, without, SETTLE_S)
    assert "cluster.autoscale_timeout_s" in caught.value.next_step
    kube.now = 0
    scaling = watch(kube, autoscale_timeout_s=300)
    look(kube, scaling, 0)
    assert look(kube, scaling, 299)
    with pytest.raises(ClusterError):
        look(kube, scaling, 300)


def test_a_pod_that_keeps_crashing_ends_the_wait_with_the_log_of_its_last_container(kube: Kube) -> None:
    state = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 2}
    last = {"lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}
    kube.found = [pod(), pod("bad", "False", containerStatuses=[{**state, **last}])]
    kube.logs[True] = "ModuleNotFoundError: No module named 'dask'"
    caught = refused(kube, watch(kube), 0)
    assert "bad on n1" in caught.where
    assert caught.category == "no-package"
    assert "    | ModuleNotFoundError" in caught.cause


def test_an_operator_that_creates_nothing_is_reported_sooner_if_it_is_switched_off(kube: Kube) -> None:
    watching = watch(kube)
    assert look(kube, watching, OPERATOR_S)
    caught = refused(kube, watching, OPERATOR_S + 1)
    assert caught.category == "operator-silent"
    assert "kubectl logs" not in caught.next_step
    kube.now = 0
    metadata = {"namespace": "dask-operator", "name": "operator"}
    kube.operates = [{"metadata": metadata, "spec": {"replicas": 1}, "status": {"readyReplicas": 1}}]
    watching = watch(kube)
    assert look(kube, watching, SETTLE_S + 1)  # it may be starting again
    assert "kubectl logs" in refused(kube, watching, OPERATOR_S + 1).next_step
    kube.now, kube.operates = 0, [{"metadata": metadata, "spec": {"replicas": 0}}]
    caught = refused(kube, watch(kube), SETTLE_S + 1)
    assert caught.category == "operator-silent"
    assert "dask-operator/operator" in caught.cause


def test_an_error_of_the_operator_is_quoted(kube: Kube) -> None:
    words = 'deployments.apps "s" is forbidden: exceeded quota: few, limited: count/deployments.apps=0'
    name = "kopf.zalando.org/daskcluster_create_components.status.phase"
    kube.notes = {name: json.dumps({"message": words, "retries": 1})}
    caught = refused(kube, watch(kube), SETTLE_S + 1)
    assert words in caught.cause
    assert caught.category == "quota"
    kube.now, kube.found, kube.notes_of_group, kube.notes = 0, [pod()], kube.notes, {}
    caught = refused(kube, watch(kube), SETTLE_S + 1)
    assert caught.category == "quota"
    kube.now, kube.found, kube.notes_of_group = 0, [], {name: json.dumps({"message": "", "retries": 1})}
    watching = watch(kube)
    assert look(kube, watching, OPERATOR_S + RETRY_S)  # it tries again after a minute
    caught = refused(kube, watching, OPERATOR_S + RETRY_S + 1)
    assert caught.category == "create-refused"


def no_quota() -> dict[str, Any]:
    words = "exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3"
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words}
    metadata = {"name": "d", "labels": {COMPONENT: "worker"}}
    return {"metadata": metadata, "status": {"conditions": [condition]}}


def test_a_full_quota_is_waited_for_while_pods_end_unless_their_node_is_lost(kube: Kube) -> None:
    kube.made, kube.found = [no_quota()], [pod("old")]
    kube.found[0]["metadata"]["deletionTimestamp"] = "now"
    watching = watch(kube)
    assert look(kube, watching, SETTLE_S + 1)
    kube.found = []
    assert look(kube, watching, SETTLE_S + 2)
    assert look(kube, watching, 2 * SETTLE_S)
    caught = refused(kube, watching, 2 * SETTLE_S + 1)
    assert caught.category == "quota"
    kube.found, kube.now, watching = [pod("old")], 0, watch(kube)
    kube.found[0]["metadata"]["deletionTimestamp"] = "now"
    assert look(kube, watching, 0)
    assert look(kube, watching, ENDING_S - 1)
    assert look(kube, watching, ENDING_S + SETTLE_S - 2)
    caught = refused(kube, watching, ENDING_S + SETTLE_S - 1)
    assert caught.category == "quota"


def test_a_failed_pod_with_a_successor_does_not_count(kube: Kube) -> None:
    failed, other = pod("a", "False", phase="Failed", reason="Evicted"), pod("b")
    for each in (failed, other):
        each["metadata"]["ownerReferences"] = [{"uid": "replica-set"}]
    kube.found, watching = [failed, other], watch(kube)
    assert [each["metadata"]["name"] for each in watching.look()] == ["b"]
    assert watching.problems == []
    kube.found = [failed]
    watching.look()
    assert [each.reason for each in watching.problems] == ["Evicted"]


def test_problems_that_only_events_mention_are_reported(kube: Kube) -> None:
    kube.rights = {"events"}
    starts = {"waiting": {"reason": "ContainerCreating"}}
    kube.found = [pod(ready="False", phase="Pending", containerStatuses=[{"state": starts}])]
    mount = 'MountVolume.SetUp failed for volume "scalescope" : secret "scalescope-0123456789ab" not found'
    kube.events = [{"type": "Warning", "reason": "FailedMount", "message": mount}]
    watching = watch(kube)
    assert "ContainerCreating" in look(kube, watching, 1)
    assert "FailedMount" in look(kube, watching, 4)
    caught = refused(kube, watching, 4 + SETTLE_S)
    assert caught.category == "own-secret-deleted"


def test_the_message_of_an_autoscaler_is_quoted(kube: Kube) -> None:
    kube.rights, kube.found = {"events"}, [waiting(NO_NODE)]
    told = {"type": "Normal", "reportingComponent": "cluster-autoscaler", "reason": "NotTriggerScaleUp"}
    kube.events = [{**told, "message": "pod didn't trigger scale-up: 1 max node group size reached"}]
    watching = watch(kube, autoscale_timeout_s=60)
    words = look(kube, watching, 3)
    assert "NotTriggerScaleUp: pod didn't trigger scale-up" in words
    assert "60 s (cluster.autoscale_timeout_s)" in words


def test_a_lost_pod_is_reported_before_one_that_waits_for_a_node(kube: Kube) -> None:
    watching, kube.found = watch(kube), [waiting(NO_NODE)]
    assert look(kube, watching, 0)
    kube.found += [pod("lost", "False", containerStatuses=[{"ready": True, "state": {"running": {}}}])]
    assert look(kube, watching, SETTLE_S - 1)
    caught = refused(kube, watching, SETTLE_S)
    assert caught.category == "node-lost"


def test_a_pod_that_was_deleted_with_its_lost_node_is_reported_before_its_successor(kube: Kube) -> None:
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    unready = "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }."
    lost = pod("lost", "False", conditions=[taken], containerStatuses=[{"ready": True, "state": {"running": {}}}])
    lost["metadata"]["deletionTimestamp"] = "now"
    watching, kube.found = watch(kube), [lost, waiting(unready)]
    assert look(kube, watching, 0)
    assert refused(kube, watching, SETTLE_S).category == "node-lost"


def test_a_node_lost_while_a_pod_starts_on_it_is_reported(kube: Kube) -> None:
    kube.rights = {"nodes"}
    kube.found = [pod(ready="False", phase="Pending")]
    watching = watch(kube)
    assert "Pending" in look(kube, watching, 3)
    kube.node_ready = "Unknown"
    assert "NodeLost: Kubelet stopped posting" in look(kube, watching, 6)


def test_the_lost_pod_of_a_trial_is_named_and_an_unready_one_is_not(kube: Kube) -> None:
    watching, kube.found = watch(kube), [pod("a"), pod("b")]
    watching.look()
    assert watching.ended({"a": 0, "b": 0}) == []
    state = {"containerStatuses": [{"state": {"running": {}}, "ready": False}], "phase": "Running"}
    kube.found = [pod("a", "False", **state)]
    assert watching.look() == []
    assert watching.problems[0].reason == "Unready"
    assert [each.pod for each in watching.ended({"a": 0, "b": 0})] == ["b"]


def test_a_node_that_is_silent_for_a_moment_has_lost_no_pod(kube: Kube) -> None:
    watching, runs = watch(kube), {"containerStatuses": [{"ready": True, "state": {"running": {}}}]}
    kube.found = [pod("a", "Unknown", **runs)]
    for kube.now, lost in ((0, []), (SETTLE_S - 1, []), (SETTLE_S, ["a"])):
        watching.look()
        assert [each.pod for each in watching.ended({"a": 0}, SETTLE_S)] == lost
    kube.found = [pod("a", **runs)]
    watching.look()
    assert watching.ended({"a": 0}) == []


CORDONED = (
    "0/2 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}, 1 node(s) were "
    "unschedulable. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)


def test_a_cordoned_node_is_named_and_waited_for_like_a_busy_one(kube: Kube) -> None:
    kube.rights, kube.found = {"nodes"}, [waiting(CORDONED)]
    watching = watch(kube, queue_timeout_s=100)
    words = look(kube, watching, 50)
    assert "Cordoned: n1" in words
    assert "100 s (cluster.queue_timeout_s)" in words
    with pytest.raises(ClusterError) as caught:
        look(kube, watching, 150)
    assert not caught.value.ends_run  # an upgrade ends


def test_more_pods_than_one_operator_would_create_end_the_run_at_once(kube: Kube) -> None:
    kube.found = [pod("a"), pod("b"), pod("c"), pod("d")]
    watching = watch(kube, most=2)
    with pytest.raises(ClusterError) as caught:
        look(kube, watching, 0)
    assert (caught.value.category, caught.value.ends_run) == ("two-operators", True)
    assert look(kube, watch(kube, most=4), 0)


TAINTED = (
    "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s). "
    "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)


@pytest.mark.parametrize("key", ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready", "nvidia.com/gpu"])
def test_an_unready_node_is_waited_for_and_a_node_with_another_taint_is_not(kube: Kube, key: str) -> None:
    chosen = {"kubernetes.io/hostname": "gpu"}
    lost = {"metadata": {"name": "gpu", "labels": chosen}, "spec": {"taints": [{"key": key}]}}
    other = {"metadata": {"name": "cpu", "labels": {}}, "spec": {"taints": [{"key": "node.kubernetes.io/not-ready"}]}}
    kube.known_nodes = [lost, other]
    waits = waiting(TAINTED)
    waits["spec"] = {"nodeSelector": chosen}
    kube.rights, kube.found = {"nodes"}, [waits]
    watching = watch(kube)
    look(kube, watching, 3.0)
    if key.startswith("node."):
        said = look(kube, watching, SETTLE_S + 4.0)
        assert f"gpu ({key})" in said
        assert "cpu (" not in said
        look(kube, watching, 3.0 + KubernetesSpec().queue_timeout_s - 1)
    with pytest.raises(ClusterError) as caught:
        look(kube, watching, 4.0 + KubernetesSpec().queue_timeout_s)
    assert caught.value.category == ("node-not-ready" if key.startswith("node.") else "no-label")
    assert ("--show-labels" in caught.value.next_step) == (not key.startswith("node."))


def test_no_pod_counts_as_lost_just_after_an_outage_of_the_api_server(kube: Kube) -> None:
    kube.found = [
        pod(ready="False", containerStatuses=[{"ready": True, "state": {"running": {}}}])
    ]  # its node seems lost
    watching = watch(kube)
    watching.look()
    kube.back_since = 60.0
    look(kube, watching, 60.0)
    look(kube, watching, 60.0 + OUTAGE_SETTLE_S - 1)
    with pytest.raises(ClusterError) as caught:
        look(kube, watching, 60.0 + OUTAGE_SETTLE_S + SETTLE_S)
    assert caught.value.category == "node-lost"


def test_a_node_that_an_autoscaler_adds_is_waited_for(kube: Kube) -> None:
    kube.rights, kube.found = {"events"}, [waiting(NO_NODE)]
    kube.events = [{"reason": "TriggeredScaleUp", "source": {"component": "cluster-autoscaler"}, "message": "0->1"}]
    watching = watch(kube)
    look(kube, watching, 3.0)
    assert "TriggeredScaleUp" in look(kube, watching, SETTLE_S + 4.0)


@pytest.mark.parametrize(
    ("line", "category"),
    [
        *((f"socket.gaierror: [Errno -{number}] what it is", "no-name") for number in range(1, 12)),
        ("OSError: Timed out during handshake", "no-connection"),
        ("OSError: [Errno 113] No route to host", "no-route"),
        ("OSError: [Errno 101] Network is unreachable", "no-route"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "no-connection"),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "connection-reset"),
        ("ssl.SSLCertVerificationError: certificate verify failed", "no-trust"),
        ("TimeoutError: [Errno 110] Connection timed out", "no-connection"),
    ],
)
def test_the_log_of_a_worker_that_does_not_register_gives_the_cause(kube: Kube, line: str, category: str) -> None:
    kube.found, kube.logs[False] = [pod()], f"a line\n{line}\nthe last line"
    watching = watch(kube)
    with pytest.raises(ClusterError) as caught:
        look(kube, watching, KubernetesSpec().start_timeout_s + 1)
    assert caught.value.category == category
    assert told(str(caught.value))["cause"].endswith(line)


def test_a_waiting_worker_is_explained_by_its_log_or_that_of_its_previous_container(kube: Kube) -> None:
    line = "distributed/utils.py:200: RuntimeWarning: Couldn't detect: [Errno -3] Temporary failure in name resolution"
    restarted = {"containerStatuses": [{"restartCount": 1, "ready": True, "state": {"running": {}}}]}
    kube.found = [pod("arrived", podIP="10.0.0.1"), pod("late", podIP="10.0.0.2", **restarted)]
    kube.logs = {False: "all is well", True: line}
    watching = watch(kube)
    assert "Errno" not in look(kube, watching, LOG_AFTER_S - 1)
    assert look(kube, watching, LOG_AFTER_S + 1).endswith(
        "late says: Couldn't detect: [Errno -3] Temporary failure in name resolution"
    )
    kube.logs[True] = ""
    caught = refused(kube, watching, KubernetesSpec().start_timeout_s + 1)
    assert caught.category == "no-connection"
    assert "all is well" in caught.cause


def test_the_taint_of_a_lost_node_is_reported_as_a_lost_node(kube: Kube) -> None:
    kube.rights = {"nodes"}
    taken = pod("a", conditions=[{"type": "DisruptionTarget", "reason": "DeletionByTaintManager", "message": "taint"}])
    taken["metadata"]["deletionTimestamp"] = "now"
    kube.found, watching = [taken], watch(kube)
    watching.look()
    (ended,) = watching.ended({"a": 0})
    assert watching.error(ended).category == "node-tainted"
    kube.node_ready = "Unknown"
    assert watching.error(ended).category == "node-lost"


def test_an_error_names_a_change_of_the_pod_that_may_have_caused_it(kube: Kube) -> None:
    def given(memory: str) -> dict[str, Any]:
        limits = {"resources": {"limits": {"memory": memory}}}
        return {"metadata": {}, "spec": {"containers": [{"name": "worker", "image": "i", **limits}]}}

    killed = [{"restartCount": 1, "state": {"waiting": {"reason": "OOMKilled"}}}]
    kube.found = [pod("a", "False", containerStatuses=killed) | {"spec": given("1Gi")["spec"]}]
    for asked, is_told in (("1Gi", False), ("2Gi", True)):
        made = given(asked)
        watching = PodWatch(kube, "l", "worker", KubernetesSpec(), asked=lambda pod, made=made: made)  # type: ignore[arg-type,misc]
        watching.look()
        error = watching.error(watching.problems[0])
        assert error.category == "out-of-memory"
        assert ("1Gi memory in place of 2Gi" in error.cause, "limitrange" in error.next_step) == (is_told, is_told)


@pytest.mark.parametrize("log", ["", "distributed.worker - INFO - Waiting to connect to: tls://x", "all is well"])
def test_a_log_without_a_known_error_gives_no_cause(kube: Kube, log: str) -> None:
    kube.found, kube.logs[False] = [pod()], log
    watching = watch(kube)
    with pytest.raises(ClusterError) as caught:
        look(kube, watching, KubernetesSpec().start_timeout_s + 1)
    assert caught.value.category == "no-connection"
    assert "[Errno" not in caught.value.cause
