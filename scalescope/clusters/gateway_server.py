"""A client of Dask Gateway's server, which starts clusters for its users and tells how to reach them."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
from dask_gateway import Gateway
from dask_gateway.client import ClusterStatus, GatewayClusterError, GatewayServerError, GatewayWarning

from scalescope.clusters.control_plane import ControlPlane
from scalescope.clusters.observed_cluster import root_cause
from scalescope.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from dask_gateway.client import ClusterReport
    from distributed.security import Security

ANSWER_S = 20.0  # seconds within which a live server answers
LOOK_S = 0.3
LOGINS = {
    "basic": "dask_gateway.auth:BasicAuth",
    "jupyterhub": "dask_gateway.auth:JupyterHubAuth",
    "kerberos": "dask_gateway.auth:KerberosAuth",
}
AWAY, REFUSED, NOT_ALLOWED = "server-away", "refused", "not-allowed"  # categories of errors
_ENDING = (ClusterStatus.STOPPING, ClusterStatus.STOPPED, ClusterStatus.FAILED)
_DOWN = (502, 503, 504)  # HTTP statuses that a proxy sends for a server that is away

T = TypeVar("T")


class GatewayServer(ControlPlane):
    """A server and the credentials for it; empty arguments default to Dask's configuration (`gateway.*`)."""

    def __init__(
        self,
        address: str = "",
        proxy_address: str = "",
        auth: str = "",
        login: Mapping[str, str] | None = None,  # arguments of the class in `LOGINS`
    ) -> None:
        super().__init__()
        try:
            self._auth = resolve_name(LOGINS[auth])(**(login or {})) if auth else None
            self.address, self.proxy_address = asyncio.run(_addresses(address, proxy_address, self._auth))
        except (ValueError, TypeError, ImportError) as error:
            raise UsageError(
                "the address of a server of Dask Gateway, or the login to it, is missing or wrong",
                where=address,
                cause=str(error),
                next_step="set cluster.address, or `gateway.address` and `gateway.auth` in Dask's configuration",
            ) from error

    def ask(self, question: Callable[[Any], Awaitable[T]], limit_s: float = ANSWER_S, patience_s: float = 0.0) -> T:
        """The result of `question(Gateway)`; a server that is away is asked again for `patience_s` seconds."""

        def ask() -> T:
            try:
                return asyncio.run(asyncio.wait_for(self._asked(question), limit_s))
            except (OSError, ValueError, aiohttp.ClientError, GatewayClusterError, GatewayServerError) as error:
                raise self._told(error, limit_s) from error

        return self._wait(ask, lambda error: error.category == AWAY, lambda: patience_s)

    def report(self, name: str, patience_s: float = 0.0) -> ClusterReport:
        return self.ask(lambda gateway: gateway.get_cluster(name), patience_s=patience_s)

    def running(self, name: str, patience_s: float = 0.0) -> bool:
        """Whether a cluster of this name exists that has neither failed nor been stopped."""
        try:
            return self.report(name, patience_s).status not in _ENDING
        except ClusterError as error:
            if error.category != REFUSED or name not in error.cause:  # else: the server has no such cluster
                raise
            return False

    def security(self, name: str) -> Security:
        """TLS credentials with which the user connects to the scheduler of a cluster."""
        found = self.report(name)
        if found.security is None:
            raise ClusterError(
                f"cluster {name} is not running",
                where=self.address,
                cause=f"the server of Dask Gateway says that the cluster is {found.status.name.lower()}",
                next_step="`dask_gateway.Gateway().list_clusters()` shows the running clusters",
            )
        return found.security

    def scale(self, name: str, workers: int, patience_s: float) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", GatewayWarning)
            try:
                self.ask(lambda gateway: gateway.scale_cluster(name, workers), patience_s=patience_s)
            except GatewayWarning as error:
                raise ClusterError(
                    f"the server of Dask Gateway does not allow {workers} workers",
                    where=self.address,
                    cause=str(error),
                    next_step="ask for fewer workers, or for smaller ones in cluster.options",
                    category=REFUSED,
                ) from error

    def stop(self, name: str, limit_s: float) -> bool:
        """Stop a cluster; return whether it is gone within `limit_s`. After a `ClusterError`, it may still run."""
        deadline = time.monotonic() + limit_s
        self.ask(lambda gateway: gateway.stop_cluster(name), min(limit_s, ANSWER_S))
        while time.monotonic() < deadline:
            stopping = self.ask(lambda gateway: gateway.list_clusters(status=["pending", "running", "stopping"]))
            if all(each.name != name for each in stopping):
                return True
            time.sleep(LOOK_S)
        return False

    async def _asked(self, question: Callable[[Any], Awaitable[T]]) -> T:
        async with Gateway(self.address, self.proxy_address, auth=self._auth, asynchronous=True) as gateway:
            return await question(gateway)

    def _told(self, error: Exception, limit_s: float) -> ClusterError:
        what, category, cause = "the server of Dask Gateway refused a request", REFUSED, str(error)
        next_step = (
            "correct cluster.options or cluster.address; `dask_gateway.Gateway().cluster_options()` lists the options"
        )
        status = getattr(error, "status", 0)
        if status in (401, 403):
            what, category = "the server of Dask Gateway refused the login", NOT_ALLOWED
            next_step = "set cluster.auth, cluster.username and cluster.secrets, or Dask's `gateway.auth`"
        elif status in _DOWN or isinstance(error, OSError | GatewayServerError | aiohttp.ClientConnectionError):
            silent = isinstance(error, TimeoutError)
            what, category = "the server of Dask Gateway does not answer", AWAY
            cause = f"no answer within {limit_s:g} s" if silent else root_cause(error)
            next_step = "check cluster.address, and that the server and its proxy run"
        return ClusterError(what, where=self.address, cause=cause, next_step=next_step, category=category)


async def _addresses(address: str, proxy_address: str, auth: Any) -> tuple[str, str]:
    async with Gateway(address or None, proxy_address or None, auth=auth, asynchronous=True) as gateway:
        return str(gateway.address), str(gateway.proxy_address)


def security_of(address: str) -> Security:
    """`GatewayServer.security` for gateway://HOST:PORT/NAME, from the server in Dask's configuration."""
    return GatewayServer().security(urlsplit(address).path.strip("/"))
