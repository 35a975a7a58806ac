"""A running scheduler, with the workers that it has."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, ClassVar

import distributed
from distributed.core import connect
from distributed.security import Security

from scalescope.clusters.observed_cluster import CHECK_SCHEDULER, ObservedCluster, root_cause
from scalescope.clusters.scheduler.spec import SchedulerSpec
from scalescope.errors import ClusterError, UsageError
from scalescope.model.extras import install_command

ANSWER_S = 10.0  # seconds within which a live scheduler answers


class SchedulerCluster(ObservedCluster[SchedulerSpec]):
    """Somebody else's running scheduler; it is never changed and never closed."""

    shows: ClassVar[str] = "the running cluster with its present workers"
    cannot_show: ClassVar[str] = "other numbers of workers, and how other users disturb the measurement"

    def open(self) -> None:
        self._observer = self.connect()

    def scale(self, workers: int, threads_per_worker: int) -> None:
        timeout_s = self.spec.start_timeout_s
        if not self._wait(workers, threads_per_worker, timeout_s):
            raise self._others(
                "the scheduler",
                workers,
                threads_per_worker,
                timeout_s,
                where=self._where(),
                cause="Scalescope did not start these workers, so it does not add or close any",
                next_step=f"set the axis workers to [{len(self._present)}] and threads_per_worker to their threads, "
                "or scale the cluster yourself before each run",
            )

    def close(self) -> None:
        self._disconnect()

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "layout": f"somebody else's cluster: {self._described()}",
            "address": self._observer.scheduler.address if self._observer is not None else self.spec.address,
            "tls": bool(self.spec.tls_ca_file),
        }

    def _not_open(self) -> ClusterError:
        return ClusterError("not connected to the scheduler", next_step="call `open`, also after each `close`")

    def connect(self) -> distributed.Client:
        spec = self.spec
        security = self.security() if self._observer is None else self._observer.security
        place = {"scheduler_file": os.path.expanduser(spec.scheduler_file)} if spec.scheduler_file else {}
        try:
            if place and not os.path.exists(place["scheduler_file"]):  # a client would wait for the file forever
                raise FileNotFoundError(f"there is no file {place['scheduler_file']}")
            if spec.address:
                asyncio.run(_answers(spec.address, security or Security(), min(spec.start_timeout_s, ANSWER_S)))
            return distributed.Client(
                spec.address or None, **place, security=security, timeout=spec.start_timeout_s, set_as_default=False
            )
        # TypeError: a TLS address without TLS files
        except (OSError, TypeError, ValueError, RuntimeError, MemoryError) as error:
            raise ClusterError(
                "cannot connect to the running scheduler",
                where=self._where(),
                cause=root_cause(error),
                next_step=CHECK_SCHEDULER,
            ) from error

    def security(self) -> Security | None:
        """TLS settings from the given files, or from Dask Gateway; None means Dask's configuration."""
        spec = self.spec
        if spec.address.startswith("gateway://"):
            try:
                from scalescope.clusters.gateway_server import security_of
            except ImportError as error:
                raise UsageError(
                    "an address with gateway:// needs dask-gateway",
                    where=sys.executable,
                    cause=str(error),
                    next_step=install_command("gateway"),
                ) from error
            return security_of(spec.address)
        if not spec.tls_ca_file:
            return None
        return Security(
            tls_ca_file=os.path.expanduser(spec.tls_ca_file),
            tls_client_cert=os.path.expanduser(spec.tls_cert),
            tls_client_key=os.path.expanduser(spec.tls_key),
            require_encryption=True,
        )

    def _where(self) -> str:
        return self.spec.address or self.spec.scheduler_file


async def _answers(address: str, security: Security, timeout_s: float) -> None:
    """Wait for a scheduler's answer; a client would wait forever if a server accepts but does not answer."""
    try:
        connected = connect(address, timeout=0.9 * timeout_s, **security.get_connection_args("client"))
        comm = await asyncio.wait_for(connected, timeout_s)
    except TimeoutError:
        raise TimeoutError(f"the server accepts connections, but does not answer within {timeout_s:g} s") from None
    comm.abort()
