"""The specification of a cluster of any class."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from scalescope.errors import InvalidField
from scalescope.model.cluster import START_TIMEOUT, ClusterSpec, Text, json_mapping
from scalescope.model.parameters import Parameter

_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*").fullmatch
_SECRET = re.compile(r"password|passwd|secret|token|api_?key|credential", re.IGNORECASE)


@dataclass(frozen=True)
class CustomSpec(ClusterSpec):
    """Any cluster class that can be imported, such as those of coiled, dask-gateway or dask-cloudprovider."""

    kind: ClassVar[str] = "custom"
    title: ClassVar[str] = "Custom Cluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"cluster_class": "dask_cloudprovider.aws:FargateCluster", "arguments": {"image": "daskdev/dask"}}
    )

    cluster_class: Annotated[str, Text("As package.module:Class.", accepts=_CLASS, allowed="package.module:Class")]
    arguments: Annotated[Mapping[str, Any], Parameter("What it is called with; a mapping, or the same as JSON.")] = (
        field(default_factory=dict)
    )
    secrets: Annotated[
        Mapping[str, str],
        Parameter(
            "Further arguments that nobody may read, by the environment variable that holds each; a block holds their "
            "values instead, encrypted."
        ),
    ] = field(default_factory=dict)
    start_timeout_s: Annotated[float, START_TIMEOUT] = 600.0

    def __post_init__(self) -> None:
        for name in ("arguments", "secrets"):
            object.__setattr__(self, name, json_mapping(f"cluster.{name}", getattr(self, name)))
        super().__post_init__()
        for name in self.arguments:
            if _SECRET.search(name):
                raise InvalidField(
                    f"cluster.arguments.{name}",
                    "(not shown)",
                    "nothing that looks like a secret: arguments are kept with the results",
                    next_step=f"put it into an environment variable, and the name of that into cluster.secrets.{name}",
                )
        for name, variable in self.secrets.items():
            if not isinstance(variable, str) or not re.fullmatch(r"[A-Za-z_]\w*", variable):
                raise InvalidField(f"cluster.secrets.{name}", variable, "the name of an environment variable")
            if name in self.arguments:
                raise InvalidField(f"cluster.secrets.{name}", variable, "an argument that is not in cluster.arguments")


SPECS = (CustomSpec,)
