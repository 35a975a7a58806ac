"""The light cluster: real workers, real time, few processes."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any, ClassVar

import dask
import distributed

from scalescope.clusters import light_workers, process_guard
from scalescope.clusters.base import Cluster
from scalescope.clusters.light import fork_server, process
from scalescope.clusters.light.spec import LightSpec
from scalescope.errors import ClusterError, WorkersMissing
from scalescope.model.emulation_limit import EmulationLimit

STOP_TIMEOUT_S = 5.0
TASKS, ROUNDS = 150, 3  # empty tasks in a burst; measured bursts after a first one for warm-up

_logger = logging.getLogger(__name__)


class LightCluster(Cluster[LightSpec]):
    """A scheduler process and a few host processes that share all workers, over TCP on loopback, for this user only."""

    shows: ClassVar[str] = "the real scheduler and real workers in real time, with serialisation and transfer over TCP"
    cannot_show: ClassVar[str] = (
        "tasks that compute (the workers share this host's cores), memory per worker, transfer between machines"
    )

    def __init__(self, spec: LightSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._stack = ExitStack()
        self._scheduler: _Child | None = None
        self._hosts: list[_Child] = []
        self._address = ""
        self._workers = 0
        self._limit: EmulationLimit | None = None

    def open(self) -> None:
        light_workers.apply()
        process_guard.refuse_other_users()
        hosts = self.spec.hosts or max(2, min(2 * (os.cpu_count() or 1), 8))
        roles = ["scheduler", *(f"host {number}" for number in range(hosts))]
        self._scheduler, *self._hosts = self._stack.enter_context(_processes(roles))
        self._scheduler.send(process.StartScheduler(dict(dask.config.config)))
        self._address = self._scheduler.answer(self.spec.start_timeout_s)

    def scale(self, workers: int, threads_per_worker: int) -> None:
        """Start and stop workers until there are `workers`, spread evenly over the host processes."""
        deadline = time.monotonic() + self.spec.start_timeout_s
        assert self._scheduler is not None
        for child in (self._scheduler, *self._hosts):
            child.send(process.SearchPath(tuple(sys.path)))
        for child in (self._scheduler, *self._hosts):
            child.answer(deadline - time.monotonic())
        count = len(self._hosts)
        for number, host in enumerate(self._hosts):
            names = tuple(range(number, workers, count))
            host.send(process.HostWorkers(self._address, names, threads_per_worker, dict(dask.config.config)))
        arrived = sum(host.answer(deadline - time.monotonic()) for host in self._hosts)
        if arrived != workers:
            raise WorkersMissing(f"{arrived} of {workers} light workers started", where=self._address)
        self._workers = workers
        if self.spec.check_limit and self._limit is None:
            with self.client() as client, client.as_current():
                self._limit = _measured_limit(client)

    def is_whole(self) -> bool:
        return self._scheduler is not None and not any(child.ended for child in (self._scheduler, *self._hosts))

    def client(self) -> distributed.Client:
        return distributed.Client(self._address, set_as_default=False, timeout=self.spec.start_timeout_s)

    def close(self) -> None:
        self._hosts, self._scheduler = [], None
        self._stack.close()

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "layout": f"a few processes that the workers share; loopback, {process_guard.words()}",
            "host_processes": len(self._hosts),
            "limit": self._limit.to_mapping() if self._limit else None,
            "emulation": self._limit.sentence(self._workers) if self._limit else "not measured",
        }


@contextmanager
def _processes(roles: Sequence[str]) -> Iterator[list[_Child]]:
    """A process per role, all forked from a process that has imported distributed."""
    parent = fork_server.take()
    sockets = parent.fork(len(roles))
    children = [_Child(role, Connection(mine.detach())) for role, mine in zip(roles, sockets, strict=True)]
    try:
        yield children
    finally:
        for child in children:
            child.send(process.Stop(), quiet=True)
        if not parent.wait(STOP_TIMEOUT_S):
            _logger.warning("light cluster: a process did not stop within %s s; killed", STOP_TIMEOUT_S)
        for child in children:
            child.close()  # ends the process, whatever it is doing
        parent.wait()


class _Child:
    def __init__(self, role: str, pipe: Connection) -> None:
        self.role = role
        self._pipe = pipe

    @property
    def ended(self) -> bool:
        return self._pipe.poll()  # when no answer is due, the pipe is readable only if the process has ended

    def send(self, command: process.Command, *, quiet: bool = False) -> None:
        try:
            self._pipe.send(command)
        except OSError as error:
            if not quiet:
                raise self._lost() from error

    def answer(self, timeout: float) -> Any:
        try:
            if not self._pipe.poll(max(timeout, 0)):
                raise WorkersMissing(
                    f"the {self.role} process did not answer in time",
                    where="light cluster",
                    cause="this host is too busy for so many workers",
                    next_step="ask for fewer workers, or raise cluster.start_timeout_s",
                )
            fine, answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error
        if not fine:
            raise ClusterError(f"the {self.role} process failed: {answer}", where="light cluster")
        return answer

    def close(self) -> None:
        self._pipe.close()

    def _lost(self) -> ClusterError:
        return ClusterError(
            f"the {self.role} process ended unexpectedly",
            where="light cluster",
            cause="the process was killed, ran out of memory, or ran a task that ended it",
            next_step="read the driver's log",
        )


def _measured_limit(client: distributed.Client) -> EmulationLimit:
    """What this host can emulate, by the median time of bursts of empty tasks on the present workers."""
    seconds = [_burst(client) for _ in range(ROUNDS + 1)][1:]
    return EmulationLimit(seconds_per_task=sorted(seconds)[ROUNDS // 2] / TASKS)


def _burst(client: distributed.Client) -> float:
    futures = client.map(abs, range(TASKS), pure=False)
    began = time.perf_counter()
    distributed.wait(futures)
    return time.perf_counter() - began
