"""What Kubernetes says, in its own words of a real 1.34, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from scalescope.clusters.kubernetes import failures
from scalescope.clusters.kubernetes.failures import Outlook


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": status}


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def container(restarts: int = 0, **state: Any) -> list[dict[str, Any]]:
    ended = {"lastState": {"terminated": state.pop("last")}} if "last" in state else {}
    return [{"restartCount": restarts, "ready": "running" in state, "state": state, **ended}]


RUNS = {"phase": "Running", "conditions": [condition("Ready", "True")], "containerStatuses": container(running={})}


def test_nothing_is_wrong_with_a_pod_that_runs() -> None:
    assert failures.trouble_of_pod(pod(**RUNS)) is None
    assert failures.trouble_of_ended(pod(**RUNS), "p", 0) is None
    assert failures.trouble_of_deployment({"metadata": {"name": "d"}, "status": {}}) is None


def unschedulable(message: str) -> dict[str, Any]:
    return pod(phase="Pending", conditions=[condition("PodScheduled", "False", "Unschedulable", message)])


BUSY = (
    "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available: 2 No preemption "
    "victims found for incoming pod."
)
NEVER = (
    "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
    "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)
TAINT = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {spot: true}."
PULL = 'Back-off pulling image "a:b": ErrImagePull: failed to resolve reference "a:b": a:b: not found'


@pytest.mark.parametrize(
    ("status", "hope", "cause", "step"),
    [
        (unschedulable(BUSY), Outlook.ROOM, "enough GPUs", "cluster.gpus"),
        (unschedulable(NEVER), Outlook.NEW_NODE, "labels that the pod asks for", "cluster.gpu_product"),
        (unschedulable(TAINT), Outlook.ROOM, "taint", "cluster.tolerations"),
        (
            pod(phase="Pending", containerStatuses=container(waiting={"reason": "ImagePullBackOff", "message": PULL})),
            Outlook.NEVER,
            "no such image",
            "cluster.image",
        ),
        (
            pod(containerStatuses=container(waiting={"reason": "ErrImagePull", "message": "pull access denied"})),
            Outlook.NEVER,
            "does not let",
            "cluster.pull_secrets",
        ),
        (
            pod(containerStatuses=container(waiting={"reason": "ErrImagePull", "message": "dial tcp: i/o timeout"})),
            Outlook.SOON,
            "cannot pull",
            "reach the registry",
        ),
        (
            pod(containerStatuses=container(waiting={"reason": "ErrImageNeverPull"})),
            Outlook.NEVER,
            "not on the node",
            "load",
        ),
        (pod(containerStatuses=container(waiting={"reason": "ContainerCreating"})), Outlook.SOON, "", "describe pod p"),
        (
            pod(
                containerStatuses=container(
                    waiting={
                        "reason": "RunContainerError",
                        "message": 'exec: "dask": executable file not found in $PATH: unknown',
                    }
                )
            ),
            Outlook.NEVER,
            "no program `dask`",
            "image",
        ),
        (
            pod(
                containerStatuses=container(
                    2, waiting={"reason": "CrashLoopBackOff"}, last={"exitCode": 1, "reason": "Error"}
                )
            ),
            Outlook.NEVER,
            "ended by itself",
            "last words",
        ),
        (
            pod(containerStatuses=container(terminated={"exitCode": 1, "reason": "Error"})),
            Outlook.SOON,
            "ended",
            "words",
        ),
        (
            pod(containerStatuses=container(terminated={"exitCode": 137, "reason": "OOMKilled"})),
            Outlook.NEVER,
            "more memory",
            "cluster.memory_mb",
        ),
        (
            pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
            Outlook.HARDLY,
            "ran short of memory",
            "describe node n1",
        ),
        (
            pod(phase="Running", conditions=[condition("Ready", "False")], containerStatuses=container(running={})),
            Outlook.HARDLY,
            "node does not answer",
            "n1 as NotReady",
        ),
    ],
)
def test_what_a_pod_waits_for(status: dict[str, Any], hope: Outlook, cause: str, step: str) -> None:
    trouble = failures.trouble_of_pod(status)
    assert trouble is not None
    assert trouble.hope is hope
    meaning = failures.meaning(trouble)
    assert cause in meaning.cause
    assert step in meaning.next_step


def test_a_pod_that_never_came_to_be() -> None:
    words = 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3'
    failure = {
        "metadata": {"name": "d"},
        "status": {"conditions": [condition("ReplicaFailure", "True", "FailedCreate", words)]},
    }
    trouble = failures.trouble_of_deployment(failure)
    assert trouble is not None
    assert (trouble.hope, trouble.what) == (Outlook.HARDLY, "d")
    assert "quota" in failures.meaning(trouble).cause


def test_how_a_pod_that_ran_ended() -> None:
    again = pod(
        **{**RUNS, "containerStatuses": container(1, running={}, last={"exitCode": 137, "reason": "OOMKilled"})}
    )
    assert failures.trouble_of_pod(again) is None
    trouble = failures.trouble_of_ended(again, "p", 0)
    assert trouble is not None
    assert trouble.said == "OOMKilled: exit code 137"
    assert failures.trouble_of_ended(again, "p", 1) is None
    gone = failures.trouble_of_ended(None, "p", 0)
    assert gone is not None
    assert "deleted" in failures.meaning(gone).cause
    preempted = pod(
        **RUNS,
    )
    preempted["metadata"]["deletionTimestamp"] = "now"
    preempted["status"] = {
        **RUNS,
        "conditions": [condition("DisruptionTarget", "True", "PreemptionByScheduler", "higher")],
    }
    ended = failures.trouble_of_ended(preempted, "p", 0)
    assert ended is not None
    assert "higher priority" in failures.meaning(ended).cause


ENDS = {"metadata": {"name": "p", "deletionTimestamp": "now"}}
NVIDIA = (
    "failed to create containerd task: OCI runtime create failed: error running prestart hook #0: stderr: "
    "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object "
    "file: no such file or directory: unknown"
)


def failed(reason: str, message: str) -> dict[str, Any]:
    return pod(phase="Failed", reason=reason, message=message)


def disrupted(reason: str, message: str) -> dict[str, Any]:
    return {**pod(**{**RUNS, "conditions": [condition("DisruptionTarget", "True", reason, message)]}), **ENDS}


def waits(reason: str, message: str) -> dict[str, Any]:
    return pod(phase="Pending", containerStatuses=container(waiting={"reason": reason, "message": message}))


@pytest.mark.parametrize(
    ("status", "cause", "step"),
    [
        (
            failed("UnexpectedAdmissionError", "Pod was rejected: Allocate failed due to no healthy devices present"),
            "often a GPU",
            "device plugin",
        ),
        (failed("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"), "node refused", "describe node n1"),
        (failed("OutOfnvidia.com/gpu", "Pod was rejected: Node didn't have enough resource"), "node refused", "n1"),
        (failed("Terminated", "Pod was terminated in response to imminent node shutdown."), "shuts down", "spot"),
        (failed("NodeShutdown", "Pod was rejected as the node is shutting down."), "shuts down", "spot"),
        (failed("Shutdown", "Node is shutting, evicting pods"), "shuts down", "spot"),
        (failed("DeadlineExceeded", "Pod was active on the node longer than allowed"), "time limit", "administrator"),
        (disrupted("TerminationByKubelet", "Pod was terminated in response to node shutdown"), "shuts down", "spot"),
        (disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"), "taint", "spot"),
        (disrupted("DeletionByPodGC", "PodGC: node no longer exists"), "taken out of the cluster", "spot"),
        (disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), "is drained", "SchedulingDisabled"),
        (waits("RunContainerError", NVIDIA), "NVIDIA driver", "GPU operator on n1"),
        (waits("CreateContainerError", NVIDIA), "NVIDIA driver", "cluster.node_selector"),
        (waits("StartError", 'exec: "dask": exec format error'), "another kind of processor", "kubernetes.io/arch"),
        (
            waits("ImagePullBackOff", "toomanyrequests: You have reached your pull rate limit"),
            "no more",
            "pull_secrets",
        ),
        (waits("ErrImagePull", "tls: failed to verify certificate: x509: unknown authority"), "trust", "cluster.image"),
        (waits("ErrImageNeverPull", 'Container image "a" is not present'), "not on the node", "registry"),
    ],
)
def test_what_cannot_be_brought_about_here_is_quoted_and_explained(
    status: dict[str, Any], cause: str, step: str
) -> None:
    trouble = failures.trouble_of_ended(status, "p", 0)
    assert trouble is not None
    assert cause in failures.meaning(trouble).cause
    assert step in failures.meaning(trouble).next_step
    told = status["status"]
    words = [
        *told.get("conditions", ()),
        *(each["state"].get("waiting", {}) for each in told.get("containerStatuses", ())),
    ]
    said = told.get("message") or next(each["message"] for each in words if each.get("message"))
    assert trouble.words == said


@pytest.mark.parametrize(
    ("message", "causes"),
    [
        (TAINT, ("CPUs, memory or disk", "taint")),
        ("0/3 nodes are available: 1 node(s) were unschedulable, 2 Too many pods.", ("cordoned", "as many pods")),
        ('0/3 nodes are available: persistentvolumeclaim "scratch" not found.', ("volume",)),
    ],
)
def test_nodes_have_several_reasons(message: str, causes: tuple[str, ...]) -> None:
    trouble = failures.trouble_of_pod(unschedulable(message))
    assert trouble is not None
    for cause in causes:
        assert cause in failures.meaning(trouble).cause


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        ({"reason": "Preempted", "message": "Preempted by pod important on node gpu"}, "higher priority"),
        ({"reason": "TaintManagerEviction", "message": "Marking for deletion Pod n/p"}, "taint"),
        ({"reason": "Evicted", "message": "The node was low on resource: memory."}, "ran short"),
    ],
)
def test_events_say_what_took_a_pod_that_is_gone(event: dict[str, Any], cause: str) -> None:
    gone = failures.trouble_of_ended(None, "p", 0)
    assert gone is not None
    events = [{"reason": "Started", "message": ""}, event, {"reason": "Killing", "message": "Stopping container"}]
    found = failures.of_deleted(gone, events)
    assert found.words == event["message"]
    assert cause in failures.meaning(found).cause
    assert failures.of_deleted(gone, events[:1]) == gone


def test_fields_are_those_of_the_pod() -> None:
    for name, field in (("s-scheduler-1", "cluster.scheduler_memory_mb"), ("s-1-worker-2", "cluster.memory_mb")):
        killed = pod(containerStatuses=container(terminated={"exitCode": 137, "reason": "OOMKilled"}))
        killed["metadata"]["name"] = name
        trouble = failures.trouble_of_pod(killed)
        assert trouble is not None
        assert field in failures.meaning(trouble).next_step


def test_the_log_tells_of_a_wrong_command() -> None:
    trouble = failures.trouble_of_pod(
        pod(containerStatuses=container(3, terminated={"exitCode": 2, "reason": "Error"}))
    )
    assert trouble is not None
    assert "lacks dask-cuda" in failures.meaning(trouble, "Error: No such command 'cuda'.").cause
    assert "does not know the command" in failures.meaning(trouble, "Error: No such option: --no-nanny").cause


@pytest.mark.parametrize(
    ("status", "words", "cause", "step"),
    [
        (401, "Unauthorized", "expired", "auth whoami"),
        (403, 'daskclusters is forbidden: User "u" cannot create resource', "may not", "Role"),
        (
            403,
            "unable to create new content in namespace n because it is being terminated",
            "being deleted",
            "namespace",
        ),
        (404, 'namespaces "n" not found', "no such namespace", "cluster.namespace"),
        (404, "the server could not find the requested resource", "operator is not installed", "helm install"),
        (400, 'strict decoding error: unknown field "spec.x"', "another version", "updates"),
        (403, 'admission webhook "x" denied the request: no', "policy", "change what it names"),
        (500, 'failed calling webhook "x": timeout', "does not answer", "administrator"),
        (500, "boom", "", "readyz"),
    ],
)
def test_a_request_that_was_refused(status: int, words: str, cause: str, step: str) -> None:
    error = failures.refused(status, words, "GET pods")
    assert error.status == status
    assert words in error.what
    assert cause in error.cause
    assert step in error.next_step
