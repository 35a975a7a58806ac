"""Clusters of Dask Gateway."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import cloudpickle
import distributed
from dask_gateway.client import ClusterReport, ClusterStatus

from scalescope import leases, waiting
from scalescope.clusters import trial_watch
from scalescope.clusters.gateway import left_alone, stop_http
from scalescope.clusters.gateway.spec import SUBMIT_S, GatewaySpec
from scalescope.clusters.gateway_server import AWAY, LOOK_S, NOT_ALLOWED, REFUSED, GatewayServer
from scalescope.clusters.observed_cluster import ObservedCluster, root_cause
from scalescope.errors import ClusterError
from scalescope.leases import Lease
from scalescope.model.sweep import Point
from scalescope.model.trial import SILENT
from scalescope.model.workload import Workload
from scalescope.waiting import saying

CLOSE_TIMEOUT_S = 8.0
PATIENCE_S = 60.0  # seconds to wait for a server that is away while its cluster is in use
CHECK_S = 2.0  # seconds between two questions to the server while workers are awaited
WATCH_S = 5.0  # seconds between two questions during a trial
# A silence of the server makes a trial invalid if it exceeds both these seconds and `trial_watch.PART` of the trial.
LEAST_SILENT_S = 5.0
NO_ANSWER = "waiting for the server of Dask Gateway, which does not answer"

_logger = logging.getLogger(__name__)


class ServerWatch(trial_watch.BackgroundThread):
    """Asks the server now and then, to measure how long it does not answer."""

    def __init__(self, server: GatewayServer, cluster: str) -> None:
        super().__init__("scalescope-gateway")
        self._server, self._cluster = server, cluster

    def _run(self) -> None:
        while not self._over.wait(WATCH_S):
            with suppress(ClusterError):
                self._server.ask(lambda gateway: gateway.get_cluster(self._cluster), LEAST_SILENT_S)


class GatewayCluster(ObservedCluster[GatewaySpec]):
    """A scheduler and workers that a server of Dask Gateway starts, reached through its proxy.

    The server names the cluster, so the lease gets that name as soon as it is known.
    """

    shows: ClassVar[str] = "the machines behind the server: real processes, transfers, serialisation, memory"
    cannot_show: ClassVar[str] = (
        "why workers do not start, the influence of other users, and settings of Dask that differ from the server's"
    )

    def __init__(self, spec: GatewaySpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._server: GatewayServer | None = None
        self._lease: Lease | None = None
        self._asking = threading.Lock()
        self._name = ""  # name of the cluster, given by the server
        self._report: ClusterReport | None = None
        self._silent = ""  # sentence on a silence of the server that spoiled the last trial; else empty

    def is_whole(self) -> bool:
        """False if the server was silent: it may have treated the cluster as dead meanwhile."""
        return not self._silent

    def open(self) -> None:
        spec, self._silent = self.spec, ""
        self._server = server = GatewayServer(spec.address, spec.proxy_address, spec.auth, spec.login())
        known: dict[str, Any] = {"address": server.address, "proxy_address": server.proxy_address}
        known |= {"auth": spec.auth, "username": spec.username, "secrets": dict(spec.secrets)}
        try:
            server.ask(lambda gateway: gateway.list_clusters())  # check address and login before making a lease
            with self._asking:
                self._gateway()  # raises if another thread has closed the cluster
                self._lease = leases.intend(self.kind, leases.new_label(), known)
                self._name = self._submitted(self._lease)
                self._lease = leases.renew(self._lease, cluster=self._name)
            self._report = self._started()
            self._observer = self.connect()
            for module in (left_alone, stop_http):  # pickled by value: the server's image may lack these modules
                cloudpickle.register_pickle_by_value(module)
            self._observer.run_on_scheduler(stop_http.of_scheduler)
            register = getattr(self._observer, "register_plugin", None)  # distributed 2023.9.2 or newer
            (register or self._observer.register_worker_plugin)(stop_http.StopHttp())
            self._observer.run_on_scheduler(left_alone.end_when_alone, spec.idle_timeout_s)
        except BaseException as error:
            self.close()
            if isinstance(error, ClusterError):
                error.ends_run = error.category in (REFUSED, NOT_ALLOWED)
            raise

    def scale(self, workers: int, threads_per_worker: int) -> None:
        self._open()
        began = time.monotonic()
        try:
            self._gateway().scale(self._name, workers, min(PATIENCE_S, self.spec.start_timeout_s))
        except ClusterError as error:
            if error.category != REFUSED or self._gateway().running(self._name, PATIENCE_S):
                raise
            raise self._ended() from error
        while not self._wait(workers, threads_per_worker, CHECK_S):
            self.report(f"{len(self._present)} of {workers} workers of cluster {self._name} are ready")
            others = set(self._present.values()) - {threads_per_worker}
            if not others and not self._gateway().running(self._name, PATIENCE_S):
                raise self._ended()
            waited_s = time.monotonic() - began
            if others or waited_s > self.spec.start_timeout_s:
                raise self._others(
                    f"cluster {self._name}",
                    workers,
                    threads_per_worker,
                    round(waited_s),
                    where=self._gateway().address,
                    cause="the server gives workers another number of threads"
                    if others
                    else "the workers did not start in time",
                    next_step="set threads_per_worker to the workers' threads, or set them in cluster.options"
                    if others
                    else "raise cluster.start_timeout_s, or ask the server's administrator for the log of this cluster",
                )

    @contextmanager
    def running(self, workload: Workload, point: Point) -> Iterator[None]:
        server, began = self._gateway(), time.monotonic()
        server.silent_s = 0.0
        with ServerWatch(server, self._name):
            yield
        self._note_silence(server, trial_watch.PART * (time.monotonic() - began))

    def losses(self) -> str:
        return self._was_away()

    def outage(self) -> str:
        if self._server is not None:
            try:
                with saying(NO_ANSWER, self.report):
                    self._server.report(self._name, waiting.PATIENCE_S)
            except ClusterError as error:
                if error.category == AWAY:
                    raise
            self._note_silence(self._server, 0.0)
        return self._was_away()

    def close(self) -> None:
        """Ask the server to stop the cluster; the server goes on even if this process stops waiting."""
        self._disconnect()
        with self._asking:
            server, self._server = self._server, None
            lease, self._lease = self._lease, None
        if server is None or lease is None:
            return
        try:
            if self._name and not server.stop(self._name, CLOSE_TIMEOUT_S):
                _logger.info("the server is still stopping cluster %s", self._name)
        except ClusterError as error:
            _logger.warning("cluster %s could not be stopped: %s; run `scalescope reap` later", self._name, error)
        else:
            if self._name:  # without a name the server may still have a cluster, so the lease stays
                leases.release(lease)

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            **({SILENT: self._silent} if self._silent else {}),
            "layout": f"cluster {self._name} of Dask Gateway: {self._described()}; TLS",
            "server": self._server.address if self._server else self.spec.address,
            "options": dict(self.spec.options),
        }

    # ---------------------------------------------------------------- parts

    def _submitted(self, lease: Lease) -> str:
        """The server's name of a new cluster."""
        try:
            with saying(NO_ANSWER, self.report):
                return str(
                    self._gateway().ask(lambda gateway: gateway.submit(**self.spec.options), SUBMIT_S, PATIENCE_S)
                )
        except ClusterError as error:
            if error.category in (REFUSED, NOT_ALLOWED):  # after other errors there may be a cluster
                leases.release(lease)
            raise

    def _started(self) -> ClusterReport:
        """The server's report on the cluster, once its scheduler runs."""
        deadline = time.monotonic() + self.spec.start_timeout_s
        while True:
            report = self._gateway().report(self._name, deadline - time.monotonic())
            if report.status is ClusterStatus.RUNNING:
                return report
            if report.status is not ClusterStatus.PENDING:
                raise self._ended()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the scheduler of cluster {self._name} did not start within {self.spec.start_timeout_s:g} s",
                    where=self._gateway().address,
                    cause="perhaps the server has not yet found a machine with room for the scheduler",
                    next_step="raise cluster.start_timeout_s",
                )
            self.report(f"the scheduler of cluster {self._name} is pending")
            time.sleep(LOOK_S)

    def connect(self) -> distributed.Client:
        assert self._report is not None
        address = self._report.scheduler_address
        try:
            return distributed.Client(address, security=self._report.security, set_as_default=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise ClusterError(
                f"the scheduler of cluster {self._name} runs, but cannot be reached",
                where=address,
                cause=root_cause(error),
                next_step="set cluster.proxy_address to the HOST:PORT of Dask Gateway's proxy for schedulers",
                category="no-connection",
            ) from error

    def _note_silence(self, server: GatewayServer, least_s: float) -> None:
        if server.silent_s > max(LEAST_SILENT_S, least_s):
            self._silent = f"the server of Dask Gateway did not answer for {server.silent_s:.0f} s"

    def _was_away(self) -> str:
        if not self._silent:
            return ""
        cause = "results pass through the server's proxy, and the server may have ended the cluster meanwhile, so the "
        cause += "trial does not count"
        where, next_step = self._gateway().address, "ask the administrator for the server's log"
        return str(ClusterError(self._silent, where=where, cause=cause, next_step=next_step))

    def _gateway(self) -> GatewayServer:
        if self._server is None:
            raise self._not_open()
        return self._server

    def _ended(self) -> ClusterError:
        return ClusterError(
            f"cluster {self._name} has ended or failed",
            where=self._gateway().address,
            cause="its scheduler or several workers could not start, it was idle for too long, somebody stopped it, or "
            "the server was away and then found the cluster dead",
            next_step="ask the server's administrator for the log of this cluster",
            category="ended",
        )
