"""Every reason that Kubernetes gives for a pod: each has a category of its own, or is shown as it stands.

Read from the sources of Kubernetes 1.34: `pkg/kubelet/events/event.go`, `pkg/kubelet/images/types.go`,
`pkg/kubelet/container/sync_result.go`, `pkg/kubelet/kuberuntime`, `pkg/kubelet/lifecycle`, `pkg/kubelet/eviction` and
`nodeshutdown`, `staging/src/k8s.io/api/core/v1/types.go` (conditions), and of the scheduler and the controllers of
nodes, taints and volumes. Messages are those of real clusters, shortened.
"""

from __future__ import annotations

import pytest

from scalescope.clusters.kubernetes.failures import FAILURES, Outlook, matching
from scalescope.clusters.kubernetes.pod_problems import PodProblem, explain

RESTART = "Back-off restarting failed container worker in pod x"
# Category: reasons, each with a message where it decides.
REASONS = {
    # container states and events of the kubelet
    "crashed": f"CrashLoopBackOff: {RESTART}|Error: exit code 1|Completed: exit code 0|BackOff: {RESTART}",
    "out-of-memory": "OOMKilled: exit code 137",
    "container-lost": "ContainerStatusUnknown: exit code 137, The container could not be located",
    "container-not-created": "CreateContainerConfigError: configmap is not valid|CreateContainerError: context deadline"
    "|RunContainerError: context deadline exceeded|StartError: cgroup|ContainerCannotRun: cgroup|PreStartHookError: x"
    "|PostStartHookError: x|PreCreateHookError: x|FailedPostStartHook: x|Failed: Error: context deadline exceeded",
    "container-not-ended": "KillContainerError: x|KillPodSandboxError: x|RemoveContainerError: x"
    "|FailedKillPod: open /run/x: no such file or directory|ExceededGracePeriod: x|FailedPreStopHook: x",
    "no-dask": 'StartError: exec: "dask": executable file not found in $PATH',
    "architecture": "CrashLoopBackOff: exec format error",
    "no-secret": 'CreateContainerConfigError: secret "gold" not found|FailedMount: secret "gold" not found',
    "unready": "Unhealthy: Readiness probe failed|ProbeWarning: x|Unready: its container runs",
    "node-not-synced": "FailedSync: x|FailedValidation: x|HostPortConflict: x",
    "claim": "FailedPrepareDynamicResources: x",
    # images
    "image-pull": "ErrImagePull: x|ImagePullBackOff: Back-off pulling image|BackOff: Back-off pulling image x"
    "|Failed: Failed to pull image x|Failed: Error: ErrImagePull|Failed: Error: ImagePullBackOff",
    "image-inspect": "ImageInspectError: x|InspectFailed: x",
    "image-never-pulled": "ErrImageNeverPull: x",
    "image-name": "InvalidImageName: x",
    "image-signature": "SignatureValidationFailed: x",
    "no-registry": "RegistryUnavailable: x",
    "no-pull-secret": "FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets",
    # volumes and networks
    "volume": "FailedMount: x: no such file or directory|FailedAttachVolume: x|FailedMapVolume: x|FailedBinding: x"
    "|ProvisioningFailed: x|VolumeResizeFailed: x|FileSystemResizeFailed: x",
    "pod-network": "FailedCreatePodSandBox: open /run/x: no such file or directory|CreatePodSandboxError: x"
    "|ConfigPodSandboxError: x|SandboxChanged: x|NetworkNotReady: x",
    # conditions of pods, and what the scheduler says
    "unschedulable": "Unschedulable: x|FailedScheduling: x",
    "scheduler-error": "SchedulerError: x",
    "gated": "SchedulingGated: x",
    "preempted": "PreemptionByScheduler: x|Preempted: x|Preempting: x",
    "drained": "EvictionByEvictionAPI: x",
    "node-tainted": "DeletionByTaintManager: x|TaintManagerEviction: x",
    "node-gone": "DeletionByPodGC: x",
    "node-shutdown": "TerminationByKubelet: x|Terminated: x|NodeShutdown: x|Shutdown: x",
    # pods that a node refused, evicted or lost
    "evicted": "Evicted: The node was low on resource: memory",
    "out-of-disk": "Evicted: The node was low on resource: ephemeral-storage",
    "node-refused": "UnexpectedAdmissionError: Allocate failed|OutOfcpu: x|OutOfmemory: x|OutOfpods: x|OutOfDisk: x"
    "|InsufficientFreeCPU: x|InsufficientFreeMemory: x|NodeAffinity: x|NodeName: x|NodePorts: x"
    "|TopologyAffinityError: x|NodeSelectorMismatching: x"
    "|HostNetworkNotSupported: x|AppArmor: x|PodFeatureUnsupported: x",
    "deadline": "DeadlineExceeded: x",
    "node-lost": "NodeLost: x|NodeNotReady: x|Rebooted: x",
    "deleted": "Deleted: x",
    "create-refused": "FailedCreate: x",
    "operator-not-allowed": 'FailedCreate: deployments is forbidden: User "system:serviceaccount:o:o" cannot create',
}
# Ordinary events, what only an orphaned or resized pod has, and what only nodes have.
NOT_KNOWN = (
    "Created Started Killing Pulling Pulled Scheduled SuccessfulAttachVolume SuccessfulDelete NodeReady "
    "NodeSchedulable NodeNotSchedulable Starting KubeletSetupFailed FailedDetachVolume FailedUnMount "
    "SuccessfulMountVolume NilShaper ContainerGCFailed ImageGCFailed InvalidDiskCapacity FreeDiskSpaceFailed "
    "UnfinishedPreStopHook ResizePodInPlaceError Deferred Infeasible PodFailed ContainersNotReady "
    "ContainersNotInitialized PodCompleted NewIn1Point99"
)


