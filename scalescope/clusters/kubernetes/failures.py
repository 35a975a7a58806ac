"""What Kubernetes says, and what that means for whoever waits for workers: tables of patterns and sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from scalescope.errors import RequestRefused

Raw = Mapping[str, Any]
"""An object of Kubernetes, as its API writes it."""

R = TypeVar("R", bound=Raw)

_ROLE = "apply the Role of docs/kubernetes.md, or ask an administrator for it"
_INSTALL = (
    "an administrator installs the operator: helm install --repo https://helm.dask.org --create-namespace "
    "-n dask-operator --generate-name dask-kubernetes-operator"
)


class Explanation(NamedTuple):
    """The likely cause, and what to do."""

    cause: str
    next_step: str


class Outlook(Enum):
    """Whether what does not run now will by itself."""

    NEVER = "never"
    """Somebody has to do something."""
    HARDLY = "hardly"
    """So it is too, unless what it lacks is just being made, or is held by something that ends."""
    NEW_NODE = "new node"
    """No node that is there can hold it: only one that autoscaling adds."""
    ROOM = "room"
    """Nodes that could hold it are busy."""
    SOON = "soon"
    """It is being started."""


@dataclass(frozen=True)
class PodProblem:
    """Why a pod does not run, or why there is none.

    Attributes:
        reason: Kubernetes' word, such as `Unschedulable` or `OOMKilled`.
        words: Kubernetes' own sentence.
        what: The pod, or the Deployment that has none.
        node: Where it is, if it is anywhere.
        hope: Whether it will run by itself.
        restarts: How often its container was started again.
    """

    reason: str
    words: str
    what: str
    node: str = ""
    hope: Outlook = Outlook.SOON
    restarts: int = 0

    @property
    def from_outside(self) -> bool:
        """Whether something else ended it, of which its log says nothing."""
        return _OUTSIDE.search(self.reason) is not None

    @property
    def said(self) -> str:
        """Both."""
        return f"{self.reason}: {self.words}" if self.words else self.reason


# ------------------------------------------------------------------ requests

_POLICY = (
    "a policy of the cluster forbids it",
    "the message after `denied` is of whoever wrote the policy: change what it names, or ask an administrator",
)
_REFUSED: tuple[tuple[int | None, str, str, str], ...] = (
    (
        None,
        "failed calling webhook",
        "a webhook that has to agree does not answer",
        "an administrator looks after it: `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations`",
    ),
    (None, "denied (the )?request", *_POLICY),
    (
        401,
        "",
        "your credentials have expired, or are of another cluster",
        "log in again; `kubectl auth whoami` must work without a prompt",
    ),
    (
        403,
        "is being terminated",
        "the namespace is being deleted",
        "set `cluster.namespace` to another one, or wait until it is gone and have it made again",
    ),
    (
        403,
        "exceeded quota",
        "a quota of the namespace is used up",
        "`kubectl describe quota` shows what is used; ask for less, or for a larger quota",
    ),
    (403, "", "your account may not do this", _ROLE),
    (
        404,
        r"namespaces? .* not found",
        "there is no such namespace",
        "`kubectl get namespaces` lists them; set `cluster.namespace`",
    ),
    (404, "could not find the requested resource|page not found", "the Dask operator is not installed there", _INSTALL),
    (
        400,
        "strict decoding error|unknown field",
        "the operator's resources there are of another version than those that Scalescope writes",
        "an administrator updates the operator and its custom resource definitions; they need 2023.11 or newer",
    ),
    (422, "", "a field has a value that Kubernetes does not allow", "change what the text above names in `cluster`"),
)


def refused(status: int, words: str, where: str) -> RequestRefused:
    """The error for a request that the API server refused.

    Args:
        status: Of HTTP; 0 where there was none.
        words: The server's.
        where: The request, the server and the namespace.
    """
    known = (row[2:] for row in _REFUSED if row[0] in (None, status) and re.search(row[1], words))
    cause, step = next(known, ("", "`kubectl get --raw /readyz` shows whether the server is well"))
    said = " ".join(words.split())
    return RequestRefused(
        f"Kubernetes refused a request: {said or f'status {status}'}",
        where=where,
        cause=cause,
        next_step=step,
        status=status,
    )


def unreachable(error: BaseException, where: str) -> RequestRefused:
    """The error for a request that had no answer."""
    return RequestRefused(
        "Kubernetes does not answer",
        where=where,
        cause=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
        next_step="`kubectl cluster-info` must work from here; set `cluster.context`, or KUBECONFIG",
    )


def not_allowed(refusals: Sequence[str], where: str) -> RequestRefused:
    """The error for what this user may not do, before it is tried."""
    return RequestRefused(
        f"you may not {', '.join(refusals)}",
        where=where,
        cause="no Role that is bound to your account allows it there",
        next_step=_ROLE,
        status=403,
    )


def operator_fails(label: str, words: str, where: str) -> RequestRefused:
    """The error for a cluster of which the operator cannot make the parts.

    Args:
        label: Of the cluster.
        words: What it was told.
        where: The namespace.
    """
    cause, step = meaning(PodProblem("FailedCreate", words, label))
    return RequestRefused(
        f"the Dask operator cannot make the parts of {label}",
        where=where,
        cause=f"{cause}. It says {words}",
        next_step=step,
    )


OPERATOR_LABEL = "app.kubernetes.io/name=dask-kubernetes-operator"
"""What its chart labels the operator's Deployment with."""


