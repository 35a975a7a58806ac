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
    "Machines for the workers, which get workers in turn; a list, or names separated by commas.",
    accepts=_HOST,
    allowed="names or addresses of machines, at least one machine",
    separator=",",
)


@dataclass(frozen=True)
class SshSpec(ClusterSpec):
    """Worker processes with nannies on machines that are reached over SSH, with keys."""

    kind: ClassVar[str] = "ssh"
    title: ClassVar[str] = "SSH Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.ssh.cluster:SshCluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({"hosts": ["node1", "node2"]})
    extra: ClassVar[str] = "ssh"
    packages: ClassVar[tuple[str, ...]] = ("asyncssh",)
    max_workers: ClassVar[int] = 2_000

    hosts: Annotated[tuple[str, ...], _HOSTS]
    scheduler_host: Annotated[
        str,
        Text(
            "Machine of the scheduler. If empty, the first of the hosts.",
            accepts=_HOST,
            allowed="the name or address of a machine",
        ),
    ] = ""
    username: Annotated[str, WORD("User who logs in. If empty, the current user, or the one in ~/.ssh/config.")] = ""
    port: Annotated[
        int,
        Parameter(
            "Port of the SSH servers. 0: the one in ~/.ssh/config, else 22.", title="SSH port", minimum=0, maximum=65535
        ),
    ] = 0
    key_file: Annotated[str, WORD("File of the private key. If empty, the agent and the usual files are tried.")] = ""
    known_hosts: Annotated[
        str, WORD("File of the machines' keys. If empty, ~/.ssh/known_hosts. Machines that are not in it are refused.")
    ] = ""
    python: Annotated[
        str, WORD("Interpreter on the machines. If empty, the driver's own path.", title="Python interpreter")
    ] = ""
    memory_limit_mb: Annotated[int, MEMORY_LIMIT] = 0
    interface: Annotated[str, WORD("Network interface of workers and scheduler.")] = ""
    local_directory: Annotated[
        str, WORD("Folder that workers spill to. If empty, the machine's folder for temporary files.")
    ] = ""
    start_timeout_s: Annotated[float, START_TIMEOUT] = 120.0
