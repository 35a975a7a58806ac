"""The open cluster and the trials on it."""

from __future__ import annotations

import copy
import gc
import logging
import platform
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import distributed

from scalescope import clusters, workloads
from scalescope.capture import host
from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.live import standing_tasks
from scalescope.capture.live.remote_calls import ClientCalls
from scalescope.capture.partition_calls import noted
from scalescope.capture.recording import Capture
from scalescope.capture.shipping import Shipment
from scalescope.clusters.observed_cluster import close_client
from scalescope.clusters.trial_watch import HaltWatch
from scalescope.driver import sent_functions
from scalescope.driver.attempt import Attempt, changes, checked_result, describe
from scalescope.driver.protocol import Open, RunTrial
from scalescope.errors import ClusterError, DriverError, InfrastructureError, WorkersMissing, WrongAnswer
from scalescope.model import spool
from scalescope.model.cluster import cluster_spec
from scalescope.model.fault import NONE, parse
from scalescope.model.spool import Columns
from scalescope.model.standstill import STANDSTILL, STILL_S
from scalescope.model.sweep import FAULT, Point
from scalescope.model.trial import STOOD_STILL
from scalescope.workloads._beam import around as around_beam

if TYPE_CHECKING:
    from scalescope.clusters.base import Cluster
    from scalescope.model.workload import Workload

logger = logging.getLogger(__name__)

SCALE_LIMIT_S, LOAD_LIMIT_S, RECORD_LIMIT_S, CLEAR_LIMIT_S = 150.0, 120.0, 300.0, 60.0
"""Real seconds for what is not the workload's: scale a cluster (where its specification has no limit of its own),
import a workload, take in the records, clear up."""

IMPORT_TIMEOUT_S = 60.0
"""Seconds within which workers, and then the scheduler, should have imported what a trial needs; it runs anyway."""

LIMIT_MARGIN_S = 30.0
"""Added to the limit of a specification, so that the cluster's own error comes first."""

ASK_TIMEOUT_S, LAST_WORD_S = 30.0, 5.0
"""Seconds within which a scheduler must answer a question of the driver, and one at the time limit of a trial."""

RUNNING = "running"
"""The phase that has the time limit of its trial."""

DRAIN_LIMIT_S = 3.0
"""Seconds within which tasks must have ended after their trial; else the cluster is opened anew."""

DRAIN_INTERVAL_S = 2.0
"""Real seconds between two collections of records during a trial. In simulated time they are collected at its end."""

RECORDS, CLUSTER_RECORDS, CLIENT_RECORDS = "records.spool", "cluster.spool", "client.spool"
_CAPTURE_FACTS = (
    "tasks",
    "t_begin",
    "t_end",
    "clock_error_s",
    "received_bytes",
    "spooled_bytes",
    "notes",
    "gpus",
)


def proof(asked: Mapping[str, str]) -> distributed.Security | None:
    """Certificates for a client that a workload opens by the address of its cluster, as Beam's runner does."""
    client = distributed.default_client()
    return client.security if asked["address"] == client.scheduler.address else None