def operator_not_installed(where: str) -> RequestRefused:
    """The error where nobody could make anything of a cluster."""
    return RequestRefused(
        "the Dask operator is not installed",
        where=where,
        cause="its custom resource definitions are not there",
        next_step=_INSTALL,
    )


def operator_away(where: str, operators: Sequence[Raw]) -> RequestRefused:
    """The error for a cluster of which nobody makes anything.

    Args:
        where: It was asked for.
        operators: Deployments of the operator, as far as one may see them.
    """
    seen = (
        f"its Deployment {each['metadata']['namespace']}/{each['metadata']['name']} has "
        f"{each.get('status', {}).get('readyReplicas', 0)} of {each['spec']['replicas']} pods ready"
        for each in operators
    )
    return RequestRefused(
        "the Dask operator does not react",
        where=where,
        cause="; ".join(["the operator does not run, or does not watch this namespace", *seen]),
        next_step=f"`kubectl get deployments -A -l {OPERATOR_LABEL}` must show it as ready; its log says more",
    )


def is_switched_off(operators: Sequence[Raw]) -> bool:
    """Whether there are Deployments of the operator, and none of them is to have a pod."""
    return bool(operators) and not any(each["spec"]["replicas"] for each in operators)


# ------------------------------------------------------------------ pods

_NOT_HELPFUL = re.compile(
    r"0/(\d+) nodes are available: .*preemption: 0/\1 nodes are available: \1 Preemption is not helpful"
)
"""Since Kubernetes 1.31 the scheduler says so of all nodes where none could ever hold the pod."""

_BY_ITSELF = {"Error", "Completed"}
_STARTING = {"ContainerCreating", "PodInitializing", "Pending", ""}
_UNREADY = "Unready"
DELETED = "Deleted"
"""Our word for a pod that is gone, or going, and does not say why."""

_OUTSIDE = re.compile(r"^(Delet|Evict|Preempt|Terminat|Shutdown|Node|OutOf|UnexpectedAdmission|TopologyAffinity)")
"""What came over a container from outside, so that its log says nothing of it."""

_TAKES = {"Preempted", "Evicted", "TaintManagerEviction"}
"""Events of what takes a pod away."""

_SCALING = re.compile(r"^(TriggeredScaleUp|NotTriggerScaleUp|FailedScaleUp|Nominated|FailedScheduling)$")
"""Events of autoscalers; Karpenter too says FailedScheduling."""

_PULL = r"^(ErrImagePull|ImagePullBackOff)"

