"""The specification of a cluster over SSH."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from scalescope.model.cluster import MEMORY_LIMIT, START_TIMEOUT, WORD, ClusterSpec, Text
from scalescope.model.parameters import Parameter

_HOST = re.compile(r"(?!-)[\w.:%\[\]-]+").fullmatch
_HOSTS = Text(
    "Machines for the workers, filled in turn; a list, or names separated by commas.",
    accepts=_HOST,
    allowed="names or addresses of machines, at least one machine",
    separator=",",
)


@dataclass(frozen=True)
class SshSpec(ClusterSpec):
    """Worker processes with nannies on machines that are reached over SSH, with keys."""

    kind: ClassVar[str] = "ssh"
    title: ClassVar[str] = "SSH Cluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({"hosts": ["node1", "node2"]})
    extra: ClassVar[str] = "ssh"
    packages: ClassVar[tuple[str, ...]] = ("asyncssh",)
    max_workers: ClassVar[int] = 2_000

    hosts: Annotated[tuple[str, ...], _HOSTS]
    scheduler_host: Annotated[
        str,
        Text(
            "Machine of the scheduler; empty is the first of the hosts.",
            accepts=_HOST,
            allowed="the name or address of a machine",
        ),
    ] = ""
    username: Annotated[str, WORD("Who logs in; empty is the present user, or what ~/.ssh/config says.")] = ""
    port: Annotated[
        int,
        Parameter(
            "Of the SSH servers; 0 is 22, or what ~/.ssh/config says.", title="SSH port", minimum=0, maximum=65535
        ),
    ] = 0
    key_file: Annotated[str, WORD("File of the private key; empty is the agent and the usual files.")] = ""
    known_hosts: Annotated[
        str,
        WORD("File of the machines' keys; empty is ~/.ssh/known_hosts. A machine that is not in it is refused."),
    ] = ""
    python: Annotated[
        str, WORD("Interpreter on the machines; empty is the path of the driver's.", title="Python interpreter")
    ] = ""
    memory_limit_mb: Annotated[int, MEMORY_LIMIT] = 0
    interface: Annotated[str, WORD("Network interface of workers and scheduler.")] = ""
    local_directory: Annotated[
        str, WORD("Where workers spill to; empty is the machine's folder for temporary files.")
    ] = ""
    start_timeout_s: Annotated[float, START_TIMEOUT] = 120.0


SPECS = (SshSpec,)
