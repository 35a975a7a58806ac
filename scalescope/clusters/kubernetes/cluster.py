"""A cluster on Kubernetes."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar
from urllib.parse import urlsplit

import cloudpickle
import distributed
from distributed.security import Security

from scalescope import leases
from scalescope.clusters import reaping, trial_watch
from scalescope.clusters.kubernetes import counters, manifests, preflight, retire_order
from scalescope.clusters.kubernetes.api import Api, Raw
from scalescope.clusters.kubernetes.cluster_lease import LEDGER_S, Renewer, begun
from scalescope.clusters.kubernetes.failures import refusal
from scalescope.clusters.kubernetes.pod_changes import changes
from scalescope.clusters.kubernetes.pod_problems import restarts
from scalescope.clusters.kubernetes.pod_record import PodRecord
from scalescope.clusters.kubernetes.pod_watch import SETTLE_S, PodWatch
from scalescope.clusters.kubernetes.removal import ENDING, LOST, remove
from scalescope.clusters.kubernetes.spec import KubernetesSpec
from scalescope.clusters.observed_cluster import ObservedCluster, root_cause, versions_of
from scalescope.clusters.reaping import Fate
from scalescope.errors import ClusterError, RequestRefused
from scalescope.leases import Lease
from scalescope.model.records import Columns
from scalescope.model.sweep import Point
from scalescope.model.trial import SILENT
from scalescope.model.workload import Workload
from scalescope.owner import Owner

CLOSE_TIMEOUT_S = 15.0  # seconds for everything of a cluster to be gone
CONNECT_TIMEOUT_S = 30.0  # seconds for the scheduler to answer
REPORT_INTERVAL_S = 15.0  # seconds between two reports in the same words
LOOK_INTERVAL_S = 0.5  # seconds between two looks at the pods
NODE_NOTICED_S = 50.0  # seconds within which Kubernetes notices a lost node; its default is 40
# A silence of the API server makes a trial invalid if it exceeds both these seconds and `trial_watch.PART` of the
# trial. A busy server may need 1 s to answer.
LEAST_SILENT_S = 2.0

_INSTALLS = re.compile("EXTRA_(APT|CONDA|PIP)_PACKAGES=").match  # variables by which pods install packages at start
_logger = logging.getLogger(__name__)


class KubernetesCluster(ObservedCluster[KubernetesSpec]):
    """A scheduler and workers in a pod each, made by the Dask operator from one custom resource.

    The phase of the resource may stay Pending (https://github.com/dask/dask-kubernetes/issues/968), so it is not read.
    """

    shows: ClassVar[str] = (
        "what the nodes do: real pods, their network and accelerators, serialisation, memory, interpreter locks"
    )
    cannot_show: ClassVar[str] = (
        "what other pods on the nodes do meanwhile; from outside Kubernetes, results pass through the API server"
    )

    def __init__(self, spec: KubernetesSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self.label = leases.new_label()
        self._api: Api | None = None
        self._lease: Lease | None = None
        self._record: PodRecord | None = None
        self._renewer: Renewer | None = None
        self._asking = threading.Lock()
        self._security: Security | None = None
        self._uid = self._address = self._lost = ""
        # The main group of workers has an empty name.
        self._sizes: dict[str, int] = {}  # number of workers by group
        self._made: dict[str, str] = {}  # name of the custom resource by group
        self._most = 0.0  # largest number of worker Deployments if only one operator runs; more are an error
        self._whole: set[str] = set()  # groups that have all their workers
        self._threads, self._serial = 0, 0
        self._scheduler: list[Raw] = []
        self._pods: list[Raw] = []
        self._waited_s = 0.0
        self._facts: dict[str, Any] = {}
        self._counted: dict[str, dict[str, float]] = {}

    # ---------------------------------------------------------------- from open to close

    def open(self) -> None:
        spec = self.spec
        if any(_INSTALLS(each) for name in ("", *spec.group_names) for each in spec.group(name).environment):
            _logger.warning(
                "every pod installs packages when it starts, which takes time, and versions may differ each time; "
                "for measurements, build an image with the packages"
            )
        self._api = api = Api(spec.context, spec.namespace, answered=self.answered)
        self._record = PodRecord(api, self.label)
        try:
            for each in reaping.reap_here((self.kind,), Owner.current()):  # clusters left by an earlier `close`
                self.report(f"cluster {each.label} of an earlier trial: {each.fate} ({each.words})")
                if each.fate is Fate.REMOVED:
                    self.removed.add(each.label)
            preflight.check(api, spec, self.label)
            self._security = Security.temporary() if spec.tls else None
            known = {"context": spec.context, "namespace": api.namespace, "server": api.server}
            known["kubeconfig"] = os.environ.get("KUBECONFIG", "")
            limit_s = LEDGER_S + spec.idle_timeout_s
            asked = manifests.cluster(spec, self.label, api.namespace)
            asked["metadata"]["annotations"] = {**asked["metadata"]["annotations"], **begun(api)}
            with self._asking:
                self._kube()  # raises if another thread has closed the cluster
                self._lease = leases.intend(self.kind, self.label, known, limit_s=limit_s)
                self._uid = str(self._create(api, asked)["metadata"]["uid"])
                self._renewer = Renewer(api, self._lease, limit_s)
            self._create(api, manifests.secret(spec, self.label, self._uid, self._security))
            self._scheduler = self._await("scheduler", 1, lambda pods: len(pods) == 1)
            self._connect(api, self._scheduler[0])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove everything, and wait until it is gone."""
        self._disconnect()
        with self._asking:
            lease, self._lease = self._lease, None
            api, self._api = self._api, None
            renewer, self._renewer = self._renewer, None
        if renewer is not None:
            renewer.stop()
        if api is None:
            return
        with api:
            if lease is None:
                return
            api.patience_s = CLOSE_TIMEOUT_S
            try:
                left = remove(api, self.label, CLOSE_TIMEOUT_S)
            except ClusterError as error:
                left = [str(error)]
        is_ending = all(each.endswith(ENDING) for each in left)
        (leases.release if is_ending else leases.abandon)(lease)
        if left:
            self.left = self._told_left(left, is_ending)

    def _told_left(self, left: list[str], is_ending: bool) -> str:
        """What `close` could not remove, in a sentence."""
        if all(each.endswith((ENDING, LOST)) for each in left):
            now = "" if is_ending else "; `scalescope reap` removes them now"
            return f"{self.label} is deleted; Kubernetes keeps {', '.join(left)} until the node is back or removed{now}"
        why = "; ".join(" ".join(each.split()) for each in left)  # errors on one line each
        return (
            f"{self.label} could not be removed: the operator will remove this cluster once it has been idle for "
            f"{self.spec.idle_timeout_s} s; to remove it now, run `scalescope reap` with valid credentials: {why}"
        )

    def facts(self) -> dict[str, Any]:
        layout = f"a pod for each worker, made by the Dask operator; {'tls' if self.spec.tls else 'tcp'}"
        return {
            **super().facts(),
            "layout": layout,
            "label": self.label,
            "image": manifests.image(self.spec),
            "workers": sum(self._sizes.values()),
            **({"groups": {name: number for name, number in self._sizes.items() if name}} if self.spec.groups else {}),
            "threads_per_worker": self._threads,
            "waited_for_workers_s": round(self._waited_s, 3),
            "manifest": manifests.text(self.spec, self._sizes, self._threads or 1),
            **self._facts,
        }

    def submission(self, workers: int, threads_per_worker: int) -> str:
        return manifests.text(self.spec, self._asked(workers), threads_per_worker)

    # ---------------------------------------------------------------- sizes

    def scale(self, workers: int, threads_per_worker: int) -> None:
        """Have exactly these workers; a group is replaced if its threads change or some of its workers were lost."""
        self._open()
        began, self._facts = time.monotonic(), {}
        api = self._kube()
        api.silent_s = 0.0
        try:
            self._ask_for(api, self._asked(workers), threads_per_worker)
            self._pods = self._await("worker", workers, self._has_arrived)
            if len(self._images()) > 1:
                found = self._open().get_versions()["workers"].values()
                self._check_versions(each["packages"] for each in found)
        finally:
            self._waited_s = time.monotonic() - began
        pods = self._recorded().place(self._pods, list(self._present))
        self._facts = {"pods": pods, "changed": self._changed()}
        self._counted = self._count()

    def _asked(self, workers: int) -> dict[str, int]:
        further = {name: self.groups.get(name, 0) for name in self.spec.group_names}
        return {"": workers - sum(further.values()), **further}

    def _ask_for(self, api: Api, sizes: dict[str, int], threads: int) -> None:
        if api.cluster(self.label) is None:
            raise self._gone()
        # A group that is not whole is replaced: Kubernetes waits longer before each restart of a container, and the
        # operator does not retire workers that it does not know yet.
        kept = self._whole & self._made.keys() if threads == self._threads else set()
        before, self._sizes, self._threads = self._sizes, sizes, threads
        self._whole, self._lost = set(), ""
        self._most = sum(max(number, before[name]) if name in kept else number for name, number in sizes.items())
        self._retire_next({self._made[name]: before[name] - sizes[name] for name in kept})
        for name, number in sizes.items():
            if name in kept:
                if number != before[name]:
                    api.resize(self._made[name], number)
                continue
            if made := self._made.pop(name, ""):
                api.delete_workers(made)
            if number:
                self._make(api, name)

    def _make(self, api: Api, group: str) -> None:
        self._serial += 1
        made = manifests.workers(
            self.spec,
            self.label,
            api.namespace,
            number=self._sizes[group],
            threads=self._threads,
            group=group,
            serial=self._serial,
            owner=self._uid,
        )
        self._made[group] = made["metadata"]["name"]
        self._create(api, made)

    def _retire_next(self, surplus: Mapping[str, int]) -> None:
        """Tell the scheduler which workers to retire next; the operator only says how many, of any group."""
        leaving: list[str] = []
        for group, number in surplus.items():
            leaving += [pod["status"]["podIP"] for pod in self._pods if _group_of(pod) == group][: max(number, 0)]
        if leaving:
            self._on_scheduler(retire_order, "retire_next", leaving)

    def _has_arrived(self, pods: list[Raw]) -> bool:
        """Whether exactly these pods are the requested workers."""
        try:  # limited, or this would wait for as long as the API server is silent
            present = self._open().nthreads(callback_timeout=CONNECT_TIMEOUT_S)
            self._present = {str(address): int(number) for address, number in present.items()}
        except (OSError, TimeoutError) as error:
            raise self._silent(error) from error
        known = self._hosts()
        found = Counter(_group_of(pod) for pod in pods if pod["status"]["podIP"] in known)
        self._whole = {name for name, number in self._sizes.items() if found[self._made.get(name, "")] == number}
        return (
            self._whole == self._sizes.keys()
            and len(pods) == len(self._present) == sum(self._sizes.values())
            and set(self._present.values()) <= {self._threads}
        )

    def _hosts(self) -> set[str]:
        """Addresses of the pods whose workers Dask knows."""
        return {str(urlsplit(address).hostname) for address in self._present}

    def _await(self, component: str, number: int, is_there: Callable[[list[Raw]], bool]) -> list[Raw]:
        most = self._most if component == "worker" else 1
        watch = self._pod_watch(component, self._made.values(), most=most)
        said, said_at = "", 0.0
        while True:
            pods = watch.look()
            self._recorded().read_ending(watch.seen)
            if is_there(pods) and not watch.problems and not watch.is_ending:
                return pods
            words = watch.check(number, self._hosts() if component == "worker" else ())
            now = time.monotonic()
            if words != said or now - said_at > REPORT_INTERVAL_S:
                said, said_at = words, now
                self.report(words)
            time.sleep(LOOK_INTERVAL_S)

    # ---------------------------------------------------------------- trials

    @contextmanager
    def running(self, workload: Workload, point: Point) -> Iterator[None]:
        """Watch the pods; if some are lost, find out why and end the trial, which would wait for them forever."""
        api = self._kube()
        watch = self._pod_watch("")
        names = {pod["metadata"]["name"]: restarts(pod) for pod in [*self._pods, *self._scheduler]}
        gone: set[str] = set()

        def intact() -> int:
            try:
                watch.look()
            except RequestRefused as error:
                _logger.warning("the pods of %s cannot be watched now: %s", self.label, error)
                return len(names)
            gone.update(problem.pod for problem in watch.ended(names, SETTLE_S))
            return len(names) - len(gone)

        def explain(arrived: int) -> None:
            self._recorded().read_ending(watch.seen)
            if ended := watch.ended(names):
                error = watch.error(ended[0])
                self._facts["lost"] = error.category
                raise error

        def cancel() -> None:
            try:
                self._on_scheduler(trial_watch, "cancel_everything")
            except ClusterError as error:
                raise RuntimeError("the scheduler does not answer") from error

        self._lost = ""
        api.silent_s, began = 0.0, time.monotonic()
        watching = trial_watch.WorkerWatch(
            len(names),
            arrived=intact,
            explain=explain,
            missing=lambda: f"cluster {self.label}",
            cancel=cancel,
            what="pods (of the workers and the scheduler)",
        )
        with watching:
            yield
        if watching.lost:
            self._lost = watching.lost
            broken = {_group_of(pod) for pod in self._pods if pod["metadata"]["name"] in gone}
            self._whole = {group for group in self._whole if self._made.get(group) not in broken}
        if not api.is_inside and api.silent_s > max(LEAST_SILENT_S, trial_watch.PART * (time.monotonic() - began)):
            self._lost = self._was_away(api)  # after an outage, nodes may seem lost that are not

    def losses(self) -> str:
        observer = self._observer
        if not self._lost and observer is not None and (observer.scheduler is None or observer.status != "running"):
            self._lost = self._why_cut_off()
        return self._lost

    def _why_cut_off(self) -> str:
        """Why the scheduler is unreachable; waits until Kubernetes can tell. Empty if the scheduler's pod is well."""
        deadline = time.monotonic() + NODE_NOTICED_S
        while time.monotonic() < deadline:
            try:
                if found := self._end_of_scheduler():
                    return str(found)
            except ClusterError as error:
                return str(error)
            time.sleep(LOOK_INTERVAL_S)
        return ""

    def outage(self) -> str:
        api = self._api
        if api is None or api.is_inside:
            return ""
        try:
            api.cluster(self.label)  # waits for a server that is still away
        except RequestRefused as error:
            if error.ends_run:
                raise
            return ""
        return self._was_away(api) if api.silent_s > LEAST_SILENT_S else ""

    def records(self) -> dict[str, Columns]:
        """Logs of all pods, and Kubernetes's events; adds the growth of counters to the facts."""
        if self._whole == self._sizes.keys():
            try:
                self._facts["counters"] = counters.grown(self._counted, self._count())
            except ClusterError as error:
                _logger.warning("the counters of %s cannot be read: %s", self.label, error)
        return {"logs": self._recorded().of_trial()}

    # ---------------------------------------------------------------- parts

    def _was_away(self, api: Api) -> str:
        self._facts[SILENT] = f"Kubernetes did not answer for {api.silent_s:.0f} s"
        detail = "a driver outside Kubernetes gets results through the API server, so the trial does not count"
        return str(refusal(self._facts[SILENT], api.server, "Silent", detail=detail))

    def _create(self, api: Api, manifest: Raw) -> Raw:
        if run := os.environ.get(leases.RUN):
            manifest["metadata"]["labels"][manifests.RUN] = run
        try:
            return api.create(manifest)
        except RequestRefused as error:
            if error.category == "quota":
                error.ends_run = not preflight.may_pass(error.what)
            raise

    def _connect(self, api: Api, scheduler: Raw) -> None:
        self._address = manifests.scheduler_address(self.spec, self.label, api.namespace)
        if not api.is_inside:
            port = api.forward(scheduler["metadata"]["name"], manifests.COMM_PORT)
            self._address = f"{urlsplit(self._address).scheme}://127.0.0.1:{port}"
        try:
            self._check_versions([versions_of(self._address, self._security, CONNECT_TIMEOUT_S)])
            self._observer = self.connect()
        except ClusterError as error:
            error.ends_run = True  # every point uses this image
            raise
        except Exception as error:  # connecting to another release can raise any error
            raise self._end_of_scheduler() or ClusterError(
                "the scheduler runs, but cannot be reached",
                where=f"{self._address}, pod {scheduler['metadata']['name']}",
                cause=root_cause(error),
                next_step="read its log (`kubectl logs`); check network policies and service meshes (`cluster.tls`)",
                category="no-connection",
            ) from error

    def _check_versions(self, found: Iterable[Mapping[str, str]]) -> None:
        """Refuse images with another Python or distributed than ours: the errors that follow would not say so."""
        here = _versions(distributed.versions.get_versions()["packages"])
        for there in map(_versions, found):
            if there != here:
                raise ClusterError(
                    "the image has other versions than the driver",
                    where=", ".join(self._images()),
                    cause=f"the image has {there}; the driver has {here}",
                    next_step="set a `cluster.image` with the driver's versions, or install the image's versions here",
                    category="other-versions",
                )

    def _images(self) -> list[str]:
        return list(dict.fromkeys(manifests.image(self.spec.group(name)) for name in ("", *self.spec.group_names)))

    def connect(self) -> distributed.Client:
        return distributed.Client(
            self._address, security=self._security, timeout=CONNECT_TIMEOUT_S, set_as_default=False
        )

    def _gone(self) -> ClusterError:
        return ClusterError(
            f"the cluster {self.label} was removed",
            where=f"namespace {self._kube().namespace}",
            cause=f"the cluster did nothing for {self.spec.idle_timeout_s} s, or somebody deleted it",
            next_step="raise `cluster.idle_timeout_s`, and run again",
            category="deleted",
        )

    def _end_of_scheduler(self) -> ClusterError | None:
        watch = self._pod_watch("scheduler")
        watch.look()
        ended = watch.ended({pod["metadata"]["name"]: restarts(pod) for pod in self._scheduler})
        return watch.error(ended[0]) if ended else None

    def _silent(self, error: Exception) -> ClusterError:
        return self._end_of_scheduler() or ClusterError(
            "the scheduler does not answer",
            where=f"{self._address}, cluster {self.label}",
            cause=root_cause(error),
            next_step=f"`kubectl logs -l app.kubernetes.io/instance={self.label}` shows its log",
            category="no-connection",
        )

    def _count(self) -> dict[str, dict[str, float]]:
        of_scheduler = self._on_scheduler(counters, "read")
        try:
            return {"scheduler": of_scheduler, **self._open().run(counters.read, on_error="ignore")}
        except (OSError, ValueError, TimeoutError) as error:
            raise self._silent(error) from error

    def _on_scheduler(self, module: ModuleType, name: str, *given: object) -> Any:
        cloudpickle.register_pickle_by_value(module)  # so the image need not contain the module
        try:
            return self._open().run_on_scheduler(getattr(module, name), *given, callback_timeout=CONNECT_TIMEOUT_S)
        except (OSError, ValueError, TimeoutError) as error:
            raise self._silent(error) from error

    def _pod_watch(self, component: str, groups: Collection[str] | None = None, most: float = math.inf) -> PodWatch:
        return PodWatch(self._kube(), self.label, component, self.spec, groups, most=most, asked=self._manifest_of)

    def _manifest_of(self, pod: Raw) -> Raw | None:
        """The manifest of a pod of ours; None if its group has been replaced."""
        group = pod["metadata"]["labels"].get(manifests.WORKER_GROUP)
        groups = {made: name for name, made in self._made.items()}
        if group is None:
            asked = manifests.scheduler_pod(self.spec, self.label)
        elif group in groups:
            namespace = self._kube().namespace
            asked = manifests.worker_pod(self.spec, self.label, namespace, self._threads, groups[group])
        else:
            return None
        return manifests.trial_pod(self.spec, asked, self.label)

    def _changed(self) -> list[str]:
        """Differences between our pods and their manifests, in words."""
        given = [(self._manifest_of(pod), pod) for pod in [*self._scheduler, *self._pods]]
        found = [changes(asked, pod) for asked, pod in given if asked is not None]
        return list(dict.fromkeys(words for each in found for words in each.values()))

    def _recorded(self) -> PodRecord:
        if self._record is None:
            raise self._not_open()
        return self._record

    def _kube(self) -> Api:
        if self._api is None:
            raise self._not_open()
        return self._api


def _group_of(pod: Raw) -> str:
    return str(pod["metadata"]["labels"][manifests.WORKER_GROUP])


def _versions(packages: Mapping[str, str]) -> str:
    """The versions that driver and image must share."""
    python = ".".join(packages["python"].split(".")[:2])
    return f"Python {python} and distributed {packages['distributed']}"
