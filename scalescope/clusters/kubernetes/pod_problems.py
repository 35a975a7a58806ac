"""Why a pod does not run, from its Kubernetes object: pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from scalescope.clusters.kubernetes.failures import Outlook, matching

Raw = Mapping[str, Any]  # a Kubernetes object, as JSON from its API
R = TypeVar("R", bound=Raw)

# Our own reasons: the pod is gone or being deleted, and Kubernetes gives no reason; its container does not answer its
# probe; its node does not answer.
DELETED, UNREADY, NODE_LOST = "Deleted", "Unready", "NodeLost"
CORDONED = "node(s) were unschedulable"  # part of a scheduler's message about a cordoned node
NOT_READY = "Not ready: "  # starts our list of nodes that could hold the pod, but are not well
_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")  # prefixes of taints of nodes that are not well
# Messages about nodes that will take pods later: cordoned, not well, or still being added.
_PASSES = re.compile(
    rf"{re.escape(CORDONED)}|{NOT_READY}|untolerated taint \{{node\.|says (TriggeredScaleUp|Nominated)"
)

_STARTING = {"ContainerCreating", "PodInitializing", "Pending", ""}
_ENDED_BY_ITSELF = {"Error", "Completed"}
_LOG_TELLS = {*_ENDED_BY_ITSELF, "CrashLoopBackOff", UNREADY}
# What precedes the message in a Python warning or a Dask log record.
_BEFORE_WORDS = re.compile(r"^(\S+:\d+: \w+Warning: |\S+ \S+ - \S+ - [A-Z]+ - )")
PULLS = ("ErrImagePull", "ImagePullBackOff")  # reasons of a pod whose image cannot be pulled
_NOT_RETRIEVED = "FailedToRetrieveImagePullSecret"  # reason of an event; never in a pod's status
_TOOK_IT_AWAY = {"Preempted", "Evicted", "TaintManagerEviction"}  # reasons of events that take a pod away
_CANCELLED = "Cancelling deletion"  # start of the taint manager's message if it does not delete the pod after all
BY_TAINT = {"DeletionByTaintManager", "TaintManagerEviction"}  # reasons with a taint, which may name a lost node
# Reasons of events of autoscalers; the last two are also Karpenter's.
_SCALING = {"TriggeredScaleUp", "NotTriggerScaleUp", "FailedScaleUp", "Nominated", "FailedScheduling"}
_FROM_OUTSIDE = re.compile("Delet|Evict|Preempt|Terminat|Shutdown|Node|OutOf|UnexpectedAdmission|TopologyAffinity")
# Since Kubernetes 1.31, the scheduler's message for a pod that no existing node could ever hold.
_NO_NODE = re.compile(
    r"0/(\d+) nodes are available: .*preemption: 0/\1 nodes are available: \1 Preemption is not helpful"
)


@dataclass(frozen=True)
class PodProblem:
    """Why a pod does not run, or why there is none."""

    reason: str  # Kubernetes's word, such as `Unschedulable` or `OOMKilled`, or `Deleted`, `Unready` or `NodeLost`
    message: str  # Kubernetes's sentence
    pod: str  # name of the pod, or of a Deployment that has no pod
    node: str = ""
    restarts: int = 0  # restarts of its container

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason

    @property
    def is_from_outside(self) -> bool:
        """Whether something else ended the container, so that its log does not tell why."""
        return _FROM_OUTSIDE.match(self.reason) is not None

    @property
    def outlook(self) -> Outlook:
        """Whether the pod will run by itself; only a container's second end is a failure, as the first is restarted."""
        if self.reason in _STARTING or (self.reason in _ENDED_BY_ITSELF and not self.restarts):
            return Outlook.STARTING
        rows = matching(self.reason, self.message)
        if rows and rows[0].outlook is Outlook.ROOM and _NO_NODE.search(self.message):
            return Outlook.ROOM if _PASSES.search(self.message) else Outlook.NEW_NODE  # ROOM if waiting helps
        return rows[0].outlook if rows else Outlook.STARTING


@dataclass(frozen=True)
class Explanation:
    """The category, likely cause and next step of a problem."""

    category: str
    cause: str
    next_step: str