class OpenCluster:
    """Opens clusters as trials need them, and runs the trials.

    All methods but `abandon` and `stands` are the main thread's.

    Args:
        enter: Called at the beginning of each phase with its name, its limit in real seconds, and a text for people.
        packages: Digest of the packages that are installed.

    Attributes:
        function: What the trial in progress runs, once it is known.
        opening: Whether the main thread waits for a cluster elsewhere, which may take long.
    """

    def __init__(self, enter: Callable[[str, float, str], None], packages: str) -> None:
        self._enter = enter
        self._packages = packages
        self._request: Open | None = None
        self._cluster: Cluster[Any] | None = None
        self._config: dict[str, Any] = {}
        self._opened = ExitStack()
        self._capture: Capture | None = None
        self._observer: distributed.Client | None = None
        self._client: distributed.Client | None = None
        self._workloads: dict[str, Workload] = {}
        self._imported: set[tuple[str, str]] = set()  # workload, and an address that was asked to import
        self._dask_config: dict[str, Any] | None = None
        self._spoiled = False
        self._anew = ""  # why the next trial has a cluster of its own
        self.function: Callable[..., Any] | None = None
        self.opening = False

    # ---------------------------------------------------------------- the cluster

    def open(self, request: Open) -> dict[str, Any]:
        """Open a cluster, in place of the one that is open. Returns its facts.

        Raises:
            ScalescopeError: The specification is wrong, or the cluster did not start.
        """
        self._request = request
        return self._open({})

    def _open(self, config: dict[str, Any]) -> dict[str, Any]:
        if self._request is None:
            raise DriverError("a trial was asked for before a cluster was opened", where="driver protocol")
        self.close()
        spec = cluster_spec(self._request.cluster)
        limit = spec.open_limit_s + LIMIT_MARGIN_S
        self._enter("opening", limit, f"opening the {spec.kind} cluster")
        self._config = config
        self._imported.clear()
        self._cluster = clusters.build(spec, seed=self._request.seed)
        scratch = {}
        if spec.here and dask.config.get("temporary-directory", None) is None:
            scratch["temporary-directory"] = self._request.folder  # goes with it; no other worker clears up after these
        self._opened.enter_context(dask.config.set({**scratch, **self._cluster.dask_config, **config}))
        self._cluster.report = lambda text: self._enter("opening", limit, text)
        self.opening = not spec.here
        try:
            self._cluster.open()
        except BaseException:
            self.close()
            raise
        finally:
            self.opening = False
        return self._cluster.facts()

    def close(self) -> None:
        """Close the cluster and what is connected to it."""
        self._disconnect()
        cluster, self._cluster = self._cluster, None
        try:
            if cluster is not None:
                cluster.close()
        finally:
            self._spoiled = False
            self._opened.close()

    def abandon(self) -> None:
        """End the cluster's processes while the main thread is busy with it; for the end of the driver."""
        cluster = self._cluster
        if cluster is not None and cluster.spec.real_time:  # a simulated one lives in this process alone
            cluster.close()

    def stands(self, limit_s: float) -> tuple[str, dict[str, Any]]:
        """Where the tasks of the trial stand while the main thread is busy with it: in words, and as a fact of it.

        Args:
            limit_s: The time limit that is over: a trial that stood for half of it has come to a standstill.
        """
        cluster, client = self._cluster, self._observer
        if cluster is None or client is None:
            return "there is no cluster", {}
        try:
            enough_s = min(STILL_S, limit_s / 2) if cluster.spec.real_time else STILL_S
            found = standing_tasks.standstill(ClientCalls(client), LAST_WORD_S, enough_s)
        except Exception:
            logger.exception("the scheduler did not say where its tasks stand")
            return "the scheduler did not say where its tasks stand", {}
        return found.sentence("" if cluster.spec.real_time else " of simulated time"), {STANDSTILL: found.to_mapping()}

    def idle(self) -> AbstractContextManager[None]:
        """Hold while waiting for a request."""
        return nullcontext() if self._cluster is None else self._cluster.idle()

    # ---------------------------------------------------------------- trials

    def run(self, request: RunTrial) -> Attempt:
        """Run a trial. What goes wrong is in the attempt.

        Raises:
            InfrastructureError: No trial can have workers, or be recorded (`ends_run`).
        """
        attempt = Attempt()
        try:
            self._attempt(request, attempt)
        except InfrastructureError as error:
            if error.ends_run:
                self._spoiled = True
                raise
            attempt.problem = str(error)
            attempt.error = describe(error)
            self._spoiled = True
            self._keep(request, attempt)
            if self._cluster is not None:
                attempt.facts["cluster"] = self._cluster.facts()
        except Exception as error:  # noqa: BLE001 - of the cluster or of ours: reported with the trial it spoiled
            attempt.error = describe(error)
            attempt.problem = f"the driver could not run the trial: {attempt.error['message']}"
            if self._cluster is not None and not self._cluster.is_whole():
                attempt.problem = (
                    f"a process of the {self._cluster.kind} cluster ended during the trial, such as its scheduler"
                )
            self._spoiled = True
        self.function = None
        return attempt

    def _attempt(self, request: RunTrial, attempt: Attempt) -> None:
        point = Point.from_mapping(request.point)
        attempt.facts.update(self._facts(point))
        self._enter("loading", LOAD_LIMIT_S, f"loading workload {request.workload}")
        try:
            workload = self._load(request.workload)
        except Exception as error:  # noqa: BLE001 - importing it runs the user's code
            attempt.error = describe(error)
            attempt.raised = f"the workload cannot be loaded: {attempt.error['message']}"
            return
        attempt.facts |= {"imports": list(workload.modules), "modelled": workload.modelled, "code": workload.code}
        cluster = self._prepare(point, workload.folder)
        attempt.warnings += filter(None, [self._anew])
        self._anew = ""
        before = self._workers()
        wrong = [name for name, threads, _ in before.values() if threads != point.threads_per_worker]
        if len(before) != point.workers or wrong:
            raise WorkersMissing(
                f"the scheduler knows {len(before)} workers, {len(wrong)} of them with the wrong threads, where "
                f"{point.workers} of {point.threads_per_worker} threads were asked for",
                where=f"{cluster.kind} cluster",
                cause="workers came or went between scaling and the trial",
                next_step="run the trial again; look into the driver's log if it happens again",
            )
        if cluster.spec.real_time:
            attempt.warnings += filter(None, [self._import(workload, before)])
        left = self._measure(request, workload, point, attempt)
        lost = changes(before, self._workers(), left)
        changed = "; ".join(part for part in (lost, cluster.losses()) if part)
        if workload.changes_workers or point.fault:
            attempt.facts["changed_workers"] = changed
        else:
            attempt.changes = changed
        self._keep(request, attempt)
        attempt.facts["cluster"] = cluster.facts()

    def _prepare(self, point: Point, folder: str) -> Cluster[Any]:
        """Have a cluster with the point's configuration and workers, and be connected to it."""
        if self._cluster is None or not self._cluster.is_whole() or self._config != dict(point.dask_config):
            self._open(dict(point.dask_config))
        cluster = self._cluster
        assert cluster is not None
        limit = (cluster.spec.arrival_limit_s or SCALE_LIMIT_S) + LIMIT_MARGIN_S
        self._enter("scaling", limit, f"scaling to {point.workers} workers of {point.threads_per_worker} threads")
        if not cluster.spec.real_time:  # a simulated cluster starts a new scheduler whenever it is scaled
            self._disconnect()
        cluster.report = lambda text: self._enter("scaling", limit, text)
        cluster.groups, cluster.folder = point.groups, folder
        cluster.scale(point.workers, point.threads_per_worker)
        if self._observer is None:
            self._observer = cluster.client()
            assert self._request is not None
            self._capture = Capture(
                self._observer,
                drain_interval_s=DRAIN_INTERVAL_S if cluster.spec.real_time else None,
                log_folder=Path(self._request.folder, "worker-logs") if cluster.nannies else None,
            )
        if not self._forget() or (self._anew and self._still_run()):
            raise ClusterError(
                "the cluster has tasks before the trial begins",
                where=f"{cluster.kind} cluster",
                cause="another client is using it, or tasks of an earlier trial still run",
                next_step="give the trial a cluster of its own",
            )
        return cluster

    def _import(self, workload: Workload, workers: Collection[str]) -> str:
        """Have every process import what the workload imports; else its first tasks would, at some points of a sweep.

        What cannot be imported is left to the tasks, which say so themselves if they need it.

        Returns:
            Why the first tasks may import it all the same; else nothing.
        """
        assert self._observer is not None
        wanting = [address for address in workers if (workload.name, address) not in self._imported]
        if not wanting:
            return ""
        self._imported.update((workload.name, address) for address in wanting)
        packages = (package.replace("-", "_") for package in workload.packages)
        modules = [*packages, workload.run.__module__, *workload.modules]
        text = f"importing the workload's modules in the scheduler and {len(wanting)} workers"
        self._enter("importing", 2 * IMPORT_TIMEOUT_S + LIMIT_MARGIN_S, text)
        function = Shipment(sent_functions, "import_modules")
        asked = {"modules": modules, "callback_timeout": IMPORT_TIMEOUT_S}
        try:
            self._observer.run(function, workers=wanting, on_error="ignore", **asked)
            self._observer.run_on_scheduler(function, **asked)
        except (OSError, ValueError, TimeoutError) as error:
            why = f"{type(error).__name__}: {error}".rstrip(": ")
            return f"not all processes imported what the workload needs before the trial ({why}): its first tasks may"
        return ""

    def _measure(self, request: RunTrial, workload: Workload, point: Point, attempt: Attempt) -> list[str]:
        """Run and record. Returns the addresses of workers that left meanwhile."""
        cluster, capture = self._cluster, self._capture
        assert cluster is not None
        assert capture is not None
        self._dask_config = copy.deepcopy(dask.config.config)
        self._client = client = cluster.client()
        # The default as in a script, not `client.as_current()`: there, a client that the workload opens takes over.
        # Beam waits on the event loop of the default client; were that not its own, it would notice the end of its
        # tasks only when something else wakes that loop, such as a heartbeat.
        distributed.client._set_global_client(client)
        dask.config.set({"distributed.client.security-loader": f"{__name__}.proof"})
        load = host.HostLoad()
        self._enter("preparing to record", RECORD_LIMIT_S, "installing the recorder")
        with capture.trial(Path(request.spool, RECORDS)) as recording, load:
            self.function = workload.run
            self._enter(RUNNING, request.timeout_s, f"running {workload.name} with {dict(point.params)}")
            fault = parse(FAULT, point.fault or NONE, cluster.spec.faults, cluster.kind)
            breaking = cluster.breaking(fault) if fault else None
            halts = HaltWatch() if cluster.spec.real_time and fault is None else None  # a fault may be a halt
            watch = ClientWatch(workload.run, cluster.time, cluster.watched)
            with (
                halts or nullcontext(),
                cluster.running(workload, point),
                around_beam(workload, client.scheduler.address),
                noted(workload.modules) as asked,
                breaking or nullcontext(),
                watch,
            ):
                try:
                    result = workload.run(client, **point.params)
                except InfrastructureError:
                    raise
                except BaseException as error:  # noqa: BLE001 - its sys.exit must not end the driver
                    attempt.error = describe(error)
                    verb = "computed a wrong answer:" if isinstance(error, WrongAnswer) else "raised"
                    attempt.raised = f"the workload {verb} {attempt.error['message']}"
            if not attempt.raised:
                attempt.elapsed_s = watch.ended - watch.began
            if halts is not None and halts.reason:
                attempt.problem = attempt.facts[STOOD_STILL] = halts.reason
            self._enter("recording", RECORD_LIMIT_S, "reading the records")
            kept = {"client": watch.columns(recording.ahead_s)}
            if breaking is not None:
                attempt.facts[FAULT] = breaking.facts
                if breaking.problem:
                    attempt.problem = f"the fault {point.fault} did not fire: {breaking.problem}"
                else:
                    kept["faults"] = breaking.columns(recording.ahead_s)
            self._write(Path(request.spool, CLIENT_RECORDS), kept, attempt)
        if recording.no_room:
            raise spool.unwritable(Path(request.spool), recording.reason)
        if not attempt.raised:
            attempt.result, attempt.raised = checked_result(result)
        attempt.warnings += recording.warnings
        attempt.missing = "" if recording.complete else recording.reason
        attempt.facts["asked"] = [each.to_mapping() for each in asked]
        attempt.facts["host"] = {"load": load.load.to_mapping() if load.load else None, "load_unknown": load.reason}
        attempt.facts["capture"] = {name: getattr(recording, name) for name in _CAPTURE_FACTS}
        return recording.workers_left

    def _keep(self, request: RunTrial, attempt: Attempt) -> None:
        """Keep what the cluster itself has recorded, also of a trial that could not run."""
        if self._cluster is None:
            return
        self._enter("recording", RECORD_LIMIT_S, "reading what the cluster recorded")
        try:
            if tables := self._cluster.records():
                self._write(Path(request.spool, CLUSTER_RECORDS), tables, attempt)
        except ClusterError as error:
            attempt.warnings.append(f"logs of the workers could not be kept: {error}")

    def _write(self, path: Path, tables: Mapping[str, Columns], attempt: Attempt) -> None:
        """Write tables without which a trial is worth no less."""
        try:
            with path.open("wb") as stream:
                for table, columns in tables.items():
                    spool.write_chunk(stream, table, columns)
        except OSError as error:
            attempt.warnings.append(f"records could not be kept ({', '.join(tables)}): {error}")

    def clear(self) -> None:
        """Make the next trial independent of the last: no clients, no tasks, nothing learnt; else no cluster."""
        self._enter("clearing", CLEAR_LIMIT_S, "cleaning up")
        try:
            clean = not self._spoiled and self._drained()
            why = "tasks of the one before still ran on it"
        except Exception as error:
            why = f"it could not be cleared ({type(error).__name__}: {error})"
            logger.exception("the cluster could not be cleared; it is closed, and opened anew for the next trial")
            clean = False
        if not clean:
            if not self._spoiled:
                self._anew = f"the cluster was opened anew before this trial: {why}"
            self.close()

    def _drained(self) -> bool:
        """Release all that the last trial left behind; whether that succeeded."""
        if self._observer is None or self._cluster is None:
            return True
        if not self._cluster.spec.real_time:  # it starts a new scheduler and workers for every trial
            self._close_clients()
            gc.collect()
            return True
        ended = self._wait_for(lambda: self._ask("census")["processing"] == 0)
        self._close_clients()
        gc.collect()
        # What was cancelled, or whose client has left, the scheduler forgets, while the worker runs on with it.
        return ended and self._forget() and self._wait_for(lambda: not self._still_run())

    # ---------------------------------------------------------------- parts

    def _load(self, reference: str) -> Workload:
        if reference not in self._workloads:
            self._workloads[reference] = workloads.load(reference)
        return self._workloads[reference]

    def _facts(self, point: Point) -> dict[str, Any]:
        return {
            "python": platform.python_version(),
            "dask": dask.__version__,
            "distributed": distributed.__version__,
            "packages": self._packages,
            "dask_config": dict(point.dask_config),
        }

    def _ask(self, function: str, **arguments: Any) -> Any:
        """Call a function of `scalescope.driver.sent_functions` on the scheduler."""
        assert self._observer is not None
        try:
            return self._observer.run_on_scheduler(
                Shipment(sent_functions, function), callback_timeout=ASK_TIMEOUT_S, **arguments
            )
        except (OSError, ValueError, TimeoutError) as error:
            raise ClusterError(
                "the scheduler does not answer",
                where=getattr(self._observer.scheduler, "address", "scheduler"),
                cause=f"{type(error).__name__}: {error}",
                next_step="it may have run out of memory or been ended: see the driver's log",
            ) from error

    def _forget(self) -> bool:
        """Have the scheduler without tasks and without anything learnt; whether that succeeded."""
        bandwidth = dask.utils.parse_bytes(dask.config.get("distributed.scheduler.bandwidth"))
        return self._wait_for(lambda: bool(self._ask("forget", bandwidth=bandwidth)))

    def _still_run(self) -> bool:
        """Whether workers run tasks, of which the scheduler need not know."""
        assert self._observer is not None
        running = Shipment(sent_functions, "running")
        return any(self._observer.run(running, on_error="ignore", callback_timeout=ASK_TIMEOUT_S).values())

    def _workers(self) -> dict[str, tuple[str, int, str]]:
        return {address: tuple(entry) for address, entry in self._ask("census")["workers"].items()}

    def _wait_for(self, condition: Callable[[], bool]) -> bool:
        for _ in range(round(DRAIN_LIMIT_S / 0.05)):
            if condition():
                return True
            time.sleep(0.05)
        return False

    def _disconnect(self) -> None:
        self._close_clients()
        capture, self._capture = self._capture, None
        observer, self._observer = self._observer, None
        if capture is not None:
            capture.close()
        if observer is not None:
            close_client(observer)

    def _close_clients(self) -> None:
        """Close the trial's client, and those that the workload left open: they would take over as the default.

        What they and the workload have changed of Dask's configuration is undone: a default client that is closed while
        there is another one leaves its `scheduler` there, with which nothing works where there is no client.
        """
        client, self._client = self._client, None
        if client is not None:
            close_client(client)
        for other in list(distributed.client._global_clients.values()):
            if other is not self._observer and not other.asynchronous:
                close_client(other)
        config, self._dask_config = self._dask_config, None
        if config is not None:
            with dask.config.config_lock:
                dask.config.config.clear()
                dask.config.config.update(config)