# In causes and steps, `{}` is "scheduler_" where it is the scheduler's pod, for that is how its fields begin.
_MEANINGS: tuple[tuple[str, Outlook, str, str], ...] = (
    (
        r"^Unschedulable.*Insufficient nvidia\.com/gpu",
        Outlook.ROOM,
        "no node has enough GPUs that are free and fit",
        "`kubectl describe nodes` shows nvidia.com/gpu under Allocatable and Allocated; ask for fewer workers or "
        "`cluster.gpus`, or wait longer with `cluster.queue_timeout_s`",
    ),
    (
        r"^Unschedulable.*Insufficient (cpu|memory|ephemeral-storage)",
        Outlook.ROOM,
        "no node has enough CPUs, memory or disk free",
        "ask for less `cluster.{}cpu` or `cluster.{}memory_mb`, or for fewer workers; or wait longer with "
        "`cluster.queue_timeout_s`",
    ),
    (
        r"^Unschedulable.*(didn't match Pod's node (affinity|selector))",
        Outlook.ROOM,
        "nodes lack the labels that the pod asks for",
        "`kubectl get nodes --show-labels` lists them; change {}",
    ),
    (
        r"^Unschedulable.*untolerated taint",
        Outlook.ROOM,
        "nodes have a taint that the pod does not tolerate",
        "`kubectl describe nodes` shows Taints; add one to `cluster.{}tolerations`, but not node.kubernetes.io/..., "
        "which a node has that is not well",
    ),
    (
        r"^Unschedulable.*(were|was) unschedulable",
        Outlook.ROOM,
        "nodes are cordoned, as for an upgrade",
        "`kubectl get nodes` shows SchedulingDisabled; wait, or ask an administrator",
    ),
    (
        r"^Unschedulable.*Too many pods",
        Outlook.ROOM,
        "nodes have as many pods as they may",
        "ask for fewer workers, with more threads each",
    ),
    (
        r"^Unschedulable.*(persistentvolumeclaim|volume node affinity|PersistentVolume)",
        Outlook.ROOM,
        "a volume that a policy adds to the pod is missing, or elsewhere",
        "`kubectl get persistentvolumeclaims` shows it; ask an administrator",
    ),
    (
        r"^SchedulingGated",
        Outlook.ROOM,
        "something holds the pod back with a scheduling gate, such as a queue for jobs",
        "`kubectl get pod POD -o jsonpath={.spec.schedulingGates}` names it; wait longer with "
        "`cluster.queue_timeout_s`",
    ),
    (r"^Unschedulable", Outlook.ROOM, "no node can take the pod now", "`kubectl describe pod POD` says more"),
    (
        r"^FailedCreate.*exceeded quota",
        Outlook.HARDLY,
        "a quota of the namespace is used up",
        "`kubectl describe quota` shows what is used; ask for less, or for a larger quota",
    ),
    (
        r"^FailedCreate.*(must specify|failed quota)",
        Outlook.HARDLY,
        "a quota of the namespace wants a request or limit that the pod lacks",
        "give `cluster.{}memory_mb` a number; for others, an administrator sets a default with a LimitRange",
    ),
    (
        r"^FailedCreate.*PodSecurity",
        Outlook.HARDLY,
        "the namespace's pod security standard forbids the pod",
        "`kubectl get namespaces --show-labels` shows it; set `cluster.namespace` to one that allows it",
    ),
    (
        r"^FailedCreate.*((maximum|minimum) (cpu|memory)|LimitRange)",
        Outlook.HARDLY,
        "a limit range of the namespace does not allow a pod of that size",
        "`kubectl describe limitrange` shows it; change `cluster.{}cpu` or `cluster.{}memory_mb`",
    ),
    (
        r"^FailedCreate.*serviceaccount",
        Outlook.HARDLY,
        "there is no such service account",
        "`kubectl get serviceaccounts` lists them; set `cluster.service_account`",
    ),
    (
        r"^FailedCreate.*PriorityClass",
        Outlook.HARDLY,
        "there is no such priority class",
        "`kubectl get priorityclasses` lists them; set `cluster.priority_class`",
    ),
    (
        r"^FailedCreate.*failed calling webhook",
        Outlook.HARDLY,
        "a webhook that has to agree does not answer",
        "an administrator looks after it",
    ),
    (r"^FailedCreate.*denied (the )?request", Outlook.HARDLY, *_POLICY),
    (r"^FailedCreate", Outlook.HARDLY, "Kubernetes does not let it be created", "change what the text above names"),
    (
        _PULL + r".*(toomanyrequests|429)",
        Outlook.SOON,
        "the registry gives no more for a while",
        "set `cluster.pull_secrets` to a secret with the registry's credentials, or use a mirror",
    ),
    (
        _PULL + r".*(unauthorized|denied|authentication required|forbidden|401|403)",
        Outlook.NEVER,
        "the registry does not let this namespace have the image, or there is none of that name",
        "set `cluster.pull_secrets` to a secret with the registry's credentials; check `cluster.image`",
    ),
    (
        _PULL + r".*(not found|manifest unknown|no match for platform)",
        Outlook.NEVER,
        "the registry has no such image, or none for these nodes' processors",
        "check `cluster.image`: name, tag and architecture",
    ),
    (
        _PULL + r".*(connection refused|no such host|x509|HTTP response to HTTPS)",
        Outlook.HARDLY,
        "the nodes do not reach the registry, or do not trust it",
        "check the registry's name in `cluster.image`; without one it is that of the nodes' runtime",
    ),
    (
        _PULL + r".*no space left",
        Outlook.HARDLY,
        "the node's disk is full",
        "`kubectl describe node NODE` shows DiskPressure and ephemeral-storage; ask an administrator",
    ),
    (
        _PULL,
        Outlook.SOON,
        "the node cannot pull the image",
        "check that nodes reach the registry and that `cluster.image` is right; `kubectl describe pod POD` says more",
    ),
    (
        r"^ErrImageNeverPull",
        Outlook.NEVER,
        "the image is not on the node, and may not be pulled there",
        "load it on every node, or set `cluster.image` to one of a registry",
    ),
    (r"^InvalidImageName", Outlook.NEVER, "this is no name of an image", "check `cluster.image`"),
    (
        r"^(CreateContainerConfigError|FailedMount).*(secret|configmap) .*scalescope-[0-9a-f]{12}.* not found",
        Outlook.HARDLY,
        "the secret that was made for this cluster is gone: somebody deleted it",
        "`kubectl get events` may say who; run again",
    ),
    (
        r"^(CreateContainerConfigError|FailedMount).*(secret|configmap).*not found",
        Outlook.HARDLY,
        "a secret that the pod uses is not there",
        "`kubectl get secrets` lists them; check `cluster.environment_secrets`",
    ),
    (
        r"^(FailedMount|FailedAttachVolume|FailedMapVolume)",
        Outlook.SOON,
        "the node cannot get at a volume of the pod",
        "`kubectl describe pod POD` says more; ask an administrator",
    ),
    (
        r"^(FailedCreatePodSandBox|NetworkNotReady)",
        Outlook.SOON,
        "the node cannot give the pod a network, for instance because it has no address left",
        "`kubectl describe node NODE` shows its state; ask an administrator",
    ),
    (
        r"nvidia-container|nvml|libnvidia|nvidia driver|NVIDIA_VISIBLE|CDI device",
        Outlook.NEVER,
        "the node's NVIDIA driver or container toolkit does not work",
        "an administrator looks at the pods of the GPU operator on NODE; keep off that node meanwhile, with "
        "`cluster.node_selector`",
    ),
    (
        r"exec format error",
        Outlook.NEVER,
        "the image is for another kind of processor than the node's",
        "use an image for it, or nodes with the label kubernetes.io/arch of the image, with `cluster.{}node_selector`",
    ),
    (
        r"executable file not found|no such file or directory",
        Outlook.NEVER,
        "the image has no program `dask`",
        "set `cluster.image` to one with dask and distributed installed, and with its programs on PATH",
    ),
    (
        r"^OOMKilled|exit code 137",
        Outlook.NEVER,
        "it used more memory than its limit",
        "raise `cluster.{}memory_mb`, or give it less to hold",
    ),
    (
        r"^Evicted.*(ephemeral|EmptyDir|disk|nodefs|imagefs|inodes)",
        Outlook.HARDLY,
        "it used more disk than it may, or its node ran short of it",
        "write less to /tmp and into spilled memory; `kubectl describe limitrange` shows the limit, `kubectl describe "
        "node NODE` a DiskPressure",
    ),
    (
        r"^Evicted",
        Outlook.HARDLY,
        "its node ran short of memory or of something else, and put it out",
        "request what it uses: raise `cluster.{}memory_mb`; `kubectl describe node NODE` shows the pressure",
    ),
    (
        r"^Preempt",
        Outlook.HARDLY,
        "a pod of higher priority took its place",
        "set `cluster.priority_class` to a higher one, or run again when there is room",
    ),
    (
        r"^EvictionByEvictionAPI",
        Outlook.HARDLY,
        "its node is drained: by an administrator, an upgrade, an autoscaler, or as a spot node that is reclaimed",
        "`kubectl get nodes` shows NODE as SchedulingDisabled or gone; run again, or keep off spot nodes with "
        "`cluster.{}node_selector`",
    ),
    (
        r"^(TerminationByKubelet|Terminated|NodeShutdown|Shutdown)",
        Outlook.HARDLY,
        "its node shuts down: reclaimed as a spot node, upgraded or restarted",
        "run again, or keep off spot nodes with `cluster.{}node_selector`",
    ),
    (
        r"^(DeletionByTaintManager|TaintManagerEviction)",
        Outlook.HARDLY,
        "its node got a taint that the pod does not tolerate: it is reclaimed as a spot node, or does not answer",
        "`kubectl describe node NODE` shows it; run again, or keep off spot nodes with `cluster.{}node_selector`",
    ),
    (
        r"^DeletionByPodGC",
        Outlook.HARDLY,
        "its node was taken out of the cluster, as when a spot node is reclaimed",
        "run again, or keep off spot nodes with `cluster.{}node_selector`",
    ),
    (
        r"^(UnexpectedAdmissionError|OutOf|NodeAffinity|NodeName|NodePorts|TopologyAffinityError)",
        Outlook.HARDLY,
        "the node refused the pod that was sent there: what it had promised is gone or broken, often a GPU",
        "`kubectl describe node NODE` shows what it has; an administrator looks at its device plugin",
    ),
    (
        r"^DeadlineExceeded",
        Outlook.NEVER,
        "a policy gave the pod a time limit, which is over",
        "ask an administrator; run for a shorter time",
    ),
    (
        r"^Deleted",
        Outlook.HARDLY,
        "somebody deleted it, or the operator removed the cluster as idle",
        "`kubectl get events` says more; raise `cluster.idle_timeout_s` if trials wait for long",
    ),
    (
        r"^NodeLost",
        Outlook.HARDLY,
        "its node does not answer any more; Kubernetes says Running of its pods all the same",
        "`kubectl get nodes` shows NODE as NotReady; run again without it",
    ),
    (
        r"^(CrashLoopBackOff|Error|Completed|StartError|ContainerCannotRun|RunContainerError|CreateContainer\w*)",
        Outlook.NEVER,
        "its process ended by itself",
        "read its last words above; where it never starts, try `docker run IMAGE dask worker --version`",
    ),
)

