"""Watches the pods of a cluster: says why pods are missing, and raises if they will not come."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from scalescope.clusters.kubernetes.api import Api, Raw
from scalescope.clusters.kubernetes.failures import LASTING, Outlook, matching, refusal
from scalescope.clusters.kubernetes.manifests import COMPONENT, WORKER_GROUP
from scalescope.clusters.kubernetes.pod_changes import behind, changes
from scalescope.clusters.kubernetes.pod_problems import (
    BY_TAINT,
    CORDONED,
    DELETED,
    NODE_LOST,
    NOT_READY,
    PULLS,
    PodProblem,
    explain,
    is_lost_with_its_node,
    is_scheduler,
    not_ready,
    problem_of_deployment,
    problem_of_ended,
    problem_of_pod,
    restarts,
    until_told,
    with_events,
    with_node,
    without_replaced,
)
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.errors import ClusterError, WorkersMissing
from scalescope.model.words import plural

# Seconds that a problem with outlook UNLIKELY must last before we give up, counted while no pods are ending: ending
# pods still hold quota, nodes and GPUs. A longer wait helps little: Kubernetes pauses longer before each new try.
SETTLE_S = 6.0
# Seconds after an outage of the API server during which nodes that seem lost do not count: kubelets report only every
# 10 seconds.
OUTAGE_SETTLE_S = 20.0
ENDING_S = 10.0  # seconds to wait for an ending pod; if it takes longer, its node is probably lost
OPERATOR_S = 30.0  # seconds for the operator (which may be restarting) to create an object
RETRY_S = 60.0  # seconds after which the operator tries again
EVENTS_INTERVAL_S = 2.0  # seconds between two requests for events and nodes
LOG_LINES, LOG_TRIES, LOG_INTERVAL_S = 20, 3, 0.5  # lines of a log, attempts to read it, seconds between them
LOG_AFTER_S = 10.0  # seconds between reads of the log of a running pod that Dask does not know yet

_LOG = "; the end of its log:\n    | "
_CHANGED = (
    "ask an administrator for the limit range or webhook that changes pods (`kubectl describe limitrange`, "
    "`kubectl get mutatingwebhookconfigurations`)"
)
_OPERATOR_NOTE = re.compile(r"kopf\.zalando\.org/dask(cluster_create|workergroup)_")
_REFUSED = re.compile("forbidden|denied|invalid")


class PodWatch:
    """Waits for the pods of one component of a cluster."""

    def __init__(
        self,
        api: Api,
        label: str,
        component: str,  # `scheduler` or `worker`; empty: all pods
        spec: KubernetesSpec,
        groups: Collection[str] | None = None,  # worker groups that are watched; None: all
        clock: Callable[[], float] = time.monotonic,
        most: float = math.inf,  # largest number of Deployments if only one operator runs
        asked: Callable[[Raw], Raw | None] = lambda pod: None,  # returns the manifest of a pod, if it is known
    ) -> None:
        self.problems: list[PodProblem] = []  # problems of the last look, the worst first
        self.seen: list[Raw] = []  # all pods of the last look, also those that are ending
        self._api, self._label, self._component, self._spec, self._clock = api, label, component, spec, clock
        self._groups, self._most, self._asked = groups, most, asked
        self._since: dict[Outlook, float] = {}
        self._began = self._placed_at = self._asked_at = clock()
        self._pods: list[Raw] = []
        self._deployments: list[Raw] = []
        self._events: dict[str, list[Raw]] = {}
        self._nodes: dict[str, Raw] = {}
        self._rights: dict[tuple[str, str], bool] = {}
        self._unwell = ""  # sentence on nodes that could hold the worst pod, but are cordoned or not well
        self._ending: dict[str, float] = {}
        self._log_at, self._log_told = 0.0, ""  # time and content of the last look at a running pod's log

    def look(self) -> list[Raw]:
        """Ask Kubernetes; returns the pods that run."""
        self._deployments = [each for each in self._api.deployments(self._label) if self._counts(each)]
        self.seen = self._api.pods(self._label)
        self._pods = without_replaced([each for each in self.seen if self._counts(each)])
        found = [*map(problem_of_deployment, self._deployments), *map(problem_of_pod, self._pods)]
        self.problems = sorted(filter(None, found), key=lambda each: list(Outlook).index(each.outlook))
        now = self._clock()
        if self.problems:
            self._add_details(now)
        ending = [pod["metadata"]["name"] for pod in self.seen if self._is_ending(pod)]
        self._ending = {name: self._ending.get(name, now) for name in ending}
        if self.is_ending:
            for outlook in (Outlook.UNLIKELY, Outlook.NEW_NODE):
                self._since.pop(outlook, None)
        outlooks = {each.outlook for each in self.problems}
        if self.is_after_outage:
            self._since.clear()
            self._began = self._placed_at = now
        self._since = {outlook: self._since.get(outlook, now) for outlook in outlooks}
        if outlooks & {Outlook.ROOM, Outlook.NEW_NODE}:
            self._placed_at = now
        return [each for each in self._pods if problem_of_pod(each) is None]

    def check(self, expected: int, hosts: Collection[str] = ()) -> str:
        """What is missing, in a sentence; `hosts`: addresses of the pods that Dask knows.

        Raises:
            ClusterError: Pods will not come, or find no room within the limits.
            WorkersMissing: Pods have room, but did not arrive within `start_timeout_s`.
        """
        now, spec, arrived = self._clock(), self._spec, len(hosts)
        if len(self._deployments) > self._most:
            what = f"{self._label} has more {self._component} Deployments than were asked for"
            raise refusal(what, self._where, "TwoOperators", detail=described(self._api.operators()))
        if len(self._deployments) < expected and now - self._began > SETTLE_S:
            self._check_operator(now - self._began)
        limits = {
            Outlook.MUST_ACT: (0.0, ""),
            Outlook.UNLIKELY: (SETTLE_S, ""),
            Outlook.NEW_NODE: (max(spec.autoscale_timeout_s, SETTLE_S), "cluster.autoscale_timeout_s"),
            Outlook.ROOM: (spec.queue_timeout_s, "cluster.queue_timeout_s"),
            Outlook.STARTING: (math.inf, ""),
        }
        if self.is_after_outage:
            return f"{self._missing(expected, arrived)}; the API server was away, so its answers may be out of date"
        for problem in self.problems:
            limit_s, name = limits[problem.outlook]
            if now - self._since[problem.outlook] >= limit_s:
                worst = self.problems[0]
                if not limits[worst.outlook][1]:  # an outlook whose limit the user cannot set
                    raise self.error(worst, self._headline(worst, expected))
                raise self.error(problem, self._headline(problem, expected, limit_s), name)
        if now - self._placed_at > spec.start_timeout_s:
            raise self._late(expected, hosts)
        if not self.problems and arrived == expected and self.is_ending:
            return "other pods of the cluster are still ending"
        if not self.problems:
            why = "the operator has not made all pods yet"
            if self._pods:
                missing = "its pod is not ready yet"
                if self._component != "scheduler":
                    missing = "not all pods have registered with the scheduler yet"
                why = f"{missing}{self._told_by_log(now, hosts)}"
            return f"{self._missing(expected, arrived)}; {why}"
        first = self.problems[0]
        limit_s, name = limits[first.outlook]
        waits = f"; Scalescope waits for up to {limit_s:g} s ({name})" if name else ""
        return f"{self._missing(expected, arrived)}; {first} (pods with this problem: {self._alike(first)}){waits}"

    @property
    def is_after_outage(self) -> bool:
        """Whether the API server was away until just now."""
        back = self._api.back_since
        return bool(back) and self._clock() - back < OUTAGE_SETTLE_S

    @property
    def is_ending(self) -> bool:
        """Whether a pod has been ending for less than `ENDING_S`: Kubernetes may restart a retired worker meanwhile."""
        return any(self._clock() - since < ENDING_S for since in self._ending.values())

    def ended(self, restarts: Mapping[str, int], node_s: float = 0.0) -> list[PodProblem]:
        """Problems of those pods in `restarts` (earlier restarts by name) that no longer run, as of the last look.

        A node counts as lost after `node_s` seconds: after an outage of the API server, all nodes seem lost at first.
        """
        found = {pod["metadata"]["name"]: pod for pod in self.seen}
        problems = (problem_of_ended(found.get(name), name, count) for name, count in restarts.items())
        lost_s = self._clock() - self._since.get(Outlook.UNLIKELY, self._clock())
        return [each for each in problems if each and (each.reason != NODE_LOST or lost_s >= node_s)]

    def error(
        self, problem: PodProblem, what: str = "", limit: str = "", kind: type[ClusterError] = ClusterError
    ) -> ClusterError:
        """The error for a problem; `limit`: the field that limits how long a pod with it may wait."""
        if problem.reason in (DELETED, *PULLS) and self._may("list", "events"):
            problem = with_events(problem, self._api.events_of(problem.pod))
        if problem.reason in BY_TAINT and problem.node and self._may("get", "nodes"):
            problem = with_node(problem, self._api.node(problem.node))
        log = "" if problem.is_from_outside else self._log(problem)
        told = explain(problem, log)
        step, changed = told.next_step, self._changes_behind(problem, told.category)
        causes = [told.cause, f"Kubernetes gave the pod {', '.join(changed)}" if changed else ""]
        cause = ". ".join(["; ".join(filter(None, causes)), f"Kubernetes says {problem}"]).removeprefix(". ")
        if log:
            if any(row.category == told.category for row in matching("Log", log)[:1]):
                log = until_told(log) or log
            cause += _LOG + log.replace("\n", "\n    | ")
        elif problem.restarts and not problem.is_from_outside:
            cause += "; its log is empty"
        if changed:
            step = f"{_CHANGED}; or {step}"
        if limit and problem.outlook is Outlook.NEW_NODE:
            step += f"; if autoscaling adds nodes here, set `{limit}`"
        others = f" and {self._alike(problem) - 1} more" if self._alike(problem) > 1 else ""
        node = f" on {problem.node}" if problem.node else ""
        error = kind(
            what or self._headline(problem, 0),
            where=f"{problem.pod}{others}{node}, namespace {self._api.namespace}",
            cause=cause,
            next_step=step,
            category=told.category,
        )
        error.ends_run = told.category in LASTING
        return error

    @property
    def _where(self) -> str:
        return f"cluster {self._label} in namespace {self._api.namespace}"

    # ---------------------------------------------------------------- parts

    def _changes_behind(self, problem: PodProblem, category: str) -> list[str]:
        pod = next((each for each in self.seen if each["metadata"]["name"] == problem.pod), None)
        asked = self._asked(pod) if pod is not None else None
        return behind(category, changes(asked, pod)) if asked and pod else []

    def _log(self, problem: PodProblem) -> str:
        for _ in range(LOG_TRIES if problem.node else 0):
            before = self._api.log(problem.pod, LOG_LINES, previous=True) if problem.restarts else ""
            if found := before or self._api.log(problem.pod, LOG_LINES):
                return found
            time.sleep(LOG_INTERVAL_S)  # until the next container starts
        return ""

    def _absent(self, hosts: Collection[str]) -> Raw:
        """The first pod that Dask does not know; empty if there is none."""
        return next((each for each in self._pods if each["status"].get("podIP") not in hosts), {})

    def _log_of(self, pod: Raw) -> str:
        """The log of a running pod, or of its previous container if only that log explains a failure."""
        before = [True] if restarts(pod) else []
        logs = [self._api.log(pod["metadata"]["name"], LOG_LINES, previous=each) for each in (*before, False)]
        return next((log for log in logs if log and matching("Log", log)), logs[-1])

    def _told_by_log(self, now: float, hosts: Collection[str]) -> str:
        pod = self._absent(hosts)
        if pod and now - max(self._placed_at, self._log_at) > LOG_AFTER_S:
            told = until_told(self._log_of(pod)).rpartition("\n")[2]
            self._log_at, self._log_told = now, f"; {pod['metadata']['name']} says: {told}" if told else ""
        return self._log_told if pod else ""

    def _headline(self, problem: PodProblem, expected: int, after_s: float = 0) -> str:
        after = f" after {after_s:g} s" if after_s else ""
        if is_scheduler(problem.pod) or not expected:
            who = "the scheduler" if is_scheduler(problem.pod) else "a worker"
            return f"{who} of {self._label} does not run{after}: {problem.reason}"
        return f"{self._alike(problem)} of {expected} workers of {self._label} do not run{after}: {problem.reason}"

    def _alike(self, problem: PodProblem) -> int:
        return sum(each.reason == problem.reason for each in self.problems)

    def _add_details(self, now: float) -> None:
        """Add details to the worst problem, and to those with the same message from Kubernetes."""
        before = self.problems[0]
        told = self._with_details(before, now)
        self.problems = [
            replace(each, reason=told.reason, message=told.message)
            if (each.reason, each.message) == (before.reason, before.message) and told.reason == before.reason
            else each
            for each in self.problems
        ]
        self.problems[0] = told

    def _with_details(self, problem: PodProblem, now: float) -> PodProblem:
        """Add what events and the node say about a pod that is starting or waits for a node."""
        if problem.outlook in (Outlook.MUST_ACT, Outlook.UNLIKELY):
            return problem
        name, node = problem.pod, problem.node
        if now - self._asked_at > EVENTS_INTERVAL_S:
            self._asked_at = now
            self._events = {name: self._api.events_of(name)} if self._may("list", "events") else {}
            self._nodes = {node: self._api.node(node)} if node and self._may("get", "nodes") else {}
            is_kept_off = any(each in problem.message for each in (CORDONED, "taint")) and self._may("list", "nodes")
            self._unwell = self._described_nodes(self._api.nodes(), name) if is_kept_off else ""
        problem = with_events(problem, self._events.get(name, ()))
        if self._unwell:
            problem = replace(problem, message=f"{problem.message} {self._unwell}")
        return with_node(problem, self._nodes[node]) if node in self._nodes else problem

    def _described_nodes(self, nodes: Sequence[Raw], name: str) -> str:
        pod = next((each for each in self._pods if each["metadata"]["name"] == name), {})
        cordoned = [each["metadata"]["name"] for each in nodes if each["spec"].get("unschedulable")]
        told = (("Cordoned: ", cordoned), (NOT_READY, not_ready(nodes, pod)))
        return " ".join(f"{words}{', '.join(each)}" for words, each in told if each)

    def _may(self, verb: str, what: str) -> bool:
        if (verb, what) not in self._rights:
            self._rights[verb, what] = self._api.may(verb, "", what)
        return self._rights[verb, what]

    def _check_operator(self, waited_s: float) -> None:
        is_empty = not self._pods and not self._deployments
        words = operator_failure([self._api.cluster(self._label) or {}, *self._api.groups(self._label)])
        is_late = is_empty and waited_s > (OPERATOR_S + RETRY_S if words else OPERATOR_S)
        if _REFUSED.search(words) or (words and is_late):
            what = f"the Dask operator cannot create the objects of {self._label}"
            raise refusal(what, self._where, "FailedCreate", words, detail=f"the operator says {words}")
        operators = self._api.operators() if is_empty and not words else []
        if is_late or is_switched_off(operators):
            detail, ready = described(operators), "ready" if any(map(_ready, operators)) else ""
            raise refusal("the Dask operator does not react", self._where, "OperatorSilent", ready, detail=detail)

    def _counts(self, found: Raw) -> bool:
        return self._component in ("", found["metadata"]["labels"].get(COMPONENT)) and not self._is_ending(found)

    def _is_ending(self, found: Raw) -> bool:
        group = found["metadata"]["labels"].get(WORKER_GROUP)
        is_left_over = group is not None and self._groups is not None and group not in self._groups
        return is_left_over or ("deletionTimestamp" in found["metadata"] and not is_lost_with_its_node(found))

    def _missing(self, expected: int, arrived: int) -> str:
        if self._component == "scheduler":
            return "the scheduler is missing"
        if arrived > expected:
            return f"{plural(arrived - expected, 'worker')} too many ({expected} requested)"
        return f"{expected - arrived} of {plural(expected, 'worker')} missing"

    def _late(self, expected: int, hosts: Collection[str]) -> ClusterError:
        arrived = len(hosts)
        what = f"{self._missing(expected, arrived)} after {self._spec.start_timeout_s:g} s"
        if self.problems:
            return self.error(self.problems[0], what, kind=WorkersMissing)
        pod = self._absent(hosts)
        log = self._log_of(pod) if pod else ""
        category, cause = "no-connection", "the pods run, but do not reach the scheduler: check network policies"
        step = f"`kubectl get pods -l app.kubernetes.io/instance={self._label}` shows the pods; raise "
        step += "`cluster.start_timeout_s` on busy nodes"
        if rows := matching("Log", log) if log else ():
            category, cause = rows[0].category, f"the pods run; the log of one says that {rows[0].cause}"
            step = rows[0].next_step.replace("{}", "").replace("NODE", pod["spec"].get("nodeName", "its node"))
            log = until_told(log) or log
        if arrived > expected:
            category = "not-retired"
            cause = "the operator did not retire the surplus workers, perhaps because their data does not fit into the "
            cause += "memory of the others"
        return WorkersMissing(
            what,
            where=self._where,
            cause=cause + (_LOG.replace("its", "this") + log.replace("\n", "\n    | ") if log else ""),
            next_step=step,
            category=category,
        )


def is_switched_off(operators: Sequence[Raw]) -> bool:
    """Whether the operator is installed, but all its Deployments are scaled to 0."""
    return bool(operators) and not any(each["spec"]["replicas"] for each in operators)


def described(operators: Sequence[Raw]) -> str:
    """How many pods of the operator run, in words."""
    return "; ".join(
        f"its Deployment {each['metadata']['namespace']}/{each['metadata']['name']} has "
        f"{_ready(each)} of {each['spec']['replicas']} pods ready"
        for each in operators
    )


def _ready(operator: Raw) -> int:
    return int(operator.get("status", {}).get("readyReplicas", 0))


def operator_failure(resources: Sequence[Raw]) -> str:
    """Why the operator could not make the parts of a cluster, from its notes in annotations; empty if it could.

    Refusals come first, because other failures may pass. If the API server refuses the operator a request for another
    cluster, kr8s 0.20 also breaks off the operator's requests for ours, without a message.
    """
    notes = [
        json.loads(value)
        for each in resources
        for name, value in each.get("metadata", {}).get("annotations", {}).items()
        if _OPERATOR_NOTE.match(name)
    ]
    failed = [str(note.get("message", "")) for note in notes if note.get("retries") and not note.get("success")]
    words = [" ".join(each.split()) or "a request was broken off" for each in failed]
    return next(filter(_REFUSED.search, words), words[0] if words else "")
