"""A scheduler that runs already, with the workers that it has."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import distributed
from distributed.security import Security

from scalescope.clusters import waiting
from scalescope.clusters.base import Cluster
from scalescope.errors import ClusterError, WorkersMissing
from scalescope.model.cluster import SchedulerSpec


class SchedulerCluster(Cluster):
    """Attached to, never changed, never closed: somebody else started it."""

    kind: ClassVar[str] = "scheduler"
    shows: ClassVar[str] = "what that cluster does with the workers that it has now"
    cannot_show: ClassVar[str] = "other numbers of workers, and what other users of it do to the measurement"

    def __init__(self, spec: SchedulerSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._spec = spec
        self._observer: distributed.Client | None = None
        self._workers: waiting.Workers = {}

    def open(self) -> None:
        """Connect to it.

        Raises:
            ClusterError: It does not answer, or the files of TLS cannot be read.
        """
        self._observer = self._connect()

    def scale(self, workers: int, threads_per_worker: int) -> None:
        """See that it has exactly these workers.

        Raises:
            ClusterError: It has others.
        """
        wrong = waiting.until(self._open(), workers, threads_per_worker, self._spec.start_timeout_s)
        self._workers = waiting.census(self._open())
        if wrong is not None:
            raise WorkersMissing(
                f"the scheduler has {waiting.described(wrong)}, where {workers} of {threads_per_worker} are asked for",
                where=self._where(),
                cause="Scalescope did not start these workers, so it neither adds nor closes any",
                next_step=f"ask for workers: [{len(wrong)}], or scale that cluster yourself before each run",
            )

    def client(self) -> distributed.Client:
        """A further client of it."""
        self._open()
        return self._connect()

    def close(self) -> None:
        """Disconnect; scheduler and workers stay."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.close()

    def facts(self) -> dict[str, Any]:
        """Where it is and what it has."""
        return {
            **super().facts(),
            "layout": f"somebody else's: {waiting.described(self._workers)}",
            "address": self._observer.scheduler.address if self._observer is not None else self._spec.address,
            "tls": bool(self._spec.tls_ca_file),
        }

    def _open(self) -> distributed.Client:
        if self._observer is None:
            raise ClusterError("the scheduler is not connected to", next_step="call `open` first; it may be closed")
        return self._observer

    def _connect(self) -> distributed.Client:
        spec = self._spec
        security = None
        if spec.tls_ca_file:
            security = Security(
                tls_ca_file=os.path.expanduser(spec.tls_ca_file),
                tls_client_cert=os.path.expanduser(spec.tls_cert),
                tls_client_key=os.path.expanduser(spec.tls_key),
                require_encryption=True,
            )
        place = {"scheduler_file": os.path.expanduser(spec.scheduler_file)} if spec.scheduler_file else {}
        try:
            if place and not os.path.exists(place["scheduler_file"]):  # a client waits for it forever
                raise FileNotFoundError(f"there is no file {place['scheduler_file']}")
            return distributed.Client(
                spec.address or None, **place, security=security, timeout=spec.start_timeout_s, set_as_default=False
            )
        except (OSError, TypeError, ValueError, RuntimeError) as error:  # TypeError: no files for an address with TLS
            raise ClusterError(
                "the running scheduler cannot be connected to",
                where=self._where(),
                cause=waiting.root_cause(error),
                next_step="check that it runs and can be reached from here; with tls:// give the three files of TLS",
            ) from error

    def _where(self) -> str:
        return self._spec.address or self._spec.scheduler_file
