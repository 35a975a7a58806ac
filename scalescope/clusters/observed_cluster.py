"""Clusters whose scheduler is in another process: a client watches it and waits for its workers."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import distributed

from scalescope.clusters.base import Cluster, S
from scalescope.errors import WorkersMissing

POLL_S = 0.1

_logger = logging.getLogger(__name__)

CHECK_SCHEDULER = (
    "check that it runs and can be reached from here, and that the port is the scheduler's, by default 8786 (8787 is "
    "its dashboard); with tls:// give the three files of TLS"
)
"""What to do about a scheduler that is not reached."""


class ObservedCluster(Cluster[S]):
    """A cluster whose scheduler is in another process, and is watched through a client."""

    def __init__(self, spec: S, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._observer: distributed.Client | None = None
        self._present: Mapping[str, int] = {}  # address -> threads

    def _open(self) -> distributed.Client:
        """The watching client; `ClusterError` if the cluster is not open."""
        if self._observer is None:
            raise self._not_open()
        return self._observer

    def _disconnect(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            close_client(observer)

    def _wait(self, workers: int, threads: int, timeout_s: float) -> bool:
        """Wait up to `timeout_s` until there are exactly these workers; whether they came."""
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
        """The error for a cluster that has other workers than asked for."""
        return WorkersMissing(
            f"{who} has {self._described()} after {after_s:g} s, where {workers} of {threads} are asked for",
            where=where,
            cause=cause,
            next_step=next_step,
        )

    def _described(self) -> str:
        """Its workers in words: `3 workers of 2 threads`."""
        threads = " or ".join(str(number) for number in sorted(set(self._present.values())))
        return f"{len(self._present)} workers" + (f" of {threads} threads" if threads else "")


def close_client(client: distributed.Client) -> None:
    """Close a client, whatever has become of its scheduler.

    A client that lost its scheduler reconnects in the background. If that fails (over TLS, when a connection is reset
    at once: `ValueError: IOStream is not idle`), distributed 2026.8 raises the error from `close`, with the client half
    open.
    """
    try:
        client.close()
    except Exception as error:  # noqa: BLE001 - of its connection; what else the caller has to remove goes on
        _logger.info("%s had ended with %s: %s", client, type(error).__name__, error)
        client._handle_report_task = None  # else it raises the same again
        try:
            client.close()
        except Exception as again:  # noqa: BLE001 - nothing else can be done about it
            _logger.warning("%s cannot be closed: %s: %s", client, type(again).__name__, again)


def root_cause(error: BaseException) -> str:
    """The first of a chain of exceptions, in words."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, MemoryError):  # eight bytes of something else, read as the length of a message
        return "what answers there does not speak Dask's protocol: perhaps a web server or a proxy"
    return f"{type(error).__name__}: {error}"
