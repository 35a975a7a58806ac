"""Dask's configuration on this machine, such as a site's files in /etc/dask: defaults of the fields of clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scalescope.errors import InvalidField
from scalescope.model.parameters import declared
from scalescope.redaction import masked


@dataclass(frozen=True)
class SiteConfig:
    """Defaults of one kind of cluster on this machine."""

    values: Mapping[str, Any] = field(default_factory=dict)  # values by name of the field
    origins: Mapping[str, str] = field(default_factory=dict)  # the file of each value, or `environment`
    left_out: Mapping[str, str] = field(default_factory=dict)  # keys without effect here, and the reason


def settings(*section: str) -> dict[str, tuple[Any, str]]:
    """Values and origins of a section by key, with dashes: from files, then from variables; the last one counts.

    `dask.config.get` would also return the defaults of imported packages.
    """
    import dask.config  # imported here, since most kinds of clusters do not need it

    sources = [(str(path), found) for path, found in dask.config.collect_yaml(dask.config.paths, return_paths=True)]
    told: dict[str, tuple[Any, str]] = {}
    for origin, found in (*sources, ("environment", dask.config.collect_env())):
        for name in section:
            found = (found.get(name) if isinstance(found, Mapping) else None) or {}
        for key, value in found.items() if isinstance(found, Mapping) else ():
            told[str(key).replace("_", "-")] = (value, origin)
    return {key: (value, origin) for key, (value, origin) in told.items() if value not in (None, "", [], {})}


def read(
    spec: type[Any],  # a specification of clusters
    found: Mapping[str, tuple[Any, str]],  # values and origins by key
    # fields that each key may set; it sets the first that `spec` has. If two keys set one field, the first key counts
    names: Mapping[str, tuple[str, ...]],
    reasons: Mapping[str, str],  # by key, the reason why it is left out; {} becomes the value
    *,
    unknown: str,  # reason why any other key is left out
    convert: Callable[[str, Any], Any],  # takes (key, value), returns the field's value
) -> SiteConfig:
    """The fields that a section of the configuration sets; a value that its field does not allow is left out."""
    known = {each.name for each in declared(spec)}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for key in sorted(found, key=[*names, *found].index):
        value, origin = found[key]
        name = next((each for each in names.get(key, ()) if each in known), "")
        if not name:
            left_out[key] = reasons.get(key, unknown).format(value)
        elif name in values:
            left_out[key] = "another key already sets the same field"
        else:
            accepted, refused = _accepted(spec, name, convert(key, value))
            left_out |= {f"{key} ({masked(text)})" if text else key: why for text, why in refused.items()}
            if accepted:
                values[name], origins[name] = accepted, origin
    return SiteConfig(values, origins, left_out)


def _accepted(spec: type[Any], name: str, value: Any) -> tuple[Any, dict[str, str]]:
    """The accepted part of a value (None: nothing), and the reason for each refused part, by its text."""
    several = isinstance(value, tuple)
    kept: list[Any] = []
    refused: dict[str, str] = {}
    for part in value if several else (value,):
        try:  # some kinds require `memory_mb`
            kept.append(getattr(spec(**{"memory_mb": 1, name: (part,) if several else part}), name))
        except InvalidField as error:
            refused[str(part) if several else ""] = f"{name}: expected {error.allowed}"
    return (tuple(each for part in kept for each in part) if several else next(iter(kept), None)), refused
