"""The clients of a trial: its own, and those that the workload leaves open."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dask
import distributed

from scalescope.clusters.observed_cluster import close_client

if TYPE_CHECKING:
    from scalescope.clusters.base import Cluster


def proof(asked: Mapping[str, str]) -> distributed.Security | None:
    """Certificates for a client that a workload opens by the address of its cluster, as Beam's runner does."""
    client = distributed.default_client()
    return client.security if asked["address"] == client.scheduler.address else None


class TrialClients:
    """Opens the default client of a trial; closing undoes what the trial did to clients and to Dask's configuration."""

    def __init__(self) -> None:
        self._config: dict[str, Any] | None = None
        self._client: distributed.Client | None = None

    def open(self, cluster: Cluster[Any]) -> distributed.Client:
        self._config = copy.deepcopy(dask.config.config)
        self._client = client = cluster.client()
        # The default as in a script, not `client.as_current()`: there, a client that the workload opens takes over.
        # Beam waits on the event loop of the default client; were that not its own, it would notice the end of its
        # tasks only when something else wakes that loop, such as a heartbeat.
        distributed.client._set_global_client(client)
        dask.config.set({"distributed.client.security-loader": f"{__name__}.proof"})
        return client

    def close(self, keep: distributed.Client | None) -> None:
        """Close all clients of this process but `keep`: they would take over as the default.

        Dask's configuration is put back, too: a default client that is closed while there is another one leaves its
        `scheduler` there, with which nothing works once there is no client.
        """
        client, self._client = self._client, None
        if client is not None:
            close_client(client)
        for other in list(distributed.client._global_clients.values()):
            if other is not keep and not other.asynchronous:
                close_client(other)
        config, self._config = self._config, None
        if config is not None:
            with dask.config.config_lock:
                dask.config.config.clear()
                dask.config.config.update(config)
