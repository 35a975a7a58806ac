"""Worker processes with nannies on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

import dask
import distributed
import psutil
from distributed.core import Status

from scalescope.clusters import light_workers, process_guard
from scalescope.clusters.base import NANNIES_CONFIG, Cluster, LogTail, registered
from scalescope.clusters.fault_injection import Injection
from scalescope.clusters.local.spec import LocalSpec
from scalescope.errors import ClusterError, WorkersMissing
from scalescope.model.fault import Fault

HOST = "127.0.0.1"
WORKER_PRELOAD = "scalescope.clusters.worker_preload"
CLOSE_TIMEOUT_S = 6.0  # seconds for an orderly end, before processes are killed
_POLL_S = 0.02
_LOG_LINES = 12


class _Silent(distributed.LocalCluster):  # type: ignore[misc]
    """A cluster of distributed whose scheduler has no HTTP server."""

    async def _start(self) -> None:
        self.scheduler_spec["cls"] = light_workers.LightScheduler
        await super()._start()


class LocalCluster(Cluster[LocalSpec]):
    """A scheduler in this process, and a process with a nanny per worker; on loopback, for this user only."""

    shows: ClassVar[str] = "this machine: real processes, transfers, serialisation, memory and interpreter locks"
    cannot_show: ClassVar[str] = (
        "more workers than cores, which share the cores, the memory bandwidth and one loopback network"
    )

    dask_config: ClassVar[Mapping[str, Any]] = NANNIES_CONFIG
    nannies: ClassVar[bool] = True

    def __init__(self, spec: LocalSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._dask: distributed.LocalCluster | None = None
        self._log = LogTail("distributed.nanny", _LOG_LINES, _tells_an_end)
        self._processes: dict[int, psutil.Process] = {}
        self._workers = 0
        self._threads = 1

    def open(self) -> None:
        self._log.attach()
        process_guard.refuse_other_users()
        try:
            self._dask = _Silent(
                n_workers=0,
                threads_per_worker=1,
                processes=True,
                host=HOST,
                dashboard_address=None,
                scheduler_kwargs={"dashboard": False},
                memory_limit=self.spec.memory_limit_mb * 2**20 or None,
                silence_logs=logging.WARNING,
                preload=[*dask.config.get("distributed.worker.preload"), WORKER_PRELOAD],
            )
        except (OSError, RuntimeError) as error:
            self.close()
            raise ClusterError(
                "the scheduler of the local cluster did not start",
                where=f"{HOST} in process {os.getpid()}",
                cause=str(error.__cause__ or error),
                next_step="read the driver's log; check that a program can listen on the loopback interface",
            ) from error

    def scale(self, workers: int, threads_per_worker: int) -> None:
        """Start and stop workers until there are `workers`; workers with the right threads are kept."""
        cluster = self._cluster()
        self._workers, self._threads = workers, threads_per_worker
        self._log.lines.clear()
        deadline = time.monotonic() + self.spec.start_timeout_s
        try:
            cluster.sync(self._settle, workers, threads_per_worker, deadline, callback_timeout=None)
        except ClusterError:
            raise
        except Exception as error:  # a nanny raises the error of its worker's process
            raise self._missing(error) from error
        finally:
            self._remember_processes()

    def client(self) -> distributed.Client:
        return distributed.Client(self._cluster(), set_as_default=False)

    def close(self) -> None:
        cluster, self._dask = self._dask, None
        if cluster is not None:
            self._remember_processes(cluster)
            try:
                cluster.close(timeout=CLOSE_TIMEOUT_S)
            except Exception as error:  # noqa: BLE001 - a cluster half started or half dead: `_kill` ends it
                logging.getLogger(__name__).warning("the local cluster did not close cleanly: %r", error)
                self._remember_processes(cluster)
        _kill(self._processes.values())
        self._processes.clear()
        self._log.detach()

    def facts(self) -> dict[str, Any]:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return {
            **super().facts(),
            "layout": f"a process per worker, with nannies; scheduler in the driver; loopback, {process_guard.words()}",
            "workers": self._workers,
            "threads_per_worker": self._threads,
            "memory_limit_mb": self.spec.memory_limit_mb,
            "cores": cores,
            "oversubscribed": self._workers * self._threads > cores,
        }

    def breaking(self, fault: Fault) -> Injection:

        def victim() -> tuple[str, int]:  # the worker with the most results
            cluster = self._cluster()
            pids = {nanny.worker_address: nanny.pid for nanny in list(cluster.workers.values())}
            present = [each for each in registered(cluster.scheduler) if pids.get(each.address)]
            chosen = max(present, key=lambda each: len(each.has_what))
            return chosen.address, pids[chosen.address]

        return Injection(fault, victim)

    def _cluster(self) -> distributed.LocalCluster:
        if self._dask is None:
            raise self._not_open()
        return self._dask

    async def _settle(self, workers: int, threads: int, deadline: float) -> None:
        """On the cluster's event loop: replace wrong workers, start missing ones, wait until all have registered."""
        async with asyncio.timeout(deadline - time.monotonic()):
            while True:
                await self._repair(workers, threads)
                if self._settled(workers, threads):
                    return
                await asyncio.sleep(_POLL_S)

    async def _repair(self, workers: int, threads: int) -> None:
        cluster = self._cluster()
        for name, nanny in list(cluster.workers.items()):
            if nanny.nthreads != threads or nanny.status != Status.running:
                cluster.worker_spec.pop(name, None)
        while len(cluster.worker_spec) > workers:
            cluster.worker_spec.popitem()
        # Shielded, because `_correct_state` would forget nannies that it has started if it were cancelled.
        if cluster.workers.keys() - cluster.worker_spec.keys():
            await asyncio.shield(cluster._correct_state())
        cluster.new_spec["options"]["nthreads"] = threads
        while len(cluster.worker_spec) < workers:
            cluster.worker_spec.update(cluster.new_worker_spec())
        if cluster.worker_spec.keys() - cluster.workers.keys():
            await asyncio.shield(cluster._correct_state())

    def _settled(self, workers: int, threads: int) -> bool:
        present = registered(self._cluster().scheduler)
        return len(present) == workers and all(
            worker.nthreads == threads and worker.status == Status.running for worker in present
        )

    def _missing(self, error: Exception) -> WorkersMissing:
        cluster = self._cluster()
        present = {worker.name for worker in registered(cluster.scheduler)}
        absent = [str(name) for name in cluster.worker_spec if name not in present]
        timed_out = isinstance(error, TimeoutError)
        reasons = [] if timed_out else [f"{type(error).__name__}: {error}"]
        reasons += self._log.lines or (["the missing workers did not start or register in time"] if timed_out else [])
        return WorkersMissing(
            f"{len(present)} of {self._workers} local workers registered"
            + (f" within {self.spec.start_timeout_s:g} s" if timed_out else ""),
            where=f"workers {', '.join(absent[:10]) or 'none'}{' ...' if len(absent) > 10 else ''} on {HOST}",
            cause="\n    ".join(reasons),
            next_step="read the driver's log; try fewer workers, or a larger cluster.start_timeout_s on a busy machine",
        )

    def _remember_processes(self, cluster: distributed.LocalCluster | None = None) -> None:
        """Note the worker processes, so that `close` can end them even if their nannies have died."""
        cluster = cluster or self._dask
        if cluster is None:
            return
        for nanny in list(cluster._created):
            if nanny.pid:
                with suppress(psutil.NoSuchProcess):
                    self._processes[nanny.pid] = psutil.Process(nanny.pid)


def _tells_an_end(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.getMessage().startswith("Worker process")


def _kill(processes: Iterable[psutil.Process]) -> None:
    killed = list(processes)  # psutil never kills another process that has got the same id
    for process in killed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(killed, timeout=2)