def explain(problem: PodProblem, log: str = "") -> Explanation:
    """Explain a problem; `log`: the end of the log of a container that ended by itself."""
    rows = matching("Log", log) if log and problem.reason in _LOG_TELLS else ()
    rows += matching(problem.reason, problem.message)
    category, cause, step = "", "", "see `kubectl describe pod POD`"
    if not rows and problem.reason not in _STARTING:
        category, cause = "unknown-reason", "this reason is not known to Scalescope"
    if rows:
        category, _, _, cause, step = rows[0]
    waits_for_node = rows and rows[0].category == "node-not-ready" and NOT_READY in problem.message
    if problem.reason == "Unschedulable" and len(rows) > 1 and not waits_for_node:
        # Each node may have its own reason (a row each); the last row matches any reason, so it is left out.
        cause = "; ".join(row.cause for row in rows[:-1])
        step = "; or ".join(row.next_step for row in rows[:-1])
    step = step.replace("{}", "scheduler_" if is_scheduler(problem.pod) else "")
    return Explanation(category, cause, step.replace("POD", problem.pod).replace("NODE", problem.node or "its node"))


def not_ready(nodes: Sequence[Raw], pod: Raw) -> list[str]:
    """Nodes that a pod's selector allows and that are not well, with the taints that say so."""
    wanted = pod.get("spec", {}).get("nodeSelector", {}).items()
    fit = [each for each in nodes if wanted <= each["metadata"].get("labels", {}).items()]
    taints = {
        each["metadata"]["name"]: [
            taint["key"] for taint in each["spec"].get("taints", ()) if taint["key"].startswith(_TAINTS)
        ]
        for each in fit
        if not each["spec"].get("unschedulable")
    }
    return [f"{name} ({', '.join(dict.fromkeys(keys))})" for name, keys in taints.items() if keys]


def until_told(log: str) -> str:
    """A log up to the last line that tells its failure (the first row of `FAILURES` that fits); empty if none does."""
    rows, lines = matching("Log", log), log.splitlines()
    told = [number for number, line in enumerate(lines) if rows and rows[0] in matching("Log", line)]
    return "\n".join([*lines[: told[-1]], _BEFORE_WORDS.sub("", lines[told[-1]])]) if told else ""


def is_scheduler(name: str) -> bool:
    return "-scheduler" in name


def restarts(pod: Raw) -> int:
    return sum(each.get("restartCount", 0) for each in pod.get("status", {}).get("containerStatuses", ()))


def problem_of_pod(pod: Raw) -> PodProblem | None:
    """Why a pod does not run; None if it does."""
    status, conditions = pod.get("status", {}), _conditions(pod)
    if status.get("phase") == "Failed":
        disrupted = conditions.get("DisruptionTarget", {})
        reason = status.get("reason") or disrupted.get("reason") or "Error"
        return _problem(pod, reason, status.get("message") or disrupted.get("message", ""))
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return _problem(pod, scheduled.get("reason", ""), scheduled.get("message", ""))
    containers = status.get("containerStatuses", ())
    for each in containers:
        if found := _problem_of_container(pod, each):
            return found
    ready = conditions.get("Ready", {})
    if ready.get("status") == "True":
        return None
    if containers and all(each.get("ready") for each in containers):
        return _problem(pod, NODE_LOST, ready.get("message", ""))
    if containers and all("running" in each.get("state", {}) for each in containers):
        return _problem(pod, UNREADY, "the container runs, but does not answer its probe")
    return _problem(pod, status.get("phase", ""), "its container starts")


def problem_of_ended(pod: Raw | None, name: str, count: int) -> PodProblem | None:
    """Why a pod that ran after `count` restarts no longer runs; None if it does. If it is gone, `pod` is None."""
    if pod is None:
        return PodProblem(DELETED, "the pod does not exist any more", name)
    if "deletionTimestamp" in pod["metadata"]:
        disrupted = _conditions(pod).get("DisruptionTarget", {})
        return _problem(pod, disrupted.get("reason") or DELETED, disrupted.get("message") or "the pod is being deleted")
    problem = problem_of_pod(pod)
    if problem is not None and problem.reason != UNREADY:  # a busy scheduler does not answer its probe, but runs
        return problem
    if restarts(pod) == count:
        return None
    ended = ({**each, "state": each.get("lastState", {})} for each in pod["status"]["containerStatuses"])
    return next(filter(None, (_problem_of_container(pod, each) for each in ended)), None)


