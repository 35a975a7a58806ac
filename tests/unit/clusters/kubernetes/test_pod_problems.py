"""How messages of a real Kubernetes 1.34 are classified and explained."""

from __future__ import annotations

from typing import Any

import pytest

from scalescope.clusters.kubernetes.failures import FAILURES, Outlook, refusal
from scalescope.clusters.kubernetes.pod_problems import (
    PodProblem,
    explain,
    problem_of_deployment,
    problem_of_ended,
    problem_of_pod,
    with_events,
)


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": status}


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def container(restarts: int = 0, **state: Any) -> list[dict[str, Any]]:
    ended = {"lastState": {"terminated": state.pop("last")}} if "last" in state else {}
    return [{"restartCount": restarts, "ready": "running" in state, "state": state, **ended}]


def unschedulable(message: str) -> dict[str, Any]:
    return pod(phase="Pending", conditions=[condition("PodScheduled", "False", "Unschedulable", message)])


def waits(reason: str, message: str = "") -> dict[str, Any]:
    return pod(phase="Pending", containerStatuses=container(waiting={"reason": reason, "message": message}))


def ended(reason: str, code: int, restarts: int = 0) -> dict[str, Any]:
    return pod(containerStatuses=container(restarts, terminated={"exitCode": code, "reason": reason}))


def failed(reason: str, message: str) -> dict[str, Any]:
    return pod(phase="Failed", reason=reason, message=message)


def disrupted(reason: str, message: str) -> dict[str, Any]:
    found = pod(**{**RUNS, "conditions": [condition("DisruptionTarget", "True", reason, message)]})
    return {**found, "metadata": {"name": "p", "deletionTimestamp": "now"}}


