"""Runs trials on the open cluster, and records them."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import dask
import distributed

from scalescope import workloads
from scalescope.capture import host
from scalescope.capture.client_thread import ClientWatch
from scalescope.capture.partition_calls import Notes, noted
from scalescope.capture.settings import settings
from scalescope.clusters.base import Cluster
from scalescope.clusters.trial_watch import HaltWatch
from scalescope.driver.attempt import LOST_CONNECTION, Attempt, changes, describe, is_lost_connection, kept_result
from scalescope.driver.open_cluster import OpenCluster
from scalescope.driver.protocol import RUNNING, RunTrial
from scalescope.errors import ClusterError, InfrastructureError, WrongAnswer
from scalescope.model import spool
from scalescope.model.fault import NONE, parse
from scalescope.model.records import Columns
from scalescope.model.sweep import FAULT, Point
from scalescope.model.trial import CUT_OFF, STOOD_STILL
from scalescope.model.workload import Workload
from scalescope.owner import opener
from scalescope.workloads._beam import around as around_beam

LOAD_LIMIT_S, RECORD_LIMIT_S = 120.0, 300.0  # real seconds to import a workload, and to read the records

RECORDS, CLUSTER_RECORDS, CLIENT_RECORDS = "records.spool", "cluster.spool", "client.spool"
OWN_CLIENT = (
    "the function made a Dask client of its own, so nothing ran on this cluster: compute with the client that it gets "
    "as its first argument"
)
_CAPTURE_FACTS = ("tasks", "t_begin", "t_end", "clock_error_s", "received_bytes", "notes", "gpus", "unprofiled")


class TrialRunner:
    """Runs one trial after another, in the main thread."""

    def __init__(self, opened: OpenCluster, packages: str) -> None:  # `packages`: digest of the installed packages
        self.function: Callable[..., Any] | None = None  # the workload's function during a trial
        self._opened = opened
        self._packages = packages
        self._workloads: dict[str, Workload] = {}

    def run(self, request: RunTrial) -> Attempt:
        """Run a trial; raises only an `InfrastructureError` that ends the run, and notes other errors in the result."""
        opened, attempt = self._opened, Attempt()
        try:
            self._attempt(request, attempt)
        except InfrastructureError as error:
            opened.spoiled = True
            if error.ends_run:
                raise
            lost = opened.cluster.losses() if opened.cluster is not None and attempt.elapsed_s is not None else ""
            # Lost workers explain why the cluster does not answer after the workload has ended.
            attempt.problem = lost or self._outage(attempt) or str(error)
            attempt.error = describe(error)
            self._keep_records_of_cluster(request, attempt)
            if opened.cluster is not None:
                attempt.facts["cluster"] = opened.cluster.facts()
        except Exception as error:  # noqa: BLE001 - reported with the trial
            opened.spoiled = True
            attempt.error = describe(error)
            why = f"the driver could not run the trial: {attempt.error['message']}"
            if opened.cluster is not None and not opened.cluster.is_whole():
                why = f"a process of the {opened.cluster.kind} cluster, such as its scheduler, ended during the trial"
            attempt.problem = self._outage(attempt) or why
        self.function = None
        return attempt

    def _outage(self, attempt: Attempt) -> str:
        cluster = self._opened.cluster
        found = cluster.outage() if cluster is not None else ""
        if cluster is not None and found:
            attempt.facts["cluster"] = cluster.facts()
        return found

    def _attempt(self, request: RunTrial, attempt: Attempt) -> None:
        opened, point = self._opened, Point.from_mapping(request.point)
        attempt.facts |= {
            "python": platform.python_version(),
            "dask": dask.__version__,
            "distributed": distributed.__version__,
            "packages": self._packages,
        }
        opened.enter("loading", LOAD_LIMIT_S, f"loading workload {request.workload}")
        try:
            workload = self._load(request.workload)
        except Exception as error:  # noqa: BLE001 - the import runs the user's code
            attempt.error = describe(error)
            attempt.raised = f"the workload cannot be loaded: {attempt.error['message']}"
            return
        attempt.facts |= {"imports": list(workload.modules), "modelled": workload.modelled, "code": workload.code}
        before = opened.prepare(point, workload.folder)
        attempt.facts |= settings()
        cluster = opened.cluster
        assert cluster is not None
        attempt.warnings += filter(None, [opened.reopened])
        opened.reopened = ""
        if cluster.spec.real_time:
            attempt.warnings += filter(None, [opened.import_modules(workload, before)])
        left = self._measure(request, workload, point, attempt)
        lost = changes(before, opened.members(), left)
        changed = "; ".join(part for part in (lost, cluster.losses()) if part)
        if workload.changes_workers or point.fault:
            attempt.facts["changed_workers"] = changed
        else:
            attempt.changes = changed
        if attempt.cut_off and not changed:
            attempt.facts[CUT_OFF] = attempt.cut_off
        self._keep_records_of_cluster(request, attempt)
        attempt.facts["cluster"] = cluster.facts()

    def _load(self, reference: str) -> Workload:
        if reference not in self._workloads:
            self._workloads[reference] = workloads.load(reference)
        return self._workloads[reference]

    def _measure(self, request: RunTrial, workload: Workload, point: Point, attempt: Attempt) -> list[str]:
        """Run and record a trial; returns the addresses of workers that left meanwhile."""
        opened = self._opened
        cluster, capture = opened.cluster, opened.capture
        assert cluster is not None
        assert capture is not None
        client = opened.clients.open(cluster)
        clients = set(distributed.Client._instances)
        load = host.HostLoad()
        opened.enter("preparing to record", RECORD_LIMIT_S, "installing the recorder")
        with capture.trial(Path(request.spool, RECORDS)) as recording, load:
            self.function = workload.run
            opened.enter(RUNNING, request.timeout_s, f"running {workload.name} with {dict(point.params)}")
            watches = _Watches(cluster, workload, point)
            with watches.around(client.scheduler.address):
                result = _result(workload, client, point, attempt)
            attempt.elapsed_s = watches.client.ended - watches.client.began
            opened.enter("recording", RECORD_LIMIT_S, "reading the records")
            _write(Path(request.spool, CLIENT_RECORDS), watches.judged(recording.ahead_s, attempt), attempt)
        if recording.no_room:
            raise spool.unwritable(Path(request.spool), recording.reason)
        if attempt.raised:
            attempt.raised += workload.client_first
        else:
            attempt.result = kept_result(result)
        if not recording.tasks and any(each not in clients for each in distributed.Client._instances):
            attempt.problem = attempt.problem or OWN_CLIENT
        attempt.warnings += recording.warnings
        attempt.missing = "" if recording.complete else recording.reason
        attempt.facts["host"] = {"load": load.load.to_mapping() if load.load else None, "load_unknown": load.reason}
        attempt.facts["capture"] = {name: getattr(recording, name) for name in _CAPTURE_FACTS}
        return recording.workers_left

    def _keep_records_of_cluster(self, request: RunTrial, attempt: Attempt) -> None:
        cluster = self._opened.cluster
        if cluster is None:
            return
        self._opened.enter("recording", RECORD_LIMIT_S, "reading what the cluster recorded")
        try:
            if tables := cluster.records():
                _write(Path(request.spool, CLUSTER_RECORDS), tables, attempt)
        except ClusterError as error:
            attempt.warnings.append(f"logs of the workers could not be kept: {error}")


class _Watches:
    """Watches a workload while it runs, and injects a fault into the cluster if the point asks for one."""

    def __init__(self, cluster: Cluster[Any], workload: Workload, point: Point) -> None:
        fault = parse(FAULT, point.fault or NONE, cluster.spec.faults, cluster.kind)
        self.client = ClientWatch(workload.run, cluster.time, cluster.watched)
        self._cluster, self._workload, self._point = cluster, workload, point
        self._breaking = cluster.breaking(fault) if fault else None
        self._halts = HaltWatch() if cluster.spec.real_time and fault is None else None  # a fault may halt processes
        self._notes = Notes()

    @contextmanager
    def around(self, scheduler: str) -> Iterator[None]:
        """Watch while the body runs the workload. `client` measures the time, so it is the innermost context."""
        with (
            self._halts or nullcontext(),
            self._cluster.running(self._workload, self._point),
            around_beam(self._workload, scheduler),
            noted(self._workload.modules) as self._notes,
            self._breaking or nullcontext(),
            self.client,
        ):
            yield

    def judged(self, ahead_s: float, attempt: Attempt) -> dict[str, Columns]:
        """Add observations to the attempt; returns tables to store, with times on the scheduler's clock."""
        attempt.facts |= self._notes.facts()
        if self._halts is not None and self._halts.reason:
            attempt.problem = attempt.facts[STOOD_STILL] = self._halts.reason
        kept = {"client": self.client.columns(ahead_s)}
        if self._breaking is not None:
            attempt.facts[FAULT] = self._breaking.facts
            if self._breaking.problem:
                attempt.problem = f"the fault {self._point.fault} did not fire: {self._breaking.problem}"
            else:
                kept["faults"] = self._breaking.columns(ahead_s)
        return kept


def _result(workload: Workload, client: distributed.Client, point: Point, attempt: Attempt) -> Any:
    """The workload's result; None if it raised, which is noted in the attempt. Re-raises `InfrastructureError`."""
    connection = client.scheduler_comm
    try:
        return workload.run(client, **point.params)
    except InfrastructureError:
        raise
    except BaseException as error:  # noqa: BLE001 - a workload's `sys.exit` must not end the driver
        attempt.error = describe(error)
        verb = "computed a wrong answer:" if isinstance(error, WrongAnswer) else "raised"
        attempt.raised = f"the workload {verb} {attempt.error['message']}"
        is_other = client.scheduler_comm is not connection  # the client has reconnected
        if (
            is_lost_connection(attempt.error)
            or client.status == "connecting"
            or (client.status == "running" and is_other)
        ):
            attempt.cut_off = LOST_CONNECTION
        return None


def _write(path: Path, tables: Mapping[str, Columns], attempt: Attempt) -> None:
    try:
        with open(path, "wb", opener=opener) as stream:
            for table, columns in tables.items():
                spool.write_chunk(stream, table, columns)
    except OSError as error:
        attempt.warnings.append(f"records could not be kept ({', '.join(tables)}): {error}")  # the trial stays valid