def is_lost_with_its_node(pod: Raw) -> bool:
    """Whether Kubernetes deleted a pod because its node does not answer; the pod stays until the node is back."""
    disrupted = _conditions(pod).get("DisruptionTarget", {})
    return disrupted.get("reason") in BY_TAINT and is_on_silent_node(pod)


def is_on_silent_node(pod: Raw) -> bool:
    problem = problem_of_pod(pod)
    return problem is not None and problem.reason == NODE_LOST


def problem_of_deployment(deployment: Raw) -> PodProblem | None:
    """Why a Deployment has no pod, which only the Deployment's own status tells."""
    failed = _conditions(deployment).get("ReplicaFailure", {})
    return _problem(deployment, failed["reason"], failed["message"]) if failed.get("status") == "True" else None


def with_events(problem: PodProblem, events: Sequence[Raw]) -> PodProblem:
    """Add what only events of the pod (the oldest first) tell: volumes, networks, autoscalers, evictions."""
    if problem.reason == DELETED:
        took = [
            each
            for each in events
            if each["reason"] in _TOOK_IT_AWAY and not each.get("message", "").startswith(_CANCELLED)
        ]
        return _by_event(problem, took[-1]) if took else problem
    if problem.reason in PULLS:
        missing = [each["message"] for each in events if each["reason"] == _NOT_RETRIEVED]
        return replace(problem, reason=_NOT_RETRIEVED, message=f"{missing[-1]} {problem}") if missing else problem
    if problem.reason in (*_STARTING, UNREADY) and events and events[-1].get("type") == "Warning":
        # The kubelet's event `Failed` is vague; the container's status will name the exact reason a moment later.
        return problem if events[-1]["reason"] == "Failed" else _by_event(problem, events[-1])
    scaling = [each for each in events if each["reason"] in _SCALING and _source(each) != "default-scheduler"]
    if problem.outlook in (Outlook.ROOM, Outlook.NEW_NODE) and scaling:
        told = f"{_source(scaling[-1])} says {scaling[-1]['reason']}: {scaling[-1].get('message', '')}"
        return replace(problem, message=f"{problem.message} {told}")
    return problem


def with_node(problem: PodProblem, node: Raw) -> PodProblem:
    """The problem that the pod's node does not answer, if that is so; else `problem` itself."""
    ready = _conditions(node).get("Ready", {"status": "True"})
    if ready["status"] == "True":
        return problem
    return replace(problem, reason=NODE_LOST, message=_one_line(ready.get("message", "")), restarts=0)


def without_replaced(pods: Sequence[R]) -> list[R]:
    """Leave out failed pods that have been replaced: a ReplicaSet keeps them listed."""

    def owner(pod: R) -> str:
        owners = pod["metadata"].get("ownerReferences")
        return str(owners[0]["uid"] if owners else pod["metadata"]["name"])

    alive = {owner(pod) for pod in pods if pod.get("status", {}).get("phase") != "Failed"}
    return [pod for pod in pods if pod.get("status", {}).get("phase") != "Failed" or owner(pod) not in alive]


def _problem_of_container(pod: Raw, container: Raw) -> PodProblem | None:
    state, count = container.get("state", {}), container.get("restartCount", 0)
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated")
    waiting = state.get("waiting")
    if waiting is not None and (ended is None or waiting.get("reason") not in ("CrashLoopBackOff", *_STARTING)):
        return _problem(pod, waiting.get("reason", ""), waiting.get("message", ""), count)
    if ended is not None and "running" not in state:
        message = f"exit code {ended.get('exitCode')}" + (f", {ended['message']}" if ended.get("message") else "")
        return _problem(pod, ended.get("reason", "Error"), message, count)
    return None


def _problem(found: Raw, reason: str, message: str, count: int = 0) -> PodProblem:
    node = found.get("spec", {}).get("nodeName", "")
    return PodProblem(reason, _one_line(message), found["metadata"]["name"], node, count)


def _by_event(problem: PodProblem, event: Raw) -> PodProblem:
    return replace(problem, reason=event["reason"], message=_one_line(event.get("message", "")))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _conditions(found: Raw) -> dict[str, Any]:
    return {each["type"]: each for each in found.get("status", {}).get("conditions", ())}


def _source(event: Raw) -> str:
    return str(event.get("reportingComponent") or event.get("source", {}).get("component", ""))
