"""The specification of a cluster of any class."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from scalescope.errors import InvalidField
from scalescope.model.cluster import START_TIMEOUT, ClusterSpec, Text, json_mapping
from scalescope.model.parameters import Parameter
from scalescope.redaction import LOOKS, NAMES, hide, know

_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*").fullmatch
NOT_SHOWN = "(not shown)"


@dataclass(frozen=True)
class CustomSpec(ClusterSpec):
    """Any cluster class that can be imported, such as those of coiled, dask-gateway or dask-cloudprovider."""

    kind: ClassVar[str] = "custom"
    title: ClassVar[str] = "Custom Cluster"
    implementation: ClassVar[str] = "scalescope.clusters.custom.cluster:CustomCluster"
    example: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"cluster_class": "dask_cloudprovider.aws:FargateCluster", "arguments": {"image": "daskdev/dask"}}
    )

    cluster_class: Annotated[str, Text("As package.module:Class.", accepts=_CLASS, allowed="package.module:Class")]
    arguments: Annotated[Mapping[str, Any], Parameter("Arguments of the class: a mapping, or the same as JSON.")] = (
        field(default_factory=dict)
    )
    secrets: Annotated[
        Mapping[str, str],
        Parameter(
            "Secret arguments: name of the argument (`options.key` for a nested one) and the environment variable that "
            "holds its value. A block stores the values instead, encrypted."
        ),
    ] = field(default_factory=dict)
    start_timeout_s: Annotated[float, START_TIMEOUT] = 600.0

    def __post_init__(self) -> None:
        for name in ("arguments", "secrets"):
            try:
                object.__setattr__(self, name, json_mapping(f"cluster.{name}", getattr(self, name)))
            except InvalidField as error:
                raise InvalidField(f"cluster.{name}", NOT_SHOWN, error.allowed) from None
        super().__post_init__()
        for name, variable in self.secrets.items():
            if not isinstance(variable, str) or not re.fullmatch(r"[A-Za-z_]\w*", variable):
                raise InvalidField(f"cluster.secrets.{name}", NOT_SHOWN, "the name of an environment variable")
        know(*self.secrets.values())
        for path in _secret(self.arguments):
            name = ".".join(path)
            raise InvalidField(
                f"cluster.arguments.{name}",
                NOT_SHOWN,
                "nothing that looks like a secret: arguments are kept with the results",
                next_step=f"put it into an environment variable, and the name of that into cluster.secrets.{name}",
            )
        self.arguments_with(self.secrets)

    def arguments_with(self, values: Mapping[str, str]) -> dict[str, Any]:
        """All arguments, with these secrets; `InvalidField` if an argument stands where a secret belongs."""
        arguments = copy.deepcopy(dict(self.arguments))
        for name, value in values.items():
            place, last = _place(arguments, name)
            place[last] = value
        return arguments


def _secret(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of values that look like a secret, by name or by content."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if NAMES.search(name) and item is not None and not isinstance(item, bool):
                yield (*path, name)
            yield from _secret(item, (*path, name))
        if NAMES.search(str(value.get("name", ""))) and "value" in value:  # the environment of a pod
            yield (*path, "value")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _secret(item, (*path, str(number)))
    elif isinstance(value, str) and (LOOKS.search(value) or hide(value) != value):
        yield path


def _place(arguments: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The mapping for an argument of this dotted name, made if it is missing, and the last part of the name."""
    *above, last = name.split(".")
    place: Any = arguments
    for each in above:
        place = place.setdefault(each, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict) or last in place:
        raise InvalidField(f"cluster.secrets.{name}", NOT_SHOWN, "an argument that is not in cluster.arguments")
    return place, last