RUNS = {"phase": "Running", "conditions": [condition("Ready", "True")], "containerStatuses": container(running={})}
SILENT = {**RUNS, "conditions": [condition("Ready", "False")]}
CRASHES = container(2, waiting={"reason": "CrashLoopBackOff"}, last={"exitCode": 1, "reason": "Error"})
BUSY = (
    "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available: 2 No preemption "
    "victims found for incoming pod."
)
NO_NODE = (
    "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
    "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)
TAINT = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {spot: true}."
CORDONED = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Too many pods."
PULL = 'Back-off pulling image "a:b": ErrImagePull: failed to resolve reference "a:b": a:b: not found'
NVIDIA = (
    "failed to create containerd task: OCI runtime create failed: error running prestart hook #0: stderr: "
    "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object "
    "file: no such file or directory: unknown"
)
QUOTA = 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3'


def test_a_running_pod_has_no_problem() -> None:
    assert problem_of_pod(pod(**RUNS)) is None
    assert problem_of_ended(pod(**RUNS), "p", 0) is None
    assert problem_of_deployment({"metadata": {"name": "d"}, "status": {}}) is None


@pytest.mark.parametrize(
    ("found", "outlook", "category"),
    [
        (unschedulable(BUSY), Outlook.ROOM, "no-gpu"),
        (unschedulable(NO_NODE), Outlook.NEW_NODE, "no-label"),
        (unschedulable(TAINT), Outlook.ROOM, "no-room"),
        (unschedulable(CORDONED), Outlook.ROOM, "cordoned"),
        (unschedulable('persistentvolumeclaim "scratch" not found.'), Outlook.UNLIKELY, "no-claim"),
        (unschedulable("pod has unbound immediate PersistentVolumeClaims."), Outlook.ROOM, "no-volume"),
        (waits("ContainerCreating"), Outlook.STARTING, ""),
        (waits("ImagePullBackOff", PULL), Outlook.MUST_ACT, "no-image"),
        (waits("ErrImagePull", "pull access denied"), Outlook.MUST_ACT, "image-denied"),
        (waits("ErrImagePull", "dial tcp: i/o timeout"), Outlook.STARTING, "image-pull"),
        (waits("ImagePullBackOff", "toomanyrequests: your pull rate limit"), Outlook.STARTING, "registry-limit"),
        (waits("ErrImagePull", "x509: unknown authority"), Outlook.UNLIKELY, "no-registry"),
        (waits("ErrImageNeverPull", 'Container image "a" is not present'), Outlook.MUST_ACT, "image-never-pulled"),
        (waits("RunContainerError", 'exec: "dask": executable file not found'), Outlook.MUST_ACT, "no-dask"),
        (waits("RunContainerError", NVIDIA), Outlook.MUST_ACT, "gpu-driver"),
        (waits("StartError", 'exec: "dask": exec format error'), Outlook.MUST_ACT, "architecture"),
        (waits("CreateContainerConfigError", 'secret "s3" not found'), Outlook.UNLIKELY, "no-secret"),
        (pod(containerStatuses=CRASHES), Outlook.MUST_ACT, "crashed"),
        (ended("Error", 1), Outlook.STARTING, "crashed"),
        (ended("OOMKilled", 137), Outlook.MUST_ACT, "out-of-memory"),
        (failed("Evicted", "The node was low on resource: memory."), Outlook.UNLIKELY, "evicted"),
        (failed("Evicted", "Pod ephemeral local storage usage exceeds"), Outlook.UNLIKELY, "out-of-disk"),
        (failed("UnexpectedAdmissionError", "no healthy devices present"), Outlook.UNLIKELY, "node-refused"),
        (failed("NodeAffinity", "Predicate NodeAffinity failed"), Outlook.UNLIKELY, "node-refused"),
        (failed("OutOfnvidia.com/gpu", "Node didn't have enough resource"), Outlook.UNLIKELY, "node-refused"),
        (failed("Terminated", "imminent node shutdown."), Outlook.UNLIKELY, "node-shutdown"),
        (failed("Shutdown", "Node is shutting, evicting pods"), Outlook.UNLIKELY, "node-shutdown"),
        (failed("DeadlineExceeded", "active longer than allowed"), Outlook.MUST_ACT, "deadline"),
        (pod(**SILENT), Outlook.UNLIKELY, "node-lost"),
    ],
)
def test_a_pod_that_does_not_run_gets_its_category_and_the_chance_that_waiting_helps(
    found: dict[str, Any], outlook: Outlook, category: str
) -> None:
    problem = problem_of_pod(found)
    assert problem is not None
    assert (problem.outlook, explain(problem).category) == (outlook, category)


def test_a_disrupted_pod_gets_the_category_of_its_disruption() -> None:
    categories = {
        "TerminationByKubelet": "node-shutdown",
        "DeletionByTaintManager": "node-tainted",
        "DeletionByPodGC": "node-gone",
        "EvictionByEvictionAPI": "drained",
        "PreemptionByScheduler": "preempted",
    }
    problems = [problem_of_ended(disrupted(reason, "in its words"), "p", 0) for reason in categories]
    assert [str(each) for each in problems] == [f"{reason}: in its words" for reason in categories]
    assert [explain(each).category for each in problems if each] == list(categories.values())


@pytest.mark.parametrize(
    ("message", "category"),
    [
        (QUOTA, "quota"),
        ('violates PodSecurity "restricted:latest"', "pod-security"),
        ("maximum memory usage per Container is 1Gi, but limit is 2Gi", "limit-range"),
        ('error looking up service account n/a: serviceaccount "a" not found', "no-service-account"),
        ("no PriorityClass with name a was found", "no-priority-class"),
        ('admission webhook "x" denied the request: no', "policy"),
        ('failed calling webhook "x": timeout', "webhook-silent"),
        ("boom", "create-refused"),
    ],
)
def test_a_deployment_that_makes_no_pod_gets_its_category(message: str, category: str) -> None:
    status = {"conditions": [condition("ReplicaFailure", "True", "FailedCreate", message)]}
    problem = problem_of_deployment({"metadata": {"name": "d"}, "status": status})
    assert problem == PodProblem("FailedCreate", message, "d")
    assert problem.outlook is Outlook.UNLIKELY
    assert explain(problem).category == category


def test_a_container_that_restarted_or_vanished_is_explained() -> None:
    killed = container(1, running={}, last={"exitCode": 137, "reason": "OOMKilled"})
    again = pod(**{**RUNS, "containerStatuses": killed})
    assert problem_of_pod(again) is None
    assert str(problem_of_ended(again, "p", 0)) == "OOMKilled: exit code 137"
    assert problem_of_ended(again, "p", 1) is None
    gone = problem_of_ended(None, "p", 0)
    assert gone is not None
    assert explain(gone).category == "deleted"


def test_all_reasons_of_the_nodes_that_refuse_a_pod_are_explained() -> None:
    problem = problem_of_pod(unschedulable(TAINT))
    assert problem is not None
    told = explain(problem)
    for category in ("no-room", "taint"):
        [row] = [each for each in FAILURES if each.category == category]
        assert row.cause in told.cause
        assert row.next_step.replace("{}", "") in told.next_step


@pytest.mark.parametrize(
    ("reason", "category"),
    [("Preempted", "preempted"), ("TaintManagerEviction", "node-tainted"), ("Evicted", "evicted")],
)
def test_events_explain_why_a_pod_is_gone(reason: str, category: str) -> None:
    gone = problem_of_ended(None, "p", 0)
    assert gone is not None
    events = [{"reason": each, "message": f"{each} by n"} for each in ("Started", reason, "Killing")]
    found = with_events(gone, events)
    assert (found.message, explain(found).category) == (f"{reason} by n", category)
    assert with_events(gone, events[:1]) == gone


def test_a_starting_pod_is_explained_by_its_last_warning_unless_its_status_will_tell_more() -> None:
    starting = PodProblem("ContainerCreating", "its container starts", "p")
    told = {"type": "Warning", "reason": "FailedMount", "message": "m"}
    failed = {"type": "Warning", "reason": "Failed", "message": 'Error: secret "s" not found'}
    assert with_events(starting, [told]).reason == "FailedMount"
    assert with_events(starting, [told, failed]) == starting


def test_a_denied_image_is_explained_by_a_missing_pull_secret() -> None:
    denied = PodProblem("ErrImagePull", "401 Unauthorized", "p")
    events = [{"type": "Warning", "reason": "FailedToRetrieveImagePullSecret", "message": "Unable (nothing)"}]
    found = with_events(denied, [*events, {"type": "Warning", "reason": "Failed", "message": "m"}])
    assert (explain(denied).category, explain(found).category) == ("image-denied", "no-pull-secret")
    assert "401" in found.message
    assert with_events(denied, []) == denied


def test_a_cancelled_eviction_is_not_given_as_the_reason_why_a_pod_is_gone() -> None:
    """The taint manager says this when somebody else deletes a pod that it watched."""
    gone = PodProblem("Deleted", "the pod is being deleted", "p")
    event = {"reason": "TaintManagerEviction", "message": "Cancelling deletion of Pod team/p"}
    assert with_events(gone, [event]) == gone


def test_the_next_step_names_the_memory_field_of_the_pod_in_question() -> None:
    for name, field in (("s-scheduler-1", "cluster.scheduler_memory_mb"), ("s-1-worker-2", "cluster.memory_mb")):
        assert field in explain(PodProblem("OOMKilled", "exit code 137", name)).next_step


@pytest.mark.parametrize(
    ("log", "category"),
    [
        ("Usage: dask [OPTIONS]\nError: No such command 'cuda'.", "no-dask-cuda"),
        ("Error: No such option: --no-nanny", "old-dask"),
        ("ModuleNotFoundError: No module named 'dask'", "no-package"),
        ("OSError: Timed out trying to connect to tls://s:8786", "no-connection"),
        ("exec /usr/local/bin/dask: exec format error", "architecture"),
        ("nothing known", "crashed"),
        ("", "crashed"),
    ],
)
def test_the_log_of_a_pod_gives_the_category_of_its_end(log: str, category: str) -> None:
    assert explain(PodProblem("Error", "exit code 2", "p", "n1", 3), log).category == category


@pytest.mark.parametrize(
    ("status", "words", "category"),
    [
        (401, "Unauthorized", "credentials"),
        (403, 'daskclusters is forbidden: User "u" cannot create resource', "not-allowed"),
        (403, "unable to create new content in namespace n because it is being terminated", "namespace-ending"),
        (403, QUOTA, "quota"),
        (404, 'namespaces "n" not found', "no-namespace"),
        (404, "the server could not find the requested resource", "no-operator"),
        (400, 'strict decoding error: unknown field "spec.x"', "operator-version"),
        (403, 'admission webhook "x" denied the request: no', "policy"),
        (500, 'failed calling webhook "x": timeout', "webhook-silent"),
        (500, "boom", "request-failed"),
    ],
)
def test_a_refused_request_gets_its_category_and_next_step(status: int, words: str, category: str) -> None:
    error = refusal(f"Kubernetes refused: {words}", "GET pods", f"HTTP {status}", words, status=status)
    assert (error.status, error.category) == (status, category)
    assert error.next_step
    assert "{}" not in error.next_step
