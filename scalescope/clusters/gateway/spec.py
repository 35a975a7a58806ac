"""The specification of a cluster of Dask Gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from scalescope.errors import InvalidField
from scalescope.model import secret_variables
from scalescope.model.cluster import START_TIMEOUT, WORD, ClusterSpec
from scalescope.model.parameters import Parameter

# Seconds to wait for the name of a new cluster, as in dask-gateway's client. Without a name, it cannot be stopped.
SUBMIT_S = 300.0

_SECRETS = {"basic": "password", "jupyterhub": "api_token"}  # name of the secret, by kind of login


@dataclass(frozen=True)
class GatewaySpec(ClusterSpec):
    """A cluster that a server of Dask Gateway starts, with the options that the server offers."""

    kind: ClassVar[str] = "gateway"
    title: ClassVar[str] = "Gateway Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.gateway.cluster:GatewayCluster"
    reaper: ClassVar[str] = "scalescope.clusters.gateway.reaper:reap"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"address": "https://hub.example.org/services/dask-gateway", "options": {"worker_cores": 2}}
    )
    extra: ClassVar[str] = "gateway"
    packages: ClassVar[tuple[str, ...]] = ("dask_gateway",)

    address: Annotated[str, WORD("Address of the server. If empty, `gateway.address` of Dask's configuration.")] = ""
    proxy_address: Annotated[
        str, WORD("HOST:PORT of the proxy for schedulers. If empty, `gateway.proxy-address` of Dask's configuration.")
    ] = ""
    auth: Annotated[
        Literal["", "basic", "jupyterhub", "kerberos"],
        Parameter("How to log in. If empty, `gateway.auth` of Dask's configuration.", title="Login"),
    ] = ""
    username: Annotated[str, WORD("User for `basic`. If empty, the user of the driver.")] = ""
    secrets: Annotated[
        Mapping[str, str],
        Parameter(
            "A mapping from the secret (`password` for `basic`, `api_token` for `jupyterhub`) to the environment "
            "variable that holds it. A Prefect block stores the encrypted value instead."
        ),
    ] = field(default_factory=dict)
    options: Annotated[
        Mapping[str, Any], Parameter("Options of the cluster that the server offers, as a mapping or as JSON.")
    ] = field(default_factory=dict)
    idle_timeout_s: Annotated[
        float, Parameter("Seconds without a client after which the cluster ends by itself.", minimum=1)
    ] = 900.0
    start_timeout_s: Annotated[float, START_TIMEOUT] = 600.0

    @property
    def open_limit_s(self) -> float:
        return super().open_limit_s + SUBMIT_S

    def __post_init__(self) -> None:
        for name in ("options", "secrets"):
            secret_variables.read_mapping(self, name)
        super().__post_init__()
        for name in self.secrets:
            if name != _SECRETS.get(self.auth):
                allowed = "password with cluster.auth=basic, or api_token with cluster.auth=jupyterhub"
                raise InvalidField(f"cluster.secrets.{name}", secret_variables.NOT_SHOWN, allowed)
        secret_variables.check_variables(self.secrets)
        secret_variables.refuse_secrets("options", self.options, "let the server's administrator set it for all users")
        if self.username and self.auth != "basic":
            raise InvalidField("cluster.auth", self.auth, "basic, since cluster.username is given")
        if "@" in self.address:
            raise InvalidField("cluster.address", secret_variables.NOT_SHOWN, "an address without a login")

    def login(self) -> dict[str, str]:
        """Arguments of the class that logs in; raises `UsageError` if a variable is not set."""
        values = secret_variables.secret_values(self.secrets, "GatewayCluster")
        return {**({"username": self.username} if self.username else {}), **values}
