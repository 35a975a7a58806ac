"""Clusters on machines that are given: over SSH, a scheduler that runs already, any class that can be imported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from scalescope.errors import InvalidField
from scalescope.model import fields
from scalescope.model.cluster.base import ClusterSpec

_HOST = re.compile(r"[\w.:%\[\]-]+")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_SECRET = re.compile(r"password|passwd|secret|token|api_?key|credential", re.IGNORECASE)


@dataclass(frozen=True)
class SshSpec(ClusterSpec):
    """Worker processes with nannies on machines that are reached over SSH.

    Attributes:
        hosts: Machines for the workers, filled in turn; a list, or names separated by commas.
        scheduler_host: Machine of the scheduler; empty is the first of the hosts.
        username: Who logs in; empty is the present user, or what ~/.ssh/config says.
        port: Of the SSH servers; 0 is 22, or what ~/.ssh/config says.
        key_file: File of the private key; empty takes the agent and the usual files.
        known_hosts: File of the keys of the machines. Empty: ~/.ssh/known_hosts. A machine that is not
            in it is refused.
        python: Interpreter on the machines; empty is the path of the driver's.
        memory_limit_mb: Limit per worker in MiB; 0 means none.
        interface: Network interface of workers and scheduler.
        local_directory: Where workers spill to; empty is the machine's folder for temporary files.
        start_timeout_s: Seconds within which all workers must have arrived.
    """

    kind: ClassVar[str] = "ssh"
    max_workers: ClassVar[int] = 2_000
    hosts: tuple[str, ...] = ()
    scheduler_host: str = ""
    username: str = ""
    port: int = 0
    key_file: str = ""
    known_hosts: str = ""
    python: str = ""
    memory_limit_mb: int = 0
    interface: str = ""
    local_directory: str = ""
    start_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        hosts = self.hosts.split(",") if isinstance(self.hosts, str) else self.hosts
        if not isinstance(hosts, list | tuple) or not hosts:
            raise InvalidField("cluster.hosts", self.hosts, "at least one machine")
        for host in hosts:
            _matching("cluster.hosts", host, _HOST, "names or addresses of machines")
        object.__setattr__(self, "hosts", tuple(hosts))
        if self.scheduler_host:
            _matching("cluster.scheduler_host", self.scheduler_host, _HOST, "the name or address of a machine")
        for name in ("username", "key_file", "known_hosts", "python", "interface", "local_directory"):
            _word(f"cluster.{name}", getattr(self, name))
        fields.integer("cluster.port", self.port, minimum=0, maximum=65535)
        fields.integer("cluster.memory_limit_mb", self.memory_limit_mb, minimum=0)
        fields.number("cluster.start_timeout_s", self.start_timeout_s, minimum=1)


@dataclass(frozen=True)
class SchedulerSpec(ClusterSpec):
    """A scheduler that runs already, with the workers that it has. It is used, never changed and never closed.

    Attributes:
        address: Such as tls://10.0.0.7:8786.
        scheduler_file: The file that `dask scheduler --scheduler-file` wrote, in place of the address.
        tls_ca_file: Certificate of the authority that both sides trust.
        tls_cert: This side's certificate.
        tls_key: The file of its private key.
        start_timeout_s: Seconds within which the scheduler must answer and have the workers.
    """

    kind: ClassVar[str] = "scheduler"
    address: str = ""
    scheduler_file: str = ""
    tls_ca_file: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    start_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("address", "scheduler_file", "tls_ca_file", "tls_cert", "tls_key"):
            _word(f"cluster.{name}", getattr(self, name))
        if bool(self.address) == bool(self.scheduler_file):
            raise InvalidField(
                "cluster.address", self.address, "the scheduler's address, or else cluster.scheduler_file"
            )
        if self.address and not re.fullmatch(r"(\w+://)?[^/\s]+:\d+", self.address):
            raise InvalidField("cluster.address", self.address, "PROTOCOL://HOST:PORT")
        given = [name for name in ("tls_ca_file", "tls_cert", "tls_key") if getattr(self, name)]
        if given and len(given) < 3:
            raise InvalidField(f"cluster.{given[0]}", getattr(self, given[0]), "all three files of TLS, or none")
        fields.number("cluster.start_timeout_s", self.start_timeout_s, minimum=1)


@dataclass(frozen=True)
class CustomSpec(ClusterSpec):
    """Any cluster class that can be imported, such as those of coiled, dask-gateway, dask-yarn or dask-cloudprovider.

    Attributes:
        cluster_class: As `package.module:Class`.
        arguments: What it is called with; a mapping, or the same as JSON.
        secrets: Further arguments that nobody may read: argument -> the environment variable that holds its value.
        start_timeout_s: Seconds within which all workers must have arrived.
    """

    kind: ClassVar[str] = "custom"
    cluster_class: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    start_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        _matching("cluster.cluster_class", self.cluster_class, _CLASS, "package.module:Class")
        for name in ("arguments", "secrets"):
            object.__setattr__(self, name, _json_mapping(f"cluster.{name}", getattr(self, name)))
        for name in self.arguments:
            if _SECRET.search(name):
                raise InvalidField(
                    f"cluster.arguments.{name}",
                    "(not shown)",
                    "nothing that looks like a secret: arguments are kept with the results",
                    next_step=f"put it into an environment variable, and the name of that into cluster.secrets.{name}",
                )
        for name, variable in self.secrets.items():
            _matching(f"cluster.secrets.{name}", variable, _VARIABLE, "the name of an environment variable")
            if name in self.arguments:
                raise InvalidField(f"cluster.secrets.{name}", variable, "an argument that is not in cluster.arguments")
        fields.number("cluster.start_timeout_s", self.start_timeout_s, minimum=1)


def _matching(where: str, value: object, pattern: re.Pattern[str], allowed: str) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value) or value.startswith("-"):
        raise InvalidField(where, value, allowed)


def _word(where: str, value: object) -> None:
    """Text without blanks and quotes; it can be empty."""
    if not isinstance(value, str) or not re.fullmatch(r"[^\s'\"`;|&<>]*", value):
        raise InvalidField(where, value, "text without blanks and quotes")


def _json_mapping(where: str, value: object) -> dict[str, Any]:
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        return dict(json.loads(json.dumps(fields.mapping(where, parsed), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise InvalidField(where, value, f"a mapping that JSON can carry ({error})") from error
