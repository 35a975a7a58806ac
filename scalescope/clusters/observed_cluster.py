"""Clusters whose scheduler is in another process: a client watches it and waits for its workers."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Mapping

import distributed
from distributed.core import rpc

from scalescope.clusters.base import Cluster, S
from scalescope.errors import ClusterError, WorkersMissing
from scalescope.model.words import plural

POLL_S = 0.1

_logger = logging.getLogger(__name__)

CHECK_SCHEDULER = (
    "check that the scheduler runs and can be reached from here, and that the port is the scheduler's, by default 8786 "
    "(8787 is its dashboard); with tls:// also give the TLS files: authority, certificate and key"
)


class ObservedCluster(Cluster[S]):
    """A cluster whose scheduler is in another process; a client watches it."""

    def __init__(self, spec: S, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._observer: distributed.Client | None = None
        self._present: Mapping[str, int] = {}  # threads of present workers, by address

    def client(self) -> distributed.Client:
        self._open()
        return self.connect()

    @abstractmethod
    def connect(self) -> distributed.Client:
        """A new client; may be called while `open` still runs."""

    def _open(self) -> distributed.Client:
        if self._observer is None:
            raise self._not_open()
        if self._observer.scheduler is None:  # distributed closes a client that cannot reconnect
            raise ClusterError(
                "the connection to the scheduler was lost",
                where=f"{self.kind} cluster",
                cause="the scheduler or the network did not answer for half a minute",
                next_step="run the trial again",
                category="no-connection",
            )
        return self._observer

    def _disconnect(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            close_client(observer)

    def _wait(self, workers: int, threads: int, timeout_s: float) -> bool:
        """Wait for exactly `workers` workers of `threads` threads; return whether they are there within `timeout_s`."""
        client, deadline = self._open(), time.monotonic() + timeout_s
        while True:
            self._present = {str(address): int(number) for address, number in client.nthreads().items()}
            if list(self._present.values()) == [threads] * workers:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)

    def _others(
        self, who: str, workers: int, threads: int, after_s: float, *, where: str, cause: str, next_step: str
    ) -> WorkersMissing:
        return WorkersMissing(
            f"{who} has {self._described()} after {after_s:g} s, instead of {plural(workers, 'worker')} of "
            f"{plural(threads, 'thread')}",
            where=where,
            cause=cause,
            next_step=next_step,
        )

    def _described(self) -> str:
        threads = " or ".join(plural(number, "thread") for number in sorted(set(self._present.values())))
        return plural(len(self._present), "worker") + (f" of {threads}" if threads else "")


def versions_of(address: str, security: distributed.Security | None, timeout_s: float) -> dict[str, str]:
    """Versions of Python and packages of a scheduler, by a request that all releases since 2023.5 answer.

    A `Client` is not used, because connecting it to another release may raise any error, such as `TypeError`.

    Raises:
        OSError: Nobody answers.
    """

    async def ask() -> dict[str, str]:
        arguments = (security or distributed.Security()).get_connection_args("client")
        async with rpc(address, timeout=timeout_s, connection_args=arguments) as scheduler:
            found = await asyncio.wait_for(scheduler.versions(), timeout_s)
        return {name: str(version) for name, version in dict(found["packages"]).items()}

    return asyncio.run(ask())


def close_client(client: distributed.Client) -> None:
    """Close a client, even if its scheduler is gone.

    A client that lost its scheduler reconnects in the background. If that fails (over TLS: `ValueError: IOStream is not
    idle`), distributed 2026.8 raises the error from `close` and leaves the client half open.
    """
    try:
        client.close()
    except Exception as error:  # noqa: BLE001 - the caller must go on and remove other resources
        _logger.info("%s had ended with %s: %s", client, type(error).__name__, error)
        client._handle_report_task = None  # otherwise `close` raises the same error again
        try:
            client.close()
        except Exception as again:  # noqa: BLE001 - as above
            _logger.warning("%s cannot be closed: %s: %s", client, type(again).__name__, again)


def root_cause(error: BaseException) -> str:
    """Text of the first exception in a chain; for a `MemoryError`, what it means here."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, MemoryError):  # distributed read eight bytes of another protocol as a message length
        return "the server at that address does not speak Dask's protocol: it may be a web server or a proxy"
    return f"{type(error).__name__}: {error}"
