"""Watches the pods of a cluster: says why some are missing, and gives up where they will not come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from scalescope.clusters.kubernetes import failures
from scalescope.clusters.kubernetes.api import Api, Raw
from scalescope.clusters.kubernetes.failures import Outlook, PodProblem
from scalescope.clusters.kubernetes.manifests import COMPONENT, WORKER_GROUP
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.errors import ClusterError, WorkersMissing

SETTLE_S = 6.0
"""Seconds for which a trouble with hardly a hope must last, from when no pod of the cluster is ending any more: those
hold quota, nodes and GPUs, and Kubernetes tries again more and more rarely."""

ENDING_S = 10.0
"""Seconds after which a pod that is ending is not waited for: its node does not answer."""

OPERATOR_S = 30.0
"""Seconds within which the operator must have made something of what it was asked for; it may be starting again.
Where one sees that it is switched off, it is not waited for."""

RETRY_S = 60.0
"""Seconds after which it tries again what it could not do."""

EVENTS_INTERVAL_S = 2.0

LOG_LINES, LOG_TRIES, LOG_INTERVAL_S = 20, 3, 0.5


class PodWatch:
    """The pods of one component of a cluster, `scheduler` or `worker`, while they are waited for.

    Args:
        api: Where they are.
        label: Of the cluster.
        component: Which of them; empty is all.
        spec: With the limits.
        groups: Names of the worker groups that there should be; pods of others are ending, though Kubernetes may not
            have told them yet. None is all that there are.
        clock: Seconds that only grow.

    Attributes:
        troubles: At the last look.
    """

    def __init__(
        self,
        api: Api,
        label: str,
        component: str,
        spec: KubernetesSpec,
        groups: Collection[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.troubles: list[PodProblem] = []
        self._api, self._label, self._component, self._spec, self._clock = api, label, component, spec, clock
        self._groups = groups
        self._since: dict[Outlook, float] = {}
        self._began = self._placed_at = clock()
        self._all: list[Raw] = []
        self._found: tuple[list[Raw], list[Raw]] = ([], [])
        self._asked_at, self._events, self._nodes = clock(), dict[str, list[Raw]](), dict[str, Raw]()
        self._rights: dict[str, bool] = {}
        self._ending: dict[str, float] = {}

    def look(self) -> list[Raw]:
        """Ask Kubernetes; returns the pods that run."""
        deployments = [each for each in self._api.deployments(self._label) if self._is_ours(each)]
        self._all = self._api.pods(self._label)
        pods = failures.without_replaced([each for each in self._all if self._is_ours(each)])
        self.judge(pods, deployments)
        return [each for each in pods if failures.trouble_of_pod(each) is None]

    def judge(self, pods: Sequence[Raw], deployments: Sequence[Raw]) -> None:
        """Take note of pods and Deployments that are not being deleted."""
        self._found = list(pods), list(deployments)
        found = [*map(failures.trouble_of_deployment, deployments), *map(failures.trouble_of_pod, pods)]
        self.troubles = sorted((each for each in found if each), key=lambda each: list(Outlook).index(each.hope))
        now = self._clock()
        if self.troubles:
            self.troubles[0] = self._explained(self.troubles[0], now)
        ending = [pod["metadata"]["name"] for pod in self._all if self._ends(pod)]
        self._ending = {name: self._ending.get(name, now) for name in ending}
        if self.is_ending:
            for hope in (Outlook.HARDLY, Outlook.NEW_NODE):
                self._since.pop(hope, None)
        hopes = {each.hope for each in self.troubles}
        self._since = {hope: self._since.get(hope, now) for hope in hopes}
        if hopes & {Outlook.ROOM, Outlook.NEW_NODE}:
            self._placed_at = now

    def check(self, expected: int, arrived: int) -> str:
        """What is being waited for, in a sentence.

        Args:
            expected: Pods that there should be.
            arrived: Of them, those that Dask knows.

        Raises:
            ClusterError: They will not come, or there is no room for them within the limits.
            WorkersMissing: They have room, but did not arrive within `start_timeout_s`.
        """
        now, spec = self._clock(), self._spec
        if len(self._found[1]) < expected and now - self._began > SETTLE_S:
            self._blame_the_operator(now - self._began)
        limits = {
            Outlook.NEVER: (0.0, ""),
            Outlook.HARDLY: (SETTLE_S, ""),
            Outlook.NEW_NODE: (max(spec.autoscale_timeout_s, SETTLE_S), "cluster.autoscale_timeout_s"),
            Outlook.ROOM: (spec.queue_timeout_s, "cluster.queue_timeout_s"),
            Outlook.SOON: (math.inf, ""),
        }
        for trouble in self.troubles:
            limit_s, name = limits[trouble.hope]
            if now - self._since[trouble.hope] >= limit_s:
                worst = self.troubles[0]
                if not limits[worst.hope][1]:  # as a node that is lost, for which others wait in vain
                    raise self.error(worst, self._headline(worst, expected))
                raise self.error(trouble, self._headline(trouble, expected, limit_s), name)
        if now - self._placed_at > spec.start_timeout_s:
            raise self._late(expected, arrived)
        if not self.troubles and arrived == expected and self.is_ending:
            return "others of its pods are still ending"
        if not self.troubles:
            why = "Dask does not know them yet" if self._found[0] else "the operator has not made their pods yet"
            return f"{self._missing(expected, arrived)}; {why}"
        first = self.troubles[0]
        limit_s, name = limits[first.hope]
        waits = f"; waits for up to {limit_s:g} s ({name})" if name else ""
        return f"{self._missing(expected, arrived)}; {self._alike(first)} of their pods: {first.said}{waits}"

    @property
    def seen(self) -> list[Raw]:
        """All pods at the last look, those that are ending too."""
        return self._all

    @property
    def is_ending(self) -> bool:
        """Whether pods are ending: Kubernetes starts the container of a retired worker again, which may yet arrive."""
        return any(self._clock() - since < ENDING_S for since in self._ending.values())

    def ended(self, restarts: Mapping[str, int]) -> list[PodProblem]:
        """Why some of these pods, that ran, do so no more; of what was seen at the last look.

        Args:
            restarts: How often their containers had been started again, by their names.
        """
        found = {pod["metadata"]["name"]: pod for pod in self._all}
        troubles = (failures.trouble_of_ended(found.get(name), name, count) for name, count in restarts.items())
        return [each for each in troubles if each]

    def error(
        self, trouble: PodProblem, what: str = "", limit: str = "", kind: type[ClusterError] = ClusterError
    ) -> ClusterError:
        """The error that tells of a pod that does not run.

        Args:
            trouble: Of the pod.
            what: Happened; by default that it does not run.
            limit: Name of the field that says how long is waited.
            kind: Of the error.
        """
        if trouble.reason == failures.DELETED and self._may("list", "events"):
            trouble = failures.of_deleted(trouble, self._api.events_of(trouble.what))
        log = "" if trouble.from_outside else self.log(trouble)
        cause, step = failures.meaning(trouble, log)
        others = f" and {self._alike(trouble) - 1} more" if self._alike(trouble) > 1 else ""
        told = f"{cause}. Kubernetes says {trouble.said}" if cause else f"Kubernetes says {trouble.said}"
        if log:
            told += "; the end of its log:\n    | " + log.replace("\n", "\n    | ")
        elif trouble.restarts and not trouble.from_outside:
            told += "; its log is empty"
        if limit and trouble.hope is Outlook.NEW_NODE:
            step += f"; where autoscaling adds nodes, set `{limit}`"
        return kind(
            what or self._headline(trouble, 0),
            where=f"{trouble.what}{others}"
            + (f" on {trouble.node}" if trouble.node else "")
            + f", namespace {self._api.namespace}",
            cause=told,
            next_step=step,
        )

    def log(self, trouble: PodProblem) -> str:
        """The last words of the container that ended, or of the one that is there; empty where nothing ever ran."""
        if not trouble.node:
            return ""
        for _ in range(LOG_TRIES):
            before = self._api.log(trouble.what, LOG_LINES, previous=True) if trouble.restarts else ""
            if found := before or self._api.log(trouble.what, LOG_LINES):
                return found
            time.sleep(LOG_INTERVAL_S)  # a container that has just ended is cleared away, and the next one starts
        return ""

    def _headline(self, trouble: PodProblem, expected: int, after_s: float = 0) -> str:
        who = "the scheduler" if failures.is_scheduler(trouble.what) else "a worker"
        if expected and who == "a worker":
            who = f"{self._alike(trouble)} of {expected} workers"
        verb = "do" if "workers" in who else "does"
        after = f" after {after_s:g} s" if after_s else ""
        return f"{who} of {self._label} {verb} not run{after}: {trouble.reason}"

    def _alike(self, trouble: PodProblem) -> int:
        return sum(each.reason == trouble.reason for each in self.troubles)

    def _explained(self, trouble: PodProblem, now: float) -> PodProblem:
        """With what events and the node say of a pod that is started, or waits for a node; asked for now and then."""
        if trouble.hope in (Outlook.NEVER, Outlook.HARDLY):
            return trouble
        name, node = trouble.what, trouble.node
        if now - self._asked_at > EVENTS_INTERVAL_S:
            self._asked_at = now
            self._events = {name: self._api.events_of(name)} if self._may("list", "events") else {}
            self._nodes = {node: self._api.node(node)} if node and self._may("get", "nodes") else {}
        trouble = failures.explained(trouble, self._events.get(name, ()))
        return failures.lost_node(trouble, self._nodes[node]) if node in self._nodes else trouble

    def _may(self, verb: str, what: str) -> bool:
        if what not in self._rights:
            self._rights[what] = self._api.may(verb, "", what)
        return self._rights[what]

    def _blame_the_operator(self, waited_s: float) -> None:
        where = f"cluster {self._label} in namespace {self._api.namespace}"
        words = failures.operator_words([self._api.cluster(self._label) or {}, *self._api.groups(self._label)])
        is_late = not any(self._found) and waited_s > (OPERATOR_S + RETRY_S if words else OPERATOR_S)
        if failures.is_refusal(words) or (words and is_late):
            raise failures.operator_fails(self._label, words, where)
        operators = [] if words or any(self._found) else self._api.operators()
        if is_late or failures.is_switched_off(operators):
            raise failures.operator_away(where, operators)

    def _is_ours(self, found: Raw) -> bool:
        return self._component in ("", found["metadata"]["labels"].get(COMPONENT)) and not self._ends(found)

    def _ends(self, found: Raw) -> bool:
        group = found["metadata"]["labels"].get(WORKER_GROUP)
        is_left_over = group is not None and self._groups is not None and group not in self._groups
        return is_left_over or "deletionTimestamp" in found["metadata"]

    def _missing(self, expected: int, arrived: int) -> str:
        if self._component == "scheduler":
            return "the scheduler is missing"
        if arrived > expected:
            return f"{arrived - expected} workers more than {expected}"
        return f"{expected - arrived} of {expected} workers missing"

    def _late(self, expected: int, arrived: int) -> ClusterError:
        what = f"{self._missing(expected, arrived)} after {self._spec.start_timeout_s:g} s"
        if self.troubles:
            return self.error(self.troubles[0], what, kind=WorkersMissing)
        cause = "their pods run, but do not reach the scheduler: a network policy may be between them"
        if arrived > expected:
            cause = "the operator could not retire them: they hold data for which the others have no memory"
        logs = [text for pod in self._found[0][:1] if (text := self._api.log(pod["metadata"]["name"], LOG_LINES))]
        return WorkersMissing(
            what,
            where=f"cluster {self._label} in namespace {self._api.namespace}",
            cause="; the end of the log of the first:\n    | ".join(
                [cause, *(log.replace("\n", "\n    | ") for log in logs)]
            ),
            next_step=f"`kubectl get pods -l app.kubernetes.io/instance={self._label}` shows them; raise "
            "`cluster.start_timeout_s` on busy nodes",
        )
