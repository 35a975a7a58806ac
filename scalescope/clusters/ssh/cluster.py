"""Workers on machines that are reached over SSH."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

import dask
import distributed
from distributed.deploy import ssh
from distributed.security import Security

from scalescope.clusters.base import NANNIES_CONFIG, LogTail
from scalescope.clusters.observed_cluster import ObservedCluster, root_cause
from scalescope.clusters.ssh.remote import NO_HTTP, Remote, configuration
from scalescope.clusters.ssh.spec import SshSpec
from scalescope.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed.deploy.spec import SpecCluster

CLOSE_TIMEOUT_S = 6.0
LOOK_AGAIN_S = 3.0  # seconds until the next look: a nanny that was closing may be gone by then
_LOG_LINES = 8

_logger = logging.getLogger(__name__)


class SshCluster(ObservedCluster[SshSpec]):
    """A scheduler and worker processes with nannies; hosts are filled in turn, and all connections use TLS."""

    shows: ClassVar[str] = "the machines and their network: real processes, transfers, serialisation, memory"
    cannot_show: ClassVar[str] = (
        "more workers than the machines have cores for, and the influence of other users of the machines"
    )
    dask_config: ClassVar[Mapping[str, Any]] = NANNIES_CONFIG

    def __init__(self, spec: SshSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._dask: SpecCluster | None = None
        self._workers, self._threads = 0, 1
        self._serial = 0
        self._config = ""
        self._log = LogTail(ssh.__name__, _LOG_LINES)  # lines that the processes print over SSH

    def open(self) -> None:
        host = self.spec.scheduler_host or self.spec.hosts[0]
        options = {
            "port": 0,
            "protocol": "tls://",
            "dashboard": False,
            **self._interface(),
        }
        self._log.attach()
        try:
            security = Security.temporary()
            self._config = configuration(security)
            self._dask = distributed.SpecCluster(
                {}, self._remote(host, options), name="SSHCluster", security=security, silence_logs=logging.WARNING
            )
            self._observer = distributed.Client(self._dask, set_as_default=False, timeout=self.spec.start_timeout_s)
        except Exception as error:  # errors of asyncssh and of distributed
            self.close()
            raise self._failed(f"the scheduler did not start on {host}", host, error) from error

    def scale(self, workers: int, threads_per_worker: int) -> None:
        """Start and stop workers until there are `workers`; workers with the right threads are kept."""
        self._open()
        cluster = self._dask
        assert cluster is not None
        self._workers, self._threads = workers, threads_per_worker
        self._log.lines.clear()
        timeout_s = self.spec.start_timeout_s
        deadline = time.monotonic() + timeout_s
        hosts = ", ".join(dict.fromkeys(self.spec.hosts))
        while True:
            try:
                cluster.sync(self._settle, cluster, callback_timeout=timeout_s)
            except Exception as error:  # errors of asyncssh and of distributed
                raise self._failed(f"workers did not start on {hosts}", hosts, error) from error
            if self._wait(workers, threads_per_worker, min(timeout_s, LOOK_AGAIN_S)):
                return
            if time.monotonic() > deadline:
                raise self._others(
                    "the ssh cluster",
                    workers,
                    threads_per_worker,
                    timeout_s,
                    where=hosts,
                    cause="the machines cannot reach the scheduler, or are too busy",
                    next_step="check that the machines can connect to each other, set cluster.interface, or raise "
                    "cluster.start_timeout_s",
                )

    def close(self) -> None:
        """End scheduler and workers; on a machine that cannot be reached, they end by themselves."""
        self._disconnect()
        cluster, self._dask = self._dask, None
        if cluster is not None:
            try:
                cluster.close(timeout=CLOSE_TIMEOUT_S)
            except Exception as error:  # noqa: BLE001 - the processes end with their connections
                _logger.warning("the ssh cluster did not close cleanly: %r", error)
        self._log.detach()

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "layout": f"one process per worker, with nannies, on {len(set(self.spec.hosts))} machines; TLS",
            "hosts": list(self.spec.hosts),
            "scheduler_host": self.spec.scheduler_host or self.spec.hosts[0],
            "workers": self._workers,
            "threads_per_worker": self._threads,
        }

    def connect(self) -> distributed.Client:
        return distributed.Client(self._dask, set_as_default=False)

    async def _settle(self, cluster: SpecCluster) -> None:
        """On the cluster's event loop: close wrong workers, start missing ones."""
        for name, worker in list(cluster.workers.items()):
            if worker.kwargs["nthreads"] != self._threads or worker.proc is None or worker.proc.returncode is not None:
                cluster.worker_spec.pop(name, None)
        while len(cluster.worker_spec) > self._workers:
            cluster.worker_spec.popitem()
        # Shielded, because a cancelled call would forget processes that it has started.
        await asyncio.shield(cluster._correct_state())
        while len(cluster.worker_spec) < self._workers:
            cluster.worker_spec[self._serial] = self._worker_spec(self._next_host(cluster))
            self._serial += 1
        await asyncio.shield(cluster._correct_state())

    def _next_host(self, cluster: SpecCluster) -> str:
        """The host with the fewest workers, relative to how often `hosts` lists it."""
        used = [spec["options"]["address"] for spec in cluster.worker_spec.values()]
        hosts = self.spec.hosts
        return min(dict.fromkeys(hosts), key=lambda host: used.count(host) / hosts.count(host))

    def _worker_spec(self, host: str) -> dict[str, Any]:
        limit = self.spec.memory_limit_mb
        options: dict[str, Any] = {
            "name": str(self._serial),
            "nthreads": self._threads,
            "memory_limit": limit * 2**20 or None,
            "dashboard": False,
            "preload": [*dask.config.get("distributed.worker.preload"), NO_HTTP],
            **self._interface(),
        }
        return self._remote(host, options)

    def _remote(self, host: str, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "cls": Remote,
            "options": {
                "address": host,
                "connect_options": self._connect_options(),
                "python": self._python(),
                "config": self._config,
                "scratch": self.spec.local_directory or dask.config.get("temporary-directory", None) or "",
                "kwargs": options,
            },
        }

    def _connect_options(self) -> dict[str, Any]:
        spec = self.spec
        given = {
            "username": spec.username,
            "port": spec.port,
            "client_keys": [os.path.expanduser(spec.key_file)] if spec.key_file else None,
            "known_hosts": os.path.expanduser(spec.known_hosts),
        }
        return {name: value for name, value in given.items() if value}

    def _interface(self) -> dict[str, Any]:
        return {"interface": self.spec.interface} if self.spec.interface else {}

    def _python(self) -> str:
        return self.spec.python or sys.executable

    def _failed(self, what: str, where: str, error: Exception) -> ClusterError:
        said = "".join(f"\n    | {line}" for line in self._log.lines)
        login = (f"{self.spec.username}@" if self.spec.username else "") + where.split(", ")[0]
        return ClusterError(
            what,
            where=where,
            cause=root_cause(error) + (f"; the last output over SSH:{said}" if said else ""),
            next_step=f"run `ssh {login} {self._python()} -m distributed.cli.dask_spec --version` until it works "
            "without a prompt",
        )