def rows() -> list[tuple[str, str, str]]:
    return [
        (category, reason, message)
        for category, texts in REASONS.items()
        for reason, _, message in (text.partition(": ") for text in texts.split("|"))
    ]


@pytest.mark.parametrize(("category", "reason", "message"), rows())
def test_each_reason_of_kubernetes_has_its_own_category(category: str, reason: str, message: str) -> None:
    found = matching(reason, message)
    assert found[0].category == category
    told = explain(PodProblem(reason, message, "pod"))
    assert told.category == category
    assert told.next_step


# Words that messages of other reasons may hold, and that other rows look for.
ALIKE = "open /x: no such file or directory; exec format error; nvml; executable file not found; denied; not found"


@pytest.mark.parametrize("reason", NOT_KNOWN.split())
@pytest.mark.parametrize("message", ["", ALIKE])
def test_an_unknown_reason_gets_the_category_unknown_reason(reason: str, message: str) -> None:
    assert matching(reason, message) == ()
    problem = PodProblem(reason, message, "pod")
    assert explain(problem).category == "unknown-reason"
    assert problem.outlook is Outlook.STARTING  # nobody knows that it will not run


def test_the_tested_reasons_cover_every_known_failure_of_pods() -> None:
    """A new row of the table needs a reason here, unless only its message distinguishes it."""
    by_message = {"gpu-driver", "own-secret-deleted", "no-gpu", "no-room", "no-label", "taint", "cordoned", "node-full"}
    by_message |= {"node-not-ready"}
    by_message |= {"no-claim", "no-volume", "registry-limit", "image-denied", "no-image", "disk-full"}
    pods = [row.category for row in FAILURES if not row.pattern.startswith(("^Log", "^(FailedCreate|HTTP", "^HTTP"))]
    requests = {"no-operator", "operator-silent", "two-operators", "unreachable", "credentials", "no-answer"}
    assert set(pods) - by_message - requests == set(REASONS)
