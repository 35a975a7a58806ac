"""Failures on Kubernetes: the pattern, category, likely cause and next step of each."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from scalescope.errors import RequestRefused


class Outlook(Enum):
    """Whether a pod that does not run will start by itself; from worst to best."""

    MUST_ACT = "somebody must act"
    UNLIKELY = "somebody must act, unless the missing object is being created or another pod is about to free it"
    NEW_NODE = "only a node that autoscaling adds can hold it"
    ROOM = "nodes that could hold it are busy"
    STARTING = "it is being started"


class Failure(NamedTuple):
    """A kind of failure. In `next_step`, {} stands for `scheduler_` or nothing, POD for the pod, NODE for its node."""

    category: str
    outlook: Outlook
    pattern: str
    cause: str
    next_step: str


MUST_ACT, UNLIKELY, ROOM, STARTING = Outlook.MUST_ACT, Outlook.UNLIKELY, Outlook.ROOM, Outlook.STARTING
_ASK = r"^(FailedCreate|HTTP \d+): .*"  # Kubernetes refuses to create a pod or another object
_START = (
    "^(CrashLoopBackOff|Error|Failed|StartError|ContainerCannotRun|RunContainerError|CreateContainerError|"
    "UnexpectedAdmissionError): .*"
)
_PULL = r"^(ErrImagePull|ImagePullBackOff).*"
_SPOT = "run again, or keep the pods off spot nodes with `cluster.{}node_selector`"
_ROLE = "apply the Role of docs/kubernetes.md, or ask an administrator for it"
_PROCESSOR = (
    "set `cluster.image` to one for that processor, or `cluster.{}node_selector` to the image's kubernetes.io/arch=ARCH"
)
WEBHOOK_SILENT, CREDENTIALS = "webhook-silent", "credentials"  # categories
OPERATOR_LABEL = "app.kubernetes.io/name=dask-kubernetes-operator"  # label of the Deployment in the operator's chart

# The first row whose pattern is found in "REASON: MESSAGE" (ignoring case) names the category. REASON is Kubernetes's
# own word, `HTTP STATUS` for a refused request, `Log` for a line of a container's log, or one of our own words.
# fmt: off
FAILURES = tuple(Failure(*row) for row in (
    # ---- the log of a container that ended by itself
    ("no-dask", MUST_ACT, r"^Log: .*dask: (command )?not found",
     "the image has no program `dask`",
     "set `cluster.image` to one with dask and distributed installed, and their programs on PATH"),
    ("no-system-library", MUST_ACT, r"^Log: .*cannot open shared object file",
     "the image lacks a system library", "set `cluster.image` to one that has this library"),
    ("no-package", MUST_ACT, r"^Log: .*No module named",
     "the image lacks a Python package", "set `cluster.image` to one with the packages of the driver"),
    ("no-dask-cuda", MUST_ACT, r"^Log: .*No such command 'cuda'",
     "the image lacks dask-cuda",
     "set `cluster.image` to one with dask-cuda for the workers with GPUs, or leave `cluster.cuda` out"),
    ("old-dask", MUST_ACT, r"^Log: .*(No such (command|option)|Usage: .*dask)",
     "the image's version of Dask does not know the command",
     "set `cluster.image` to one with the driver's version of distributed"),
    ("architecture", MUST_ACT, "^Log: .*exec format error",
     "the image is for another kind of processor than the node's", _PROCESSOR),
    # connection errors, most specific first; negative numbers are from getaddrinfo(3)
    ("no-name", MUST_ACT, r"^Log: .*(\[Errno -\d+\]|gaierror|(Name or service|nodename nor servname).* not known|"
     r"in name resolution|No address associated|Name (does not resolve|has no usable address))",
     "the pod cannot look up the scheduler's name: the cluster's DNS does not answer, or does not know the service",
     "`kubectl get services` must show the scheduler's service, `kubectl get pods -n kube-system -l k8s-app=kube-dns` "
     "must show ready pods; if not, ask an administrator"),
    ("no-trust", MUST_ACT, r"^Log: .*(CERTIFICATE_VERIFY_FAILED|SSL\w*Error|\[SSL|TLSV?1?_?ALERT)",
     "scheduler and worker do not trust each other's certificates",
     "check the clocks of the nodes; behind a service mesh, set `cluster.tls` to false"),
    ("no-route", MUST_ACT, r"^Log: .*(\[Errno (100|101|112|113)\]|Network is (unreachable|down)|"
     "No route to host|Host is down)",
     "no network route leads from the pod's node to the scheduler",
     "ask an administrator to look at the pod network of NODE: `kubectl get pods -n kube-system -o wide`"),
    ("no-connection", MUST_ACT, r"^Log: .*(\[Errno 111\]|Connection refused)",
     "nothing listens at the scheduler's address, or a rule refuses it",
     "`kubectl get endpoints` must show the scheduler; check network policies and service meshes (`cluster.tls`)"),
    ("connection-reset", MUST_ACT, r"^Log: .*(\[Errno (32|103|104)\]|Connection reset|Broken pipe|connection abort)",
     "something between the pod and the scheduler cuts connections",
     "check service meshes (see `cluster.tls`) and network policies"),
    ("no-connection", MUST_ACT, r"^Log: .*(\[Errno 110\]|timed out|Could not connect|failed to connect|"
     r"connect\(\) didn't finish)",
     "the pod's packets to the scheduler get no answer",
     "`kubectl get pods -n kube-system -o wide` must show kube-proxy (or what takes its place) ready on NODE; check "
     "network policies and service meshes (see `cluster.tls`)"),
    ("disk-full", MUST_ACT, r"^Log: .*(No space left on device|Disk quota exceeded)",
     "the node's disk is full", "`kubectl describe node NODE` shows ephemeral-storage; ask an administrator"),
    ("no-permission", MUST_ACT, r"^Log: .*(Permission denied|PermissionError)",
     "the pod runs as user 1000, who may not read or write a file",
     "change the rights of that file in the image, or set `cluster.image` to another one"),
    # ---- refused requests
    (WEBHOOK_SILENT, UNLIKELY, _ASK + "failed calling webhook",
     "an admission webhook does not answer",
     "ask an administrator: `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations`"),
    ("policy", UNLIKELY, _ASK + "denied (the )?request",
     "a policy of the Kubernetes cluster forbids this object",
     "change what the text after `denied` names, such as `cluster.labels` or `cluster.annotations`, or ask an "
     "administrator"),
    ("quota", UNLIKELY, _ASK + "exceeded quota",
     "a quota of the namespace is used up",
     "`kubectl describe quota` shows the use; ask for less with fewer workers, `cluster.{}memory_mb` or "
     "`cluster.{}cpu`, or ask an administrator for a larger quota"),
    ("quota-needs-limits", UNLIKELY, _ASK + "(must specify|failed quota)",
     "a quota of the namespace requires a request or limit that the pod lacks",
     "set `cluster.{}memory_mb`; for other resources, ask an administrator for a LimitRange with defaults"),
    ("pod-security", UNLIKELY, _ASK + "PodSecurity",
     "the namespace's pod security standard forbids the pod",
     "`kubectl get namespaces --show-labels` shows the standards; set `cluster.namespace` to one that allows the pod"),
    ("limit-range", UNLIKELY, _ASK + "(maximum cpu|cpu max limit)",
     "the pod has more CPUs than a limit range of the namespace allows",
     "`kubectl describe limitrange` shows the maximum; set `cluster.cpu_limit` to that maximum"),
    ("limit-range", UNLIKELY, _ASK + "minimum cpu",
     "the pod has fewer CPUs than a limit range of the namespace allows",
     "`kubectl describe limitrange` shows the minimum; raise `cluster.{}cpu`"),
    ("limit-range", UNLIKELY, _ASK + "((maximum|minimum) memory|LimitRange)",
     "the pod has more or less memory than a limit range of the namespace allows",
     "`kubectl describe limitrange` shows the limits; change `cluster.{}memory_mb`"),
    ("no-service-account", UNLIKELY, _ASK + "serviceaccount .*not found",
     "the service account does not exist", "`kubectl get serviceaccounts` lists them; set `cluster.service_account`"),
    ("no-priority-class", UNLIKELY, _ASK + "PriorityClass",
     "the priority class does not exist", "`kubectl get priorityclasses` lists them; set `cluster.priority_class`"),
    ("operator-not-allowed", UNLIKELY, r"^FailedCreate: .*User \S*system:serviceaccount:\S* cannot ",
     "the account of the Dask operator lacks a right",
     "ask an administrator to apply the operator's Helm chart again: it has the ClusterRole and ClusterRoleBinding"),
    ("create-refused", UNLIKELY, "^FailedCreate(:|$)",
     "Kubernetes refuses to create the pod", "change what the text above names"),
    (CREDENTIALS, MUST_ACT, "^HTTP 401",
     "your credentials have expired, or belong to another cluster",
     "log in again; `kubectl auth whoami` must work without a prompt"),
    ("namespace-ending", MUST_ACT, "^HTTP 403: .*is being terminated",
     "the namespace is being deleted", "set another `cluster.namespace`, or create this one again once it is gone"),
    ("not-allowed", MUST_ACT, "^HTTP 403", "no Role that is bound to your account allows this request", _ROLE),
    ("no-namespace", MUST_ACT, "^HTTP 404: .*namespaces? .* not found",
     "the namespace does not exist", "`kubectl get namespaces` lists them; set `cluster.namespace`"),
    ("no-operator", MUST_ACT, "^NoOperator|^HTTP 404: .*(could not find the requested resource|page not found)",
     "this Kubernetes cluster lacks the Dask operator's custom resources",
     "ask an administrator to install the operator: helm install --repo https://helm.dask.org --create-namespace "
     "-n dask-operator --generate-name dask-kubernetes-operator"),
    ("operator-silent", MUST_ACT, "^OperatorSilent: ready",
     "the operator's pod is ready, but the operator hangs, lacks a right, or does not watch this namespace",
     "read its log: `kubectl logs -n NAMESPACE deployment/NAME` of the Deployment above; if that has `403 Forbidden`, "
     "ask an administrator to apply the operator's Helm chart again"),
    ("operator-silent", MUST_ACT, "^OperatorSilent",
     "the operator does not run, or does not watch this namespace",
     f"`kubectl get deployments -A -l {OPERATOR_LABEL}` must show the operator as ready; read its log"),
    ("two-operators", MUST_ACT, "^TwoOperators",
     "several Dask operators react to the same cluster",
     f"`kubectl get deployments -A -l {OPERATOR_LABEL}` must show one Deployment with one pod: ask an administrator"),
    ("operator-version", MUST_ACT, "^HTTP 400: .*(strict decoding error|unknown field)",
     "the operator's custom resource definitions are of another version; 2023.11 or newer is needed",
     "ask an administrator to update the operator and its custom resource definitions"),
    ("invalid", MUST_ACT, "^HTTP 422",
     "a field has a value that Kubernetes does not allow", "change the field of `cluster` that the text above names"),
    (CREDENTIALS, MUST_ACT, "^Unreachable: .*(Process exited with non-zero code|Did not find credentials in|"
     "JSONDecodeError|FileNotFoundError|PermissionError)",
     "a program or file for credentials that your kubeconfig names failed, or does not exist",
     "log in again, or install that program; `kubectl auth whoami` must work without a prompt"),
    ("unreachable", MUST_ACT, "^Unreachable",
     "", "`kubectl cluster-info` must work from here; set `cluster.context`, or KUBECONFIG"),
    ("no-answer", MUST_ACT, "^Silent",
     "the API server was away, as during an update, or the network to it was",
     "`kubectl get --raw /readyz` shows whether the API server is back; then the same command continues the run"),
    ("request-failed", MUST_ACT, "^HTTP", "", "`kubectl get --raw /readyz` shows whether the API server is healthy"),
    # ---- a pod that fits on no node: several rows may apply
    ("node-not-ready", ROOM, r"^Unschedulable: .*(Not ready: |untolerated taint \{node\.(kubernetes|cloudprovider))",
     "a node that could hold the pod is not ready: lost, starting, or short of a resource",
     "`kubectl get nodes` shows it as NotReady; wait longer with `cluster.queue_timeout_s`, or ask an administrator"),
    ("no-gpu", ROOM, r"^Unschedulable: .*Insufficient nvidia\.com/gpu",
     "no matching node has enough free GPUs",
     "compare nvidia.com/gpu under Allocatable and Allocated in `kubectl describe nodes`; ask for fewer workers or "
     "`cluster.gpus`, or wait longer with `cluster.queue_timeout_s`"),
    ("no-room", ROOM, "^Unschedulable: .*Insufficient (cpu|memory|ephemeral-storage)",
     "no node has enough free CPUs, memory or disk",
     "lower `cluster.{}cpu`, `cluster.{}memory_mb` or the number of workers, or wait longer with "
     "`cluster.queue_timeout_s`"),
    ("no-label", ROOM, "^Unschedulable: .*didn't match Pod's node (affinity|selector)",
     "nodes lack the labels that the pod asks for",
     "`kubectl get nodes --show-labels` lists them; change `cluster.{}node_selector` or `cluster.gpu_product`"),
    ("taint", ROOM, r"^Unschedulable: .*untolerated taint(?! \{node\.)",
     "nodes have a taint that the pod does not tolerate",
     "`kubectl describe nodes` shows Taints; add the taint to `cluster.{}tolerations`, unless it begins with "
     "node.kubernetes.io/, which marks an unhealthy node"),
    ("cordoned", ROOM, "^Unschedulable: .*(were|was) unschedulable",
     "nodes are cordoned, for example for an upgrade",
     "`kubectl get nodes` shows SchedulingDisabled; wait, or ask an administrator"),
    ("node-full", ROOM, "^Unschedulable: .*Too many pods",
     "nodes already run as many pods as their limit allows", "ask for fewer workers with more threads each"),
    ("no-claim", UNLIKELY, r"^Unschedulable: .*persistentvolumeclaim \S+ not found",
     "a persistent volume claim does not exist",
     "`kubectl get persistentvolumeclaims` lists the claims; check `cluster.volumes`"),
    ("no-volume", ROOM, r"^Unschedulable: (?!.*claim \S+ not found).*(volume node affinity|PersistentVolume)",
     "a volume of the pod is missing, or only other nodes can mount it",
     "`kubectl get persistentvolumeclaims` lists the claims; check `cluster.volumes`"),
    ("gated", ROOM, "^SchedulingGated",
     "a scheduling gate, for example of a job queue, holds the pod back",
     "`kubectl get pod POD -o jsonpath={.spec.schedulingGates}` names it; wait longer with `cluster.queue_timeout_s`"),
    ("unschedulable", ROOM, "^(Unschedulable|FailedScheduling)",
     "no node can take the pod now", "see `kubectl describe pod POD`"),
    # ---- images
    ("registry-limit", STARTING, _PULL + "(toomanyrequests|429)",
     "the registry's rate limit is reached",
     "set `cluster.pull_secrets` to a secret with the registry's credentials, or `cluster.image` to a mirror's image"),
    ("image-denied", MUST_ACT, _PULL + "(unauthorized|denied|authentication required|forbidden|401|403)",
     "the registry denied access, or the image does not exist",
     "set `cluster.pull_secrets` to a secret whose credentials the registry accepts; check `cluster.image`"),
    ("no-image", MUST_ACT, _PULL + "(not found|manifest unknown|no match for platform)",
     "the registry has no such image, or none for these nodes' processors",
     "check `cluster.image`: name, tag and architecture"),
    ("no-registry", UNLIKELY, _PULL + "(connection refused|network is unreachable|no route to host|no such host|x509|"
     "HTTP response to HTTPS)",
     "the nodes do not reach the registry, or do not trust it",
     "check the registry in `cluster.image`; if the image names no registry, the node's runtime chooses one"),
    ("disk-full", UNLIKELY, _PULL + "no space left",
     "the node's disk is full",
     "`kubectl describe node NODE` shows DiskPressure and ephemeral-storage; ask an administrator"),
    ("image-pull", STARTING, _PULL,
     "the node cannot pull the image",
     "check that nodes reach the registry and that `cluster.image` is right; see `kubectl describe pod POD`"),
    ("image-never-pulled", MUST_ACT, "^ErrImageNeverPull",
     "the image is not on the node, and may not be pulled there",
     "load the image on every node, or set `cluster.image` to an image in a registry"),
    ("image-signature", MUST_ACT, "^SignatureValidationFailed",
     "the node does not accept the image's signature", "use a signed image, or ask an administrator about the policy"),
    ("no-registry", UNLIKELY, "^RegistryUnavailable",
     "the nodes do not reach the registry, or do not trust it",
     "check the registry in `cluster.image`; if the image names no registry, the node's runtime chooses one"),
    ("image-inspect", UNLIKELY, "^(ImageInspectError|InspectFailed)",
     "the node cannot read the image that it has", "ask an administrator to remove the image from NODE"),
    ("image-pull", STARTING,
     "^(BackOff: Back-off pulling|Failed: (Failed to pull|Error: (ErrImagePull|ImagePullBackOff)))",
     "the node cannot pull the image",
     "check that nodes reach the registry and that `cluster.image` is right; see `kubectl describe pod POD`"),
    ("no-pull-secret", UNLIKELY, "^FailedToRetrieveImagePullSecret",
     "a secret with a registry's credentials does not exist",
     "`kubectl get secrets` lists them; check `cluster.pull_secrets`"),
    ("image-name", MUST_ACT, "^InvalidImageName", "the pod's image has no valid name", "check `cluster.image`"),
    # ---- the start of a container
    ("own-secret-deleted", UNLIKELY,
     r'^(CreateContainerConfigError|FailedMount): .*secret "scalescope-\w{12}" not found',
     "somebody deleted the secret of this cluster", "`kubectl get events` may tell who deleted it; run again"),
    ("no-secret", UNLIKELY, "^(CreateContainerConfigError|FailedMount): .*(secret|configmap).*not found",
     "a secret that the pod uses does not exist",
     "`kubectl get secrets` lists them; check `cluster.environment_secrets`"),
    ("volume", STARTING,
     "^(FailedMount|FailedAttachVolume|FailedMapVolume|FailedBinding|ProvisioningFailed|VolumeResizeFailed|"
     "FileSystemResizeFailed)",
     "the node cannot reach a volume of the pod", "see `kubectl describe pod POD`; ask an administrator"),
    ("pod-network", STARTING,
     "^(FailedCreatePodSandBox|CreatePodSandboxError|ConfigPodSandboxError|SandboxChanged|NetworkNotReady)",
     "the node cannot give the pod a network, perhaps for lack of a free address",
     "`kubectl describe node NODE` shows its state; ask an administrator"),
    ("gpu-driver", MUST_ACT,
     _START + "(nvidia-container|nvml|libnvidia|nvidia driver|NVIDIA_VISIBLE|CDI device)",
     "the node's NVIDIA driver or container toolkit does not work",
     "avoid NODE with `cluster.node_selector`; ask an administrator to look at the GPU operator's pods there"),
    ("architecture", MUST_ACT, _START + "exec format error",
     "the image is for another kind of processor than the node's", _PROCESSOR),
    ("no-dask", MUST_ACT, _START + "(executable file not found|no such file or directory)",
     "the image has no program `dask`",
     "set `cluster.image` to one with dask and distributed installed, and their programs on PATH"),
    ("container-not-created", MUST_ACT,
     "^(CreateContainer(Config)?Error|RunContainerError|StartError|ContainerCannotRun|Failed|(Pre|Post)StartHookError|"
     "PreCreateHookError|FailedPostStartHook)(:|$)",
     "the node could not create or start the pod's container", "see `kubectl describe pod POD`; ask an administrator"),
    ("container-not-ended", STARTING,
     "^(KillContainerError|KillPodSandboxError|RemoveContainerError|FailedKillPod|ExceededGracePeriod|FailedPreStopHook)",
     "the node could not end a container properly", "`kubectl describe node NODE` shows its state"),
    ("unready", STARTING, "^(Unready|Unhealthy|ProbeWarning)",
     "the container runs, but does not answer its probe", "read the log of POD: its process is busy or hangs"),
    ("node-not-synced", STARTING, "^(FailedSync|FailedValidation|HostPortConflict|CgroupsPerQOS)",
     "the node cannot set the pod up", "see `kubectl describe pod POD`; ask an administrator"),
    ("claim", UNLIKELY, "^FailedPrepareDynamicResources",
     "the node cannot prepare a claimed device", "`kubectl get resourceclaims` shows its state; ask an administrator"),
    ("scheduler-error", UNLIKELY, "^SchedulerError",
     "Kubernetes' own scheduler failed on the pod", "change what the text above names, or ask an administrator"),
    # ---- the end of a container or a pod
    ("container-lost", UNLIKELY, "^ContainerStatusUnknown",
     "the node lost sight of the container, as after a restart of the node", _SPOT),
    ("out-of-memory", MUST_ACT, "^OOMKilled|exit code 137",
     "the container used more memory than its limit", "raise `cluster.{}memory_mb`, or give the pod less data to hold"),
    ("out-of-disk", UNLIKELY, "^Evicted: .*(ephemeral|EmptyDir|disk|nodefs|imagefs|inodes)",
     "the pod used more disk than its limit, or the node ran short of disk",
     "write less to /tmp and spill less; `kubectl describe limitrange` shows the limit, `kubectl describe node NODE` a "
     "DiskPressure"),
    ("evicted", UNLIKELY, "^Evicted",
     "the node ran short of memory or another resource, and evicted the pod",
     "request as much as the pod uses: raise `cluster.{}memory_mb`; `kubectl describe node NODE` shows the pressure"),
    ("preempted", UNLIKELY, "^Preempt",
     "a pod of higher priority took the place of this pod",
     "set `cluster.priority_class` to a higher one, or run again when there is room"),
    ("drained", UNLIKELY, "^EvictionByEvictionAPI",
     "an administrator, an upgrade, an autoscaler or the end of a spot node drains the pod's node",
     "`kubectl get nodes` shows NODE as SchedulingDisabled or gone; " + _SPOT),
    ("node-shutdown", UNLIKELY, "^(TerminationByKubelet|Terminated|NodeShutdown|Shutdown)",
     "the pod's node shuts down: a spot node that is reclaimed, an upgrade or a restart", _SPOT),
    ("node-tainted", UNLIKELY, "^(DeletionByTaintManager|TaintManagerEviction)",
     "the node got a taint that the pod does not tolerate: a reclaimed spot node, or a node that does not answer",
     "`kubectl describe node NODE` shows the taint; " + _SPOT),
    ("node-gone", UNLIKELY, "^DeletionByPodGC",
     "the pod's node was removed from the cluster, as reclaimed spot nodes are", _SPOT),
    ("node-refused", UNLIKELY,
     "^(UnexpectedAdmissionError|OutOf|InsufficientFree|NodeAffinity|NodeName|NodePorts|NodeSelectorMismatching|"
     "TopologyAffinityError|AppArmor|PodFeatureUnsupported|HostNetworkNotSupported)",
     "the node refused the pod that was sent there: a promised resource, often a GPU, is gone or broken",
     "`kubectl describe node NODE` shows its resources; ask an administrator to look at its device plugin"),
    ("deadline", MUST_ACT, "^DeadlineExceeded",
     "the time limit that a policy gave the pod is over", "ask an administrator, or run for a shorter time"),
    ("deleted", UNLIKELY, "^Deleted",
     "somebody deleted the pod, or the operator removed the idle cluster",
     "see `kubectl get events`; raise `cluster.idle_timeout_s` if trials wait for long"),
    ("node-lost", UNLIKELY, "^(NodeLost|NodeNotReady|Rebooted)",
     "the pod's node does not answer; Kubernetes still reports its pods as Running",
     "`kubectl get nodes` shows NODE as NotReady; run again without it (`cluster.{}node_selector`)"),
    ("crashed", MUST_ACT,
     r"^(CrashLoopBackOff|Error|Completed|BackOff: Back-off restarting)",
     "the container's process ended by itself",
     "read the end of its log above; if the process never starts, try `docker run IMAGE dask worker --version`"),
))
# fmt: on

# Categories that affect every trial until somebody acts: they end the run; the same command continues it later.
LASTING = frozenset(
    [
        "policy",
        "pod-security",
        "no-service-account",
        "no-priority-class",
        "quota-needs-limits",
        "credentials",
        "not-allowed",
        "no-namespace",
        "namespace-ending",
        "no-operator",
        "operator-silent",
        "operator-not-allowed",
        "two-operators",
        "operator-version",
        "invalid",
        "no-answer",
        "no-secret",
        "no-pull-secret",
        "no-claim",
        "no-image",
        "image-denied",
        "image-never-pulled",
        "image-name",
        "no-dask",
        "no-dask-cuda",
        "old-dask",
        "no-package",
        "no-system-library",
    ]
)


@lru_cache(256)  # cached, because waiting pods repeat the same message
def matching(reason: str, message: str = "") -> tuple[Failure, ...]:
    text = f"{reason}: {message}" if message else reason
    return tuple(row for row in FAILURES if re.search(row.pattern, text, re.IGNORECASE | re.DOTALL))


def refusal(
    what: str, where: str, reason: str, message: str = "", *, detail: str = "", status: int = 0
) -> RequestRefused:
    """The error for a request that Kubernetes or the operator refuses; `detail` is added to its cause."""
    row = matching(reason, message)[0]
    error = RequestRefused(
        what,
        where=where,
        cause="; ".join(filter(None, (row.cause, detail))),
        next_step=row.next_step.replace("{}", ""),
        category=row.category,
        status=status,
    )
    error.ends_run = row.category in LASTING
    return error
