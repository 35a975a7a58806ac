"""The specification of a cluster of any class."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from scalescope.errors import InvalidField
from scalescope.model import secret_variables
from scalescope.model.cluster import START_TIMEOUT, ClusterSpec, Text
from scalescope.model.parameters import Parameter

_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*").fullmatch


@dataclass(frozen=True)
class CustomSpec(ClusterSpec):
    """Any cluster class that can be imported, such as those of coiled or dask-cloudprovider."""

    kind: ClassVar[str] = "custom"
    title: ClassVar[str] = "Custom Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.custom.cluster:CustomCluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"cluster_class": "dask_cloudprovider.aws:FargateCluster", "arguments": {"image": "daskdev/dask"}}
    )

    cluster_class: Annotated[str, Text("As package.module:Class.", accepts=_CLASS, allowed="package.module:Class")]
    arguments: Annotated[Mapping[str, Any], Parameter("Arguments of the class, as a mapping or as JSON.")] = field(
        default_factory=dict
    )
    secrets: Annotated[
        Mapping[str, str],
        Parameter(
            "Secret arguments: a mapping from the argument's name (`options.key` for a nested one) to the environment "
            "variable that holds its value. A Prefect block stores the encrypted values instead."
        ),
    ] = field(default_factory=dict)
    start_timeout_s: Annotated[float, START_TIMEOUT] = 600.0

    def __post_init__(self) -> None:
        for name in ("arguments", "secrets"):
            secret_variables.read_mapping(self, name)
        super().__post_init__()
        secret_variables.check_variables(self.secrets)
        secret_variables.refuse_secrets(
            "arguments",
            self.arguments,
            "put the secret into an environment variable, and the variable's name into cluster.secrets.{}",
        )
        self.arguments_with(self.secrets)

    def arguments_with(self, values: Mapping[str, str]) -> dict[str, Any]:
        """All arguments, with these secrets added; raises `InvalidField` if an argument already has a secret's name."""
        arguments = copy.deepcopy(dict(self.arguments))
        for name, value in values.items():
            place, last = _place(arguments, name)
            place[last] = value
        return arguments


def _place(arguments: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The (nested) mapping in which an argument with this dotted name belongs, and the last part of the name."""
    *above, last = name.split(".")
    place: Any = arguments
    for each in above:
        place = place.setdefault(each, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict) or last in place:
        raise InvalidField(
            f"cluster.secrets.{name}", secret_variables.NOT_SHOWN, "an argument that is not in cluster.arguments"
        )
    return place, last