_LOGS: tuple[tuple[str, str, str], ...] = (
    (
        r"dask: (command )?not found",
        "the image has no program `dask`",
        "use an image with dask and distributed installed",
    ),
    (
        r"cannot open shared object file",
        "the image lacks a library of the system",
        "install it in the image, or use another one",
    ),
    (r"No module named", "the image lacks a package", "use an image with the packages of the driver"),
    (
        r"No such command 'cuda'",
        "the image lacks dask-cuda",
        "use an image with dask-cuda for the workers with GPUs, or leave `cluster.cuda` out",
    ),
    (
        r"No such (command|option)|Usage: .*dask",
        "the image's version of Dask does not know the command",
        "use an image with the driver's version of distributed",
    ),
    (
        r"Timed out trying to connect|Connection refused|Name or service not known|Could not connect|failed to connect",
        "it does not reach the scheduler",
        "a network policy or a service mesh may be between them, for which there is `cluster.tls`; the cluster's DNS "
        "must know services",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|\[SSL",
        "scheduler and worker do not trust each other's certificates",
        "the clocks of the nodes must be right; a service mesh may be between them, for which there is `cluster.tls`",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        "the node's disk is full",
        "`kubectl describe node NODE` shows ephemeral-storage",
    ),
    (
        r"Permission denied|PermissionError",
        "user 1000 may not read or write something",
        "change its rights in the image",
    ),
)
"""What the log of a container that ended by itself says: pattern, cause, next step."""


def meaning(trouble: PodProblem, log: str = "") -> Explanation:
    """What a trouble comes from, and what to do about it.

    Args:
        trouble: Of a pod.
        log: The end of its log.
    """
    told = [row[1:] for row in _LOGS if trouble.reason in _BY_ITSELF and re.search(row[0], log)]
    told += [row[2:] for row in _MEANINGS if re.search(row[0], trouble.said, re.IGNORECASE)]
    if trouble.reason == "Unschedulable" and len(told) > 1:  # nodes have several reasons, and the last row has none
        told = [("; ".join(row[0] for row in told[:-1]), "; or ".join(row[1] for row in told[:-1]))]
    cause, step = told[0] if told else ("", "`kubectl describe pod POD` says more")
    if is_scheduler(trouble.what):
        step = step.replace("change {}", "change `cluster.scheduler_node_selector`").replace("{}", "scheduler_")
    step = step.replace("change {}", "change `cluster.gpu_product` or `cluster.node_selector`").replace("{}", "")
    return Explanation(cause, step.replace("POD", trouble.what).replace("NODE", trouble.node or "its node"))


def is_scheduler(name: str) -> bool:
    """Whether a pod or Deployment is the scheduler's."""
    return "-scheduler" in name


def trouble_of_pod(pod: Raw) -> PodProblem | None:
    """Why a pod does not run; None where it does."""
    status, name = pod.get("status", {}), pod["metadata"]["name"]
    node = pod.get("spec", {}).get("nodeName", "")
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    disrupted = conditions.get("DisruptionTarget", {})
    if status.get("phase") == "Failed":
        reason = status.get("reason") or disrupted.get("reason") or "Error"
        return _trouble(reason, status.get("message") or disrupted.get("message", ""), name, node)
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return _trouble(scheduled.get("reason", ""), scheduled.get("message", ""), name, node)
    containers = status.get("containerStatuses", ())
    for each in containers:
        if found := _trouble_of_container(each, name, node):
            return found
    ready = conditions.get("Ready", {})
    if ready.get("status") == "True":
        return None
    if containers and all(each.get("ready") for each in containers):
        return _trouble("NodeLost", ready.get("message", ""), name, node)
    if containers and all("running" in each.get("state", {}) for each in containers):
        return _trouble(_UNREADY, "its container runs, and does not answer its probe", name, node)
    return _trouble(status.get("phase", ""), "its container starts", name, node)


def trouble_of_ended(pod: Raw | None, name: str, count: int) -> PodProblem | None:
    """Why a pod that ran does so no more; None where it still does.

    Args:
        pod: As it is now; None where it is gone.
        name: Of the pod.
        count: How often its containers had been started again while it ran.
    """
    if pod is None:
        return _trouble(DELETED, "the pod is not there any more", name, "")
    node = pod.get("spec", {}).get("nodeName", "")
    if "deletionTimestamp" in pod["metadata"]:
        disrupted = [each for each in pod["status"].get("conditions", ()) if each["type"] == "DisruptionTarget"]
        reason, words = (disrupted[0].get("reason", ""), disrupted[0].get("message", "")) if disrupted else ("", "")
        return _trouble(reason or DELETED, words or "the pod is being deleted", name, node)
    trouble = trouble_of_pod(pod)
    if trouble is not None and trouble.reason != _UNREADY:  # a scheduler that has much to do
        return trouble
    if restarts(pod) == count:
        return None
    for each in pod["status"]["containerStatuses"]:
        if found := _trouble_of_container({**each, "state": each.get("lastState", {})}, name, node):
            return found
    return None


def trouble_of_deployment(deployment: Raw) -> PodProblem | None:
    """Why a Deployment has no pod, where it is not allowed to have one: only here does Kubernetes tell."""
    for each in deployment.get("status", {}).get("conditions", ()):
        if each["type"] == "ReplicaFailure" and each["status"] == "True":
            return _trouble(each.get("reason", ""), each.get("message", ""), deployment["metadata"]["name"], "")
    return None


def of_deleted(trouble: PodProblem, events: Sequence[Raw]) -> PodProblem:
    """The trouble of a pod that is gone, with what events say took it.

    Args:
        trouble: Of a pod that was not looked at while it was being deleted.
        events: Of this pod, the oldest first.
    """
    told = [each for each in events if each["reason"] in _TAKES]
    if not told:
        return trouble
    return _trouble(told[-1]["reason"], told[-1].get("message", ""), trouble.what, trouble.node)


def explained(trouble: PodProblem, events: Sequence[Raw]) -> PodProblem:
    """The trouble of a pod, with what is told in events alone: of volumes and networks, and by autoscalers.

    Args:
        trouble: Of a pod.
        events: Of this pod, the oldest first.
    """
    if trouble.reason in (*_STARTING, _UNREADY) and events and events[-1].get("type") == "Warning":
        last = events[-1]
        return _trouble(last["reason"], last.get("message", ""), trouble.what, trouble.node, trouble.restarts)
    scaling = [
        each for each in events if _SCALING.search(each["reason"]) and _event_source(each) != "default-scheduler"
    ]
    if trouble.hope in (Outlook.ROOM, Outlook.NEW_NODE) and scaling:
        told = f"{_event_source(scaling[-1])} says {scaling[-1]['reason']}: {scaling[-1].get('message', '')}"
        return replace(trouble, words=f"{trouble.words} {told}")
    return trouble


def _event_source(event: Raw) -> str:
    return str(event.get("reportingComponent") or event.get("source", {}).get("component", ""))


def lost_node(trouble: PodProblem, node: Raw) -> PodProblem:
    """The trouble of a pod that is being started, where its node does not answer."""
    conditions = node.get("status", {}).get("conditions", ())
    wrong = [each for each in conditions if each["type"] == "Ready" and each["status"] != "True"]
    return _trouble("NodeLost", wrong[0].get("message", ""), trouble.what, trouble.node) if wrong else trouble


def without_replaced(pods: Sequence[R]) -> list[R]:
    """Pods without those that failed and have a successor: a ReplicaSet makes another one, and keeps both."""

    def owner(pod: R) -> str:
        owners = pod["metadata"].get("ownerReferences")
        return str(owners[0]["uid"] if owners else pod["metadata"]["name"])

    alive = {owner(pod) for pod in pods if pod.get("status", {}).get("phase") != "Failed"}
    return [pod for pod in pods if pod.get("status", {}).get("phase") != "Failed" or owner(pod) not in alive]


_NOTES = re.compile(r"kopf\.zalando\.org/dask(cluster_create|workergroup)_")
_REFUSAL = re.compile("forbidden|denied|invalid")


def operator_words(resources: Sequence[Raw]) -> str:
    """Why the operator could not make the parts of a cluster, as it notes at custom resources; empty where it could.

    What Kubernetes refuses comes first. Anything else may be better when it tries again, a minute later: where it is
    refused something of another cluster, kr8s 0.20 breaks off what it asks for ours, an error without words.
    """
    notes = [
        json.loads(value)
        for each in resources
        for name, value in each.get("metadata", {}).get("annotations", {}).items()
        if _NOTES.match(name)
    ]
    failed = [str(note.get("message", "")) for note in notes if note.get("retries") and not note.get("success")]
    words = [" ".join(each.split()) or "a request was broken off" for each in failed]
    return next(filter(is_refusal, words), words[0] if words else "")


def is_refusal(words: str) -> bool:
    """Whether words of the operator are those of a Kubernetes that does not want."""
    return _REFUSAL.search(words) is not None


def restarts(pod: Raw) -> int:
    """How often the containers of a pod were started again."""
    return sum(each.get("restartCount", 0) for each in pod.get("status", {}).get("containerStatuses", ()))


def _trouble_of_container(container: Raw, name: str, node: str) -> PodProblem | None:
    state, count = container.get("state", {}), container.get("restartCount", 0)
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated")
    waiting = state.get("waiting")
    if waiting is not None and (ended is None or waiting.get("reason") not in ("CrashLoopBackOff", *_STARTING)):
        return _trouble(waiting.get("reason", ""), waiting.get("message", ""), name, node, count)
    if ended is not None and "running" not in state:
        words = f"exit code {ended.get('exitCode')}" + (f", {ended['message']}" if ended.get("message") else "")
        return _trouble(ended.get("reason", "Error"), words, name, node, count)
    return None


def _trouble(reason: str, words: str, what: str, node: str, count: int = 0) -> PodProblem:
    found = PodProblem(reason, " ".join(words.split()), what, node, restarts=count)
    return replace(found, hope=_hope(found))


def _hope(trouble: PodProblem) -> Outlook:
    if trouble.reason in _STARTING:
        return Outlook.SOON
    if trouble.reason in _BY_ITSELF and not trouble.restarts:
        return Outlook.SOON  # it is started again; the second end tells
    hope = next(
        (hope for pattern, hope, _, _ in _MEANINGS if re.search(pattern, trouble.said, re.IGNORECASE)), Outlook.SOON
    )
    return Outlook.NEW_NODE if hope is Outlook.ROOM and _NOT_HELPFUL.search(trouble.said) else hope
