"""The clients of a trial: its default client, and clients that the workload leaves open."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import dask
import distributed

from scalescope.clusters.base import Cluster
from scalescope.clusters.observed_cluster import close_client


def proof(asked: Mapping[str, str]) -> distributed.Security | None:
    """Certificates for a client that a workload or Beam's runner opens with this cluster's address; else None."""
    client = distributed.default_client()
    return client.security if asked["address"] == client.scheduler.address else None


class TrialClients:
    """Opens the default client of a trial; `close` undoes the trial's changes to clients and Dask's configuration."""

    def __init__(self) -> None:
        self._config: dict[str, Any] | None = None
        self._client: distributed.Client | None = None

    def open(self, cluster: Cluster[Any]) -> distributed.Client:
        self._config = copy.deepcopy(dask.config.config)
        self._client = client = cluster.client()
        # Not `client.as_current()`: as in a script, a client that the workload opens must become the default. Beam
        # waits on the loop of the default client; on another client's loop, it would notice late that its tasks ended.
        distributed.client._set_global_client(client)
        dask.config.set({"distributed.client.security-loader": f"{__name__}.proof"})
        return client

    def close(self, keep: distributed.Client | None) -> None:
        """Close all clients of this process except `keep`, and restore Dask's configuration.

        An open client would become the next default. If the default client is closed while another one is open, its
        `scheduler` stays in Dask's configuration and would still be used.
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
