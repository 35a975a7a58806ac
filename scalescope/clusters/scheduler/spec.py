"""The specification of a running scheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from scalescope.errors import InvalidField
from scalescope.model.cluster import WORD, ClusterSpec
from scalescope.model.parameters import Parameter


@dataclass(frozen=True)
class SchedulerSpec(ClusterSpec):
    """A running scheduler with its present workers. It is never changed and never closed."""

    kind: ClassVar[str] = "scheduler"
    title: ClassVar[str] = "Running Scheduler"
    implementation: ClassVar[str] = "scalescope.clusters.scheduler.cluster:SchedulerCluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({"address": "tcp://10.0.0.7:8786"})

    address: Annotated[
        str, WORD("Address of the scheduler, such as tls://10.0.0.7:8786, or gateway://HOST:PORT/NAME of Dask Gateway.")
    ] = ""
    scheduler_file: Annotated[
        str, WORD("File that `dask scheduler --scheduler-file` wrote, instead of the address.")
    ] = ""
    tls_ca_file: Annotated[
        str, WORD("Certificate file of the authority that both sides trust.", title="TLS authority file")
    ] = ""
    tls_cert: Annotated[str, WORD("Certificate file of the client.", title="TLS certificate file")] = ""
    tls_key: Annotated[str, WORD("Private key file of the client.", title="TLS key file")] = ""
    start_timeout_s: Annotated[
        float, Parameter("Seconds within which the scheduler must answer and have the workers.", minimum=1)
    ] = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.address) == bool(self.scheduler_file):
            raise InvalidField(
                "cluster.address", self.address, "the scheduler's address, or else cluster.scheduler_file"
            )
        if self.address.startswith(("http://", "https://")):
            raise InvalidField(
                "cluster.address",
                self.address,
                "the scheduler's own address, such as tcp://HOST:8786, not its dashboard's",
            )
        if self.address and not re.fullmatch(r"(\w+://)?[^/\s]+:\d+|gateway://[^/\s]+:\d+/[^/\s]+", self.address):
            raise InvalidField("cluster.address", self.address, "PROTOCOL://HOST:PORT")
        given = [name for name in ("tls_ca_file", "tls_cert", "tls_key") if getattr(self, name)]
        if given and len(given) < 3:
            raise InvalidField(f"cluster.{given[0]}", getattr(self, given[0]), "all three TLS files, or none")
