"""Clusters of any class that can be imported."""

from __future__ import annotations

import importlib
import inspect
import logging
from typing import Any, ClassVar

import distributed

from scalescope.clusters.custom.spec import CustomSpec
from scalescope.clusters.observed_cluster import ObservedCluster, root_cause
from scalescope.errors import ClusterError, UsageError
from scalescope.model.secret_variables import secret_values

CLOSE_TIMEOUT_S = 8.0

_logger = logging.getLogger(__name__)


class CustomCluster(ObservedCluster[CustomSpec]):
    """A cluster of a class outside Scalescope, scaled by that class's `scale`."""

    shows: ClassVar[str] = "the behaviour of the machines that the cluster class uses"
    cannot_show: ClassVar[str] = "why workers do not start, or disappear: only the cluster class could tell"

    def __init__(self, spec: CustomSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        self._made: Any = None

    def open(self) -> None:
        made = _import(self.spec.cluster_class)
        arguments = self.spec.arguments_with(secret_values(self.spec.secrets, "CustomCluster"))
        try:
            self._made = made(**arguments)
            self._observer = self.connect()
        except Exception as error:  # whatever the class raises
            self.close()
            raise ClusterError(
                f"{self.spec.cluster_class} could not be started",
                where=f"arguments {', '.join(arguments) or 'none'}",
                cause=root_cause(error),
                next_step="call the class with these arguments in Python until that works",
            ) from error

    def scale(self, workers: int, threads_per_worker: int) -> None:
        client = self._open()
        try:
            result = self._made.scale(workers)
            if inspect.isawaitable(result):
                client.sync(_awaited, result)
        except Exception as error:  # whatever the class raises
            raise ClusterError(f"{self.spec.cluster_class}.scale({workers}) failed", cause=root_cause(error)) from error
        timeout_s = self.spec.start_timeout_s
        if not self._wait(workers, threads_per_worker, timeout_s):
            raise self._others(
                self.spec.cluster_class,
                workers,
                threads_per_worker,
                timeout_s,
                where=str(client.scheduler.address),
                cause="cluster.arguments sets another number of threads per worker"
                if len(self._present) == workers
                else "workers did not start in time, or the class's `scale` counts something else, such as nodes",
                next_step="set threads_per_worker to the workers' threads, or raise cluster.start_timeout_s",
            )

    def close(self) -> None:
        self._disconnect()
        made, self._made = self._made, None
        if made is None:
            return
        try:
            takes_timeout = "timeout" in inspect.signature(made.close).parameters
            made.close(timeout=CLOSE_TIMEOUT_S) if takes_timeout else made.close()
        except Exception as error:  # noqa: BLE001 - the class may raise any error
            _logger.warning("%s did not close cleanly: %r", self.spec.cluster_class, error)

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "layout": f"{self.spec.cluster_class}: {self._described()}",
            "arguments": dict(self.spec.arguments),
            "secrets": sorted(self.spec.secrets),
        }

    def connect(self) -> distributed.Client:
        if hasattr(self._made, "scheduler_comm") or hasattr(self._made, "scheduler_address"):
            return distributed.Client(self._made, set_as_default=False)
        client = self._made.get_client(set_as_default=False)
        assert isinstance(client, distributed.Client)
        return client


def _import(reference: str) -> Any:
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"the cluster class {reference} cannot be imported",
            cause=str(error),
            next_step="install its package into the environment that the driver runs in, or correct the name",
        ) from error


async def _awaited(result: Any) -> Any:
    return await result
